package control

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// lead gives a partition another preferred leader. A node that is to be empty is none, if another member can be. Then
// leaders are made level: no two nodes that can take leaders differ by two.
func (p *planner) lead() *catalog.Exchange {
	for k := range p.Groups {
		g := &p.Groups[k]
		if len(g.Members) == 0 || !p.leaves(g.Members[0]) {
			continue
		}
		best := -1
		for i, n := range g.Members {
			if p.takes(n) && (best < 0 || p.betterLeader(n, g.Members[best])) {
				best = i
			}
		}
		if best > 0 {
			return first(g, best)
		}
	}
	return p.levelLeaders()
}

// betterLeader reports whether a node should lead before another one: its disk is not slow, or it leads less.
func (p *planner) betterLeader(a, b fsm.NodeID) bool {
	if x, y := p.able(a), p.able(b); x != y {
		return x
	}
	return p.leads[a] < p.leads[b]
}

// first returns the exchange that makes a member the preferred leader.
func first(g *LayoutGroup, i int) *catalog.Exchange {
	members := slices.Clone(g.Members)
	members[0], members[i] = members[i], members[0]
	return exchange(g, members)
}

// levelLeaders takes the last step of the shortest way from a node with many leaders to one that has at least two
// fewer. A way goes from a preferred leader to another member of its partition. The node before the last has one
// leader more than the last at most, else the way from it would be shorter. So the step makes the leaders more level,
// or makes the way shorter: the steps end.
func (p *planner) levelLeaders() *catalog.Exchange {
	var best *catalog.Exchange
	shortest := len(p.Nodes) + 1
	for s := range p.Nodes {
		start := p.Nodes[s].ID
		seen := map[fsm.NodeID]int{start: 0}
		for queue := []fsm.NodeID{start}; len(queue) > 0; queue = queue[1:] {
			at := queue[0]
			for k := range p.Groups {
				g := &p.Groups[k]
				if len(g.Members) == 0 || g.Members[0] != at {
					continue
				}
				for i, n := range g.Members[1:] {
					if _, was := seen[n]; was || !p.able(n) {
						continue
					}
					seen[n] = seen[at] + 1
					queue = append(queue, n)
					if p.leads[start]-p.leads[n] >= 2 && seen[n] < shortest {
						shortest, best = seen[n], first(g, i+1)
					}
				}
			}
		}
	}
	return best
}
