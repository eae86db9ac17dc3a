package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/busbar-mq/busbar/fsm"
)

// View remembers who leads each partition, as somebody said. The newest term wins; within a term the
// first leader named stays, because raft elects at most one. It is a hint: who asks the wrong node is
// told so by that node. It is safe for concurrent use.
type View struct {
	mu      sync.RWMutex
	leaders map[fsm.PartitionID]leadership // at most one per partition id: 65,536
	changed atomic.Pointer[chan struct{}]  // closed at the next change; written under mu
	spread  func(fsm.PartitionID, fsm.NodeID, uint64)
}

type leadership struct {
	node fsm.NodeID // empty: the term has no leader that we know of
	term uint64
}

// NewView returns an empty view.
func NewView() *View {
	v := &View{leaders: map[fsm.PartitionID]leadership{}}
	changed := make(chan struct{})
	v.changed.Store(&changed)
	return v
}

// Leader returns who is believed to lead a partition.
func (v *View) Leader(p fsm.PartitionID) (node fsm.NodeID, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	l := v.leaders[p]
	return l.node, l.node != ""
}

// Announce notes what a replica of this node has seen and, if it is news, tells the other nodes. An
// empty leader says that a newer term has begun without one.
func (v *View) Announce(p fsm.PartitionID, leader fsm.NodeID, term uint64) {
	if !v.learn(p, leader, term) {
		return
	}
	v.mu.RLock()
	spread := v.spread
	v.mu.RUnlock()
	if spread != nil {
		spread(p, leader, term)
	}
}

// Changed returns a channel that is closed at the next change of any partition. Take it before
// asking Leader, then nothing is missed.
func (v *View) Changed() <-chan struct{} {
	return *v.changed.Load()
}

// LeaderInfo is one row of the view.
type LeaderInfo struct {
	Partition fsm.PartitionID
	Leader    fsm.NodeID // empty if the term has none that is known
	Term      uint64
}

// Leaders returns every row, in no order.
func (v *View) Leaders() []LeaderInfo {
	v.mu.RLock()
	defer v.mu.RUnlock()
	rows := make([]LeaderInfo, 0, len(v.leaders))
	for p, l := range v.leaders {
		rows = append(rows, LeaderInfo{p, l.node, l.term})
	}
	return rows
}

// learn notes an announcement and reports whether it was news.
func (v *View) learn(p fsm.PartitionID, leader fsm.NodeID, term uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, known := v.leaders[p]
	switch {
	case known && term < old.term,
		known && term == old.term && (leader == "" || old.node != ""):
		return false
	}
	v.leaders[p] = leadership{leader, term}
	changed := make(chan struct{})
	close(*v.changed.Swap(&changed))
	return true
}

// spreadWith sets how news reach the other nodes.
func (v *View) spreadWith(f func(fsm.PartitionID, fsm.NodeID, uint64)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spread = f
}
