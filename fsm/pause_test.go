package fsm

import "testing"

// The pause grows by the multiplier up to its maximum, whatever the numbers are.
func TestBackoffGrowsToItsMaximum(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	sh := d.s.write(7)
	for _, c := range []struct {
		b          RetryBackoff
		deliveries uint32
		want       Millis
	}{
		{RetryBackoff{}, 5, 0},
		{RetryBackoff{Max: 5, Multiplier: 200}, 5, 0},
		{RetryBackoff{Min: 100}, 1, 100},
		{RetryBackoff{Min: 100}, 9, 100},
		{RetryBackoff{Min: 100, Max: 50, Multiplier: 200}, 3, 100},
		{RetryBackoff{Min: 100, Max: 1000, Multiplier: 50}, 3, 100},
		{RetryBackoff{Min: 100, Max: 1000, Multiplier: 150}, 3, 225},
		{RetryBackoff{Min: 100, Max: 1000, Multiplier: 200}, 4, 800},
		{RetryBackoff{Min: 100, Max: 1000, Multiplier: 200}, 1 << 28, 1000},
		{RetryBackoff{Min: 1, Max: 1000, Multiplier: 101}, 4, 4},
		{RetryBackoff{Min: 1, Max: 1 << 62, Multiplier: 1<<32 - 1}, 1 << 28, maxRetryDelay},
		{RetryBackoff{Min: 1 << 62}, 1, maxRetryDelay},
	} {
		sh.d.RetryBackoff = c.b
		if got := d.s.backoff(sh, c.deliveries); got != c.want {
			t.Errorf("%+v after %d deliveries: %d, want %d", c.b, c.deliveries, got, c.want)
		}
	}
}

// Jitter comes from the entry's seed: other entries, other pauses, none outside of its share (S-281).
func TestJitterIsTheEntrysChance(t *testing.T) {
	d := newDriver(t)
	with := func(d *Descriptor) { d.RetryBackoff = RetryBackoff{Min: 1000, Jitter: 30} }
	d.ok(0, Main, queue(7, with))
	d.ok(7, Main, messages(20))
	for _, m := range d.ok(7, Main, &Lock{Max: 20}).Locked {
		d.ok(7, Main, settle(m.Token, Abandon))
	}
	pauses := map[Lease]bool{}
	d.s.write(7).boxes[Main].paused.Scan(func(_ uint64, at Lease) bool {
		if at -= d.lease; at < 700 || at > 1000 {
			t.Errorf("a pause of %d", at)
		} else {
			pauses[at] = true
		}
		return true
	})
	if len(pauses) < 10 {
		t.Errorf("only %d different pauses", len(pauses))
	}
}
