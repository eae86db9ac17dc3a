package fsm

import "fmt"

// holdForwards begins, lengthens or ends a hold.
func (s *State) holdForwards(c *HoldForwards, o *Outcome) {
	switch {
	case c.Hold == 0 || c.For < 0 || c.For > MaxHold || c.Renew && c.For == 0:
		o.refuse(InvalidArgument, fmt.Sprintf("a hold has a name, and lasts up to %d ms", MaxHold))
	case c.For == 0:
		if s.holding == c.Hold {
			s.endHold()
		}
	case c.Renew && s.holding != c.Hold:
		o.refuse(InvalidOperation, "the hold of forwards is over")
	case s.holding != 0 && s.holding != c.Hold:
		o.refuse(Busy, "another backup holds forwards")
	default:
		s.holding, s.heldUntil = c.Hold, s.lease.After(c.For)
	}
}

func (s *State) endHold() { s.holding, s.heldUntil = 0, 0 }

// Holding returns the hold of forwards that is in force, 0 for none.
func (s *State) Holding() uint64 { return s.holding }
