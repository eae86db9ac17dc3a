package fsm

import (
	"fmt"
	"unicode/utf8"
)

const (
	// maxSessionIDChars is the limit of S-26; an id within it has at most four times as many bytes.
	maxSessionIDChars = 128
	// maxBodyOverheadBytes is how much longer the stored form of a message may be than what its
	// sender sent and what MaxMessageBytes speaks of. The front end holds senders to the exact
	// limit; this one only keeps a faulty front end from filling the log.
	maxBodyOverheadBytes = 512
)

// fits checks that n more bytes do not pass the quota (S-225).
func (sh *share) fits(n uint64, o *Outcome) bool {
	if sh.quota > 0 && sh.size+n > sh.quota {
		o.refuse(QuotaExceeded, fmt.Sprintf("size %d bytes, maximum %d bytes", sh.size, sh.quota))
		return false
	}
	return true
}

func validSessionID(id string) bool {
	return len(id) <= maxSessionIDChars ||
		len(id) <= maxSessionIDChars*utf8.UTFMax && utf8.RuneCountInString(id) <= maxSessionIDChars
}

// store puts one accepted message at the tail, or aside until its time has come.
func (s *State) store(sh *share, in *Message) uint64 {
	m := message{index: s.index, offset: in.BodyOffset, length: uint32(in.Size())}
	if sh.d.RequiresSession {
		m.session = s.intern(sh, in.SessionID)
	}
	arrival := sh.arriveAs(in)
	if s.waits(in) {
		m.setState(StateScheduled)
		m.at, m.expires = s.dueAt(in), Wall(in.TTL)
		sh.wallDue.Set(wallDue{at: m.at, kind: dueActivate, id: arrival})
	} else {
		m.at, m.expires = s.wall, sh.endOfLife(s.wall, in.TTL)
	}
	s.insert(sh, Main, arrival, m)
	s.accepted(sh, uint64(m.length))
	s.name(sh, in, arrival)
	s.enter(sh, arrival, &m)
	if in.Carried != nil || in.ScheduledAt != 0 {
		sh.setExtras(arrival, &m, in)
	}
	if c := in.Carried; c != nil {
		sh.firsts.Set(arrival, first{number: c.EnqueuedSeq, hops: c.Hops})
	}
	return arrival
}

// setExtras keeps what a new message has beyond what most have.
func (sh *share) setExtras(arrival uint64, m *message, in *Message) {
	x := carriedExtra(in.Carried, 0)
	if m.state() == StateActive {
		x.scheduledAt = in.ScheduledAt
	}
	if x.matters() {
		sh.setExtra(Main, arrival, &x)
	}
}

// endOfLife is when a message enqueued at that wall time expires, 0 if never (S-198, S-199).
func (sh *share) endOfLife(at Wall, ttl Millis) Wall {
	if d := sh.d.DefaultTTL; d > 0 && (ttl == 0 || d < ttl) {
		ttl = d
	}
	if ttl == 0 || ttl >= Unlimited {
		return 0
	}
	return at.After(ttl)
}

// insert adds an unlocked message.
func (s *State) insert(sh *share, sub SubQueue, arrival uint64, m message) {
	b := &sh.boxes[sub]
	b.messages.Set(arrival, m)
	b.count(m.state(), 1)
	sh.size += uint64(m.length)
	if m.session != 0 {
		sh.change(m.session).messages++
	}
	s.place(sh, sub, arrival, &m)
}

// remove takes a message out of its subqueue. Its body is the caller's from then on.
func (s *State) remove(sh *share, sub SubQueue, arrival uint64, m *message) {
	if m.locked() {
		s.unlock(sh, sub, arrival, m)
	} else {
		s.unplace(sh, sub, arrival, m)
	}
	b := &sh.boxes[sub]
	b.messages.Delete(arrival)
	b.count(m.state(), -1)
	sh.size -= uint64(m.length)
	if m.bits&extraBit != 0 {
		x, _ := b.extras.Delete(arrival)
		sh.size -= x.bytes()
	}
	if sh.firsts.Len() > 0 && sub != TransferQueue {
		sh.firsts.Delete(arrival)
	}
	if sh.heads.Len() > 0 && sub != TransferQueue {
		sh.heads.Delete(arrival)
	}
	if m.session != 0 {
		sh.change(m.session).messages--
		sh.forgetSession(m.session)
	}
}

