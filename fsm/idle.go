package fsm

// idleRepeat is how often an idle share is reported again while nobody deletes or uses it.
const idleRepeat Millis = 60_000

// busy reports whether the entity is in use now, whatever the last command was. It is if a message is scheduled, a
// receiver listens, or messages go on from here (S-129, S-213, S-258).
func (sh *share) busy() bool {
	return sh.boxes[Main].scheduled > 0 || sh.listening || sh.holders.Len() > 0 ||
		sh.forwards(Main) || sh.boxes[TransferQueue].messages.Len() > 0
}

// lastActive is when the share was last in use by the lease clock; busy says that it still is. A topic
// is in use while one of its subscriptions is (S-258).
func (s *State) lastActive(sh *share) (at Lease, busy bool) {
	at, busy = sh.active, sh.busy()
	if sh.d.Kind != Topic {
		return at, busy
	}
	for _, sub := range s.children(sh.d.ID, nil) {
		at, busy = max(at, sub.active), busy || sub.busy()
	}
	return at, busy
}

// idleFor is how long the share has been idle by the lease clock, 0 while it is in use.
func (s *State) idleFor(sh *share) Millis {
	at, busy := s.lastActive(sh)
	if busy {
		return 0
	}
	return s.lease.Since(at)
}

// watchIdle makes the next look at whether the share is idle come at the right time.
func (sh *share) watchIdle(at Lease) {
	if sh.idleReview != 0 {
		sh.leaseDue.Delete(leaseDue{at: sh.idleReview, kind: dueIdle})
		sh.idleReview = 0
	}
	if limit := sh.d.AutoDeleteOnIdle; limit > 0 && limit < Unlimited {
		sh.idleReview = max(1, at)
		sh.leaseDue.Set(leaseDue{at: sh.idleReview, kind: dueIdle})
	}
}

// reviewIdle looks whether the share has been idle for as long as its entity allows, and reports it
// then (S-257). The look is moved only here, not with each command.
func (s *State) reviewIdle(sh *share) {
	limit := sh.d.AutoDeleteOnIdle
	at, busy := s.lastActive(sh)
	switch end := at.After(limit); {
	case busy:
		sh.watchIdle(s.lease.After(limit))
	case end > s.lease:
		sh.watchIdle(end)
	default:
		s.run.result.Idle = append(s.run.result.Idle, sh.d.ID)
		sh.watchIdle(s.lease.After(idleRepeat))
	}
}

// touch counts activity that the log does not see (A22).
func (s *State) touch(sh *share) { sh.touched = s.wall }
