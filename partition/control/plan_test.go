package control

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

var planSeed = flag.Uint64("plan-seed", 0, "seed of the placement to repeat; 0 tries many")

// planWorld is a cluster without bytes: nodes that come and go, groups with their configurations, and what each replica
// has of the log. Groups are brought on by repairGroup.next, as leaders do it.
type planWorld struct {
	t      *testing.T
	rng    *rand.Rand
	nodes  []LayoutNode
	up     map[fsm.NodeID]bool
	groups []*planGroup
	moves  int
}

type planGroup struct {
	LayoutGroup
	servers map[fsm.NodeID]raft.ServerSuffrage
	has     map[fsm.NodeID]bool // what is committed
}

func newPlanWorld(t *testing.T, seed uint64, zones int) *planWorld {
	w := &planWorld{t: t, rng: rand.New(rand.NewPCG(seed, 65)), up: map[fsm.NodeID]bool{}}
	for range 3 + w.rng.IntN(5) {
		w.addNode(zones)
	}
	for p := range 1 + w.rng.IntN(12) {
		g := &planGroup{servers: map[fsm.NodeID]raft.ServerSuffrage{}, has: map[fsm.NodeID]bool{}}
		g.ID = fsm.PartitionID(p + 1)
		replicas := 3
		if w.rng.IntN(8) == 0 {
			replicas = 1
		}
		for _, i := range w.rng.Perm(len(w.nodes))[:replicas] {
			n := w.nodes[i].ID
			g.Members = append(g.Members, n)
			g.servers[n], g.has[n] = raft.Voter, true
		}
		if w.rng.IntN(2) == 0 {
			g.Traffic = map[fsm.NodeID]uint64{}
			for i := range w.nodes {
				g.Traffic[w.nodes[i].ID] = w.rng.Uint64N(600)
			}
		}
		w.groups = append(w.groups, g)
	}
	return w
}

func (w *planWorld) addNode(zones int) {
	n := LayoutNode{ID: fsm.NodeID(fmt.Sprintf("n%02d", len(w.nodes)))}
	if zones > 0 {
		n.Zone = fmt.Sprint("z", len(w.nodes)%zones)
	}
	w.nodes = append(w.nodes, n)
	w.up[n.ID] = true
}

// layout is what the catalog's leader would see.
func (w *planWorld) layout() Layout {
	l := Layout{Replicas: 3, FollowFrom: 100, Nodes: slices.Clone(w.nodes)}
	for i := range l.Nodes {
		n := &l.Nodes[i]
		n.Takes = w.up[n.ID] && !n.Leaves && !n.Lost
	}
	for _, g := range w.groups {
		x := g.LayoutGroup
		x.Settled = len(g.servers) == len(g.Members) && !slices.ContainsFunc(g.Members, func(n fsm.NodeID) bool {
			s, in := g.servers[n]
			return !in || s != raft.Voter || !g.has[n] || !w.up[n]
		})
		l.Groups = append(l.Groups, x)
	}
	return l
}

// healthy reports whether a majority of voters works and has what is committed.
func (w *planWorld) healthy(g *planGroup) bool {
	voters, good := 0, 0
	for n, s := range g.servers {
		if s == raft.Voter {
			voters++
			if w.up[n] && g.has[n] {
				good++
			}
		}
	}
	return good > voters/2
}

// propose has the catalog judge what was planned from a layout that may be old.
func (w *planWorld) propose(l Layout) {
	steps := Plan(l)
	for _, x := range steps {
		g := w.groups[x.ID-1]
		seen := l.Groups[x.ID-1]
		lost := slices.ContainsFunc(seen.Members, func(n fsm.NodeID) bool {
			i := slices.IndexFunc(l.Nodes, func(m LayoutNode) bool { return m.ID == n })
			return l.Nodes[i].Lost
		})
		if !lost && (!seen.Settled || len(steps) > 1 && !onlyLeads(x) || len(steps) > 2) {
			w.t.Fatalf("partition %d is moved while a move is under way: %+v", x.ID, seen)
		}
		if *x.Epoch != g.Epoch {
			continue // refused
		}
		if !slices.Equal(x.From, g.Members) {
			w.t.Fatalf("partition %d at epoch %d has the members %v and %v", x.ID, g.Epoch, g.Members, x.From)
		}
		g.Members, g.Epoch = slices.Clone(x.Members), g.Epoch+1
		w.moves++
	}
}

