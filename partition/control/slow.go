package control

import (
	"maps"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
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
	from := replica.SlowFrom(slices.Collect(maps.Values(told)))
	slow := map[fsm.NodeID]bool{}
	for n, mean := range told { // order-free: fills a map
		if mean >= from {
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
			m.s.log.Warn("the disk of a node writes much slower than those of most, so it gets nothing more", "peer", n.ID)
		default:
			delete(m.slow, n.ID)
			m.s.log.Info("the disk of a node is not slow any more", "peer", n.ID)
		}
	}
}
