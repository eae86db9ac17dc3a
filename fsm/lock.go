package fsm

import (
	"fmt"
	"math"
	"strings"
)

// maxDeliveries bounds one Lock, whatever its Max: its answer must fit a frame between nodes.
const maxDeliveries = 10_000

// maxNumbers bounds one Receive or Cancel (S-181).
const maxNumbers = 1000

type pick struct {
	arrival uint64
	m       message
}

// lock takes the first deliverable messages of the queue or of the held session (S-8, S-56).
func (s *State) lock(sh *share, req *Request, c *Lock, o *Outcome) {
	if c.Max == 0 {
		o.refuse(InvalidArgument, "no message is asked for")
		return
	}
	no, ok := s.reader(sh, req.Sub, c.Session, o)
	if !ok {
		return
	}
	if !s.serve(sh) && req.Sub == Main {
		return // a Tick wakes when what has expired is out of the way
	}
	if no != 0 && (sh.paused(no) || sh.passing(no)) {
		return
	}
	picks := s.pick(&sh.boxes[req.Sub], no, c)
	if len(picks) == 0 {
		return
	}
	s.takeAll(sh, req, no, picks, c.Delete, o)
}

// reader checks the right to receive from the subqueue. The result is the number of the held
// session, 0 without sessions.
func (s *State) reader(sh *share, sub SubQueue, p SessionProof, o *Outcome) (uint32, bool) {
	if !sh.sessionful(sub) {
		if !p.Token.IsZero() || p.ID != "" {
			o.refuse(SessionNotSupported, "the entity has no sessions") // S-34
			return 0, false
		}
		return 0, true
	}
	if p.Token.IsZero() {
		o.refuse(SessionRequired, "the entity is read under a session lock") // S-33
		return 0, false
	}
	se := sh.holds(p)
	if se == nil {
		o.Refusal = SessionLockLost
		return 0, false
	}
	sh.keep(se)
	return se.no, true
}

// pick chooses what a Lock takes, in order. The result is valid until the next pick.
func (s *State) pick(b *box, session uint32, c *Lock) []pick {
	picks := s.run.picks[:0]
	left := int(min(c.Max, maxDeliveries))
	room := uint64(c.MaxBytes)
	if room == 0 {
		room = math.MaxUint64
	}
	b.ready.Ascend(placeKey{session: session}, func(k placeKey) bool {
		if k.session != session || left == 0 {
			return false
		}
		m, _ := b.messages.Get(k.arrival)
		if len(picks) > 0 && uint64(m.length) > room {
			return false
		}
		room -= min(room, uint64(m.length))
		picks = append(picks, pick{arrival: k.arrival, m: m})
		left--
		return true
	})
	s.run.picks = picks
	return picks
}

// takeAll takes what was picked in a queue without sessions, or in a session.
func (s *State) takeAll(sh *share, req *Request, session uint32, picks []pick, remove bool, o *Outcome) {
	sh.touched = s.wall
	until := s.lease.After(sh.d.LockDuration)
	if session != 0 {
		h, _ := sh.holders.Get(session)
		until = h.deadline
	}
	o.Locked = make([]Delivery, len(picks))
	for i := range picks {
		s.take(sh, req, &picks[i], until, remove, &o.Locked[i])
	}
}

// take locks an unlocked message until then, or removes it, and describes it. A removed body belongs to the
// remembered result until that is forgotten; without one it is free at once (A9).
func (s *State) take(sh *share, req *Request, p *pick, until Lease, remove bool, d *Delivery) {
	arrival, m := p.arrival, &p.m
	t := s.tally(sh)
	t.Out[req.Sub.side()]++
	t.OutBytes[req.Sub.side()] += uint64(m.length)
	if remove {
		t.Completed[req.Sub.side()]++
		s.describe(sh, req.Sub, arrival, m, d)
		s.processed(sh, arrival, m, false) // the body belongs to the result
		s.remove(sh, req.Sub, arrival, m)
		if req.ID.IsZero() {
			s.free(d.Ref)
		}
		return
	}
	b := &sh.boxes[req.Sub]
	s.unplace(sh, req.Sub, arrival, m)
	l := lock{token: s.token(sh), taken: s.wall, node: req.ID.Node, pump: req.ID.Pump}
	if m.session == 0 {
		l.deadline = until
		sh.leaseDue.Load(leaseDue{at: l.deadline, kind: dueLock, sub: req.Sub, id: arrival})
	} else {
		sh.change(m.session).hand(arrival)
	}
	b.locks.Set(arrival, l)
	s.addToken(sh, l.token, l.token.ref(arrival, req.Sub))
	m.bits |= lockedBit
	b.messages.Set(arrival, *m)
	s.describe(sh, req.Sub, arrival, m, d)
	d.Token, d.LockedUntil = l.token, s.shown(until)
}

