package partition

import (
	"sync"
	"sync/atomic"

	"github.com/busbar-mq/busbar/fsm"
)

// lostPeers are the nodes that were reported lost and not heard of since.
type lostPeers struct {
	count atomic.Int32 // most of the time 0, which every raft call may ask for
	mu    sync.Mutex
	nodes map[fsm.NodeID]struct{}
}

func (l *lostPeers) add(n fsm.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil {
		l.nodes = map[fsm.NodeID]struct{}{}
	}
	l.nodes[n] = struct{}{}
	l.count.Store(int32(len(l.nodes)))
}

func (l *lostPeers) heard(n fsm.NodeID) {
	if l.count.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, n)
	l.count.Store(int32(len(l.nodes)))
}

func (l *lostPeers) has(n fsm.NodeID) bool {
	if l.count.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.nodes[n]
	return ok
}
