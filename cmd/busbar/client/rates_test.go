package client

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// A rate is kept over the whole of a command, and one that is interrupted knows how far it came.
func TestARateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := redriveFlags{dead: true, rate: 100}
		values := url.Values{}
		began, left := time.Now(), uint64(1_000)
		stopAt := uint64(0)
		next := func(context.Context) (step, error) {
			most, err := strconv.ParseUint(values.Get("max"), 10, 64)
			if err != nil || most > 50 {
				t.Errorf("a request for %q at a time", values.Get("max"))
			}
			if done := 1_000 - left; time.Since(began) < time.Duration(done)*10*time.Millisecond {
				t.Errorf("%d messages after %s", done, time.Since(began))
			}
			s := step{Moved: min(most, left), Until: "then"}
			if left -= s.Moved; left > 0 {
				s.Next = strconv.FormatUint(left, 10)
			}
			if left == stopAt {
				cancel()
			}
			return s, nil
		}
		moved, err := r.loop(ctx, values, newBar(io.Discard, left), next)
		if took := time.Since(began); err != nil || moved != 1_000 || took > 10*time.Second {
			t.Errorf("%d moved in %s, %v", moved, took, err)
		}
		began, left, stopAt = time.Now(), 1_000, 800
		moved, err = r.loop(ctx, values, newBar(io.Discard, left), next)
		if !errors.Is(err, context.Canceled) || moved == 0 || moved > 200 || values.Get("cursor") == "" || values.Get("until") != "then" {
			t.Errorf("interrupted: %d moved, %v, the cursor is %q", moved, err, values.Get("cursor"))
		}
	})
}

// A purge keeps its rate, and one that is interrupted goes on without what has come meanwhile (S-265).
func TestAPurgeKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := purgeFlags{dead: true, session: "it's", rate: 1_000}
		values := url.Values{"session": {p.session}}
		began, left := time.Now(), uint64(10_000)
		next := func(context.Context) (step, error) {
			if values.Get("max") != "500" {
				t.Errorf("a request for %q at a time", values.Get("max"))
			}
			s := step{Deleted: min(500, left), Before: "2026-01-31T00:00:00Z", Skipped: 1}
			if left -= s.Deleted; left > 0 {
				s.Next = "0."
			}
			if left == 4_000 {
				cancel()
			}
			return s, nil
		}
		deleted, skipped, err := p.loop(ctx, values, newBar(io.Discard, left), next)
		if !errors.Is(err, context.Canceled) || deleted != 6_000 || skipped != 12 || time.Since(began) < 5*time.Second {
			t.Errorf("interrupted after %s: %d deleted, %d skipped, %v", time.Since(began), deleted, skipped, err)
		}
		if got, want := p.resume(values), ` --dlq --session 'it'\''s' --before 2026-01-31T00:00:00Z --rate 1000 --yes`; got != want {
			t.Errorf("goes on with %s, want %s", got, want)
		}
		deleted, _, err = p.loop(t.Context(), values, newBar(io.Discard, left), next)
		if err != nil || deleted != 4_000 || time.Since(began) > 10*time.Second {
			t.Errorf("%d deleted in %s, %v", deleted, time.Since(began), err)
		}
	})
}

// A command that goes on for another does no more than that one had left.
func TestWhatAStoppedCommandLeaves(t *testing.T) {
	r := redriveFlags{dead: true, max: 500, rate: 100}
	values := url.Values{"cursor": {"1.2"}, "max": {"50"}, "reason": {"it's"}}
	if got, want := r.resume(values, 200), ` --reason 'it'\''s' --cursor 1.2 --max 300 --rate 100`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheBarShowsHowFarItIs(t *testing.T) {
	for want, b := range map[string]struct {
		total, done uint64
	}{
		"[##############################] 100 %  0 of 0  0/s ":          {0, 0},
		"[###############...............]  50 %  500 of 1000  250/s ":   {1000, 500},
		"[##############################] 100 %  2000 of 1000  1000/s ": {1000, 2000},
	} {
		if got := (&bar{total: b.total}).line(b.done, 2*time.Second); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A bar whose end nobody knows shows how many there were, and how fast.
func TestABarWithoutAnEnd(t *testing.T) {
	if got := (&bar{}).line(50, 5*time.Second); got != "50  10/s    " {
		t.Errorf("%q", got)
	}
}
