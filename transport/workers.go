package transport

import (
	"slices"
	"sync"
)

// maxIdleWorkers bounds the goroutines that wait for work, of all connections of a server. Each keeps a stack of some
// 10 KiB.
const maxIdleWorkers = 64

// workers runs functions on goroutines that are used again. A new goroutine starts with a small stack, and storing or
// settling a message makes it grow. That took 4 % of the time of a server under load.
type workers struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
	idle   []chan func() // of workers that wait; the last one waits for the shortest time
	spare  int           // how many have waited since the last trim
}

// run calls f on a goroutine of its own.
func (w *workers) run(f func()) {
	w.mu.Lock()
	if n := len(w.idle) - 1; n >= 0 {
		next := w.idle[n]
		w.idle = w.idle[:n]
		w.spare = min(w.spare, n)
		w.mu.Unlock()
		next <- f
		return
	}
	w.mu.Unlock()
	w.wg.Go(func() { w.work(f) })
}

// work calls f, and what is given to it later. It ends when enough others wait, when nobody needs it
// for some time, or with close.
func (w *workers) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !w.wait(next) {
			return
		}
		f = <-next
	}
}

// wait lists a worker as idle and reports whether it is to wait.
func (w *workers) wait(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) >= maxIdleWorkers {
		return false
	}
	w.idle = append(w.idle, next)
	return true
}

// trim ends half of the workers that nobody has needed since the last trim. So what a crowd needed goes with it.
func (w *workers) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := (w.spare + 1) / 2
	for _, next := range w.idle[:n] {
		close(next)
	}
	w.idle = slices.Delete(w.idle, 0, n)
	w.spare = len(w.idle)
}

// close ends the workers and waits for those that run something. Nobody but what they run may call run now.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle, w.spare = nil, 0
	w.mu.Unlock()
	w.wg.Wait()
}
