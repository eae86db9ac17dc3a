package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

const (
	// balanceAfter is how long a leadership must have lasted before it is given to the preferred
	// node: a cluster in trouble has other worries.
	balanceAfter = 10 * time.Second
	// balanceRespects is how long a leadership stays where somebody has moved it on purpose: an
	// operator, or a node that was stopped in good order.
	balanceRespects = 10 * time.Minute
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
	if b.host.Clock().Wrong {
		b.leave(ctx)
		return
	}
	for _, g := range v.Groups() {
		r := b.host.Replica(g.ID)
		if r == nil || len(g.Members) == 0 || !r.Leading() {
			continue
		}
		epoch, ok := r.Led()
		s := b.seen[g.ID]
		if !ok || s.epoch != epoch {
			b.seen[g.ID] = leading{epoch: epoch, since: time.Now()}
			continue
		}
		to := g.Members[0]
		if to == b.host.cfg.Node || time.Since(s.since) < balanceAfter ||
			time.Since(s.tried) < balanceEvery || r.GivenWithin(balanceRespects) {
			continue
		}
		s.tried = time.Now()
		b.seen[g.ID] = s
		if err := b.give(ctx, r, to); err != nil && ctx.Err() == nil {
			r.Log().Debug("leadership stays", "preferred", to, "error", err)
		}
	}
}

// leave gives every leadership away, because the date here is wrong and others have a right one.
func (b *balancer) leave(ctx context.Context) {
	for _, r := range b.host.list() {
		s := b.seen[r.ID()]
		if !r.Leading() || time.Since(s.tried) < balanceEvery {
			continue
		}
		s.tried = time.Now()
		b.seen[r.ID()] = s
		limit, cancel := context.WithTimeout(ctx, 2*b.host.cfg.ElectionTimeout)
		to := b.host.rightTarget(limit, r)
		if to == "" {
			r.Log().Warn("the clock here is wrong, and nobody else can lead")
		} else if err := r.Transfer(limit, to); err != nil && ctx.Err() == nil {
			r.Log().Warn("the clock here is wrong, and the leadership stays", "to", to, "error", err)
		}
		cancel()
	}
}

func (b *balancer) give(ctx context.Context, r *replica.Replica, to fsm.NodeID) error {
	ask, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	all, err := askStatus(ask, b.host.deps.Caller, to)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Partition != r.ID() {
			continue
		}
		if s.Failure != "" || s.Applied+caughtUp < r.Applied() {
			return fmt.Errorf("node %s is behind: %w", to, fsm.ErrUnavailable)
		}
		if s.WrongClock {
			return fmt.Errorf("the clock of node %s is wrong: %w", to, fsm.ErrUnavailable)
		}
		limit, stop := context.WithTimeout(ctx, 2*b.host.cfg.ElectionTimeout)
		defer stop()
		return r.Transfer(limit, to)
	}
	return fmt.Errorf("node %s has no replica: %w", to, fsm.ErrUnavailable)
}

// firstElectionEvery is how often a replica just opened looks whether the others are there.
const firstElectionEvery = 50 * time.Millisecond

// hasten gives a group that a majority has just opened a leader at once, instead of after a time-out (A17). A new
// group gets the preferred one, any other the one with the most log.
func (s *Supervisor) hasten(g catalog.Group) {
	r := s.host.Replica(g.ID)
	if r == nil || len(g.Members) < 2 {
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		t := time.NewTicker(firstElectionEvery)
		defer t.Stop()
		ctx, cancel := context.WithTimeout(s.ctx, s.host.cfg.HeartbeatTimeout)
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
	}()
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
		if m == s.host.cfg.Node {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, targetTimeout)
		all, err := askStatus(ask, s.host.deps.Caller, m)
		cancel()
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
		return g.Members[0] == s.host.cfg.Node
	}
	return best(&own, others)
}

// Ready returns why this node cannot serve now, nil if it can (RUL-20). A node can serve if what the catalog places
// here is open, and every replica works and knows a leader. A barrier at most a second old must have passed through
// those that lead.
func (h *Host) Ready(ctx context.Context) error {
	rs := h.list()
	if len(rs) == 0 {
		return fmt.Errorf("no partition is open: %w", fsm.ErrUnavailable)
	}
	errs := h.missing()
	if h.space.Level() >= replica.RoomForSettling {
		errs = append(errs, fmt.Errorf("disk is nearly full, nothing more is stored: %w", fsm.ErrBusy))
	}
	for _, r := range rs {
		leader, _ := r.Leader()
		switch {
		case r.Err() != nil:
			errs = append(errs, fmt.Errorf("partition %d: %w", r.ID(), r.Err()))
		case leader == "":
			errs = append(errs, fmt.Errorf("partition %d: %w", r.ID(), fsm.ErrUnavailable))
		case h.lost.has(leader):
			// A follower believes in its leader until a time-out that is longer than the loss is new.
			errs = append(errs, fmt.Errorf("partition %d: its leader %s is lost: %w", r.ID(), leader,
				fsm.ErrUnavailable))
		case r.Leading():
			if err := r.Barrier(ctx, time.Second); err != nil {
				errs = append(errs, fmt.Errorf("partition %d: %w", r.ID(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// missing returns an error for each partition that the catalog places here and that is not open. A
// catalog without partitions serves nobody yet.
func (h *Host) missing() (errs []error) {
	v := h.catalog()
	if v == nil {
		return nil
	}
	groups := v.Groups()
	if len(groups) == 0 {
		return []error{fmt.Errorf("no partition is placed yet: %w", fsm.ErrUnavailable)}
	}
	for _, g := range groups {
		if slices.Contains(g.Members, h.cfg.Node) && h.Replica(g.ID) == nil {
			errs = append(errs, fmt.Errorf("partition %d is not open: %w", g.ID, fsm.ErrUnavailable))
		}
	}
	return errs
}
