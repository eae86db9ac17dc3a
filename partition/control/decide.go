package control

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// decide returns, on the catalog's leader, the changes of the catalog that are due now. There is at most one kind of
// them: the cluster version, exchanges of members, new partitions, or nodes to be forgotten.
func (m *repairer) decide(v *catalog.View, g *repairGroup, states map[fsm.NodeID]nodeState) (out []*catalog.Change) {
	if raise, asked := m.raise(v, g, states); raise != nil {
		m.admits = asked
		return []*catalog.Change{raise}
	}
	m.traffic.note(v, states, time.Now())
	l := m.layout(v, states)
	m.tellSlow(l)
	for _, x := range Plan(l) {
		if l.Gated {
			x.Epoch = nil
		}
		out = append(out, &catalog.Change{Replace: &x})
	}
	if len(out) > 0 || l.Gated {
		return out
	}
	if placed := m.grow(v, l, states); placed != nil {
		return []*catalog.Change{{Place: placed}}
	}
	for _, n := range v.Nodes() {
		if m.forgettable(v, &n, g, states) {
			out = append(out, &catalog.Change{Forget: &catalog.Life{ID: n.ID, Incarnation: n.Incarnation}})
		}
	}
	return out
}

// raise returns the change that gives the cluster a version without an operator, nil if there is none. It returns the nodes,
// too, that have said to know the version. A new cluster gets its first version so, and with the setting Finalize any.
// Every node of the catalog must know it. A node that has been away for so long that others take its places is not asked.
// It is refused when it comes back with an old program.
func (m *repairer) raise(v *catalog.View, g *repairGroup, states map[fsm.NodeID]nodeState) (
	_ *catalog.Change, asked []fsm.NodeID) {
	has, to := v.ClusterVersion(), m.s.host.Knows()
	if has >= to || has > fsm.VersionFirst && !m.s.cfg.Finalize || len(v.Nodes()) == 0 {
		return nil, nil
	}
	away := m.gone(v, states)
	for _, n := range slices.Concat(nodeIDs(v), g.existing) {
		switch st, answers := states[n][fsm.CatalogPartition]; {
		case states[n] == nil && away[n] < m.s.timing.ReplaceAfter:
			return nil, nil
		case states[n] == nil:
		case !answers:
			return nil, nil
		default:
			to, asked = min(to, st.CatalogLevel), append(asked, n)
		}
	}
	if to <= has {
		return nil, nil
	}
	raise := &catalog.Change{Raise: to}
	if to >= fsm.VersionUpgrades {
		for _, n := range v.Nodes() {
			raise.Heard = append(raise.Heard, catalog.Life{ID: n.ID, Incarnation: n.Incarnation})
		}
	}
	return raise, asked
}

// holds reports whether a node holds a replica. The catalog may want it there, a group may have the node as a member,
// or the node may not have deleted it yet.
func holds(v *catalog.View, n fsm.NodeID, states map[fsm.NodeID]nodeState) bool {
	if v.HoldsAny(n) {
		return true
	}
	for _, g := range v.Groups() {
		leader := leaderOf(g.ID, states)
		if leader == nil || leader.Changing || slices.Contains(leader.Voters, n) || slices.Contains(leader.Nonvoters, n) {
			return true
		}
		if _, here := states[n][g.ID]; here {
			return true
		}
	}
	return false
}

// forgettable reports whether a node that leaves can be forgotten. Its operator switches it off then, so nothing may need
// it any more: no partition, no client, and not the catalog for its vote.
func (m *repairer) forgettable(v *catalog.View, n *catalog.Node, g *repairGroup, states map[fsm.NodeID]nodeState) bool {
	votes := g.servers[n.ID] == raft.Voter && n.Wish != catalog.Gone
	return n.LeavesForGood() && n.ID != g.self && !votes && !holds(v, n.ID, states) && m.deserted(v, n, states)
}

// deserted reports whether a node that leaves has no clients any more. The catalog gives up what they hold when it forgets
// the node, so they must have been told. A node that does not answer may have some all the same. All their locks have
// run out when the node has been silent for the longest one. If its operator says that it never comes back, nothing is
// waited for.
func (m *repairer) deserted(v *catalog.View, n *catalog.Node, states map[fsm.NodeID]nodeState) bool {
	if states[n.ID] == nil {
		silent := m.silent[n.ID]
		return n.Wish == catalog.Gone || !silent.IsZero() && time.Since(silent).Milliseconds() >= int64(v.LongestLock())
	}
	st, told := states[n.ID][fsm.CatalogPartition]
	return told && !st.ServesClients && (st.ClientsLeft == n.Since || st.ClientsLeft == 0)
}

