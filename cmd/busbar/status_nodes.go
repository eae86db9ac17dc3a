package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/transport/rest"
)

// identity returns the identity of the node that is shown under a name.
func (s *status) identity(shown fsm.NodeID) (fsm.NodeID, error) {
	names := s.names()
	for id, name := range names {
		if name == shown {
			return id, nil
		}
	}
	if _, known := names[shown]; known {
		return shown, nil
	}
	return "", fmt.Errorf("node %q: %w", shown, fsm.ErrNoEntity)
}

// wishes are the verbs of operators, and what the catalog keeps of them.
var wishes = map[string]catalog.Wish{
	"drain": catalog.Drain, "undrain": catalog.Serve, "remove": catalog.Remove, "forget": catalog.Gone,
}

// Wish sets what an operator wants of a node; node is a name or an identity.
func (s *status) Wish(ctx context.Context, verb string, node fsm.NodeID) error {
	id, err := s.identity(node)
	if err != nil {
		return err
	}
	n, known := s.catalog().Node(id)
	if !known {
		return fmt.Errorf("node %q: %w", node, fsm.ErrNoEntity)
	}
	wish := wishes[verb]
	switch {
	case wish == catalog.Gone && s.alive(id):
		return fmt.Errorf("node %s answers: to take it out of the cluster in good order, remove it", node)
	case wish == catalog.Serve && (n.Wish == catalog.Gone || n.Wish == catalog.Remove) && !s.alive(id):
		return fmt.Errorf("node %s does not answer: start it, and then take back that it is to be removed", node)
	case wish != catalog.Serve && !s.otherServes(id):
		return fmt.Errorf("node %s is the only one that serves: add a node first, or undrain another one", node)
	}
	return s.n.directory.Wish(ctx, id, wish)
}

// alive reports whether a node is there, as gossip has it.
func (s *status) alive(id fsm.NodeID) bool {
	return id == s.n.id || slices.ContainsFunc(s.n.gossip.Members(), func(m cluster.Member) bool {
		return m.ID == id && m.State == cluster.MemberAlive
	})
}

// otherServes reports whether a node but this one is there and nobody wants it empty.
func (s *status) otherServes(id fsm.NodeID) bool {
	return slices.ContainsFunc(s.catalog().Nodes(), func(n catalog.Node) bool {
		return n.ID != id && !n.Leaves() && s.alive(n.ID)
	})
}

// rebalanceLimit bounds the handing over of one leadership.
const rebalanceLimit = 5 * time.Second

// Rebalance hands leaderships to the preferred leaders, or to one of them.
func (s *status) Rebalance(ctx context.Context, node fsm.NodeID) (moved int, stay []string, err error) {
	var only fsm.NodeID
	if node != "" {
		if only, err = s.identity(node); err != nil {
			return 0, nil, err
		}
	}
	v, names := s.catalog(), s.names()
	for _, g := range v.Groups() {
		to := g.Members[0]
		leader, known := s.n.view.Leader(g.ID)
		if n, _ := v.Node(to); only != "" && to != only || known && leader == to || n.Leaves() {
			continue
		}
		limit, cancel := context.WithTimeout(ctx, rebalanceLimit)
		err := s.n.host.TransferLeadership(limit, g.ID, to)
		cancel()
		switch {
		case ctx.Err() != nil:
			return moved, stay, fmt.Errorf("rebalance: %w", ctx.Err())
		case err != nil:
			stay = append(stay, fmt.Sprintf("partition %d was not handed to %s: %v", g.ID, names[to], err))
		default:
			moved++
		}
	}
	return moved, stay, nil
}

// nodes lists the nodes that gossip knows, and those that only the catalog knows. A node that was removed is listed
// while it is there.
func (s *status) nodes(partitions []rest.PartitionStatus, show func(fsm.NodeID) fsm.NodeID) []rest.NodeStatus {
	v := s.catalog()
	out := []rest.NodeStatus{}
	listed := map[fsm.NodeID]bool{}
	for _, m := range s.n.gossip.Members() {
		row := rest.NodeStatus{ID: show(m.ID), UUID: m.ID, State: m.State.String(), Address: clientAddr(m),
			Operations: m.OpsAddr}
		if v.IsRemoved(m.ID) {
			if m.State != cluster.MemberAlive {
				continue
			}
			row.State = "removed"
		}
		listed[m.ID] = true
		out = append(out, row)
	}
	for _, n := range v.Nodes() {
		if !listed[n.ID] {
			out = append(out, rest.NodeStatus{ID: show(n.ID), UUID: n.ID, State: "unknown"})
		}
	}
	for i := range out {
		s.describe(&out[i], v, partitions)
	}
	return out
}

// describe adds what the catalog and the partitions say of a node.
func (s *status) describe(row *rest.NodeStatus, v *catalog.View, partitions []rest.PartitionStatus) {
	for _, p := range partitions {
		if p.Leader == row.ID {
			row.Leads++
		}
		if p.ID != fsm.CatalogPartition && slices.Contains(slices.Concat(p.Members, p.Replicas), row.ID) {
			row.Replicas++
		}
	}
	n, _ := v.Node(row.UUID)
	row.Zone, row.Wish = n.Zone, string(n.Wish)
	if !n.Leaves() {
		return
	}
	since := time.UnixMilli(int64(n.Since)).UTC()
	row.Since = &since
	row.Stays = s.stays(v, n.ID)
}

// stays says why the replicas that a node that is to be empty still holds cannot move, "" if one can.
func (s *status) stays(v *catalog.View, id fsm.NodeID) string {
	held, kept := 0, 0
	for _, g := range v.Groups() {
		if !slices.Contains(g.Members, id) {
			continue
		}
		held++
		if !slices.ContainsFunc(v.Nodes(), func(n catalog.Node) bool {
			return !n.Leaves() && s.alive(n.ID) && !slices.Contains(g.Members, n.ID)
		}) {
			kept++
		}
	}
	if kept == 0 || kept < held {
		return ""
	}
	return "no other node is free for them: add a node"
}

// moves lists the partitions whose replicas are not where the catalog wants them.
func moves(partitions []rest.PartitionStatus) (ids []fsm.PartitionID) {
	for _, p := range partitions {
		if p.ID != fsm.CatalogPartition && len(p.Differs) > 0 {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// rehomings lists the shares that move, and those of which the last move was given up.
func rehomings(v *catalog.View) (out []rest.RehomingStatus) {
	for _, r := range v.Rehomings() {
		row := rest.RehomingStatus{ShareMove: rest.ShareMove{Share: r.Share, From: r.From, To: r.To}, Step: string(r.Step),
			Why: r.Why, Left: len(r.Next), Since: time.UnixMilli(int64(r.Since)).UTC()}
		if d := v.ByID(r.ID); d != nil {
			row.Entity = d.Name
		}
		out = append(out, row)
	}
	return out
}

// silence returns why a node does not answer. It leaves out the id, which stands beside the text, and the text of
// fsm.ErrUnavailable, which speaks of a partition.
func silence(err error, id fsm.NodeID) string {
	text := strings.TrimPrefix(err.Error(), fsm.ErrUnavailable.Error()+": ")
	return strings.TrimPrefix(text, "node "+string(id)+": ")
}
