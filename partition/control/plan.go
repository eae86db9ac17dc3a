package control

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// Layout is everything that a plan is made from.
type Layout struct {
	Replicas int          // wanted of each partition
	Nodes    []LayoutNode // in the order of their ids
	Groups   []LayoutGroup
	// FollowFrom is how many requests per second must come through the node that a leader follows its traffic to.
	FollowFrom uint64
	// Gated says that some node does not know epochs and wishes: then only lost members are replaced.
	Gated bool
}

// LayoutNode is a node as a plan sees it.
type LayoutNode struct {
	ID   fsm.NodeID
	Zone string // "" if it named none
	// Takes says that the node may be given replicas and leaders: it answers, has room, and does not leave.
	Takes bool
	// Slow says that the disk of the node writes much slower than those of most.
	Slow bool
	// Leaves says that an operator wants the node empty.
	Leaves bool
	// Lost says that the node was away for so long that others take its places.
	Lost bool
	// Gone says that a lost node never comes back: a place that nobody can take is given up.
	Gone bool
	// Successor is the node that answers under the name of a lost one, "" if none does.
	Successor fsm.NodeID
}

// LayoutGroup is a partition as a plan sees it.
type LayoutGroup struct {
	ID      fsm.PartitionID
	Members []fsm.NodeID // as the catalog wants them
	Epoch   uint64
	// Settled says that the committed voters are the members, and that all of them work and have caught up.
	Settled bool
	// Traffic is how many requests per second come through each node, nil while that is not known.
	Traffic map[fsm.NodeID]uint64
}

// Plan returns the exchanges to be proposed now, none if nothing is to be done. It is pure. Each exchange is one step;
// the next plan is made from what has become of it (docs/decisions/0065-placement.md). Two leaders that follow their
// traffic in opposite directions are two steps of one plan.
func Plan(l Layout) []catalog.Exchange {
	p := newPlanner(l)
	if lost := p.replaceLost(); len(lost) > 0 || l.Gated {
		return lost
	}
	if slices.ContainsFunc(l.Groups, func(g LayoutGroup) bool { return !g.Settled }) {
		return nil
	}
	for _, rule := range []func() *catalog.Exchange{p.addMissing, p.empty, p.spreadZones, p.level, p.lead} {
		if x := rule(); x != nil {
			return []catalog.Exchange{*x}
		}
	}
	return p.follow()
}

// planner is a layout with its counts.
type planner struct {
	Layout
	nodes map[fsm.NodeID]*LayoutNode
	load  map[fsm.NodeID]int // replicas
	leads map[fsm.NodeID]int // preferred leaders
}

func newPlanner(l Layout) *planner {
	p := &planner{Layout: l, nodes: map[fsm.NodeID]*LayoutNode{}, load: map[fsm.NodeID]int{},
		leads: map[fsm.NodeID]int{}}
	for i := range l.Nodes {
		p.nodes[l.Nodes[i].ID] = &l.Nodes[i]
	}
	for _, g := range l.Groups {
		for _, n := range g.Members {
			p.load[n]++
		}
		if len(g.Members) > 0 {
			p.leads[g.Members[0]]++
		}
	}
	return p
}

// takes reports whether a node may be given more.
func (p *planner) takes(n fsm.NodeID) bool { return p.nodes[n] != nil && p.nodes[n].Takes }

// able reports whether a node may be given more to make the cluster more even: it takes, and its disk is not slow.
func (p *planner) able(n fsm.NodeID) bool { return p.takes(n) && !p.nodes[n].Slow }

// leaves reports whether a node is to be empty. A node that the catalog does not know is nowhere wanted.
func (p *planner) leaves(n fsm.NodeID) bool { return p.nodes[n] == nil || p.nodes[n].Leaves }

func (p *planner) lost(n fsm.NodeID) bool { return p.nodes[n] != nil && p.nodes[n].Lost }

// crowding counts the pairs of members that stand in one zone.
func (p *planner) crowding(members []fsm.NodeID) (pairs int) {
	for i, a := range members {
		for _, b := range members[:i] {
			if x, y := p.nodes[a], p.nodes[b]; x != nil && y != nil && x.Zone != "" && x.Zone == y.Zone {
				pairs++
			}
		}
	}
	return pairs
}

