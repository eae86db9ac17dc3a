package fsm

import "fmt"

// enqueue stores all messages or none.
func (s *State) enqueue(sh *share, req *Request, c *Enqueue, o *Outcome) {
	if c.Origin != nil {
		s.enqueueMoved(sh, req, c, o)
		return
	}
	if !sh.acceptable(req, c, o) {
		return
	}
	marks, fresh := sh.duplicates(c, s.wall)
	if sh.d.Kind == Topic {
		s.publish(sh, c, marks, fresh, o)
		return
	}
	if !s.room(sh, c, marks, fresh, o) {
		return
	}
	s.dropDuplicates(sh, marks)
	o.Numbers = make([]SequenceNumber, len(c.Messages))
	o.Duplicate = marks
	o.EnqueuedAt = s.wall
	for i := range c.Messages {
		m := &c.Messages[i]
		if marks != nil && marks[i] {
			o.Numbers[i] = sh.living(m, s.wall)
			s.freeBody(m)
			continue
		}
		arrival := s.store(sh, m)
		s.note(sh, m, arrival)
		o.Numbers[i] = sh.number(arrival)
	}
	sh.touched = s.wall
}

// acceptable checks a batch as a whole, so a refused one consumes no number (S-91).
func (sh *share) acceptable(req *Request, c *Enqueue, o *Outcome) bool {
	switch {
	case req.Sub != Main:
		o.refuse(InvalidOperation, "messages cannot be sent to a subqueue") // S-171
	case sh.d.Kind == Subscription:
		o.refuse(InvalidOperation, "messages are sent to the topic, not to a subscription")
	case len(c.Messages) == 0:
		o.refuse(InvalidArgument, "no message")
	case !sh.reservations(c.Messages):
		o.refuse(InvalidArgument, "a number was not reserved, or a message has it")
	}
	if o.Refusal != None {
		return false
	}
	var total uint64
	for i := range c.Messages {
		m := &c.Messages[i]
		total += uint64(m.Size())
		if m.TTL < 0 {
			o.refuse(InvalidArgument, "time to live is negative") // S-205
			return false
		}
		if !sh.d.RequiresSession {
			continue
		}
		if !m.HasSession {
			// S-30
			o.refuse(SessionRequired, "the message has no session id; the entity requires one")
			return false
		}
		if !validSessionID(m.SessionID) {
			o.refuse(InvalidArgument, "the session id is longer than 128 characters")
			return false
		}
	}
	limit := uint64(sh.d.MaxMessageBytes) + uint64(len(c.Messages))*maxBodyOverheadBytes
	if sh.d.MaxMessageBytes > 0 && total > limit {
		o.refuse(MessageSizeExceeded,
			fmt.Sprintf("size %d bytes, maximum %d bytes", total, sh.d.MaxMessageBytes))
		return false
	}
	return true
}

// room checks that there is room for a batch; duplicates need none (S-188).
func (s *State) room(sh *share, c *Enqueue, marks []bool, fresh int, o *Outcome) bool {
	var total uint64
	for i := range c.Messages {
		if marks == nil || !marks[i] {
			total += uint64(c.Messages[i].Size())
		}
	}
	return sh.fits(total, o) && s.remembers(sh, marks, fresh, o)
}

// remembers checks that there is room to remember the ids of a batch.
func (s *State) remembers(sh *share, marks []bool, fresh int, o *Outcome) bool {
	if marks == nil {
		return true
	}
	s.forgetSeen(sh, 2*len(marks)+forgottenPerSend)
	if sh.seen.Len()+fresh > s.maxSeen {
		o.refuse(Busy, "too many message ids are remembered") // until some are out of the window
		return false
	}
	return true
}
