package simulation

import (
	"sync"

	"github.com/busbar-mq/busbar/fsm"
)

// Point is a moment in the life of a log entry on one node.
type Point uint8

// The points.
const (
	BeforeStored Point = iota // the node is about to write the entry
	AfterApplied              // the node has applied it, and told nobody
)

// trap crashes a node when it comes to an entry.
type trap struct {
	w     *world
	node  *node
	p     fsm.PartitionID
	at    Point
	index uint64
	once  sync.Once
	down  chan struct{}
}

// CrashAt takes the power from the leader of a partition at that point of the entry with that index. If it is past
// that entry, the next one counts. From that very moment the node is heard no more; the channel is closed when its
// process has ended.
func (l *Lab) CrashAt(p fsm.PartitionID, at Point, index uint64) (down <-chan struct{}) {
	t := &trap{w: l.w, p: p, at: at, index: index, down: make(chan struct{})}
	if m := l.w.leaderOf(p); m != nil {
		t.node = m.node
	}
	l.w.trap.Store(t)
	return t.down
}

// Disarm takes the trap of CrashAt away. If it has sprung, the process has ended when Disarm returns.
func (l *Lab) Disarm() {
	t := l.w.trap.Swap(nil)
	if t == nil {
		return
	}
	sprung := true
	t.once.Do(func() { sprung = false })
	if sprung {
		<-t.down
	}
}

// reached tells the trap, if there is one, how far a node has come.
func (w *world) reached(n *node, p fsm.PartitionID, at Point, index uint64) {
	t := w.trap.Load()
	if t == nil || t.node != n || t.p != p || t.at != at || index < t.index {
		return
	}
	t.once.Do(func() {
		n.port.Kill()
		w.clients.Host(n.ip).Kill()
		w.do(func() { n.crash(true, w.rng()); close(t.down) })
	})
}
