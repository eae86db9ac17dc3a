package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// repairer brings the groups led here to the members that the catalog wants, all of them working. A failed replica is
// removed, rebuilt empty on its node, and taken in without a vote. It is given a vote when it has caught up; a node
// that the catalog replaced goes when its successor votes.
//
// It keeps no plan. Each step is decided from the committed configuration and from what the members say of
// themselves. So the leader after a crash goes on where the last one stopped. Each step by itself leaves a group that
// a majority of voters with the data can serve. One step is under way per group, because raft
// itself refuses a change before the last one committed.
type repairer struct {
	s     *Supervisor
	since map[memberOf]time.Time // when a member was first seen failed, without a break
	// silent are the nodes that do not answer the catalog's leader, and since when.
	silent map[fsm.NodeID]time.Time
	// epochs are the leaderships in which the groups were looked at. The loop forgets what it saw in an earlier one, because
	// nobody looked in between.
	epochs map[fsm.PartitionID]uint64
	asked  time.Time
	calm   bool                // nothing was to be done when they were asked last
	seen   uint64              // the version of the catalog then
	slow   map[fsm.NodeID]bool // nodes whose disks are slow, as they were told of in the log
	// admits are the nodes that have said to know the cluster version that is proposed.
	admits  []fsm.NodeID
	traffic traffic
	// follows says how the followers of the groups led here advance.
	follows map[memberOf]*follow

	mu sync.Mutex
	// pause is until when a group is left alone after a step that did not succeed.
	pause map[fsm.PartitionID]time.Time
	busy  map[fsm.PartitionID]bool
	// proposing says that changes of the catalog are under way.
	proposing bool
	// rebuilt is the configuration at which a replica was last told to rebuild.
	rebuilt map[memberOf]uint64
}

func newRepairer(s *Supervisor) *repairer {
	return &repairer{s: s, since: map[memberOf]time.Time{}, silent: map[fsm.NodeID]time.Time{},
		slow: map[fsm.NodeID]bool{}, traffic: traffic{}, epochs: map[fsm.PartitionID]uint64{},
		follows: map[memberOf]*follow{}, busy: map[fsm.PartitionID]bool{}, pause: map[fsm.PartitionID]time.Time{},
		rebuilt: map[memberOf]uint64{}}
}

type memberOf struct {
	p fsm.PartitionID
	n fsm.NodeID
}

// repairEvery is how often the members are asked: one small call per other node.
const repairEvery = time.Second

// repairPause is the pause after a step that did not succeed: what it met, a full disk say, lasts.
const repairPause = 10 * time.Second

// step takes the next step of every group led here.
func (m *repairer) step(_ context.Context, f Facts) {
	v, leads := f.View, m.leading(f)
	m.forget(v, leads)
	led := m.led(f)
	if len(led) == 0 || time.Since(m.asked) < repairEvery || m.rests(v, led) {
		return
	}
	m.asked, m.seen, m.calm = time.Now(), v.Version(), len(led) == len(leads)
	want := map[fsm.PartitionID][]fsm.NodeID{fsm.CatalogPartition: nodeIDs(v)}
	for _, g := range v.Groups() {
		want[g.ID] = g.Members
	}
	states := m.ask(led, want)
	for _, r := range led {
		if want[r.ID()] == nil {
			continue
		}
		g := m.group(r, want[r.ID()], states)
		if g == nil {
			continue
		}
		full := votersFull(g.id, g.servers, states)
		r.SetVotersFull(full)
		step := g.next()
		if step == nil {
			step = m.diverged(r, g, states)
		}
		if step == nil {
			step = m.stuckFollower(g)
		}
		if r.ID() == fsm.CatalogPartition {
			if step == nil {
				step = m.retire(g, v, states)
			}
			if step == nil {
				step = m.elect(g, v, states)
			}
			changes := m.decide(v, g, states)
			m.calm = m.calm && len(changes) == 0
			m.propose(changes)
		}
		m.calm = m.calm && step == nil && !full
		if step != nil {
			m.take(r, step)
		}
	}
	m.calm = m.calm && len(m.since) == 0 && len(m.silent) == 0
}

