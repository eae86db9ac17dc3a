package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

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
