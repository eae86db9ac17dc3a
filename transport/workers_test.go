package transport

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"weak"
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

// What nobody needs for some time ends, half of it at a time, and what is needed now and then stays.
func TestWorkersThatNobodyNeedsEnd(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		var w workers
		defer w.close()
		crowd := func(n int) {
			hold := make(chan struct{})
			for range n {
				w.run(func() { <-hold })
			}
			close(hold)
			synctest.Wait()
		}
		crowd(20)
		for i, want := range []int{20, 10, 5} { // of the first trim nobody knows yet who was needed
			if w.trim(); len(w.idle) != want {
				t.Errorf("%d workers wait after %d trims, want %d", len(w.idle), i+1, want)
			}
		}
		for range 10 {
			crowd(3)
			w.trim()
		}
		if len(w.idle) != 3 {
			t.Errorf("%d workers wait, and three are needed between two trims", len(w.idle))
		}
		for range 3 {
			w.trim()
		}
		crowd(1)
		if len(w.idle) != 1 {
			t.Errorf("%d workers wait, want the one that ran", len(w.idle))
		}
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

// A worker that waits holds nothing of what it ran: a message of 100 MB would stay in memory. The first function that it
// runs comes with its goroutine, and the others through its channel.
func TestAnIdleWorkerHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w workers
		defer w.close()
		give := func() weak.Pointer[byte] {
			body := make([]byte, 1<<20)
			w.run(func() { body[0]++ })
			return weak.Make(&body[0])
		}
		for i := range 3 {
			gone := give()
			synctest.Wait()
			if runtime.GC(); gone.Value() != nil {
				t.Errorf("function %d is still held", i)
			}
		}
		if len(w.idle) != 1 {
			t.Errorf("%d workers wait: the test shows nothing", len(w.idle))
		}
	})
}
