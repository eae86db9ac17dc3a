package fsm

import "strings"

// maxRevoked bounds what one Revoke releases of a holder's locks.
const maxRevoked = 1000

// maxOperatorBytes bounds the name of an operator.
const maxOperatorBytes = 256

// revokeLocks ends locks as if they had run out (S-54): their deliveries count, and their tokens are of no
// use from then on.
func (s *State) revokeLocks(sh *share, req *Request, c *Revoke, o *Outcome) {
	if len(c.Operator) > maxOperatorBytes {
		o.refuse(InvalidArgument, "the name of the operator is too long")
		return
	}
	if c.HasSession {
		s.revokeSession(sh, req, c, o)
		return
	}
	b := &sh.boxes[req.Sub]
	if sh.sessionful(req.Sub) {
		o.refuse(InvalidOperation, "the locks of a session end with it; release the session")
		return
	}
	var arrivals []uint64
	switch {
	case c.Number != 0:
		if a, m, ok := sh.find(req.Sub, c.Number); ok && m.locked() {
			arrivals = append(arrivals, a)
		}
	case c.Node != 0:
		b.locks.Scan(func(a uint64, l lock) bool {
			if l.node == c.Node && l.pump == c.Pump {
				arrivals = append(arrivals, a)
			}
			return len(arrivals) < maxRevoked
		})
	default:
		o.refuse(InvalidArgument, "name a message, a holder or a session")
		return
	}
	if len(arrivals) == 0 {
		o.refuse(MessageNotFound, "there is no such lock")
		return
	}
	for _, a := range arrivals {
		m, _ := b.messages.Get(a)
		s.noteRelease(sh, c, req.Sub, a, &m)
		s.giveBack(sh, req.Sub, a, &m, true, 0)
	}
	o.Count = uint64(len(arrivals))
}

// revokeSession takes a session from its holder.
func (s *State) revokeSession(sh *share, req *Request, c *Revoke, o *Outcome) {
	if !sh.sessionful(req.Sub) {
		o.refuse(SessionNotSupported, "the entity has no sessions")
		return
	}
	se := sh.lookup(c.Session)
	if se != nil {
		if h, held := sh.holders.Get(se.no); held {
			if c.Operator != "" {
				s.record(sh, Releases, &past{HistoryRecord: HistoryRecord{SessionID: se.id, At: s.wall,
					By: RequestID{Node: h.node}, End: Released, Operator: strings.Clone(c.Operator)}})
			}
			s.releaseSession(sh, se.no, true)
			o.Count = 1
			return
		}
	}
	o.refuse(MessageNotFound, "nobody holds the session")
}

// noteRelease records that an operator took the lock of a message, before the lock ends. A command without an
// operator is one of an earlier version, which has no record.
func (s *State) noteRelease(sh *share, c *Revoke, sub SubQueue, arrival uint64, m *message) {
	if c.Operator == "" {
		return
	}
	l, _ := sh.boxes[sub].locks.Get(arrival)
	id, _ := sh.names.Get(arrival)
	s.record(sh, Releases, &past{HistoryRecord: HistoryRecord{
		Number: sh.number(arrival), MessageID: id, SessionID: sh.sessionID(m), EnqueuedAt: m.at, At: s.wall,
		Deliveries: m.attempts() + 1, By: RequestID{Node: l.node, Pump: l.pump}, End: Released,
		Operator: strings.Clone(c.Operator),
	}})
}
