package control

import (
	"context"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// retireEvery is the least time between two attempts to delete a replica, which is closed meanwhile.
const retireEvery = 5 * time.Second

// retirer deletes the replicas here that the catalog places elsewhere and whose groups have removed them. Only the
// node itself deletes: a call from outside could be late (docs/decisions/0065-placement.md).
type retirer struct {
	s     *Supervisor
	tried map[fsm.PartitionID]time.Time
}

// step deletes the first replica that is not wanted here any more.
func (t *retirer) step(ctx context.Context, f Facts) {
	for _, r := range f.Replicas {
		g, placed := f.View.Group(r.ID())
		if !placed {
			continue // of the catalog, or of a partition that is not known yet
		}
		if slices.Contains(g.Members, t.s.host.Node()) || r.Leading() || time.Since(t.tried[g.ID]) < retireEvery {
			continue
		}
		leader := t.leaderWithout(ctx, g)
		if leader == "" {
			continue
		}
		t.tried[g.ID] = time.Now()
		limit, cancel := context.WithTimeout(ctx, admitTimeout)
		err := t.s.host.Retire(limit, g.ID, leader)
		cancel()
		if err != nil && ctx.Err() == nil {
			t.s.log.Info("a replica that has moved is not deleted yet", "partition", uint16(g.ID), "error", err)
		}
		return
	}
}

// leaderWithout returns the leader of a group if its members, as it says, lack this node.
func (t *retirer) leaderWithout(ctx context.Context, g catalog.Group) fsm.NodeID {
	for _, m := range g.Members {
		all, err := t.s.host.Ask(ctx, m)
		if err != nil {
			continue
		}
		for i := range all {
			if all[i].Partition == g.ID && all[i].Leading && Lacks(&all[i], t.s.host.Node()) {
				return m
			}
		}
	}
	return ""
}

// Lacks reports whether the committed members of a group, as its leader tells them, are without a node. It reports
// false while a change of them is under way.
func Lacks(leader *replica.Status, n fsm.NodeID) bool {
	return leader.Configured > 0 && !leader.Changing && len(leader.Voters) > 0 &&
		!slices.Contains(leader.Voters, n) && !slices.Contains(leader.Nonvoters, n)
}
