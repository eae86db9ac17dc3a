package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// serve lets expire what is over before a receiver is served.
func (m *Model) serve(q *queue) {
	q.hears = true
	m.outlive(q)
}

// over reports whether a message that nobody has in hand is past its time.
func (m *Model) over(x *message) bool {
	return x.waits() && x.expires != 0 && x.expires <= m.wall
}

// waits reports whether a message is undelivered.
func (x *message) waits() bool {
	return x.sub == fsm.Main && x.state == fsm.StateActive && x.token.IsZero() && !x.moving
}

func (s *session) held() bool { return !s.token.IsZero() }

// outlive lets expire whatever is over, and with it all that is undelivered of the same session.
func (m *Model) outlive(q *queue) {
	for {
		i := slices.IndexFunc(q.messages, m.over)
		if i < 0 {
			break
		}
		if x := q.messages[i]; x.session != nil {
			m.perish(q, x.session)
		} else {
			m.lapse(q, x)
		}
	}
	q.tidy()
}

func (m *Model) perish(q *queue, s *session) {
	for _, x := range slices.Clone(q.messages) {
		if x.session == s && x.waits() {
			m.lapse(q, x)
		}
	}
}

func (m *Model) lapse(q *queue, x *message) {
	m.left(q, x, fsm.Expired)
	if q.d.NoDeadLetter || !q.d.DeadLetterOnExpiration {
		q.drops[fsm.DropExpired]++
		q.delete(x)
		return
	}
	deadLetter(x, "TTLExpiredException", "The message expired and was dead lettered.")
}

// mayWake reports whether the rest of a message may be over, by chance, or not.
func (x *message) mayWake(lease fsm.Lease) bool {
	return x.idle() && x.session == nil && x.rest != 0 && x.restMin <= lease
}

// woke learns from what was given out that the rest of a message was over.
func (x *message) woke(lease fsm.Lease, got *fsm.Outcome) {
	if x.mayWake(lease) && slices.ContainsFunc(got.Locked, func(d fsm.Delivery) bool { return d.Seq == x.number }) {
		x.rest = 0
	}
}

// rests reports whether a message or its session is not to be delivered yet.
func (x *message) rests() bool { return x.rest != 0 || x.session != nil && x.session.rest != 0 }
