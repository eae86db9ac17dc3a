package catalog

import "github.com/busbar-mq/busbar/fsm"

// Suspension sets what an operator forbids an entity, whatever its user wants; Active lifts it (S-256).
type Suspension struct {
	ID     fsm.EntityID `json:"id"`
	Status fsm.Status   `json:"status"`
}

// suspend makes the status of an entity the operator's, or the user's again. Everybody else works by the
// one status that is left, which forbids what either of them does.
func (s *State) suspend(c Suspension) fsm.Outcome {
	old := s.view.ByID(c.ID)
	switch {
	case old == nil:
		return refuse(fsm.EntityNotFound, "entity %d does not exist", c.ID)
	case c.Status > fsm.ReceiveDisabled:
		return refuse(fsm.InvalidArgument, "there is no status %d", c.Status)
	case c.Status == fsm.Active && !old.Suspended:
		return fsm.Outcome{Data: encode(old)}
	}
	d := *old
	d.Restore()
	if c.Status != fsm.Active {
		d.Suspended, d.UserStatus = true, d.Status
		d.Status = d.Status.With(c.Status)
	}
	return s.revise(&d)
}

// guard refuses a user's change of what an operator has suspended. Any change is refused: the whole
// description is replaced by one, and with it a status that the user may have read and not set.
func guard(d *fsm.Descriptor) fsm.Outcome {
	if d.Suspended {
		return refuse(fsm.Unauthorized, "an operator has suspended %q, and only an operator can lift that", d.Name)
	}
	return fsm.Outcome{}
}
