package control

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// growStep is how many partitions are added at once. Each of them opens replicas on some nodes and elects a leader.
const growStep = 8

// grow returns the partitions that are to be added now, nil for none.
func (m *repairer) grow(v *catalog.View, l Layout, states map[fsm.NodeID]nodeState) *catalog.Placement {
	if len(l.Groups) == 0 || slices.ContainsFunc(l.Groups, func(g LayoutGroup) bool { return !g.Settled }) {
		return nil
	}
	return Grow(l, m.wantedPartitions(v, states))
}

// wantedPartitions returns the number of data partitions that all nodes agree on, 0 if there is none. It is the lowest of
// those that operators set. A node that does not answer might want fewer: it is waited for until others take its places.
func (m *repairer) wantedPartitions(v *catalog.View, states map[fsm.NodeID]nodeState) (want int) {
	away := m.gone(v, states)
	for _, n := range v.Nodes() {
		if states[n.ID] == nil {
			if away[n.ID] < m.s.timing.ReplaceAfter {
				return 0
			}
			continue
		}
		if set := states[n.ID][fsm.CatalogPartition].Partitions; set > 0 && (want == 0 || set < want) {
			want = set
		}
	}
	return want
}

// Grow returns the next partitions of a cluster at rest that is to have so many. It returns nil if the cluster has them,
// or if too few nodes can take the replicas of a new one. It is pure. Partitions are never taken away, because the
// numbers of messages name them.
func Grow(l Layout, want int) *catalog.Placement {
	last := fsm.PartitionID(0)
	for _, g := range l.Groups {
		last = max(last, g.ID)
	}
	p := newPlanner(l)
	var groups []catalog.Group
	for len(groups) < min(want-len(l.Groups), growStep) {
		last++
		g := catalog.Group{ID: last}
		for range l.Replicas {
			n := p.free(g.Members, g.Members)
			if n == "" {
				return nil
			}
			g.Members = append(g.Members, n)
		}
		best := 0
		for i, n := range g.Members {
			if p.betterLeader(n, g.Members[best]) {
				best = i
			}
		}
		g.Members[0], g.Members[best] = g.Members[best], g.Members[0]
		for _, n := range g.Members {
			p.load[n]++
		}
		p.leads[g.Members[0]]++
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		return nil
	}
	return &catalog.Placement{Groups: groups}
}
