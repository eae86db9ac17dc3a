package control

import (
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

// enoughVoters is how many voters must be ready for a lost one to be no loss.
const enoughVoters = 3

// retire decides whether a member of the catalog that is overdue goes. A voter goes when a node without a vote can take its
// place. It also goes when enough others vote, of whom it would only raise the majority. It comes back without a vote
// when it answers again (placer.admit).
func (m *repairer) retire(g *repairGroup, v *catalog.View, states map[fsm.NodeID]nodeState) *repairStep {
	for _, n := range g.existing {
		if v.IsRemoved(n) && n != g.self && (g.servers[n] != raft.Voter || g.spares(n)) {
			return g.remove("remove forgotten node from the catalog", n)
		}
	}
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
