package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// AwaitLimit is the longest wait of an Await; the caller looks again then (A19).
const AwaitLimit = 30 * time.Second

// waiters are the Awaits at this replica. A wake wakes all of a key. The state does not say how much there is, and a
// waiter that is woken may no longer want it. So waking one could strand a message beside an idle receiver (S-316).
type waiters struct {
	limit int

	mu    sync.Mutex
	count int
	keys  map[fsm.WaitKey]*wakeup
	// by is count for each entity; none has 0.
	by map[fsm.EntityID]int
}

// wakeup is closed when its key may have something.
type wakeup struct {
	ch    chan struct{}
	count int
}

func newWaiters(limit int) *waiters {
	return &waiters{limit: limit, keys: map[fsm.WaitKey]*wakeup{}, by: map[fsm.EntityID]int{}}
}

// await waits for a wake of the key, a change of leadership, or AwaitLimit. now is asked after the
// wait is registered, so that nothing is missed between the caller's last look and this one.
func (w *waiters) await(ctx context.Context, k fsm.WaitKey, now func() bool) error {
	w.mu.Lock()
	if w.count >= w.limit {
		w.mu.Unlock()
		return fmt.Errorf("%d requests await: %w", w.limit, fsm.ErrBusy)
	}
	w.count++
	w.by[k.Entity]++
	u := w.keys[k]
	if u == nil {
		u = &wakeup{ch: make(chan struct{})}
		w.keys[k] = u
	}
	u.count++
	w.mu.Unlock()
	defer w.leave(k, u)
	if now() {
		return nil
	}
	t := time.NewTimer(AwaitLimit)
	defer t.Stop()
	select {
	case <-u.ch:
		return nil
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *waiters) leave(k fsm.WaitKey, u *wakeup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	if w.by[k.Entity]--; w.by[k.Entity] == 0 {
		delete(w.by, k.Entity)
	}
	u.count--
	if u.count == 0 && w.keys[k] == u {
		delete(w.keys, k)
	}
}

func (w *waiters) wake(k fsm.WaitKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u := w.keys[k]; u != nil {
		close(u.ch)
		delete(w.keys, k)
	}
}

// dropped wakes everybody who awaits something of the entity.
func (w *waiters) dropped(id fsm.EntityID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, u := range w.keys {
		if k.Entity == id {
			close(u.ch)
			delete(w.keys, k)
		}
	}
}

// leaderChanged wakes everybody: whom to ask may have changed.
func (w *waiters) leaderChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, u := range w.keys {
		close(u.ch)
		delete(w.keys, k)
	}
}

// of returns how many await something of the entity.
func (w *waiters) of(id fsm.EntityID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[id]
}

// total returns how many await.
func (w *waiters) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// entities returns the entities that somebody awaits, in no order and with repetitions.
func (w *waiters) entities() []fsm.EntityID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]fsm.EntityID, 0, len(w.keys))
	for k := range w.keys {
		ids = append(ids, k.Entity)
	}
	return ids
}
