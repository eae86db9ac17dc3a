package cluster

import (
	"bytes"
	"slices"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/busbar-mq/busbar/fsm"
)

// Keys rotate while two nodes gossip. With each step on one node after the other they hear one another. A node that has
// only the key that was taken away is not heard.
func TestGossipKeysRotate(t *testing.T) {
	old, fresh := []byte(testKey), []byte("fedcba9876543210fedcba9876543210")
	a, viewA := startGossip(t, "a", testKey)
	b, viewB := startGossip(t, "b", testKey, a.Addr())
	both := []fsm.NodeID{"a", "b"}
	waitFor(t, func() bool { return slices.Equal(alive(a), both) && slices.Equal(alive(b), both) })
	term := uint64(0)
	hear := func(step string) {
		t.Helper()
		term++
		one, other := fsm.PartitionID(2*term), fsm.PartitionID(2*term+1)
		viewA.Announce(one, "a", term)
		waitFor(t, func() bool { l, _ := viewB.Leader(one); return l == "a" })
		viewB.Announce(other, "b", term)
		waitFor(t, func() bool { l, _ := viewA.Leader(other); return l == "b" })
		t.Log(step)
	}
	for _, step := range []struct {
		name string
		keys [][]byte
	}{{"both keys", [][]byte{old, fresh}}, {"the new one first", [][]byte{fresh, old}}, {"the new one alone", [][]byte{fresh}}} {
		for _, g := range []*Gossip{a, b} {
			if err := g.SetKeys(step.keys); err != nil {
				t.Fatal(err)
			}
			hear(step.name)
		}
	}
	stranger, _ := startGossip(t, "c", testKey, a.Addr())
	if got := alive(stranger); !slices.Equal(got, []fsm.NodeID{"c"}) {
		t.Errorf("a node with the old key hears %v", got)
	}
	if a.SetKeys(nil) == nil || a.SetKeys([][]byte{fresh[:16]}) == nil {
		t.Error("no key, or a short one, is accepted")
	}
	plain, _ := startGossip(t, "d", "")
	if plain.SetKeys([][]byte{fresh}) == nil || plain.SetKeys(nil) != nil {
		t.Error("encryption is turned on while gossip runs, or a node without keys does not stay as it is")
	}
}

// A ring becomes the keys that are asked for, from every other ring, while others read it.
func TestARingTurns(t *testing.T) {
	key := func(n byte) []byte { return bytes.Repeat([]byte{n}, gossipKeyBytes) }
	rings := [][][]byte{{key(1)}, {key(1), key(2)}, {key(2), key(1)}, {key(3), key(2), key(1)}, {key(4)}, {key(4), key(4), key(1)}}
	for _, from := range rings {
		for _, to := range rings {
			ring, err := memberlist.NewKeyring(from, from[0])
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 100 {
					for _, k := range ring.GetKeys() {
						_ = k[0]
					}
				}
			}()
			if err := turnRing(ring, to); err != nil {
				t.Fatal(err)
			}
			<-done
			want := slices.CompactFunc(slices.Clone(to), bytes.Equal)
			if got := ring.GetKeys(); !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("from %x to %x: %x", from, to, got)
			}
		}
	}
}
