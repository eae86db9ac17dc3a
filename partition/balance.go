package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

const (
	// balanceAfter is how long a leadership must have lasted before it is given to the preferred
	// node: a cluster in trouble has other worries.
	balanceAfter = 10 * time.Second
	// balanceEvery is the least time between two attempts for a partition.
	balanceEvery = 30 * time.Second
)

// balancer gives leaderships back to the nodes that the placement prefers, so that leaders are
// spread over the nodes (A3).
type balancer struct {
	host *Host
	seen map[fsm.PartitionID]leading
}

// leading is since when a partition is led here, and when it was last tried to give it away.
type leading struct {
	epoch uint64
	since time.Time
	tried time.Time
}

func (b *balancer) look(ctx context.Context, v *catalog.View) {
	for _, g := range v.Groups() {
		r := b.host.Replica(g.ID)
		if r == nil || len(g.Members) == 0 || !r.Leading() {
			continue
		}
		epoch, ok := r.prop.led()
		s := b.seen[g.ID]
		if !ok || s.epoch != epoch {
			b.seen[g.ID] = leading{epoch: epoch, since: time.Now()}
			continue
		}
		to := g.Members[0]
		if to == b.host.cfg.Node || time.Since(s.since) < balanceAfter ||
			time.Since(s.tried) < balanceEvery {
			continue
		}
		s.tried = time.Now()
		b.seen[g.ID] = s
		if err := b.give(ctx, r, to); err != nil && ctx.Err() == nil {
			r.log.Debug("leadership stays", "preferred", to, "error", err)
		}
	}
}

func (b *balancer) give(ctx context.Context, r *Replica, to fsm.NodeID) error {
	ask, cancel := context.WithTimeout(ctx, heirTimeout)
	defer cancel()
	all, err := askStatus(ask, b.host.deps.Caller, to)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Partition != r.id {
			continue
		}
		if s.Failure != "" || s.Applied+caughtUp < r.machine.index() {
			return fmt.Errorf("node %s is behind: %w", to, fsm.ErrUnavailable)
		}
		limit, stop := context.WithTimeout(ctx, 2*b.host.cfg.ElectionTimeout)
		defer stop()
		return r.transfer(limit, to)
	}
	return fmt.Errorf("node %s has no replica: %w", to, fsm.ErrUnavailable)
}

// firstElectionEvery is how often a new group's preferred leader looks whether the others are there.
const firstElectionEvery = 50 * time.Millisecond

// hasten makes the preferred node of a new group stand for election as soon as a majority has
// opened it, instead of waiting for a time-out (A17).
func (s *Supervisor) hasten(g catalog.Group) {
	r := s.host.Replica(g.ID)
	if r == nil || len(g.Members) < 2 || g.Members[0] != s.host.cfg.Node {
		return
	}
	if _, term := r.Leader(); term > 1 || r.raft.LastIndex() > 1 {
		return // not new
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		t := time.NewTicker(firstElectionEvery)
		defer t.Stop()
		ctx, cancel := context.WithTimeout(s.ctx, s.host.cfg.HeartbeatTimeout)
		defer cancel()
		for {
			if leader, _ := r.Leader(); leader != "" {
				return
			}
			if s.opened(ctx, g) > len(g.Members)/2 {
				r.stand(ctx, "")
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
	}()
}

// opened counts the members that have the group open, this node among them.
func (s *Supervisor) opened(ctx context.Context, g catalog.Group) int {
	n := 1
	for _, m := range g.Members {
		if m == s.host.cfg.Node {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, heirTimeout)
		all, err := askStatus(ask, s.host.deps.Caller, m)
		cancel()
		if err == nil && slices.ContainsFunc(all, func(st Status) bool { return st.Partition == g.ID }) {
			n++
		}
	}
	return n
}

// Ready returns why this node cannot serve now, nil if it can: every replica here works and knows a
// leader, and a barrier at most a second old passed through those that lead (RUL-20).
func (h *Host) Ready(ctx context.Context) error {
	rs := h.list()
	if len(rs) == 0 {
		return fmt.Errorf("no partition is open: %w", fsm.ErrUnavailable)
	}
	errs := make([]error, 0, len(rs))
	for _, r := range rs {
		leader, _ := r.Leader()
		switch {
		case r.err() != nil:
			errs = append(errs, fmt.Errorf("partition %d: %w", r.id, r.err()))
		case leader == "":
			errs = append(errs, fmt.Errorf("partition %d: %w", r.id, fsm.ErrUnavailable))
		case r.Leading():
			if err := r.Barrier(ctx, time.Second); err != nil {
				errs = append(errs, fmt.Errorf("partition %d: %w", r.id, err))
			}
		}
	}
	return errors.Join(errs...)
}