// leaderOf returns what the newest leader of a partition says of it, nil if none answers.
func leaderOf(p fsm.PartitionID, states map[fsm.NodeID]nodeState) *replica.Status {
	var newest *replica.Status
	for _, s := range states { // order-free: a term has one leader
		if st, ok := s[p]; ok && st.Leading && (newest == nil || st.Term > newest.Term) {
			newest = &st
		}
	}
	return newest
}

// layout gathers what a plan is made from.
func (m *repairer) layout(v *catalog.View, states map[fsm.NodeID]nodeState) Layout {
	away := m.gone(v, states)
	l := Layout{Replicas: m.s.cfg.Replicas, FollowFrom: uint64(m.s.cfg.FollowFrom), Gated: v.ClusterVersion() < fsm.VersionPlacement}
	slow := slowDisks(v, states)
	for _, n := range v.Nodes() {
		st, answers := states[n.ID][fsm.CatalogPartition]
		x := LayoutNode{ID: n.ID, Zone: n.Zone, Leaves: n.Leaves(), Gone: n.Wish == catalog.Gone, Slow: slow[n.ID]}
		x.Takes = answers && !x.Leaves && st.Failure == "" && !st.Full && !st.WrongClock &&
			st.CatalogLevel >= v.ClusterVersion()
		if silent, is := away[n.ID]; is {
			x.Lost = x.Gone || m.overdue(v, n.ID, silent, states)
			x.Successor = successor(v, n.ID, states)
		}
		l.Nodes = append(l.Nodes, x)
	}
	for _, g := range v.Groups() {
		l.Groups = append(l.Groups, LayoutGroup{ID: g.ID, Members: g.Members, Epoch: g.Epoch,
			Settled: settled(g, states), Traffic: m.traffic.of(g.ID)})
	}
	return l
}

// settled reports whether the committed voters of a group are its members, all of them working and caught up.
func settled(g catalog.Group, states map[fsm.NodeID]nodeState) bool {
	leader := leaderOf(g.ID, states)
	if leader == nil || leader.Changing || len(leader.Nonvoters) > 0 || len(leader.Voters) != len(g.Members) {
		return false
	}
	return !slices.ContainsFunc(g.Members, func(n fsm.NodeID) bool {
		st, open := states[n][g.ID]
		return !open || st.Failure != "" || st.Applied+caughtUp < leader.Applied || !Votes(leader, n)
	})
}

// propose has the catalog make changes, on a goroutine of its own. A change that was decided from facts that are old
// by then is refused.
func (m *repairer) propose(all []*catalog.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proposing || len(all) == 0 {
		return
	}
	m.proposing = true
	asked := m.admits
	m.s.Go(func(ctx context.Context) {
		for _, c := range all {
			m.tell(c)
			limit, cancel := context.WithTimeout(ctx, admitTimeout)
			var err error
			if c.Raise > 0 {
				err = m.s.host.AdmitVersion(limit, asked, c.Raise)
			}
			if err == nil {
				err = m.s.host.Change(limit, c)
			}
			cancel()
			if err != nil {
				m.s.log.Warn("the catalog was not changed", "error", err)
				break
			}
		}
		m.mu.Lock()
		m.proposing = false
		m.mu.Unlock()
	})
}

// tell writes down what is decided.
func (m *repairer) tell(c *catalog.Change) {
	switch {
	case c.Replace != nil:
		m.s.log.Info("a partition gets other members", "partition", uint16(c.Replace.ID), "from", c.Replace.From,
			"to", c.Replace.Members)
	case c.Place != nil:
		first, last := c.Place.Groups[0], c.Place.Groups[len(c.Place.Groups)-1]
		m.s.log.Info("partitions are added", "from", uint16(first.ID), "to", uint16(last.ID))
	case c.Forget != nil:
		m.s.log.Info("a node is forgotten", "peer", c.Forget.ID)
	case c.Raise > 0:
		m.s.log.Info("every node knows a cluster version", "version", c.Raise.String())
	}
}
