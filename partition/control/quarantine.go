package control

import (
	"context"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// diverged compares the newest digest of the leader with those of the same entry elsewhere, and returns
// the step against a replica that differs. It is what the majority says that counts: a leader that is
// alone with its state fails by itself.
func (m *repairer) diverged(r *replica.Replica, g *repairGroup, states map[fsm.NodeID]nodeState) *repairStep {
	own := r.Digests()
	for i := len(own) - 1; i >= 0; i-- {
		sums := map[fsm.NodeID]string{}
		voters := 0
		for n, s := range g.servers { // order-free: the sums go into a map
			if s != raft.Voter {
				continue
			}
			voters++
			if sum := sumAt(states[n][r.ID()].Digests, own[i]); n != g.self && sum != "" {
				sums[n] = sum
			}
		}
		sums[g.self] = own[i].Sum
		bad, agreed, unclear := compare(sums, voters)
		if unclear {
			r.Dispute(own[i].Index, sums)
			continue
		}
		for _, n := range bad {
			if n == g.self {
				m.s.host.Diverge(r, own[i], agreed)
				return nil
			}
			return m.quarantine(g, n, own[i].Index, agreed)
		}
	}
	return nil
}

// sumAt returns the digest that can be compared with another one, "" if there is none.
func sumAt(all []replica.Digest, with replica.Digest) string {
	for _, d := range all {
		if d.Index == with.Index && d.Form == with.Form {
			return d.Sum
		}
	}
	return ""
}

func (m *repairer) quarantine(g *repairGroup, n fsm.NodeID, index uint64, agreed string) *repairStep {
	return &repairStep{what: "quarantine what differs", node: n, do: func(ctx context.Context, s *Supervisor, r *replica.Replica) error {
		ctx, cancel := context.WithTimeout(ctx, admitTimeout)
		defer cancel()
		return s.host.Quarantine(ctx, n, g.id, index, agreed)
	}}
}

// compare judges a group's digests. sums maps voters to their digests of one index and form; voters is
// how many there are. diverged are those who differ from what a majority of all voters agrees upon;
// unclear says that some differ and no majority agrees, so that nobody knows who is right.
func compare(sums map[fsm.NodeID]string, voters int) (diverged []fsm.NodeID, agreed string, unclear bool) {
	count := map[string]int{}
	for _, s := range sums { // order-free: only counts
		count[s]++
	}
	for s, n := range count { // order-free: at most one has a majority
		if n > voters/2 {
			agreed = s
		}
	}
	for n, s := range sums { // sorted below
		if agreed != "" && s != agreed {
			diverged = append(diverged, n)
		}
	}
	slices.Sort(diverged)
	return diverged, agreed, agreed == "" && len(count) > 1
}
