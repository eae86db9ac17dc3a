package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// nextEnd is when the next message or session lock ends.
func (q *queue) nextEnd() (fsm.Lease, bool) {
	if q.rests() {
		return 0, false
	}
	var ends []fsm.Lease
	for _, s := range q.sessions {
		if !s.token.IsZero() {
			ends = append(ends, s.deadline)
		}
		if s.awaits() {
			ends = append(ends, s.left.until)
		}
	}
	for _, x := range q.messages {
		if !x.token.IsZero() && x.session == nil {
			ends = append(ends, x.deadline)
		}
	}
	for _, s := range q.sessions {
		if s.rest != 0 {
			ends = append(ends, s.rest)
		}
	}
	for _, x := range q.messages {
		if x.rest != 0 {
			ends = append(ends, x.rest)
		}
	}
	for _, u := range q.uploads {
		ends = append(ends, u.until)
	}
	if len(ends) == 0 {
		return 0, false
	}
	return slices.Min(ends), true
}

// endOne ends the lock that ends next: sessions first, in the order they came into being.
func (m *Model) endOne(q *queue) {
	at, _ := q.nextEnd()
	for _, s := range q.sessions {
		if !s.token.IsZero() && s.deadline == at {
			m.release(q, s, true)
			return
		}
	}
	for _, x := range q.messages {
		if !x.token.IsZero() && x.session == nil && x.deadline == at {
			m.giveBack(q, x, true, 0)
			return
		}
	}
	for _, x := range q.messages {
		if x.rest == at {
			x.rest = 0
			return
		}
	}
	for _, s := range q.sessions {
		if s.rest == at {
			s.rest = 0
			q.tidy()
			return
		}
	}
	for _, s := range q.sessions {
		if s.awaits() && s.left.until == at {
			m.gaveUp(q, s, true)
			return
		}
	}
	for _, u := range q.uploads {
		if u.until == at {
			q.endUpload(u)
			return
		}
	}
}

func (m *Model) expire(q *queue) {
	if q.rests() {
		return
	}
	for at, ok := q.nextEnd(); ok && at <= m.lease; at, ok = q.nextEnd() {
		m.endOne(q)
	}
}

func (m *Model) release(q *queue, s *session, counted bool) {
	s.token, s.shared, s.left = fsm.LockToken{}, fsm.LockToken{}, leaver{}
	q.active = m.lease
	m.allBack(q, s, counted)
	q.tidy()
}

// allBack ends the locks of all messages of a session.
func (m *Model) allBack(q *queue, s *session, counted bool) {
	expired := false
	for _, x := range slices.Clone(q.messages) {
		if x.session == s && !x.token.IsZero() {
			expired = m.comeBack(q, x, counted, 0) || expired
		}
	}
	if expired {
		m.perish(q, s)
	}
}