// place puts an unlocked message where its state belongs, and wakes who may wait for it.
func (s *State) place(sh *share, sub SubQueue, arrival uint64, m *message) {
	key := placeKey{session: m.session, arrival: arrival}
	if m.state() != StateActive {
		if m.session != 0 {
			sh.aside.Set(key)
		}
		return
	}
	if sub == Main && m.expires != 0 {
		sh.expiring.Set(expiry{at: m.expires, arrival: arrival})
	}
	if _, paused := sh.boxes[sub].paused.Get(arrival); paused {
		return
	}
	if m.session == 0 {
		sh.boxes[sub].ready.Load(key)
	} else {
		sh.boxes[sub].ready.Set(key)
	}
	if sub == DeadLetter && arrival <= sh.refusedTo {
		sh.refusedTo = arrival - 1
	}
	if m.session != 0 {
		s.sessionGained(sh, m.session)
	} else if sh.woken[sub] != s.run.stamp {
		sh.woken[sub] = s.run.stamp
		s.wake(WaitKey{Entity: sh.d.ID, Sub: sub, Kind: WaitMessage})
	}
}

// unplace undoes place.
func (s *State) unplace(sh *share, sub SubQueue, arrival uint64, m *message) {
	key := placeKey{session: m.session, arrival: arrival}
	if m.state() != StateActive {
		if m.session != 0 {
			sh.aside.Delete(key)
		}
		return
	}
	if sub == Main && m.expires != 0 {
		sh.expiring.Delete(expiry{at: m.expires, arrival: arrival})
	}
	if at, paused := sh.boxes[sub].paused.Delete(arrival); paused {
		sh.leaseDue.Delete(leaseDue{at: at, kind: duePause, sub: sub, id: arrival})
		return
	}
	if number, moving := sh.boxes[sub].moving.Delete(arrival); moving {
		sh.moves[sub].table.Delete(number)
		return
	}
	sh.boxes[sub].ready.Delete(key)
	if m.session != 0 {
		sh.sessionLostOne(m.session)
	}
}

// count keeps the number of messages that are not active.
func (b *box) count(state MessageState, n int) {
	switch state {
	case StateScheduled:
		b.scheduled += uint64(n)
	case StateDeferred:
		b.deferred += uint64(n)
	}
}

// setExtra replaces what only few messages have; nil or an empty one removes it.
func (sh *share) setExtra(sub SubQueue, arrival uint64, x *extra) {
	b := &sh.boxes[sub]
	m, _ := b.messages.Get(arrival)
	if old, ok := b.extras.Get(arrival); ok {
		sh.size -= old.bytes()
	}
	sh.size += x.bytes()
	b.extras.Set(arrival, x)
	m.bits |= extraBit
	b.messages.Set(arrival, m)
}

// extra returns what only few messages have; for the others an empty one.
func (b *box) extra(arrival uint64, m *message) *extra {
	if m.bits&extraBit != 0 {
		if x, ok := b.extras.Get(arrival); ok {
			return x
		}
	}
	return &extra{}
}

// delivery returns the description of a message on its way out.
func (s *State) delivery(sh *share, sub SubQueue, arrival uint64, m *message) (d Delivery) {
	s.describe(sh, sub, arrival, m, &d)
	return d
}

// describe describes a message on its way out in d, which is empty.
func (s *State) describe(sh *share, sub SubQueue, arrival uint64, m *message, d *Delivery) {
	d.Seq, d.Attempts, d.State, d.Ref = sh.number(arrival), m.attempts(), m.state(), m.ref()
	s.whole(d)
	if m.state() == StateScheduled {
		d.ScheduledAt = m.at
	} else {
		d.EnqueuedAt, d.ExpiresAt = m.at, m.expires
	}
	if f, ok := sh.firsts.Get(arrival); ok && f.number != 0 && sub != TransferQueue {
		d.EnqueuedSeq = f.number
	}
	if m.bits&extraBit != 0 {
		x := sh.boxes[sub].extra(arrival, m)
		d.Reason, d.Description, d.Source = x.reason, x.description, x.source
		d.Properties, d.System = x.properties, x.system
		if x.scheduledAt != 0 {
			d.ScheduledAt = x.scheduledAt
		}
	}
}
