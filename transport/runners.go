package transport

import (
	"slices"
	"sync"
)

// runners take the turns of connections that answers have come for. One round of a partition answers many of them. There are no more
// runners than processors, so most connections wait for a moment, and no goroutine has to be woken for them.
type runners struct {
	run  func(func()) // runs something on a goroutine
	most int          // runners

	mu      sync.Mutex
	waiting []*conn
	next    int // of waiting
	running int
}

// runnerShare is how many connections must wait for each runner before one more is worth waking a goroutine.
const runnerShare = 4

// runnerTurns is how many turns a runner takes for a connection before it looks after the others.
const runnerTurns = 16

// push has a runner take the turns of a connection.
func (r *runners) push(c *conn) {
	r.mu.Lock()
	r.waiting = append(r.waiting, c)
	more := r.running < r.most && len(r.waiting)-r.next > runnerShare*r.running
	if more {
		r.running++
	}
	r.mu.Unlock()
	if more {
		r.run(r.work)
	}
}

// pop returns the connection that has waited for the longest, nil if none waits.
func (r *runners) pop() *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == len(r.waiting) {
		r.waiting, r.next = r.waiting[:0], 0
		r.running--
		return nil
	}
	c := r.waiting[r.next]
	r.waiting[r.next] = nil
	if r.next++; r.next > len(r.waiting)/2 { // the rest moves to the front, so that the slice does not grow
		r.waiting = slices.Delete(r.waiting, 0, r.next)
		r.next = 0
	}
	return c
}

func (r *runners) work() {
	for c := r.pop(); c != nil; c = r.pop() {
		if c.someTurns(runnerTurns) {
			r.push(c)
		}
	}
}
