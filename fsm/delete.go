package fsm

import (
	"fmt"
	"slices"
)

// maxDeleted is the limit of one DeleteMessages (S-263).
const maxDeleted = 4000

// deleteMessages removes the oldest messages that wait and were enqueued before a time (S-263). Messages that are
// locked, deferred or scheduled stay, and so do other sessions (S-264).
func (s *State) deleteMessages(sh *share, req *Request, c *DeleteMessages, o *Outcome) {
	if c.Max == 0 || c.Max > maxDeleted || c.Before < 0 {
		o.refuse(InvalidArgument, fmt.Sprintf("delete 1 to %d messages at once", maxDeleted))
		return
	}
	if sh.sessionful(req.Sub) && c.Session.Token.IsZero() {
		o.Refusal = SessionLockLost
		return
	}
	no, ok := s.reader(sh, req.Sub, c.Session, o)
	if !ok {
		return
	}
	b := &sh.boxes[req.Sub]
	var arrivals []uint64
	b.ready.Ascend(placeKey{session: no}, func(k placeKey) bool {
		m, _ := b.messages.Get(k.arrival)
		// Enqueued times rise with arrivals (S-104), so the first one too late is the end.
		if k.session != no || len(arrivals) == int(c.Max) || c.Before != 0 && m.at >= c.Before {
			return false
		}
		arrivals = append(arrivals, k.arrival)
		return true
	})
	if no == 0 {
		b.paused.Scan(func(a uint64, _ Lease) bool { // they wait, too, though not for a receiver
			m, _ := b.messages.Get(a)
			if c.Before != 0 && m.at >= c.Before || len(arrivals) == 2*int(c.Max) {
				return false
			}
			arrivals = append(arrivals, a)
			return true
		})
		slices.Sort(arrivals)
		arrivals = arrivals[:min(len(arrivals), int(c.Max))]
	}
	for _, a := range arrivals {
		m, _ := b.messages.Get(a)
		s.discard(sh, req.Sub, a, &m)
	}
	o.Count = uint64(len(arrivals))
	sh.touched = s.wall
}

// discard removes one message for good.
func (s *State) discard(sh *share, sub SubQueue, arrival uint64, m *message) {
	s.dropStored(sh, DropPurged, sub, arrival, m)
	s.gone(sh, arrival, Deleted)
	s.remove(sh, sub, arrival, m)
	s.free(m.ref())
}
