package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// placer does what only the catalog's leader does: it places the first partitions, and takes nodes into the catalog.
type placer struct{ s *Supervisor }

// step places and admits, if the catalog is led here.
func (p *placer) step(ctx context.Context, f Facts) {
	r := p.s.host.Replica(fsm.CatalogPartition)
	if r == nil || !r.Leading() {
		return
	}
	if err := p.place(f.View); err != nil && ctx.Err() == nil {
		p.s.log.Info("first placement is not committed yet", "error", err)
	}
	if err := p.admit(r, f.View); err != nil && ctx.Err() == nil {
		p.s.log.Info("membership of the catalog is not changed yet", "error", err)
	}
}

// place proposes the first placement. The catalog leaves partitions that exist alone, so two
// leaders may both do so.
func (p *placer) place(v *catalog.View) error {
	if v.GroupCount() > 0 || len(p.s.cfg.Bootstrap) == 0 {
		return nil
	}
	ids := make([]fsm.PartitionID, p.s.cfg.Partitions)
	for i := range ids {
		ids[i] = fsm.PartitionID(i + 1)
	}
	placed := p.s.cfg.Place(p.s.cfg.Bootstrap, ids, min(p.s.cfg.Replicas, len(p.s.cfg.Bootstrap)))
	first := &catalog.Placement{}
	for _, id := range ids {
		if len(placed[id]) == 0 {
			return fmt.Errorf("placement names no node for partition %d", id)
		}
		first.Groups = append(first.Groups, catalog.Group{ID: id, Members: placed[id]})
	}
	ctx, cancel := context.WithTimeout(p.s.ctx, registerTimeout)
	defer cancel()
	return p.s.host.Change(ctx, &catalog.Change{Place: first})
}

// admitTimeout bounds one change of membership.
const admitTimeout = 10 * time.Second

// caughtUp is how many entries a node may be behind to be given a vote.
const caughtUp = 64

// admit adds registered nodes to group 0, one change at a time. Each comes without a vote, because a voter counts before
// it has anything. The repairer gives votes to nodes that have a place in the cluster.
func (p *placer) admit(r *replica.Replica, v *catalog.View) error {
	in := map[fsm.NodeID]bool{}
	for _, m := range r.Servers() {
		in[fsm.NodeID(m.ID)] = true
	}
	for _, n := range v.Nodes() {
		if !in[n.ID] && p.mayJoin(n.ID, v.ClusterVersion()) {
			p.s.log.Info("node joins the catalog", "peer", n.ID, "name", n.Name)
			return p.s.wait(r.AddNonvoter(n.ID, 0))
		}
	}
	return nil
}

// mayJoin reports whether a node has a replica of the catalog that can be taken in: one that has
// failed is rebuilt first (repairer). A program that does not know the cluster version must be replaced first.
func (p *placer) mayJoin(n fsm.NodeID, version fsm.Version) bool {
	all, err := p.s.host.Ask(p.s.ctx, n)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(st replica.Status) bool {
		return st.Partition == fsm.CatalogPartition && !st.Broken && st.CatalogLevel >= version
	})
}
