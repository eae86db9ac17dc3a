package simulation

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/cluster/callnet"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
)

const (
	// silence is how long nothing may arrive from a peer until its link is given up. pingEvery is how often that is
	// looked at, as the mesh does (A17).
	silence   = 1500 * time.Millisecond
	pingEvery = 250 * time.Millisecond
	// redialPause is how long a link stays down at least.
	redialPause = 100 * time.Millisecond
)

// peers is the network between the nodes. It notes what a run must have met.
type peers struct {
	*callnet.Net
	c     *counters
	judge func(from, to fsm.NodeID, kind uint8) // is told each call

	mu     sync.Mutex
	traced bool
	hops   []Hop
}

// Hop is a request for a partition that one node passed on to another.
type Hop struct{ From, To fsm.NodeID }

func newPeers(rng *rand.Rand, c *counters, judge func(from, to fsm.NodeID, kind uint8)) *peers {
	n := &peers{c: c, judge: judge}
	n.Net = callnet.New(callnet.Config{
		Silence: silence, Check: pingEvery, Redial: redialPause, Rand: rng,
		// Only raft repeats calls of its own. A front end alone repeats its own proposals.
		Repeats: func(kind uint8) bool { return kind == partition.KindRaft || kind == partition.KindBeat },
		Observe: n.observe, Note: func(what string) { c.add(what, 1) },
	})
	return n
}

// observe notes a call that begins.
func (n *peers) observe(from, to fsm.NodeID, kind uint8) {
	n.judge(from, to, kind)
	if kind == partition.KindSnapshot {
		n.c.add("snapshot streams", 1)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.traced && from != to && (kind == partition.KindPropose || kind == partition.KindQuery) {
		n.hops = append(n.hops, Hop{from, to})
	}
}

// trace returns the requests for partitions that nodes pass on to each other while f runs.
func (n *peers) trace(f func()) []Hop {
	n.mu.Lock()
	n.traced, n.hops = true, nil
	n.mu.Unlock()
	f()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.traced = false
	return n.hops
}