func nodeIDs(v *catalog.View) []fsm.NodeID {
	nodes := v.Nodes()
	ids := make([]fsm.NodeID, 0, len(nodes))
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	return ids
}

// led returns the replicas that lead and have no step under way.
func (m *repairer) led(f Facts) []*replica.Replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.Replicas), func(r *replica.Replica) bool {
		return m.busy[r.ID()] || !r.Leading() || time.Now().Before(m.pause[r.ID()])
	})
}

// take runs a step on a goroutine of its own: a change waits for a majority.
func (m *repairer) take(r *replica.Replica, step *repairStep) {
	m.mu.Lock()
	m.busy[r.ID()] = true
	m.mu.Unlock()
	m.s.Go(func(ctx context.Context) {
		wanted, err := true, error(nil)
		if step.places != nil {
			wanted, err = m.s.current(ctx, r.ID(), step.places)
		}
		if err == nil && wanted {
			level := hclog.Warn
			if step.usual {
				level = hclog.Info
			}
			r.Log().Log(level, "mending", "step", step.what, "peer", step.node)
			err = step.do(ctx, m.s, r)
		}
		if err != nil && ctx.Err() == nil {
			r.Log().Warn("mending did not succeed", "step", step.what, "peer", step.node, "error", err)
		}
		m.mu.Lock()
		if err != nil {
			m.pause[r.ID()] = time.Now().Add(repairPause)
		}
		delete(m.busy, r.ID())
		m.mu.Unlock()
	})
}

// nodeState is what a node said of its replicas.
type nodeState map[fsm.PartitionID]replica.Status