// onlyLeads reports whether an exchange moves no replica.
func onlyLeads(x catalog.Exchange) bool {
	a, b := slices.Sorted(slices.Values(x.From)), slices.Sorted(slices.Values(x.Members))
	return slices.Equal(a, b)
}

// carry takes one step of a group, as its leader would, and reports whether there was one.
func (w *planWorld) carry(g *planGroup) bool {
	if !w.healthy(g) {
		return false // nobody leads
	}
	r := &repairGroup{id: g.ID, want: g.Members, servers: g.servers, failed: map[fsm.NodeID]bool{},
		ready: map[fsm.NodeID]bool{}, listed: map[fsm.NodeID]bool{}}
	for _, n := range w.nodes {
		r.listed[n.ID], r.ready[n.ID] = w.up[n.ID], w.up[n.ID] && g.has[n.ID]
		if s, in := g.servers[n.ID]; in {
			r.existing = append(r.existing, n.ID)
			if s == raft.Voter && r.ready[n.ID] && (r.self == "" || w.rng.IntN(2) == 0) {
				r.self = n.ID
			}
		}
	}
	s := r.next()
	if s == nil {
		return false
	}
	switch s.what {
	case "take in without a vote":
		g.servers[s.node] = raft.Nonvoter
	case "give a vote":
		g.servers[s.node] = raft.Voter
	case "remove replaced replica":
		delete(g.servers, s.node)
		delete(g.has, s.node)
	case "hand over, being replaced":
	default:
		w.t.Fatalf("step %q", s.what)
	}
	if !w.healthy(g) {
		w.t.Fatalf("partition %d has no majority of healthy voters after %q of %s: %v", g.ID, s.what, s.node, g.servers)
	}
	return true
}

// fill lets a replica catch up.
func (w *planWorld) fill(g *planGroup) bool {
	for _, n := range w.nodes {
		if _, in := g.servers[n.ID]; in && w.up[n.ID] && !g.has[n.ID] && w.healthy(g) {
			g.has[n.ID] = true
			return true
		}
	}
	return false
}

// trouble lets something happen to a node.
func (w *planWorld) trouble() {
	n := &w.nodes[w.rng.IntN(len(w.nodes))]
	switch w.rng.IntN(5) {
	case 0:
		n.Leaves = !n.Leaves
	case 4:
		n.Slow = !n.Slow
	case 1:
		n.Lost = !w.up[n.ID] && w.rng.IntN(3) == 0
	case 2:
		w.up[n.ID] = false
		for _, g := range w.groups {
			if !w.healthy(g) {
				w.up[n.ID] = true // what a crash alone breaks is not the plan's
			}
		}
	default:
		w.up[n.ID], n.Lost = true, false
	}
}

// settle lets everything come to rest without further trouble.
func (w *planWorld) settle() {
	for i := range w.nodes {
		w.up[w.nodes[i].ID], w.nodes[i].Lost = true, false
	}
	for range 10_000 {
		before := w.moves
		w.propose(w.layout())
		busy := w.moves > before
		for _, g := range w.groups {
			for w.fill(g) || w.carry(g) {
				busy = true
			}
		}
		if !busy {
			return
		}
	}
	w.t.Fatal("the steps do not end")
}

func (w *planWorld) run(steps int) {
	old := w.layout()
	for range steps {
		switch w.rng.IntN(8) {
		case 0:
			w.trouble()
		case 1:
			w.propose(old) // a controller that was leader once
		case 2:
			old = w.layout()
		case 3, 4:
			w.propose(w.layout())
		case 5:
			w.fill(w.groups[w.rng.IntN(len(w.groups))])
		default:
			w.carry(w.groups[w.rng.IntN(len(w.groups))])
		}
	}
	w.settle()
	for i := range w.nodes {
		w.nodes[i].Slow = false
	}
	w.settle()
}

// spreadOf returns the least and the most of the nodes that take replicas.
func (w *planWorld) spreadOf(count map[fsm.NodeID]int) (least, most int) {
	least = 1 << 30
	for _, n := range w.layout().Nodes {
		if n.Takes {
			least, most = min(least, count[n.ID]), max(most, count[n.ID])
		}
	}
	return least, most
}

