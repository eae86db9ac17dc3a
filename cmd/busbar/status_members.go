package main

import (
	"fmt"
	"slices"

	"github.com/busbar-mq/busbar/cluster"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

func named(ids []fsm.NodeID, show func(fsm.NodeID) fsm.NodeID) []fsm.NodeID {
	var out []fsm.NodeID
	for _, id := range ids {
		out = append(out, show(id))
	}
	return out
}

// catalogMembers are the nodes that should hold the catalog: all that are registered and there. A
// registered one that is gone may come back, and is no member meanwhile.
func (s *status) catalogMembers() (ids []fsm.NodeID) {
	there := map[fsm.NodeID]bool{s.n.id: true}
	for _, m := range s.n.gossip.Members() {
		there[m.ID] = there[m.ID] || m.State == cluster.MemberAlive
	}
	for _, n := range s.catalog().Nodes() {
		if there[n.ID] {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// compare returns the members of a group as its replica here knows them, and where they are not what the catalog
// wants. Both name the nodes as people know them.
func (s *status) compare(g catalog.Group, st *replica.Status, show func(fsm.NodeID) fsm.NodeID) (
	voters, nonvoters []fsm.NodeID, differs []string) {
	voters, nonvoters = named(st.Voters, show), named(st.Nonvoters, show)
	members, learners, want := g.Members, st.Nonvoters, len(g.Members)
	if g.ID == fsm.CatalogPartition {
		// A node without a place holds the catalog and has no vote, as it should be.
		placed := control.Placed(s.catalog())
		want = control.CatalogVotes(len(placed), catalogVoters)
		settled := func(ids []fsm.NodeID) []fsm.NodeID {
			return slices.DeleteFunc(slices.Clone(ids), func(n fsm.NodeID) bool {
				return !placed[n] && slices.Contains(st.Nonvoters, n) && slices.Contains(g.Members, n)
			})
		}
		members, learners = settled(members), settled(learners)
	}
	return voters, nonvoters, differences(voters, named(learners, show), named(members, show), want)
}

// differences says where a group is not what the catalog wants: these members, so many of them with a
// vote. A replica that waits to be taken in knows no members and tells nothing.
func differences(voters, nonvoters, members []fsm.NodeID, votes int) (differs []string) {
	if len(voters) == 0 || len(members) == 0 {
		return nil
	}
	for _, id := range voters {
		if !slices.Contains(members, id) {
			differs = append(differs, fmt.Sprintf("%s votes and is not wanted, or is away", id))
		}
	}
	for _, id := range nonvoters {
		if !slices.Contains(members, id) {
			differs = append(differs, fmt.Sprintf("%s has no vote and is not wanted, or is away", id))
		}
	}
	for _, id := range members {
		switch {
		case slices.Contains(voters, id):
		case !slices.Contains(nonvoters, id):
			differs = append(differs, fmt.Sprintf("%s is wanted and not taken in yet", id))
		case len(voters) < votes:
			differs = append(differs, fmt.Sprintf("%s is taken in and does not vote yet", id))
		}
	}
	return differs
}