func (s *State) lockedDelivery(
	sh *share, sub SubQueue, arrival uint64, m *message, l lock,
) Delivery {
	d := s.delivery(sh, sub, arrival, m)
	d.Token = l.token
	deadline := l.deadline
	if m.session != 0 {
		h, _ := sh.holders.Get(m.session)
		deadline = h.deadline
	}
	d.LockedUntil = s.shown(deadline)
	return d
}

// shown is a lease deadline as users see it: by the wall clock, with the time that is left.
func (s *State) shown(deadline Lease) Wall { return s.wall.After(deadline.Since(s.lease)) }

// unlock ends the lock of a message; where the message goes then is the caller's business.
func (s *State) unlock(sh *share, sub SubQueue, arrival uint64, m *message) {
	b := &sh.boxes[sub]
	l, _ := b.locks.Delete(arrival)
	s.removeToken(sh, l.token)
	if m.session == 0 {
		sh.leaseDue.Delete(leaseDue{at: l.deadline, kind: dueLock, sub: sub, id: arrival})
	} else {
		sh.change(m.session).takeBack(arrival)
	}
	m.bits &^= lockedBit
}

// release ends a lock without removal. The message returns to the state that it had (S-7), at its old place (S-9),
// with one more delivery if counted. In a DLQ nothing counts (S-15). At MaxDeliveryCount it is dead-lettered in the
// same step (S-14); that goes before the end of its life (S-16), which otherwise comes in the same step (S-202) and
// makes the result true. An active message rests for delay, or if that is 0 and the delivery counts for as long as
// the description says.
func (s *State) release(
	sh *share, sub SubQueue, arrival uint64, m *message, counted bool, delay Millis,
) (expired bool) {
	if counted && sub == Main {
		m.raise()
		if m.attempts() >= sh.d.MaxDelivery {
			s.exhaust(sh, arrival, m)
			return false
		}
	}
	if sub == Main && m.state() == StateActive && m.expires != 0 && m.expires <= s.wall {
		s.lapse(sh, arrival, m)
		return true
	}
	s.unlock(sh, sub, arrival, m)
	if delay == 0 && counted && sub == Main {
		delay = s.backoff(sh, m.attempts())
	}
	s.rest(sh, sub, arrival, m, delay)
	sh.boxes[sub].messages.Set(arrival, *m)
	s.place(sh, sub, arrival, m)
	if sub == Main {
		sh.spare(m.session, arrival)
	}
	return false
}

// giveBack releases one message alone; if it has expired, the undelivered of its session expire with
// it (S-79, S-81).
func (s *State) giveBack(
	sh *share, sub SubQueue, arrival uint64, m *message, counted bool, delay Millis,
) {
	if s.release(sh, sub, arrival, m, counted, delay) && m.session != 0 {
		sh.doom(m.session)
	}
}

// renew extends locks, all or none (S-156).
func (s *State) renew(sh *share, req *Request, c *Renew, o *Outcome) {
	if sh.sessionful(req.Sub) {
		o.refuse(InvalidOperation, "renew the session lock instead") // S-44, RUL-5
		return
	}
	b := &sh.boxes[req.Sub]
	for _, t := range c.Tokens {
		if _, ok := sh.locked(req.Sub, t); !ok {
			o.Refusal = MessageLockLost
			return
		}
	}
	deadline := s.lease.After(sh.d.LockDuration)
	for _, t := range c.Tokens {
		arrival, _ := sh.locked(req.Sub, t)
		l, _ := b.locks.Get(arrival)
		s.extend(sh, req.Sub, arrival, l, deadline)
		l.deadline = deadline
		b.locks.Set(arrival, l)
	}
	o.LockedUntil = s.shown(deadline)
}

