package waist

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

// activity remembers which entities were touched lately. Reads do not enter the log, but somebody who
// peeks uses the entity (S-248, S-258).
type activity struct {
	mu   sync.Mutex
	last map[fsm.EntityID]time.Time
}

// due reports whether the entity is to be touched now, and notes that it is.
func (t *activity) due(id fsm.EntityID, now time.Time) bool {
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
func (t *activity) forget(id fsm.EntityID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, id)
}

// Touch tells the entity that it is in use, at most once in a touchInterval. One share is enough: an
// entity is as idle as the busiest of them.
func (s *Source) Touch(ctx context.Context, pump *Pump, d *fsm.Descriptor, sub fsm.SubQueue) {
	if !s.activity.due(d.ID, time.Now()) {
		return
	}
	out, err := s.Propose(ctx, pump, ShareKey(d, sub, 0), &fsm.Touch{})
	if err != nil || out.Refusal != fsm.None {
		s.activity.forget(d.ID)
		s.cfg.Log.Debug("touch", "entity", d.Name, "refusal", out.Refusal, "error", err)
	}
}
