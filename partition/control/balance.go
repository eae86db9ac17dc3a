package control

import (
	"context"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
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
	// leaveEvery is the same on a node that is to lead nothing.
	leaveEvery = 5 * time.Second
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
	own, _ := f.View.Node(b.s.host.Node())
	if why := b.mustLeave(own); why != "" {
		b.leave(ctx, f, why)
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
		if n, _ := f.View.Node(to); n.Leaves() || to == b.s.host.Node() || time.Since(s.since) < balanceAfter ||
			time.Since(s.tried) < balanceEvery || !s.renewed && r.GivenWithin(balanceRespects) {
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

// mustLeave returns why this node is to lead nothing, "" if it may lead.
func (b *balancer) mustLeave(own catalog.Node) string {
	switch {
	case b.s.host.WrongClock():
		return "the clock here is wrong"
	case own.Leaves():
		return "this node is drained"
	}
	return ""
}

// leave gives every leadership away, to a node whose date is right and that does not leave itself.
func (b *balancer) leave(ctx context.Context, f Facts, why string) {
	for _, r := range f.Replicas {
		s := b.seen[r.ID()]
		if !r.Leading() || r.OnlyVoter() || time.Since(s.tried) < leaveEvery {
			continue
		}
		s.tried = time.Now()
		b.seen[r.ID()] = s
		limit, cancel := context.WithTimeout(ctx, 2*b.s.timing.ElectionTimeout)
		to := b.s.host.RightTarget(limit, r, func(n fsm.NodeID) bool {
			other, known := f.View.Node(n)
			return known && other.Leaves()
		})
		if to == "" {
			r.Log().Warn("the leadership should go, and nobody else can lead", "reason", why)
		} else if err := r.Transfer(limit, to); err != nil && ctx.Err() == nil {
			r.Log().Warn("the leadership should go, and stays", "reason", why, "to", to, "error", err)
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
