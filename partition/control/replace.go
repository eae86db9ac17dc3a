package control

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// gone notes which nodes do not answer and returns since when each of them does not. Only the
// catalog's leader asks all of them.
func (m *repairer) gone(v *catalog.View, states map[fsm.NodeID]nodeState) map[fsm.NodeID]time.Duration {
	out := map[fsm.NodeID]time.Duration{}
	for _, n := range nodeIDs(v) {
		if states[n] != nil {
			delete(m.silent, n)
			continue
		}
		if m.silent[n].IsZero() {
			m.silent[n] = time.Now()
		}
		out[n] = time.Since(m.silent[n])
	}
	return out
}

// sameNameFactor is how much longer than a failed replica a node must be away before a node of the same name takes
// its place. That one has a new identity, so the old one's data is gone.
const sameNameFactor = 3

// overdue reports whether a node was away for so long that others should take its place.
func (m *repairer) overdue(v *catalog.View, n fsm.NodeID, away time.Duration,
	states map[fsm.NodeID]nodeState) bool {
	if away >= m.s.timing.ReplaceAfter {
		return true
	}
	return away >= sameNameFactor*m.s.timing.RepairAfter && successor(v, n, states) != ""
}

// successor returns the node that answers under the name of one that is gone.
func successor(v *catalog.View, gone fsm.NodeID, states map[fsm.NodeID]nodeState) fsm.NodeID {
	old, _ := v.Node(gone)
	for _, n := range v.Nodes() {
		if n.ID != gone && n.Name != "" && n.Name == old.Name && states[n.ID] != nil {
			return n.ID
		}
	}
	return ""
}

// exchanges decides, on the catalog's leader, which partitions get other members. It picks the partitions of which a
// member is overdue, if there is a node to take its place.
func (m *repairer) exchanges(v *catalog.View, states map[fsm.NodeID]nodeState) []catalog.Exchange {
	away := m.gone(v, states)
	load := map[fsm.NodeID]int{}
	for _, g := range v.Groups() {
		for _, n := range g.Members {
			load[n]++
		}
	}
	var out []catalog.Exchange
	for _, g := range v.Groups() {
		i := slices.IndexFunc(g.Members, func(n fsm.NodeID) bool {
			return m.overdue(v, n, away[n], states)
		})
		if i < 0 {
			continue
		}
		to := successor(v, g.Members[i], states)
		if to == "" || slices.Contains(g.Members, to) {
			to = ""
			for _, n := range nodeIDs(v) {
				free := states[n] != nil && !slices.Contains(g.Members, n)
				if free && (to == "" || load[n] < load[to]) {
					to = n
				}
			}
		}
		if to == "" {
			continue
		}
		load[to]++
		members := slices.Clone(g.Members)
		members[i] = to
		out = append(out, catalog.Exchange{ID: g.ID, From: g.Members, Members: members})
	}
	return out
}

// exchange proposes the exchanges on a goroutine of its own.
func (m *repairer) exchange(all []catalog.Exchange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exchanging || len(all) == 0 {
		return
	}
	m.exchanging = true
	m.s.Go(func(ctx context.Context) {
		for i := range all {
			m.s.log.Warn("a partition gets another member", "partition", uint16(all[i].ID),
				"from", all[i].From, "to", all[i].Members)
			limit, cancel := context.WithTimeout(ctx, admitTimeout)
			err := m.s.host.Change(limit, &catalog.Change{Replace: &all[i]})
			cancel()
			if err != nil {
				m.s.log.Warn("members were not exchanged", "partition", uint16(all[i].ID), "error", err)
				break
			}
		}
		m.mu.Lock()
		m.exchanging = false
		m.mu.Unlock()
	})
}

// enoughVoters is how many voters must be ready for a lost one to be no loss.
const enoughVoters = 3

// retire decides whether a member of the catalog that is overdue goes. A voter goes when a node without a vote can take its
// place. It also goes when enough others vote, of whom it would only raise the majority. It comes back without a vote
// when it answers again (placer.admit).
func (m *repairer) retire(g *repairGroup, v *catalog.View, states map[fsm.NodeID]nodeState) *repairStep {
	away := m.gone(v, states)
	placed := Placed(v)
	spare, voters := false, 0
	for _, n := range g.existing {
		if g.ready[n] && g.servers[n] == raft.Voter {
			voters++
		}
		spare = spare || g.ready[n] && g.servers[n] != raft.Voter && placed[n]
	}
	spare = spare || voters >= enoughVoters
	for _, n := range g.existing {
		voter := g.servers[n] == raft.Voter
		if (!voter || spare && g.survives(n, 0)) && away[n] > 0 && m.overdue(v, n, away[n], states) {
			return g.remove("remove lost node from the catalog", n)
		}
	}
	return nil
}
