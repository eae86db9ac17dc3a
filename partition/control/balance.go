package control

import (
	"context"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

const (
	// balanceAfter is how long a leadership must have lasted before it is given to the preferred
	// node: a cluster in trouble has other worries.
	balanceAfter = 10 * time.Second
	// balanceRespects is how long a leadership stays where somebody has moved it on purpose. A node that is stopped in
	// good order hands over, too. So the respect ends when the preferred node begins another life, or is another node.
	balanceRespects = 10 * time.Minute
	// balanceEvery is the least time between two attempts for a partition.
	balanceEvery = 30 * time.Second
)

// balancer gives leaderships back to the nodes that the placement prefers, so that leaders are
// spread over the nodes (A3).
type balancer struct {
	s    *Supervisor
	seen map[fsm.PartitionID]leading
}

// leading is since when a partition is led here, and when it was last tried to give it away.
type leading struct {
	epoch uint64
	since time.Time
	tried time.Time
	// preferred is the node that should lead, and its life, as the catalog had them when the leadership began; renewed
	// says that either has changed since, or that the node said goodbye.
	preferred fsm.NodeID
	life      fsm.Incarnation
	renewed   bool
}

// step gives away what others are to lead.
func (b *balancer) step(ctx context.Context, f Facts) {
	if b.s.host.WrongClock() {
		b.leave(ctx, f)
		return
	}
	b.look(f)
	for _, g := range f.View.Groups() {
		r := b.s.host.Replica(g.ID)
		if r == nil || len(g.Members) == 0 || !r.Leading() {
			continue
		}
		s, to := b.seen[g.ID], g.Members[0]
		if epoch, ok := r.Led(); !ok || s.epoch != epoch {
			continue
		}
		if to == b.s.host.Node() || time.Since(s.since) < balanceAfter || time.Since(s.tried) < balanceEvery ||
			!s.renewed && r.GivenWithin(balanceRespects) {
			continue
		}
		s.tried = time.Now()
		b.seen[g.ID] = s
		if err := b.give(ctx, r, to); err != nil && ctx.Err() == nil {
			r.Log().Debug("leadership stays", "preferred", to, "error", err)
		}
	}
}

// look notes each leadership that began here, and what became of the preferred node since. It waits for nobody, so that
// it sees the life that the preferred node had.
func (b *balancer) look(f Facts) {
	for _, g := range f.View.Groups() {
		r := b.s.host.Replica(g.ID)
		if r == nil || len(g.Members) == 0 || !r.Leading() {
			continue
		}
		epoch, ok := r.Led()
		preferred, _ := f.View.Node(g.Members[0])
		s := b.seen[g.ID]
		if !ok || s.epoch != epoch {
			s = leading{epoch: epoch, since: time.Now(), preferred: g.Members[0], life: preferred.Incarnation}
		}
		s.renewed = s.renewed || s.preferred != g.Members[0] || s.life != preferred.Incarnation ||
			b.s.cfg.Left != nil && b.s.cfg.Left(s.preferred)
		b.seen[g.ID] = s
	}
}

// leave gives every leadership away, because the date here is wrong and others have a right one.
func (b *balancer) leave(ctx context.Context, f Facts) {
	for _, r := range f.Replicas {
		s := b.seen[r.ID()]
		if !r.Leading() || time.Since(s.tried) < balanceEvery {
			continue
		}
		s.tried = time.Now()
		b.seen[r.ID()] = s
		limit, cancel := context.WithTimeout(ctx, 2*b.s.timing.ElectionTimeout)
		to := b.s.host.RightTarget(limit, r)
		if to == "" {
			r.Log().Warn("the clock here is wrong, and nobody else can lead")
		} else if err := r.Transfer(limit, to); err != nil && ctx.Err() == nil {
			r.Log().Warn("the clock here is wrong, and the leadership stays", "to", to, "error", err)
		}
		cancel()
	}
}

func (b *balancer) give(ctx context.Context, r *replica.Replica, to fsm.NodeID) error {
	all, err := b.s.host.Ask(ctx, to)
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
		limit, stop := context.WithTimeout(ctx, 2*b.s.timing.ElectionTimeout)
		defer stop()
		return r.Transfer(limit, to)
	}
	return fmt.Errorf("node %s has no replica: %w", to, fsm.ErrUnavailable)
}
