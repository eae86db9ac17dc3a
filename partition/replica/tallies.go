package replica

import (
	"sync"

	"github.com/busbar-mq/busbar/fsm"
)

// Tallies add up what entries did to entities, since the process started. The replicas of a node share one.
//
// An entry is counted by the replica that proposed it, when it is applied there, and by no other. So the sum over the
// nodes counts each message once. Entries that are applied again after a restart were proposed under an earlier
// leadership, and are not counted.
type Tallies struct {
	mu       sync.Mutex
	entities map[fsm.EntityID]*fsm.Tally
}

// add takes what one entry did.
func (t *Tallies) add(r *fsm.Result) {
	if len(r.Tallies) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entities == nil {
		t.entities = map[fsm.EntityID]*fsm.Tally{}
	}
	for i := range r.Tallies {
		one := &r.Tallies[i]
		sum := t.entities[one.Entity]
		if sum == nil {
			sum = &fsm.Tally{Entity: one.Entity}
			t.entities[one.Entity] = sum
		}
		sum.Add(one)
	}
}

// forget drops what was counted of entities that an entry removed, whoever proposed it.
func (t *Tallies) forget(dropped []fsm.EntityID) {
	if len(dropped) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range dropped {
		delete(t.entities, id)
	}
}

// Of returns the sum of one entity.
func (t *Tallies) Of(id fsm.EntityID) (sum fsm.Tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.entities[id]; known != nil {
		sum = *known
	}
	return sum
}
