package tick

import (
	"testing"
	"testing/synctest"
	"time"
)

// Tickers of one period fire at the same moments, whenever they were made and however late somebody was to take a tick.
func TestTicksFallOnWholePeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 250 * time.Millisecond
		time.Sleep(37 * time.Millisecond)
		a := Every(every)
		defer a.Stop()
		time.Sleep(101 * time.Millisecond)
		b := Every(every)
		defer b.Stop()
		for i, late := range []time.Duration{0, 31 * time.Millisecond, 0, 200 * time.Millisecond, 3 * time.Second, 0, 0} {
			at := <-a.C
			if other := <-b.C; !other.Equal(at) {
				t.Errorf("tick %d: one at %v, the other at %v", i, at, other)
			}
			if time.Duration(at.UnixNano())%every != 0 {
				t.Errorf("tick %d is at %v", i, at)
			}
			time.Sleep(late)
			now := time.Now()
			a.Next()
			b.Next()
			next := now.Truncate(every).Add(every)
			if next.Sub(now) < every/2 {
				next = next.Add(every)
			}
			time.Sleep(next.Sub(now) - 1)
			select {
			case at := <-a.C:
				t.Errorf("tick %d was received %v late, and the next is at %v instead of %v", i, late, at, next)
			default:
			}
		}
	})
}
