package main

import (
	"context"
	"slices"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/transport/rest"
)

// tellings are what nodes say of their replicas. A node that was not asked, or did not answer, is missing.
type tellings map[fsm.NodeID]map[fsm.PartitionID]replica.Status

func (t tellings) add(n fsm.NodeID, all []replica.Status) {
	t[n] = map[fsm.PartitionID]replica.Status{}
	for _, st := range all {
		t[n][st.Partition] = st
	}
}

// ask asks nodes that are there and were not asked, all at once, for half a second at most.
func (s *status) ask(ctx context.Context, told tellings, nodes []fsm.NodeID) {
	slices.Sort(nodes)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range slices.Compact(nodes) {
		if _, asked := told[n]; asked || n == "" || !s.alive(n) {
			continue
		}
		wg.Go(func() {
			all, err := s.n.host.Ask(ctx, n)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			told.add(n, all)
		})
	}
	wg.Wait()
}

// leadersElsewhere asks the leaders of those partitions of which this node has no replica, and this node itself.
func (s *status) leadersElsewhere(ctx context.Context) tellings {
	told := tellings{}
	told.add(s.n.id, s.n.host.Status())
	var leaders []fsm.NodeID
	for _, g := range s.catalog().Groups() {
		if leader, known := s.n.view.Leader(g.ID); known {
			if _, here := told[s.n.id][g.ID]; !here {
				leaders = append(leaders, leader)
			}
		}
	}
	s.ask(ctx, told, leaders)
	return told
}

// move is a partition whose replicas are not where the catalog wants them.
type move struct {
	partition fsm.PartitionID
	leader    fsm.NodeID
	filled    []fsm.NodeID // the nodes that get a replica
}

// filled returns the nodes that are to vote, or are members already, and do not vote yet.
func filled(g catalog.Group, st *replica.Status) (nodes []fsm.NodeID) {
	for _, n := range g.Members {
		if !slices.Contains(st.Voters, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// progress tells how far the replicas are that are being filled. The leaders and the nodes that get them are asked.
func (s *status) progress(ctx context.Context, moving []move, told tellings, show func(fsm.NodeID) fsm.NodeID) []rest.MoveStatus {
	var nodes []fsm.NodeID
	for _, m := range moving {
		nodes = append(append(nodes, m.leader), m.filled...)
	}
	s.ask(ctx, told, nodes)
	return progressOf(moving, told, show)
}

// progressOf compares what leaders and the nodes that get replicas say.
func progressOf(moving []move, told tellings, show func(fsm.NodeID) fsm.NodeID) (out []rest.MoveStatus) {
	for _, m := range moving {
		leader, known := told[m.leader][m.partition]
		if !known {
			continue
		}
		for _, n := range m.filled {
			x := rest.MoveStatus{Partition: m.partition, Node: show(n), From: show(m.leader)}
			if has := told[n][m.partition].Applied; has < leader.Applied {
				x.EntriesLeft = leader.Applied - has
			}
			for _, sent := range leader.Sending {
				if sent.To == n {
					x.BytesSent, x.BytesTotal = sent.Sent, sent.Size
					x.BytesPerSecond = uint64(float64(sent.Sent) / max(sent.Taken.Seconds(), 1e-3))
				}
			}
			out = append(out, x)
		}
	}
	return out
}
