package control

import (
	"maps"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

const (
	// slowWrite is the mean time of a write below which no disk is slow. A disk of the worst kind takes a third of it.
	slowWrite = 100 * time.Millisecond
	// slowTimes is by how much a slow disk is slower than that of the median node. Nodes on one machine that has much to
	// do are all slow, and then none is.
	slowTimes = 4
)

// slowDisks returns the nodes whose disks write much slower than those of most. They get replicas only if no other node
// is free. Nodes that have written too little are not judged.
func slowDisks(v *catalog.View, states map[fsm.NodeID]nodeState) map[fsm.NodeID]bool {
	told := map[fsm.NodeID]time.Duration{}
	for _, n := range v.Nodes() {
		if mean := states[n.ID][fsm.CatalogPartition].WriteMean; mean > 0 {
			told[n.ID] = mean
		}
	}
	if len(told) == 0 {
		return nil
	}
	all := slices.Sorted(maps.Values(told))
	median := all[(len(all)-1)/2]
	slow := map[fsm.NodeID]bool{}
	for n, mean := range told { // order-free: fills a map
		if mean >= slowWrite && mean >= slowTimes*median {
			slow[n] = true
		}
	}
	return slow
}

// tellSlow writes down whose disk became slow, or is not slow any more.
func (m *repairer) tellSlow(l Layout) {
	for _, n := range l.Nodes {
		switch {
		case n.Slow == m.slow[n.ID]:
		case n.Slow:
			m.slow[n.ID] = true
			m.s.log.Warn("the disk of a node writes much slower than those of most, so it gets nothing more", "node", n.ID)
		default:
			delete(m.slow, n.ID)
			m.s.log.Info("the disk of a node is not slow any more", "node", n.ID)
		}
	}
}
