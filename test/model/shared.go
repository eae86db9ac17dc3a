package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// leaver is a receiver from which a session was taken over and whose node has not said yet what the
// receiver was not sent; its token is zero if there is none.
type leaver struct {
	token fsm.LockToken
	node  fsm.Incarnation
	until fsm.Lease
}

// awaits reports whether the session's holder is given nothing yet, because of a leaver (S-333).
func (s *session) awaits() bool { return s.held() && !s.left.token.IsZero() }

// takeOver gives a shared session to another receiver; what is locked stays locked (S-327, S-332).
func (m *Model) takeOver(q *queue, r *fsm.Request, s *session, got *fsm.Outcome) fsm.Outcome {
	locked := slices.ContainsFunc(q.messages, func(x *message) bool {
		return x.session == s && !x.token.IsZero()
	})
	if locked && !s.awaits() {
		s.left = leaver{token: s.token, node: s.node, until: s.deadline}
	}
	return m.hold(q, r, s, got)
}

// leaves does what the node of a leaver says; false if it is none (S-333).
func (m *Model) leaves(q *queue, c *fsm.ReleaseSession) bool {
	s := q.session(c.Session.ID)
	if s == nil || !s.awaits() || c.Session.Token != s.left.token {
		return false
	}
	if c.Unsure {
		m.gaveUp(q, s, false)
		return true
	}
	for _, t := range c.Unsent {
		if x := q.byToken(fsm.Main, t); x != nil && x.session == s {
			m.giveBack(q, x, false, 0)
		}
	}
	s.left = leaver{}
	return true
}

// gaveUp ends the wait for a leaver: everything that is locked in the session goes back.
func (m *Model) gaveUp(q *queue, s *session, counted bool) {
	m.allBack(q, s, counted)
	s.left = leaver{}
	q.tidy()
}
