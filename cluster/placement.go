package cluster

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// Place chooses the replicas of each partition. It is pure: the same sets give the same answer in
// whatever order they come, so any node may compute it. Every partition gets min(replicas, nodes)
// distinct nodes; no two nodes differ by more than one replica, nor by more than one partition that
// names them first, which is the preferred leader (A3). Adding partitions with higher ids moves none
// of the others. Duplicate nodes and partitions count once.
func Place(
	nodes []fsm.NodeID, partitions []fsm.PartitionID, replicas int,
) map[fsm.PartitionID][]fsm.NodeID {
	nodes, partitions = sortedSet(nodes), sortedSet(partitions)
	placed := make(map[fsm.PartitionID][]fsm.NodeID, len(partitions))
	replicas = min(replicas, len(nodes))
	if replicas <= 0 {
		return placed
	}
	leads := make([]int, len(nodes))
	// A run around the ring of nodes that goes on where the last partition ended keeps the replicas
	// level. Where in its run a partition's leader sits is chosen by who leads least.
	for i, p := range partitions {
		run := make([]int, replicas)
		for j := range run {
			run[j] = (i*replicas + j) % len(nodes)
		}
		best := 0
		for j := range run {
			if leads[run[j]] < leads[run[best]] {
				best = j
			}
		}
		leads[run[best]]++
		members := make([]fsm.NodeID, 0, replicas)
		for j := range run {
			members = append(members, nodes[run[(best+j)%replicas]])
		}
		placed[p] = members
	}
	return placed
}

// PreferredLeaders returns who should lead each partition: the first of its replicas that is up, or
// nobody if none is. It is pure.
func PreferredLeaders(
	placed map[fsm.PartitionID][]fsm.NodeID, up func(fsm.NodeID) bool,
) map[fsm.PartitionID]fsm.NodeID {
	leaders := make(map[fsm.PartitionID]fsm.NodeID, len(placed))
	for p, members := range placed {
		if i := slices.IndexFunc(members, up); i >= 0 {
			leaders[p] = members[i]
		}
	}
	return leaders
}

func sortedSet[T fsm.NodeID | fsm.PartitionID](in []T) []T {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}