// ask asks every node that has to do with the groups; who does not answer is missing.
func (m *repairer) ask(led []*replica.Replica, want map[fsm.PartitionID][]fsm.NodeID) map[fsm.NodeID]nodeState {
	nodes := map[fsm.NodeID]bool{}
	for _, r := range led {
		for _, s := range r.Servers() {
			nodes[fsm.NodeID(s.ID)] = true
		}
		for _, n := range want[r.ID()] {
			nodes[n] = true
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	states := map[fsm.NodeID]nodeState{}
	for n := range nodes { // order-free: the answers go into a map
		wg.Add(1)
		go func() {
			defer wg.Done()
			all, err := m.s.host.Ask(m.s.ctx, n)
			if err != nil {
				return
			}
			st := nodeState{}
			for _, s := range all {
				st[s.Partition] = s
			}
			mu.Lock()
			states[n] = st
			mu.Unlock()
		}()
	}
	wg.Wait()
	return states
}

// repairGroup is one group as its leader sees it.
type repairGroup struct {
	id       fsm.PartitionID
	self     fsm.NodeID
	want     []fsm.NodeID
	servers  map[fsm.NodeID]raft.ServerSuffrage
	index    uint64 // of the configuration, which is committed
	failed   map[fsm.NodeID]bool
	ready    map[fsm.NodeID]bool // works and has caught up
	listed   map[fsm.NodeID]bool // has the partition open and has not failed
	existing []fsm.NodeID        // the servers, in their order
	// rebuilt is the configuration at which a replica was last told to rebuild.
	rebuilt map[fsm.NodeID]uint64
	// stuck holds the followers that stand still, and what was tried against it.
	stuck map[fsm.NodeID]int
	epoch uint64 // of the leadership
	// tell notes that a replica is told to rebuild at this configuration.
	tell func(fsm.NodeID)
}

// group gathers what is known of a group; nil if nothing is committed yet.
func (m *repairer) group(r *replica.Replica, want []fsm.NodeID, states map[fsm.NodeID]nodeState) *repairGroup {
	c, index := r.Configuration()
	g := &repairGroup{id: r.ID(), self: m.s.host.Node(), want: want, index: index,
		servers: map[fsm.NodeID]raft.ServerSuffrage{}, failed: map[fsm.NodeID]bool{},
		ready: map[fsm.NodeID]bool{}, listed: map[fsm.NodeID]bool{}, stuck: map[fsm.NodeID]int{}}
	if len(c.Servers) == 0 {
		return nil
	}
	g.epoch, _ = r.Led()
	m.begin(g)
	g.rebuilt = m.toldToRebuild(r.ID())
	g.tell = func(n fsm.NodeID) { m.tellRebuild(memberOf{g.id, n}, index) }
	members := slices.Clone(want)
	for _, s := range c.Servers {
		n := fsm.NodeID(s.ID)
		g.servers[n] = s.Suffrage
		g.existing = append(g.existing, n)
		if !slices.Contains(members, n) {
			members = append(members, n)
		}
	}
	applied := r.Applied()
	_, term := r.Leader()
	for _, n := range members {
		key := memberOf{r.ID(), n}
		st, open := states[n][r.ID()]
		if !open || !st.Broken {
			delete(m.since, key)
		}
		if !open || st.Broken {
			delete(m.follows, key)
		}
		switch {
		case n == g.self:
			g.ready[n], g.listed[n] = true, true
		case !open:
		case st.Broken:
			if m.since[key].IsZero() {
				m.since[key] = time.Now()
			}
			g.failed[n] = time.Since(m.since[key]) >= m.s.timing.RepairAfter
		default:
			g.listed[n] = true
			suffrage, member := g.servers[n]
			// A replica without a vote gets one when it has heard of this leadership: then its log is behind the entry
			// that took it in.
			heard := suffrage == raft.Voter || st.Term == term
			g.ready[n] = st.Failure == "" && st.Applied+caughtUp >= applied && heard
			if tries, stuck := m.stuck(g, n, &st, applied); stuck && member {
				g.stuck[n] = tries
			}
		}
	}
	return g
}

// begin forgets what was seen of a group in an earlier leadership.
func (m *repairer) begin(g *repairGroup) {
	if m.epochs[g.id] == g.epoch {
		return
	}
	m.epochs[g.id] = g.epoch
	maps.DeleteFunc(m.since, func(k memberOf, _ time.Time) bool { return k.p == g.id })
	if g.id == fsm.CatalogPartition {
		clear(m.silent)
	}
}

// stuckFollower returns the step against a follower that stands still, nil if none does or the group could
// not spare it.
func (m *repairer) stuckFollower(g *repairGroup) *repairStep {
	for _, n := range g.existing {
		if _, stuck := g.stuck[n]; stuck && (g.servers[n] != raft.Voter || g.survives(n, 0)) {
			return m.restartFollower(g, n)
		}
	}
	return nil
}

// repairStep is one change.
type repairStep struct {
	what string
	node fsm.NodeID
	do   func(context.Context, *Supervisor, *replica.Replica) error
	// usual says that nothing is broken: the step is part of the life of a cluster.
	usual bool
	// places are the members for which the step is taken, if it is one towards them.
	places []fsm.NodeID
}

// next decides the next step, nil if there is none. It is pure.
func (g *repairGroup) next() *repairStep {
	for _, n := range g.existing {
		voter := g.servers[n] == raft.Voter
		if g.failed[n] && (!voter || g.survives(n, 0)) {
			return g.remove("remove failed replica", n)
		}
	}
	for _, n := range g.want {
		suffrage, in := g.servers[n]
		switch {
		case !in && g.failed[n] && g.told(n):
			// It has failed again, or was rebuilt for an earlier leader: one configuration rebuilds once.
			return g.remove("remove failed replica again", n)
		case !in && g.failed[n]:
			return g.rebuild(n)
		case g.id == fsm.CatalogPartition:
			// placer.admit takes nodes into the catalog, and repairer.elect gives votes.
		case !in && g.listed[n]:
			return g.towards(g.change("take in without a vote", n, (*replica.Replica).AddNonvoter))
		case in && suffrage != raft.Voter && g.ready[n] && g.survives("", 1):
			return g.towards(g.change("give a vote", n, (*replica.Replica).AddVoter))
		}
	}
	if g.id == fsm.CatalogPartition || !g.complete() {
		return nil
	}
	for _, n := range g.existing {
		if slices.Contains(g.want, n) {
			continue
		}
		if n == g.self {
			return g.towards(&repairStep{what: "hand over, being replaced", node: n, do: func(ctx context.Context,
				s *Supervisor, r *replica.Replica) error {
				ctx, cancel := context.WithTimeout(ctx, admitTimeout)
				defer cancel()
				return s.host.HandOver(ctx, r.ID())
			}})
		}
		if g.servers[n] != raft.Voter || g.spares(n) {
			return g.towards(g.remove("remove replaced replica", n))
		}
	}
	return nil
}

// towards returns a step that brings the group to the members that the catalog wants. It is taken if the catalog wants
// them still.
func (g *repairGroup) towards(s *repairStep) *repairStep {
	if g.id != fsm.CatalogPartition { // whose leader has the newest catalog
		s.places = g.want
	}
	return s
}

// current reports whether the catalog wants these members of a partition now. The catalog of a node that has just
// started is as old as its snapshot. It may want a node that has been forgotten since, which would get a vote and never
// answer.
func (s *Supervisor) current(ctx context.Context, p fsm.PartitionID, places []fsm.NodeID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	v, err := s.host.CurrentView(ctx)
	if err != nil {
		return false, err
	}
	g, placed := v.Group(p)
	return placed && slices.Equal(g.Members, places), nil
}

// complete reports whether all who should vote do.
func (g *repairGroup) complete() bool {
	for _, n := range g.want {
		if g.servers[n] != raft.Voter {
			return false
		}
	}
	return true
}

// survives reports whether the voters that are ready are a majority, of now and of another configuration. That one is
// without one voter ("" for nobody) and has some more that are ready.
func (g *repairGroup) survives(without fsm.NodeID, more int) bool {
	voters, ready := 0, 0
	for n, s := range g.servers {
		if s != raft.Voter {
			continue
		}
		voters++
		if g.ready[n] && n != without {
			ready++
		}
	}
	after := voters + more
	if without != "" {
		after--
	}
	return ready > voters/2 && ready+more > after/2
}

// spares reports whether a voter that may work can go: a majority is ready now, and without it. Two voters that work
// become one in this way, which survives refuses.
func (g *repairGroup) spares(n fsm.NodeID) bool {
	voters, ready := 0, 0
	for id, s := range g.servers { // order-free: only counts
		if s == raft.Voter {
			voters++
			if g.ready[id] {
				ready++
			}
		}
	}
	after := ready
	if g.ready[n] {
		after--
	}
	return ready > voters/2 && after > (voters-1)/2
}

func (g *repairGroup) remove(what string, n fsm.NodeID) *repairStep {
	return g.change(what, n, (*replica.Replica).Remove)
}

// change is a change of the configuration with that index, refused by raft if it is another by now.
func (g *repairGroup) change(what string, n fsm.NodeID, f func(*replica.Replica, fsm.NodeID, uint64) raft.Future) *repairStep {
	return &repairStep{what: what, node: n, do: func(_ context.Context, s *Supervisor, r *replica.Replica) error {
		return s.wait(f(r, n, g.index))
	}}
}

// told reports whether a replica was told to rebuild at this very configuration.
func (g *repairGroup) told(n fsm.NodeID) bool {
	index, told := g.rebuilt[n]
	return told && index == g.index
}

func (g *repairGroup) rebuild(n fsm.NodeID) *repairStep {
	return &repairStep{what: "rebuild failed replica", node: n, do: func(ctx context.Context, s *Supervisor,
		_ *replica.Replica) error {
		ctx, cancel := context.WithTimeout(ctx, 2*s.timing.CloseTimeout)
		defer cancel()
		g.tell(n)
		if err := s.host.Rebuild(ctx, n, g.id, g.index); err != nil {
			return fmt.Errorf("node %s: %w", n, err)
		}
		return nil
	}}
}

// votersFull reports whether so many voters of a partition have no room that a majority would not hold an entry.
func votersFull(p fsm.PartitionID, servers map[fsm.NodeID]raft.ServerSuffrage, states map[fsm.NodeID]nodeState) bool {
	voters, full := 0, 0
	for n, s := range servers { // order-free: only counts
		if s != raft.Voter {
			continue
		}
		voters++
		if states[n][p].Full {
			full++
		}
	}
	return voters > 0 && voters-full <= voters/2
}