// extend moves the deadline of a lock in the index of deadlines.
func (s *State) extend(sh *share, sub SubQueue, arrival uint64, l lock, deadline Lease) {
	d := leaseDue{at: l.deadline, kind: dueLock, sub: sub, id: arrival}
	sh.leaseDue.Delete(d)
	d.at = deadline
	sh.leaseDue.Set(d)
}

// locked returns the arrival of the message whose current lock t proves, if it is one of the subqueue. An expired
// message is gone already: dispatchShare lets it expire first.
func (sh *share) locked(sub SubQueue, t LockToken) (arrival uint64, ok bool) {
	ref, ok := sh.tokens.get(t)
	return ref.arrival, ok && ref == t.ref(ref.arrival, sub)
}

// receive takes deferred messages by number, all or none, in the order asked (S-181).
func (s *State) receive(sh *share, req *Request, c *Receive, o *Outcome) {
	if len(c.Numbers) > maxNumbers {
		o.refuse(InvalidArgument, "more than 1000 numbers")
		return
	}
	if sh.sessionful(req.Sub) && c.Session.Token.IsZero() {
		o.Refusal = SessionLockLost // S-74
		return
	}
	no, ok := s.reader(sh, req.Sub, c.Session, o)
	if !ok {
		return
	}
	s.serve(sh)
	picks := s.run.picks[:0]
	chosen := make(map[uint64]struct{}, len(c.Numbers))
	var missing []SequenceNumber
	for _, n := range c.Numbers {
		a, m, ok := sh.find(req.Sub, n)
		_, twice := chosen[a]
		if !ok || twice || m.state() != StateDeferred || m.locked() || m.session != no {
			missing = append(missing, n)
			continue
		}
		chosen[a] = struct{}{}
		picks = append(picks, pick{arrival: a, m: m})
	}
	s.run.picks = picks
	if len(missing) > 0 {
		o.refuse(MessageNotFound, missingText(missing))
		return
	}
	if len(picks) > 1 && bytesOf(picks) > maxReceiveBytes {
		o.refuse(MessageSizeExceeded, fmt.Sprintf("the messages have %d bytes, at most %d can be received "+
			"at once: ask for fewer numbers", bytesOf(picks), maxReceiveBytes))
		return
	}
	s.takeAll(sh, req, no, picks, c.Delete, o)
}

// maxReceiveBytes bounds what one Receive takes: whoever asked holds it in memory. It is above the largest
// message, and any one message can be received.
const maxReceiveBytes = 128 << 20

func bytesOf(picks []pick) (n uint64) {
	for i := range picks {
		n += uint64(picks[i].m.length)
	}
	return n
}

// dropLocks leaves the locks of a lost connection Grace more, no longer (RUL-2, RUL-19). Locks of
// a session end with the session.
func (s *State) dropLocks(sh *share, c *DropLocks) {
	deadline := s.lease.After(max(c.Grace, 0))
	for _, t := range c.Tokens {
		ref, ok := sh.tokens.get(t)
		if !ok {
			continue
		}
		b := &sh.boxes[ref.sub]
		l, ok := b.locks.Get(ref.arrival)
		if !ok || l.token != t || l.deadline <= deadline {
			continue
		}
		s.extend(sh, ref.sub, ref.arrival, l, deadline)
		l.deadline = deadline
		b.locks.Set(ref.arrival, l)
	}
	s.expire(sh)
}

// missingText names missing numbers, the first of them at least (S-116).
func missingText(missing []SequenceNumber) string {
	const maxNamed = 100 // a refusal stays readable
	var b strings.Builder
	b.WriteString("Messages not found. Missing sequence numbers:")
	for i, n := range missing {
		if i == maxNamed {
			fmt.Fprintf(&b, " and %d more", len(missing)-i)
			break
		}
		fmt.Fprintf(&b, " %d", n)
	}
	return b.String()
}
