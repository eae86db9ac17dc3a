package waist

import (
	"context"
	"errors"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Pauses between attempts while a partition refuses for the moment.
const (
	busyPauseMin = 20 * time.Millisecond
	busyPauseMax = 2 * time.Second
)

// momentary reports whether the same request may succeed a little later.
func momentary(out fsm.Outcome, err error) bool {
	if err != nil {
		return !IsFinal(err)
	}
	return out.Refusal == fsm.Busy || out.Refusal == fsm.Stale || out.Refusal == fsm.NotLeader
}

// IsGone reports whether an error says that the entity does not exist.
func IsGone(err error) bool { return errors.Is(err, fsm.ErrNoEntity) }

// IsFinal reports whether a receiver hears of an error at once: the entity is gone, or has as many
// receives as it may (S-229).
func IsFinal(err error) bool { return IsGone(err) || errors.Is(err, fsm.ErrCrowded) }

// InDoubt reports whether an error of a proposal leaves open what became of it.
func InDoubt(err error) bool {
	return err != nil && !errors.Is(err, fsm.ErrBusy) && !errors.Is(err, fsm.ErrNoEntity) &&
		!errors.Is(err, fsm.ErrNotLeader)
}

// Sleep waits, and reports false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
