package partition

import (
	"sync"
	"sync/atomic"

	"github.com/busbar-mq/busbar/fsm"
)

// lifeOf is this life of the node as the front end numbers its requests. The cluster may declare it over although the
// process lives on, cut off for a while say (RUL-19); the front end then draws another one, and the catalog must
// learn of it. When the process ends in earnest, the sessions of the last life are to be released at once.
type lifeOf struct {
	// expired says that the present life was refused and the next one is not known yet.
	expired atomic.Bool

	mu      sync.Mutex
	current fsm.Incarnation
	changed broadcast
}

func (l *lifeOf) now() fsm.Incarnation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// asked notes under which life the front end asks.
func (l *lifeOf) asked(i fsm.Incarnation) {
	if i == 0 || !l.expired.Load() {
		return
	}
	l.mu.Lock()
	next := i != l.current && l.expired.Load()
	if next {
		l.current = i
		l.expired.Store(false)
	}
	l.mu.Unlock()
	if next {
		l.changed.fire()
	}
}

// refused notes that a life was declared over.
func (l *lifeOf) refused(i fsm.Incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i == l.current {
		l.expired.Store(true)
	}
}
