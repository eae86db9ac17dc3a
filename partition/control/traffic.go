package control

import (
	"maps"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// trafficWindow is how long the requests of a leadership are counted for one rate. A plan looks at the last two windows.
const trafficWindow = 30 * time.Second

// traffic knows how many requests come to each partition through each node. It belongs to the repairer of the catalog's
// leader.
type traffic map[fsm.PartitionID]*trafficOf

// trafficOf is the traffic of one leadership of a partition.
type trafficOf struct {
	leader fsm.NodeID
	term   uint64
	began  time.Time                  // of the window
	counts map[fsm.Incarnation]uint64 // at its beginning
	rates  [2]map[fsm.NodeID]uint64   // requests per second of the last window and of the one before; nil for none
}

// note takes what the leaders of the partitions say.
func (t traffic) note(v *catalog.View, states map[fsm.NodeID]nodeState, now time.Time) {
	lives := map[fsm.Incarnation]fsm.NodeID{}
	for _, n := range v.Nodes() {
		lives[n.Incarnation] = n.ID
	}
	for _, g := range v.Groups() {
		if leader := leaderOf(g.ID, states); leader != nil {
			t.noteOne(leader, lives, now)
		}
	}
}

func (t traffic) noteOne(leader *replica.Status, lives map[fsm.Incarnation]fsm.NodeID, now time.Time) {
	of := t[leader.Partition]
	begins := of == nil || of.leader != leader.Node || of.term != leader.Term
	if !begins && now.Sub(of.began) < trafficWindow {
		return
	}
	counts := map[fsm.Incarnation]uint64{}
	for _, a := range leader.Asked {
		counts[a.Node] = a.Requests
	}
	if begins {
		t[leader.Partition] = &trafficOf{leader: leader.Node, term: leader.Term, began: now, counts: counts}
		return
	}
	took := now.Sub(of.began)
	rates := map[fsm.NodeID]uint64{}
	for life, n := range counts { // order-free: sums
		if id, known := lives[life]; known && n >= of.counts[life] {
			rates[id] += uint64(float64(n-of.counts[life]) / took.Seconds())
		}
	}
	of.rates[1], of.rates[0] = of.rates[0], rates
	of.began, of.counts = now, counts
}

// of returns the requests per second of a partition by node, those of the window in which there were fewer. It returns nil
// until the leadership has lasted for two windows: what comes and goes moves no leader.
func (t traffic) of(p fsm.PartitionID) map[fsm.NodeID]uint64 {
	of := t[p]
	if of == nil || of.rates[1] == nil {
		return nil
	}
	low := maps.Clone(of.rates[0])
	for n, rate := range low { // order-free: each for itself
		low[n] = min(rate, of.rates[1][n])
	}
	return low
}
