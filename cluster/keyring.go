package cluster

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/hashicorp/memberlist"
)

// gossipKeyBytes is the length of a key of AES-256. maxGossipKeys bounds a ring: a rotation needs two, and every packet
// that fits none is tried with each.
const (
	gossipKeyBytes = 32
	maxGossipKeys  = 8
)

// checkGossipKeys returns what is wrong with a ring of keys; it may be empty.
func checkGossipKeys(keys [][]byte) error {
	if len(keys) > maxGossipKeys {
		return fmt.Errorf("%d gossip keys, want at most %d", len(keys), maxGossipKeys)
	}
	for _, key := range keys {
		if len(key) != gossipKeyBytes {
			return fmt.Errorf("gossip key has %d bytes, want %d or no key", len(key), gossipKeyBytes)
		}
	}
	return nil
}

// SetKeys replaces the keys of gossip while it runs: the first one encrypts, all are accepted. Encryption is not turned on
// or off. In the midst of the change a packet may fit no key, and is sent again.
func (g *Gossip) SetKeys(keys [][]byte) error {
	if err := checkGossipKeys(keys); err != nil {
		return err
	}
	if (len(keys) == 0) != (g.ring == nil) {
		return errors.New("gossip is not encrypted, or no longer, only after a restart")
	}
	g.turn.Lock()
	defer g.turn.Unlock()
	if g.ring == nil {
		return nil
	}
	return turnRing(g.ring, keys)
}

// turnRing makes the keys of a ring those given. Ring.RemoveKey shifts the keys behind the one it takes away, in memory
// that other goroutines read. So only the last key is ever removed, which shifts none.
func turnRing(ring *memberlist.Keyring, keys [][]byte) error {
	first := ring.GetPrimaryKey()
	var errs []error
	for installed := ring.GetKeys(); len(installed) > 1; installed = ring.GetKeys() {
		if err := ring.RemoveKey(installed[len(installed)-1]); err != nil {
			return err
		}
	}
	if !bytes.Equal(first, keys[0]) {
		errs = append(errs, ring.AddKey(keys[0]), ring.UseKey(keys[0]), ring.RemoveKey(first))
	}
	for _, key := range keys[1:] {
		errs = append(errs, ring.AddKey(key))
	}
	return errors.Join(errs...)
}
