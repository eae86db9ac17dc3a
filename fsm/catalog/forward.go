package catalog

import (
	"strings"

	"github.com/busbar-mq/busbar/fsm"
)

// Destination returns the path of the entity that a ForwardTo names, which may be written as a URL.
func Destination(forward string) string {
	if _, rest, ok := strings.Cut(forward, "://"); ok {
		_, forward, _ = strings.Cut(rest, "/")
	}
	return strings.Trim(forward, "/")
}

// checkForward checks where an entity forwards to, at the time it is set (S-207, S-210).
func (s *State) checkForward(d *fsm.Descriptor) fsm.Outcome {
	if d.ForwardTo != "" && d.RequiresSession {
		return refuse(fsm.InvalidOperation, "ForwardTo cannot be combined with RequiresSession")
	}
	old := s.view.Entity(d.Name)
	for i, to := range [...]string{d.ForwardTo, d.ForwardDeadLettersTo} {
		if to == "" || old != nil && to == [...]string{old.ForwardTo, old.ForwardDeadLettersTo}[i] {
			continue // what was set before stays allowed; S-209 says what becomes of messages
		}
		name := Destination(to)
		dest := s.view.Entity(name)
		switch {
		case d.Kind == fsm.Topic:
			return refuse(fsm.InvalidOperation, "a topic does not forward")
		case d.Kind == fsm.Queue && strings.EqualFold(name, d.Name): // itself, which is only now made (RUL-24)
		case dest == nil:
			return refuse(fsm.EntityNotFound, "the entity %q to forward to does not exist", name)
		case dest.Kind == fsm.Subscription:
			return refuse(fsm.InvalidOperation, "%q is a subscription; forward to a queue or topic", name)
		}
	}
	return fsm.Outcome{}
}

// removeIdle deletes an entity unless it was changed since it was found idle (S-257, A22). A topic
// goes with its subscriptions.
func (s *State) removeIdle(c IdleDeletion) fsm.Outcome {
	old := s.view.ByID(c.ID)
	switch {
	case old == nil:
		return refuse(fsm.EntityNotFound, "entity %d does not exist", c.ID)
	case old.Version != c.Version:
		return refuse(fsm.InvalidOperation, "entity %d has changed meanwhile", c.ID)
	case old.AutoDeleteOnIdle <= 0 || old.AutoDeleteOnIdle >= fsm.Unlimited:
		return refuse(fsm.InvalidOperation, "entity %d stays when it is idle", c.ID)
	}
	return s.remove(c.ID)
}
