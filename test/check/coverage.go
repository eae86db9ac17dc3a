package check

import "github.com/busbar-mq/busbar/fsm"

// Coverage counts what a run exercised, from the committed logs and the history. A run that found
// nothing because nothing happened proves nothing.
type Coverage map[string]int

// The names of Coverage that this package counts.
const (
	Elections      = "elections"            // leaderships that began
	Retries        = "retries"              // commands applied once and asked for again under the same id
	Deliveries     = "deliveries"           // messages that clients received
	Redeliveries   = "redeliveries"         // those of them with a count
	LocksLost      = "locks lost"           // settlements and renewals refused for an expired lock
	SessionsLost   = "sessions lost"        // the same of sessions
	DeadLettered   = "dead-lettered"        // messages seen in a dead-letter queue
	Exceeded       = "delivery count ended" // those of them that were delivered too often
	Expired        = "expired"              // those of them whose time to live was over
	UnknownOutcome = "unknown outcomes"     // operations whose clients never learned what they did
)

// Cover counts.
func Cover(h *History, w *Witness) Coverage {
	c := Coverage{}
	for _, l := range w.Logs() {
		s := fsm.New(l.Partition)
		// The logs were decoded before, by Check.
		_ = l.Each(func(e *Entry, d *fsm.Entry) error {
			for i := range d.Requests {
				if _, ok := d.Requests[i].Command.(*fsm.BecomeLeader); ok {
					c[Elections]++
				}
			}
			if l.Partition == fsm.CatalogPartition {
				return nil
			}
			r := s.Apply(e.Index, d)
			for i := range r.Outcomes {
				if r.Outcomes[i].Repeated {
					c[Retries]++
				}
			}
			return nil
		})
	}
	dead := map[string]bool{}
	v := newView(h)
	for _, s := range v.sights {
		if s.sub == InDeadLetter && !dead[s.m.ID] {
			dead[s.m.ID] = true
			c[DeadLettered]++
			switch s.m.Reason {
			case "MaxDeliveryCountExceeded":
				c[Exceeded]++
			case "TTLExpiredException":
				c[Expired]++
			}
		}
	}
	for _, o := range h.Ops {
		switch {
		case o.Kind == Receive && o.Ok():
			c[Deliveries]++
			if o.Message.Attempts > 0 {
				c[Redeliveries]++
			}
		case o.Condition == "com.microsoft:message-lock-lost":
			c[LocksLost]++
		case o.Condition == "com.microsoft:session-lock-lost":
			c[SessionsLost]++
		}
		if o.Outcome == Unknown {
			c[UnknownOutcome]++
		}
	}
	return c
}
