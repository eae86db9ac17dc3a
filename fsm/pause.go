package fsm

// maxRetryDelay bounds the pause before a message is delivered again; what has to wait longer is
// scheduled or deferred.
const maxRetryDelay Millis = 7 * 24 * 60 * 60 * 1000

// backoff is how long a message rests after so many unsuccessful deliveries, by the description.
func (s *State) backoff(sh *share, deliveries uint32) Millis {
	const maxSteps = 1000 // enough for any pause to reach its maximum by doubling or by hundredths
	b := &sh.d.RetryBackoff
	if b.Min <= 0 {
		return 0
	}
	limit := min(max(b.Min, b.Max), maxRetryDelay)
	d := min(b.Min, limit)
	for i := uint32(1); i < min(deliveries, maxSteps) && b.Multiplier > 100 && d < limit; i++ {
		d = min(limit, max(d+1, d*Millis(b.Multiplier)/100))
	}
	if span := d * Millis(min(b.Jitter, 100)) / 100; span > 0 {
		d -= Millis(s.draw() % uint64(span+1))
	}
	return d
}

// rest makes an active message that comes back undeliverable for a while. In a session, which keeps
// its order, the whole session pauses.
func (s *State) rest(sh *share, sub SubQueue, arrival uint64, m *message, delay Millis) {
	if delay <= 0 || m.state() != StateActive {
		return
	}
	at := s.lease.After(delay)
	if m.session == 0 {
		sh.boxes[sub].paused.Set(arrival, at)
		sh.leaseDue.Set(leaseDue{at: at, kind: duePause, sub: sub, id: arrival})
		return
	}
	if old, ok := sh.pauses.Get(m.session); ok {
		if old >= at {
			return
		}
		sh.wakeUp(m.session)
	}
	sh.pauses.Set(m.session, at)
	sh.leaseDue.Set(leaseDue{at: at, kind: duePauseSession, id: uint64(m.session)})
	if sh.session(m.session).ticket != 0 {
		sh.leaveList(sh.change(m.session))
	}
}

// paused reports whether nothing of a session may be delivered.
func (sh *share) paused(no uint32) bool {
	_, paused := sh.pauses.Get(no)
	return paused
}

// wakeUp ends the pause of a session.
func (sh *share) wakeUp(no uint32) {
	if at, ok := sh.pauses.Delete(no); ok {
		sh.leaseDue.Delete(leaseDue{at: at, kind: duePauseSession, id: uint64(no)})
	}
}

// resume makes a message or a session deliverable whose pause is over.
func (s *State) resume(sh *share, d leaseDue) {
	if d.kind == duePause {
		m, _ := sh.boxes[d.sub].messages.Get(d.id)
		s.unplace(sh, d.sub, d.id, &m)
		s.place(sh, d.sub, d.id, &m)
		return
	}
	no := uint32(d.id)
	sh.wakeUp(no)
	if _, held := sh.holders.Get(no); !held {
		s.queueUp(sh, no)
	} else if se := sh.session(no); se.ready > 0 {
		s.wakeSession(sh, se.id)
	}
}