func eachSeed(t *testing.T, f func(t *testing.T, seed uint64)) {
	t.Helper()
	if *planSeed != 0 {
		f(t, *planSeed)
		return
	}
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 200
	}
	for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
		f(t, seed)
		if t.Failed() {
			t.Logf("-plan-seed=%d", seed)
		}
	}
}

// S-318, S-319: whatever nodes do, no step takes a majority of healthy voters, no partition has two moves, and it ends
// with replicas and leaders level, and with nothing to do.
func TestPlansKeepMajoritiesAndEnd(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		defer func() {
			if t.Failed() {
				t.Logf("-plan-seed=%d", seed)
			}
		}()
		w := newPlanWorld(t, seed, 0)
		w.run(200)
		l := w.layout()
		if x := Plan(l); len(x) > 0 {
			t.Fatalf("a balanced cluster is not idle: %+v", x)
		}
		takes := 0
		for _, n := range l.Nodes {
			if n.Takes {
				takes++
			}
		}
		p := newPlanner(l)
		if takes >= 3 {
			for _, g := range l.Groups {
				if !g.Settled || len(g.Members) != 3 || slices.ContainsFunc(g.Members, p.leaves) {
					t.Errorf("partition %d: %+v, leaving %v", g.ID, g, slices.DeleteFunc(l.Nodes,
						func(n LayoutNode) bool { return !n.Leaves }))
				}
			}
			if least, most := w.spreadOf(p.load); most-least > 1 {
				t.Errorf("replicas are not level: %v", p.load)
			}
			if least, most := w.spreadOf(p.leads); most-least > 1 {
				t.Errorf("leaders are not level: %v", p.leads)
			}
		}
		for _, g := range l.Groups {
			if p.leaves(g.Members[0]) && slices.ContainsFunc(g.Members, p.takes) {
				t.Errorf("partition %d prefers %s, which leaves, of %v", g.ID, g.Members[0], g.Members)
			}
		}
	})
}

// No two replicas stand in one zone when there are zones enough.
func TestPlansSpreadZones(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		w := newPlanWorld(t, seed, 3+int(seed%3))
		w.run(200)
		for i := range w.nodes {
			w.nodes[i].Leaves = false
		}
		w.settle()
		p := newPlanner(w.layout())
		for _, g := range p.Groups {
			if p.crowding(g.Members) > 0 {
				t.Errorf("seed %d: partition %d has %v in one zone", seed, g.ID, g.Members)
			}
		}
		if x := Plan(p.Layout); len(x) > 0 {
			t.Errorf("seed %d: not idle: %+v", seed, x)
		}
	})
}

// S-320: a cluster that is balanced takes up new nodes with no more steps than replicas and leaders they get.
func TestNewNodesTakeTheirShare(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		w := newPlanWorld(t, seed, 0)
		w.settle()
		before := w.moves
		w.addNode(0)
		w.addNode(0)
		w.settle()
		p := newPlanner(w.layout())
		if least, most := w.spreadOf(p.load); most-least > 1 {
			t.Errorf("seed %d: %v", seed, p.load)
		}
		got := 0
		for _, n := range w.nodes[len(w.nodes)-2:] {
			got += p.load[n.ID]
		}
		if steps := w.moves - before; steps > got+len(w.groups)*len(w.nodes) {
			t.Errorf("seed %d: %d steps for %d replicas", seed, steps, got)
		}
	})
}

// A cluster of which a node knows neither epochs nor wishes replaces lost nodes only.
func TestGatedPlanReplacesLostNodesOnly(t *testing.T) {
	l := Layout{Replicas: 3, Gated: true, Nodes: []LayoutNode{{ID: "a", Takes: true}, {ID: "b", Takes: true},
		{ID: "c", Takes: true}, {ID: "d", Takes: true}, {ID: "e", Takes: true}}}
	for p := range fsm.PartitionID(6) {
		l.Groups = append(l.Groups, LayoutGroup{ID: p + 1, Members: []fsm.NodeID{"a", "b", "c"}, Settled: true})
	}
	if x := Plan(l); len(x) > 0 {
		t.Errorf("planned %+v", x)
	}
	l.Nodes[2].Takes, l.Nodes[2].Lost = false, true
	if x := Plan(l); len(x) != 6 || slices.Contains(x[0].Members, "c") {
		t.Errorf("planned %+v", x)
	}
}
