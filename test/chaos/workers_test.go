package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// I5, I9: a receive that brings fewer messages than its link has credit for leaves the rest open, and a message that
// comes later may be locked since then.
func TestCreditIsOpenUntilAllOfItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open credit
		start := time.Now().UnixNano()
		for i, step := range []struct {
			want, asked, got int
			since            time.Duration // after the start
		}{
			{4, 4, 1, 0},               // three are open
			{1, 3, 1, 0},               // a call for one would leave two open
			{5, 5, 5, 0},               // the SDK asks for three more, and all five come
			{1, 1, 1, 3 * time.Second}, // so this one was asked for just now
			{2, 2, 0, 4 * time.Second},
			{2, 2, 2, 4 * time.Second},
			{3, 3, 3, 6 * time.Second},
		} {
			if got := open.ask(step.want); got != step.asked || open.since != start+int64(step.since) {
				t.Errorf("step %d: asks for %d since %v, want %d since %v", i, got, time.Duration(open.since-start), step.asked, step.since)
			}
			open.got(step.got)
			time.Sleep(time.Second)
		}
	})
}

// A call of the SDK that does not end with its context is left alone, and its client starts anew.
func TestACallThatDoesNotEndIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for name, tc := range map[string]struct {
			takes time.Duration
			want  error
			after time.Duration
		}{
			"in time":   {time.Second, broken, time.Second},
			"late":      {5 * time.Second, broken, 5 * time.Second},
			"never":     {time.Hour, errStuck, 3*time.Second + stuckAfter},
			"just late": {3*time.Second + stuckAfter - 1, broken, 3*time.Second + stuckAfter - 1},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			began := time.Now()
			err := within(ctx, func() error { time.Sleep(tc.takes); return broken })
			if took := time.Since(began); !errors.Is(err, tc.want) || took != tc.after {
				t.Errorf("%s: %v after %v, want %v after %v", name, err, took, tc.want, tc.after)
			}
			cancel()
		}
		time.Sleep(time.Hour) // the call that was left alone ends, and with it the bubble
	})
}