// free returns the best node for a place beside some members, "" if no node is free. The best has a disk that is not slow.
// Of these it shares a zone with the fewest members, then holds the fewest replicas, then has the lowest id.
func (p *planner) free(beside []fsm.NodeID, members []fsm.NodeID) fsm.NodeID {
	var best fsm.NodeID
	var bestCosts [3]int
	for i := range p.Nodes {
		n := p.Nodes[i].ID
		if !p.Nodes[i].Takes || slices.Contains(members, n) {
			continue
		}
		costs := [3]int{0, p.crowding(append(slices.Clone(beside), n)), p.load[n]}
		if p.Nodes[i].Slow {
			costs[0] = 1
		}
		if best == "" || slices.Compare(costs[:], bestCosts[:]) < 0 {
			best, bestCosts = n, costs
		}
	}
	return best
}

// exchanged returns the exchange that puts a node into the place of a member. A node whose disk is slow is not to lead.
func (p *planner) exchanged(g *LayoutGroup, i int, to fsm.NodeID) *catalog.Exchange {
	members := slices.Clone(g.Members)
	members[i] = to
	if i == 0 && p.nodes[to].Slow {
		members = append(members[1:], to)
	}
	return exchange(g, members)
}

func exchange(g *LayoutGroup, members []fsm.NodeID) *catalog.Exchange {
	epoch := g.Epoch
	return &catalog.Exchange{ID: g.ID, From: g.Members, Members: members, Epoch: &epoch}
}

// without returns the members but one.
func without(members []fsm.NodeID, i int) []fsm.NodeID {
	return slices.Delete(slices.Clone(members), i, i+1)
}

// replaceLost gives the places of lost nodes to others, one of each partition.
func (p *planner) replaceLost() (all []catalog.Exchange) {
	for k := range p.Groups {
		g := &p.Groups[k]
		i := slices.IndexFunc(g.Members, p.lost)
		if i < 0 {
			continue
		}
		to := p.nodes[g.Members[i]].Successor
		if !p.takes(to) || slices.Contains(g.Members, to) {
			to = p.free(without(g.Members, i), g.Members)
		}
		p.load[g.Members[i]]--
		switch {
		case to != "":
			p.load[to]++
			all = append(all, *p.exchanged(g, i, to))
		case p.nodes[g.Members[i]].Gone && len(g.Members) > 1:
			all = append(all, *exchange(g, without(g.Members, i)))
		}
	}
	return all
}

// addMissing gives a partition one more member, if there are nodes for as many as are wanted. Two of three replicas
// would survive no more than one replica does.
func (p *planner) addMissing() *catalog.Exchange {
	able := 0
	for _, n := range p.Nodes {
		if n.Takes {
			able++
		}
	}
	for k := range p.Groups {
		g := &p.Groups[k]
		if len(g.Members) >= p.Replicas || able < p.Replicas {
			continue
		}
		if to := p.free(g.Members, g.Members); to != "" {
			return exchange(g, append(slices.Clone(g.Members), to))
		}
	}
	return nil
}

// empty moves a replica away from a node that is to be empty.
func (p *planner) empty() *catalog.Exchange {
	for k := range p.Groups {
		g := &p.Groups[k]
		for i, n := range g.Members {
			if !p.leaves(n) {
				continue
			}
			if to := p.free(without(g.Members, i), g.Members); to != "" {
				return p.exchanged(g, i, to)
			}
		}
	}
	return nil
}

// spreadZones moves a replica to a zone of which its partition has none.
func (p *planner) spreadZones() *catalog.Exchange {
	for k := range p.Groups {
		g := &p.Groups[k]
		crowd := p.crowding(g.Members)
		for i := len(g.Members) - 1; i >= 0 && crowd > 0; i-- { // the preferred leader last
			to := p.free(without(g.Members, i), g.Members)
			if p.able(to) && p.crowding(append(without(g.Members, i), to)) < crowd {
				return p.exchanged(g, i, to)
			}
		}
	}
	return nil
}

// level moves a replica from a node with many to one that has at least two fewer.
func (p *planner) level() *catalog.Exchange {
	var best *catalog.Exchange
	gap := 1
	for k := range p.Groups {
		g := &p.Groups[k]
		crowd := p.crowding(g.Members)
		for i := len(g.Members) - 1; i >= 0; i-- {
			from := g.Members[i]
			for j := range p.Nodes {
				to := p.Nodes[j].ID
				d := p.load[from] - p.load[to]
				if d <= gap || !p.able(to) || slices.Contains(g.Members, to) ||
					p.crowding(append(without(g.Members, i), to)) > crowd {
					continue
				}
				best, gap = p.exchanged(g, i, to), d
			}
		}
	}
	return best
}
