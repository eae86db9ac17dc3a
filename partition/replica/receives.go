package replica

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// enterLocked gives c one of its entity's places, or refuses it because all are taken (S-229). A request
// that is asked again has the place of the earlier attempt.
func (p *proposer) enterLocked(c *call) error {
	if c.key.Kind == fsm.WaitLost {
		return nil // it receives nothing
	}
	if old := p.parking.byID[c.req.ID]; old != nil && old.placed && old.req.Entity == c.req.Entity {
		old.placed, c.placed = false, true
		return nil
	}
	id := c.req.Entity
	// A receive of a partitioned entity waits at one of its shares and awaits all others, so each of
	// their leaders sees all of them.
	n := p.parking.receives[id] + p.waits.of(id)
	if n >= p.cfg.MaxReceives {
		return fmt.Errorf("%d receives of entity %d are under way, maximum %d: %w", n, id,
			p.cfg.MaxReceives, fsm.ErrCrowded)
	}
	p.parking.receives[id]++
	c.placed = true
	return nil
}

// leaveLocked gives back the place of c.
func (p *proposer) leaveLocked(c *call) {
	if !c.placed {
		return
	}
	c.placed = false
	id := c.req.Entity
	if p.parking.receives[id]--; p.parking.receives[id] <= 0 {
		delete(p.parking.receives, id)
	}
}
