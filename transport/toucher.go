package transport

import (
	"context"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// touchInterval is how often a node tells an entity that somebody peeks at it (A22). Idle times
	// are five minutes at least (S-257), so a minute is often enough.
	touchInterval = time.Minute
	// maxTouched bounds the entities that are remembered; above it the memory starts anew, which
	// costs a command too many.
	maxTouched = 10_000
)

// toucher remembers which entities were touched lately. Reads do not enter the log, but somebody who
// peeks uses the entity (S-248, S-258).
type toucher struct {
	mu   sync.Mutex
	last map[fsm.EntityID]time.Time
}

// due reports whether the entity is to be touched now, and notes that it is.
func (t *toucher) due(id fsm.EntityID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.last[id]; ok && now.Sub(at) < touchInterval {
		return false
	}
	if len(t.last) >= maxTouched || t.last == nil {
		t.last = map[fsm.EntityID]time.Time{}
	}
	t.last[id] = now
	return true
}

// forget makes the next use of the entity count again.
func (t *toucher) forget(id fsm.EntityID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, id)
}

// touch tells the entity that it is in use, at most once in a touchInterval. One share is enough: an
// entity is as idle as the busiest of them.
func (s *Server) touch(ctx context.Context, pump *pumpID, d *fsm.Descriptor, sub fsm.SubQueue) {
	if !s.toucher.due(d.ID, time.Now()) {
		return
	}
	out, err := s.propose(ctx, pump, shareKey(d, sub, 0), &fsm.Touch{})
	if err != nil || out.Refusal != fsm.None {
		s.toucher.forget(d.ID)
		s.log.Debug("touch", "entity", d.Name, "refusal", out.Refusal, "error", err)
	}
}
