package simulation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/storage"
)

// gossipEvery is how often a node exchanges what it knows of leaders with another one.
const gossipEvery = time.Second

// gossip exchanges what is known of leaders with one other node at a time, while the two hear each other. It takes the
// place of package cluster's, over which a node that joins finds the leader of the catalog.
func (n *node) gossip() {
	rng := n.w.rng()
	t := time.NewTicker(gossipEvery)
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		all := n.w.there()
		o := all[rng.IntN(len(all))].node
		if o == nil || o == n || !n.w.net.Passes(n.id, o.id) || !n.w.net.Passes(o.id, n.id) {
			continue
		}
		for _, l := range n.view.Leaders() { // order-free: each is about another partition
			o.view.Announce(l.Partition, l.Leader, l.Term)
		}
		for _, l := range o.view.Leaders() { // order-free: each is about another partition
			n.view.Announce(l.Partition, l.Leader, l.Term)
		}
	}
}

// lives are the partitions' view of what the data directory remembers of nodes, as in command busbar, whose
// package is no library.
type lives struct{ dir *storage.Dir }

// Life implements partition.Lives.
func (l lives) Life() uint64 { return l.dir.Life() }

// Witness implements partition.Lives.
func (l lives) Witness(node fsm.NodeID, life uint64, i fsm.Incarnation) (uint64, fsm.Incarnation, error) {
	was, err := l.dir.Witness(string(node), storage.Sighting{Life: life, Incarnation: uint64(i)})
	return was.Life, fsm.Incarnation(was.Incarnation), err
}

// Distrust implements partition.Lives.
func (l lives) Distrust(reason string, life uint64) error {
	return errors.Join(l.dir.Distrust(reason), l.dir.Outlive(life))
}

// rebuilt returns at which index of its group the replica in a directory was rebuilt, 0 if it never was. The log and the votes of the simulated disk are of the same replica, so they go with the directory.
func (n *node) rebuilt(p fsm.PartitionID) (uint64, error) {
	name := filepath.Join(n.machine.dir, "groups", fmt.Sprintf("%05d", p), "opened.json")
	f, err := n.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	text := make([]byte, size)
	_, err = f.ReadAt(text, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	var opened struct {
		Removed uint64 `json:"removed"`
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&opened); err != nil { // a checksum stands behind it
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return opened.Removed, nil
}
