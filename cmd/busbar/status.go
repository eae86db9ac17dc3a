package main

import (
	"context"
	"errors"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition"
	"github.com/busbar-mq/busbar/transport/rest"
)

// status answers the operations API from several rooms. It shows nodes under the names that people
// gave them (--node-id) where those are unique, and under their identities otherwise.
type status struct{ n *node }

// Counts adds up the counters of an entity's shares.
func (s *status) Counts(ctx context.Context, d *fsm.Descriptor) (fsm.EntityCounts, bool, error) {
	return s.n.router.Counts(ctx, d)
}

// Ready returns why this node cannot serve now. A development node is asked by programs that wait for its entities.
func (s *status) Ready(ctx context.Context) error {
	if made := s.n.entitiesMade; s.n.cfg.Dev && made != nil {
		select {
		case <-made:
		default:
			return errors.New("the entities of " + s.n.cfg.Entities + " are being made")
		}
	}
	return s.n.host.Ready(ctx)
}

// Checks returns what this node looks at in itself.
func (s *status) Checks(ctx context.Context) []rest.Check {
	var out []rest.Check
	add := func(all []partition.Check, readiness bool) {
		for _, c := range all {
			shown := rest.Check{Name: c.Name, Status: rest.CheckOK, Readiness: readiness}
			if c.Err != nil {
				shown.Status, shown.Reason = rest.CheckFailing, c.Err.Error()
			}
			out = append(out, shown)
		}
	}
	add(s.n.host.Readiness(ctx), true)
	add(s.n.alarmChecks(), false)
	return out
}

// TransferLeader moves a leadership; to is a name or an identity.
func (s *status) TransferLeader(ctx context.Context, p fsm.PartitionID, to fsm.NodeID) error {
	id, err := s.identity(to)
	if err != nil {
		return err
	}
	return s.n.host.TransferLeadership(ctx, p, id)
}

func (s *status) catalog() *catalog.View {
	if v := s.n.directory.View(); v != nil {
		return v
	}
	return catalog.New().View()
}

// names returns how each node is shown.
func (s *status) names() map[fsm.NodeID]fsm.NodeID {
	alive := map[fsm.NodeID]bool{s.n.id: true}
	for _, m := range s.n.gossip.Members() {
		alive[m.ID] = alive[m.ID] || m.State == cluster.MemberAlive
	}
	return displayNames(s.n.id, s.catalog().Nodes(), alive)
}

// displayNames gives a node the name that people gave it. Of several nodes of one name, the only one that lives has it: the
// others were machines or disks before it. Two that live are shown by their identities.
func displayNames(self fsm.NodeID, nodes []catalog.Node, alive map[fsm.NodeID]bool) map[fsm.NodeID]fsm.NodeID {
	all, living := map[string]int{}, map[string]int{}
	for _, n := range nodes {
		all[n.Name]++
		if alive[n.ID] {
			living[n.Name]++
		}
	}
	out := map[fsm.NodeID]fsm.NodeID{self: self}
	for _, n := range nodes {
		out[n.ID] = n.ID
		if n.Name != "" && (all[n.Name] == 1 || living[n.Name] == 1 && alive[n.ID]) {
			out[n.ID] = fsm.NodeID(n.Name)
		}
	}
	return out
}

// Cluster describes nodes, partitions and entities as this node sees them.
func (s *status) Cluster(ctx context.Context) rest.ClusterStatus {
	names := s.names()
	show := func(id fsm.NodeID) fsm.NodeID {
		if name, ok := names[id]; ok {
			return name
		}
		return id
	}
	out := rest.ClusterStatus{Node: show(s.n.id), Entities: []rest.EntityStatus{}, Alarms: s.n.alarms.list()}
	if c := s.n.host.Clock(); c.Judged {
		out.Clock = &rest.ClockStatus{AheadMillis: c.Ahead.Milliseconds(), Wrong: c.Wrong}
	}
	told := s.leadersElsewhere(ctx)
	var moving []move
	out.Partitions, moving = s.partitions(told, show)
	out.Nodes, out.Moves = s.nodes(out.Partitions, show), moves(out.Partitions)
	out.Progress = s.progress(ctx, moving, told, show)
	v := s.catalog()
	out.Rehomings = rehomings(v)
	out.ClusterVersion, out.Knows = v.ClusterVersion().String(), fsm.NewestVersion.String()
	for _, kind := range []fsm.EntityKind{fsm.Queue, fsm.Topic, fsm.Subscription} {
		for _, d := range v.List(kind, 0, -1) {
			out.Entities = append(out.Entities, rest.EntityStatus{Name: d.Name, Shares: d.Partitions})
		}
	}
	return out
}

func clientAddr(m cluster.Member) string {
	if len(m.ClientAddrs) == 0 {
		return ""
	}
	return m.ClientAddrs[0]
}

// partitions lists every partition: from the replica here if there is one, else as its leader tells it, else what gossip
// says. It returns those that move, too.
func (s *status) partitions(told tellings, show func(fsm.NodeID) fsm.NodeID) (out []rest.PartitionStatus, moving []move) {
	terms := map[fsm.PartitionID]uint64{}
	for _, row := range s.n.view.Leaders() {
		terms[row.Partition] = row.Term
	}
	groups := append([]catalog.Group{{ID: fsm.CatalogPartition, Members: s.catalogMembers()}},
		s.catalog().Groups()...)
	for _, g := range groups {
		p := rest.PartitionStatus{ID: g.ID, Replicas: []fsm.NodeID{}}
		members := g.Members
		leader, known := s.n.view.Leader(g.ID)
		st, ok := told[s.n.id][g.ID]
		if ok {
			p.Leader, p.Term, p.Applied = show(st.Leader), st.Term, st.Applied
			p.Failure = st.Failure
		} else if known {
			p.Leader, p.Term = show(leader), terms[g.ID]
			st, ok = told[leader][g.ID]
		}
		if ok {
			p.Voters, p.Nonvoters, p.Differs = s.compare(g, &st, show)
			if len(st.Voters)+len(st.Nonvoters) > 0 {
				members = append(append([]fsm.NodeID(nil), st.Voters...), st.Nonvoters...)
			}
			if len(p.Differs) > 0 && g.ID != fsm.CatalogPartition {
				moving = append(moving, move{g.ID, st.Leader, filled(g, &st)})
			}
		}
		p.Replicas = append(p.Replicas, named(members, show)...)
		p.Members = named(g.Members, show)
		out = append(out, p)
	}
	return out, moving
}
