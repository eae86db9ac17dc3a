package transport

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A worker is used again, no more than the bound wait, and close ends all of them: none is left in the bubble.
func TestWorkersAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		var w workers
		var ran atomic.Int64
		for range 100 {
			w.run(func() { ran.Add(1) })
			synctest.Wait()
		}
		if ran.Load() != 100 || len(w.idle) != 1 {
			t.Errorf("%d ran one after the other on %d workers", ran.Load(), len(w.idle))
		}
		hold := make(chan struct{})
		for range 3 * maxIdleWorkers {
			w.run(func() { <-hold; ran.Add(1) })
		}
		synctest.Wait()
		if ran.Load() != 100 || len(w.idle) != 0 {
			t.Errorf("%d ran, %d wait, while all are held", ran.Load(), len(w.idle))
		}
		close(hold)
		synctest.Wait()
		if ran.Load() != 100+3*maxIdleWorkers || len(w.idle) != maxIdleWorkers {
			t.Errorf("%d ran, %d wait", ran.Load(), len(w.idle))
		}
		w.close()
	})
}

// What runs while the workers are closed is waited for, with what it gives to others.
func TestWorkersThatCloseRunWhatTheyGot(t *testing.T) {
	for range 200 {
		var w workers
		var ran atomic.Int64
		for range 8 {
			w.run(func() {
				for range 20 {
					w.run(func() { ran.Add(1) })
				}
			})
		}
		w.close()
		if ran.Load() != 160 {
			t.Fatalf("%d of 160 ran", ran.Load())
		}
	}
}
