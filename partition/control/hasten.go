package control

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// firstElectionEvery is how often a replica just opened looks whether the others are there.
const firstElectionEvery = 50 * time.Millisecond

// hasten gives a group that a majority has just opened a leader at once, instead of after a time-out (A17). A new
// group gets the preferred one, any other the one with the most log.
func (s *Supervisor) hasten(g catalog.Group) {
	r := s.host.Replica(g.ID)
	if r == nil || len(g.Members) < 2 {
		return
	}
	s.Go(func(ctx context.Context) {
		t := time.NewTicker(firstElectionEvery)
		defer t.Stop()
		ctx, cancel := context.WithTimeout(ctx, s.timing.HeartbeatTimeout)
		defer cancel()
		for ctx.Err() == nil {
			if leader, _ := r.Leader(); leader != "" {
				return
			}
			if s.shouldCampaign(ctx, r, g) {
				r.Campaign(ctx, "")
				return
			}
			select {
			case <-ctx.Done():
			case <-t.C:
			}
		}
	})
}

// shouldCampaign reports whether a majority has the group open, none of them knows a leader, and this
// replica is the one to stand.
func (s *Supervisor) shouldCampaign(ctx context.Context, r *replica.Replica, g catalog.Group) bool {
	own := r.Status()
	if own.Failure != "" {
		return false
	}
	var others []replica.Status
	for _, m := range g.Members {
		if m == s.host.Node() {
			continue
		}
		all, err := s.host.Ask(ctx, m)
		if err != nil {
			continue
		}
		for _, o := range all {
			if o.Partition == g.ID && o.Leader != "" {
				return false
			}
			if o.Partition == g.ID && o.Failure == "" {
				others = append(others, o)
			}
		}
	}
	const onlyMembers = 1 // the log of a new group holds its first configuration
	switch {
	case 1+len(others) <= len(g.Members)/2:
		return false
	case own.Last <= onlyMembers:
		return g.Members[0] == s.host.Node()
	}
	return Best(&own, others)
}
