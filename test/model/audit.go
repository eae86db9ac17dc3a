package model

import (
	"fmt"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// audit checks that each body is stored, remembered or reported as free, once.
func (m *Model) audit(freed []fsm.BodyRef) error {
	for _, r := range freed {
		if !m.bodies[r] {
			return fmt.Errorf("body %v is freed a second time or was never there", r)
		}
		if err := m.fromHistory(r); err != nil {
			return err
		}
		delete(m.bodies, r)
	}
	needed := m.needed // copies share one
	clear(needed)
	need := func(refs ...fsm.BodyRef) error {
		for _, r := range m.withParts(refs) {
			needed[r] = true
			if !m.bodies[r] {
				return fmt.Errorf("body %v is free and needed", r)
			}
		}
		return nil
	}
	for _, q := range m.queues {
		for _, l := range q.history[fsm.Processed] {
			if l.Ref.Length > 0 && !l.freed {
				if err := need(l.body); err != nil {
					return err
				}
			}
		}
		for _, u := range q.uploads {
			if err := need(u.parts...); err != nil {
				return err
			}
		}
		for _, s := range q.sessions {
			if err := need(s.parts...); err != nil {
				return err
			}
		}
		for _, x := range slices.Concat(q.messages, q.away) {
			if err := need(x.body); err != nil {
				return err
			}
		}
	}
	// order-free: a set, and any body that is missing makes it an error.
	for _, mem := range m.pumps {
		for i := range mem.outcome.Locked {
			if !mem.removed {
				break
			}
			if err := need(mem.outcome.Locked[i].Ref); err != nil {
				return err
			}
		}
	}
	// order-free: as above.
	for _, refs := range m.reclaimed {
		for _, r := range refs {
			if err := need(r); err != nil {
				return err
			}
		}
	}
	if len(needed) != len(m.bodies) {
		return fmt.Errorf("%d bodies are needed, %d are not free", len(needed), len(m.bodies))
	}
	return nil
}
