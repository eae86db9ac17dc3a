package fsm

import "github.com/tidwall/btree"

const (
	// maxDuePerTick bounds the work of one Tick, so an entry is applied in milliseconds (S-288). It also bounds how
	// much one receive or accept lets expire before it is served.
	maxDuePerTick = 1024
	// maxFreedPerTick bounds how many bodies of a dropped entity one Tick reports.
	maxFreedPerTick = 10_000
)

// reschedule makes the partition's index of deadlines agree with the share's.
func (s *State) reschedule(sh *share) {
	lease, wall := sh.nextDue()
	register(s.leaseNext, &sh.leaseReg, lease, sh.d.ID)
	register(s.wallNext, &sh.wallReg, wall, sh.d.ID)
}

// nextDue returns the earliest deadlines of the share, 0 if there is none.
func (sh *share) nextDue() (Lease, Wall) {
	if sh.rests() {
		return 0, 0
	}
	first, _ := sh.leaseDue.Min()
	return first.at, sh.nextWall()
}

// register makes an index name a share at its next deadline; at is 0 if there is none. known is what the index has of
// the share.
func register[T instant](index *btree.BTreeG[nextDue[T]], known *T, at T, id EntityID) {
	if at == *known {
		return
	}
	if *known != 0 {
		index.Delete(nextDue[T]{at: *known, entity: id})
	}
	if at != 0 {
		index.Set(nextDue[T]{at: at, entity: id})
	}
	*known = at
}

// conclude ends work on a share. The first part of the doomed messages expires, and the deadlines of the share become
// known. Both are done at the end of the entry, because most requests of an entry concern the same share.
func (s *State) conclude(sh *share) {
	if !sh.rests() {
		s.sweepDoomed(sh, s.maxDue)
		s.wakeAfterExpiry(sh)
	}
	if sh.concluded != s.index {
		sh.concluded = s.index
		s.run.concluded = append(s.run.concluded, sh.d.ID)
	}
}

// rescheduleAll makes the deadlines known of the shares on which work was concluded. A share that a
// transaction worked on in vain may be among them twice, and has the deadlines that it had.
func (s *State) rescheduleAll() {
	for _, id := range s.run.concluded {
		if sh := s.write(id); sh != nil {
			sh.concluded = 0
			s.reschedule(sh)
		}
	}
	s.run.concluded = s.run.concluded[:0]
}

// nextWall is the earliest wall time at which the share has something to do, 0 if none.
func (sh *share) nextWall() Wall {
	next := Wall(0)
	if d, ok := sh.wallDue.Min(); ok {
		next = d.at
	}
	for _, at := range [...]Wall{sh.nextExpiry(), sh.nextForget(), sh.nextPurge()} {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

// expire ends every lock of the share whose time is over, so what follows does not depend on when
// the last Tick ran (S-290). Scheduled messages wait for a Tick.
func (s *State) expire(sh *share) {
	if sh.rests() {
		return
	}
	for {
		d, ok := sh.leaseDue.Min()
		if !ok || d.at > s.lease {
			break
		}
		if d.kind == dueIdle { // not now that somebody comes; a Tick looks again
			sh.watchIdle(s.lease.After(1))
			continue
		}
		s.end(sh, d)
	}
	s.sweepDoomed(sh, s.maxDue) // before what comes now can see or change what expires
}

// end ends the lock with that deadline, counted (S-18, S-50).
func (s *State) end(sh *share, d leaseDue) {
	switch d.kind {
	case dueSession:
		if se := sh.session(uint32(d.id)); se != nil && se.locked() > 0 {
			s.tally(sh).Unlocked += uint64(se.locked())
		}
		s.releaseSession(sh, uint32(d.id), true)
		return
	case dueFormer:
		s.endFormer(sh, uint32(d.id), true)
		return
	case dueIdle:
		s.reviewIdle(sh)
		return
	case duePause, duePauseSession:
		s.resume(sh, d)
		return
	case dueUpload:
		s.dropUpload(sh, UploadID(d.id))
		return
	}
	m, _ := sh.boxes[d.sub].messages.Get(d.id)
	s.tally(sh).Unlocked++
	s.giveBack(sh, d.sub, d.id, &m, true, 0)
}

// tick handles what is due in the whole partition, in the order of the deadlines, up to a bound;
// what is left makes NextDeadline name a time in the past.
func (s *State) tick(c *Tick) {
	s.rescheduleAll()
	s.hear(c.Listeners)
	budget := s.maxDue
	for budget > 0 {
		n, ok := s.leaseNext.Min()
		if !ok || n.at > s.lease {
			break
		}
		sh := s.write(n.entity)
		d, _ := sh.leaseDue.Min()
		s.end(sh, d)
		budget = s.sweepDoomed(sh, budget-1)
		s.wakeAfterExpiry(sh)
		s.reschedule(sh)
	}
	for budget > 0 {
		n, ok := s.wallNext.Min()
		if !ok || n.at > s.wall {
			break
		}
		sh := s.write(n.entity)
		if d, ok := sh.wallDue.Min(); ok && d.at <= s.wall {
			budget -= 1 + s.activate(sh, d)
		} else if at := sh.nextForget(); at != 0 && at <= s.wall {
			budget = s.forgetSeen(sh, budget)
		} else if at := sh.nextPurge(); at != 0 && at <= s.wall {
			budget = s.purgeHistories(sh, budget)
		} else {
			budget = s.enforce(sh, budget)
		}
		s.wakeAfterExpiry(sh)
		s.reschedule(sh)
	}
	for ; budget > 0; budget-- {
		d, ok := s.resultDue.Min()
		if !ok || d.at > s.lease {
			break
		}
		s.reviewResult(d)
	}
	s.vacate()
	s.reclaim()
}

// TickAtMost bounds the things that a Tick, or one command, lets expire. A test sees the bound of S-288 with it,
// without a thousand of them. It is no command: all replicas must do it.
func (s *State) TickAtMost(n int) { s.maxDue = n }

// activate appends a scheduled message as if it were sent now: new number, new times (S-111).
// Work is what it takes beside that; a topic makes the copies now (S-121).
func (s *State) activate(sh *share, d wallDue) (work int) {
	sh.wallDue.Delete(d)
	old, _ := sh.boxes[Main].messages.Get(d.id)
	sh.active = s.lease
	if sh.d.Kind == Topic {
		return s.publishDue(sh, d.id, &old)
	}
	s.tally(sh).Activated++
	m := old
	m.bits &^= extraBit
	m.setState(StateActive)
	m.at, m.expires = s.wall, sh.endOfLife(s.wall, old.life())
	arrival := sh.nextArrival()
	s.insert(sh, Main, arrival, m) // before the old one goes: their session must not end between
	x := *sh.boxes[Main].extra(d.id, &old)
	x.scheduledAt = old.at
	sh.setExtra(Main, arrival, &x)
	if origin, moved := sh.firsts.Get(d.id); moved {
		sh.firsts.Set(arrival, origin)
	}
	s.remove(sh, Main, d.id, &old)
	s.moved(sh, d.id, arrival)
	return 0
}

// cancel deletes scheduled messages, all or none (S-115 to S-117).
func (s *State) cancel(sh *share, req *Request, c *Cancel, o *Outcome) {
	if req.Sub != Main {
		o.refuse(InvalidOperation, "nothing is scheduled in a subqueue")
		return
	}
	if len(c.Numbers) > maxNumbers {
		o.refuse(InvalidArgument, "more than 1000 numbers")
		return
	}
	var missing []SequenceNumber
	for _, n := range c.Numbers {
		if _, m, ok := sh.find(Main, n); !ok || m.state() != StateScheduled {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		o.refuse(MessageNotFound, missingText(missing)) // S-116
		return
	}
	for _, n := range c.Numbers {
		a, m, ok := sh.find(Main, n)
		if !ok {
			continue // named twice
		}
		sh.wallDue.Delete(wallDue{at: m.at, kind: dueActivate, id: a})
		s.dropStored(sh, DropCancelled, Main, a, &m)
		s.gone(sh, a, Cancelled)
		s.remove(sh, Main, a, &m)
		s.free(m.ref())
	}
}

// forgetLate is how much later than they may answers are forgotten. Nobody waits for that. So a partition that only
// remembers answers has no deadline that is near.
const forgetLate = Lease(5 * 60 * 1000)

// NextDeadline returns when a Tick is due by each clock, 0 if nothing is waited for. A time that is
// not after Clocks means that the last Tick left work over.
func (s *State) NextDeadline() (wall Wall, lease Lease) {
	if n, ok := s.wallNext.Min(); ok {
		wall = n.at
	}
	if n, ok := s.leaseNext.Min(); ok {
		lease = n.at
	}
	if d, ok := s.resultDue.Min(); ok {
		at := d.at
		if at > s.lease { // else the last Tick left some
			at += forgetLate
		}
		if lease == 0 || at < lease {
			lease = at
		}
	}
	s.leaving.Scan(func(_ EntityID, at Lease) bool {
		if lease == 0 || at < lease {
			lease = at
		}
		return true
	})
	if s.dropped.Len() > 0 {
		lease = max(1, min(lease, s.lease))
	}
	return wall, lease
}
