package fsm

import (
	"fmt"
	"math"
)

// CheckInvariants counts everything anew and names the first thing that does not agree. It takes
// time in proportion to what is stored.
func (s *State) CheckInvariants() error {
	var err error
	staged := uint64(0)
	s.shares.Scan(func(id EntityID, sh *share) bool {
		_, n, _ := sh.checkUploads()
		staged += n
		if err = s.checkShare(sh); err != nil {
			err = fmt.Errorf("partition %d, entity %d: %w", s.id, id, err)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if staged != s.staged {
		return fmt.Errorf("partition %d: %d bytes are staged, counted %d", s.id, s.staged, staged)
	}
	if err := s.checkBodies(); err != nil {
		return fmt.Errorf("partition %d: %w", s.id, err)
	}
	return s.checkResults()
}

func (s *State) checkShare(sh *share) error {
	var size uint64
	tokens := 0
	for sub := range sh.boxes {
		n, err := sh.checkBox(SubQueue(sub))
		if err != nil {
			return fmt.Errorf("subqueue %q: %w", SubQueue(sub), err)
		}
		size += n
		tokens += sh.boxes[sub].locks.Len()
	}
	if tokens != len(sh.tokens.refs) {
		return fmt.Errorf("%d locks, %d tokens", tokens, len(sh.tokens.refs))
	}
	sh.states.Scan(func(no uint32, st sessionState) bool {
		size += uint64(len(st.data) + len(sh.session(no).id))
		return true
	})
	n, _, err := sh.checkUploads()
	if err != nil {
		return err
	}
	if size += n; size != sh.size {
		return fmt.Errorf("size %d, counted %d", sh.size, size)
	}
	if err := sh.checkSessions(); err != nil {
		return err
	}
	if err := sh.checkPlaces(); err != nil {
		return err
	}
	for _, check := range [...]func() error{sh.checkSeen, sh.checkHistory, sh.checkOrigins, sh.checkMoves} {
		if err := check(); err != nil {
			return err
		}
	}
	return s.checkDeadlines(sh)
}

// checkBox checks that each message is in exactly the tables its state says (I16) and returns the
// bytes stored.
func (sh *share) checkBox(sub SubQueue) (size uint64, err error) {
	b := &sh.boxes[sub]
	var ready, locked, extras, expiring int
	var scheduled, deferred uint64
	b.messages.Scan(func(arrival uint64, m message) bool {
		err = sh.checkMessage(sub, arrival, &m)
		size += uint64(m.length)
		if m.bits&extraBit != 0 {
			extras++
			size += b.extra(arrival, &m).bytes()
		}
		switch {
		case m.locked():
			locked++
		case m.state() == StateActive:
			ready++
			_, moves := b.moving.Get(arrival)
			if _, ok := sh.expiring.Get(expiry{m.expires, arrival}); ok && sub == Main {
				expiring++
			} else if sub == Main && m.expires != 0 && !moves {
				err = fmt.Errorf("message %d does not expire", arrival)
			}
		}
		switch m.state() {
		case StateScheduled:
			scheduled++
		case StateDeferred:
			deferred++
		}
		return err == nil
	})
	switch {
	case err != nil:
		return 0, err
	case sub == Main && expiring != sh.expiring.Len():
		return 0, fmt.Errorf("%d messages expire, %d in the table", expiring, sh.expiring.Len())
	case ready != b.ready.Len()+b.paused.Len()+b.moving.Len():
		return 0, fmt.Errorf("%d ready messages, %d in the table", ready, b.ready.Len())
	case locked != b.locks.Len():
		return 0, fmt.Errorf("%d locked messages, %d locks", locked, b.locks.Len())
	case extras != b.extras.Len():
		return 0, fmt.Errorf("%d messages with extras, %d in the table", extras, b.extras.Len())
	case scheduled != b.scheduled || deferred != b.deferred:
		return 0, fmt.Errorf("%d scheduled and %d deferred messages, counters say %d and %d",
			scheduled, deferred, b.scheduled, b.deferred)
	}
	return size, nil
}

func (sh *share) checkMessage(sub SubQueue, arrival uint64, m *message) error {
	b := &sh.boxes[sub]
	key := placeKey{session: m.session, arrival: arrival}
	_, ready := b.ready.Get(key)
	_, paused := b.paused.Get(arrival)
	number, moves := b.moving.Get(arrival)
	l, hasLock := b.locks.Get(arrival)
	switch {
	case arrival == 0 || arrival > sh.lastKey(sub):
		return fmt.Errorf("message %d beyond the last arrival %d", arrival, sh.lastKey(sub))
	case moves && (paused || m.state() != StateActive || m.locked() || sh.moves[sub].arrival(number) != arrival):
		return fmt.Errorf("message %d moves as number %d", arrival, number)
	case paused && (m.state() != StateActive || m.locked() || m.session != 0):
		return fmt.Errorf("message %d pauses", arrival)
	case ready != (m.state() == StateActive && !m.locked() && !paused && !moves):
		return fmt.Errorf("message %d: ready is %v", arrival, ready)
	case hasLock != m.locked():
		return fmt.Errorf("message %d: has a lock is %v", arrival, hasLock)
	case m.state() == StateScheduled && (sub != Main || m.locked()):
		return fmt.Errorf("message %d is scheduled in %q", arrival, sub)
	case sh.sessionful(sub) != (m.session != 0):
		return fmt.Errorf("message %d: session %d", arrival, m.session)
	case m.bits&extraBit == 0:
		if _, has := b.extras.Get(arrival); has {
			return fmt.Errorf("message %d: extras without mark", arrival)
		}
	}
	if !hasLock {
		return nil
	}
	ref, ok := sh.tokens.get(l.token)
	if !ok || ref != l.token.ref(arrival, sub) {
		return fmt.Errorf("message %d: its token leads to %v", arrival, ref)
	}
	if _, held := sh.holders.Get(m.session); held != (m.session != 0) {
		return fmt.Errorf("message %d is locked without holder of session %d", arrival, m.session)
	}
	if n := sh.number(arrival); n.Prefix() != sh.prefix && sh.d.Partitioned {
		return fmt.Errorf("message %d: number %d of another partition", arrival, n)
	}
	return nil
}

// checkSessions compares what each session counts with its messages' places.
func (sh *share) checkSessions() error {
	var err error
	count := func(t interface {
		Ascend(placeKey, func(placeKey) bool)
	}, no uint32) (n uint64) {
		t.Ascend(placeKey{session: no}, func(k placeKey) bool {
			if k.session == no {
				n++
			}
			return k.session == no
		})
		return n
	}
	waiting, locked := 0, 0
	sh.sessions.Scan(func(no uint32, se *session) bool {
		if err = sh.checkHanded(se); err != nil {
			return false
		}
		ready := count(sh.boxes[Main].ready, no)
		handed := uint64(se.locked())
		locked += se.locked()
		aside := count(sh.aside, no)
		_, held := sh.holders.Get(no)
		_, has := sh.states.Get(no)
		named, ok := sh.ids.get(se.id)
		head, queued := sh.tickets.Get(se.ticket)
		if queued {
			waiting++
		}
		switch {
		case se.no != no || se.gen > sh.gen:
			err = fmt.Errorf("session %d has the number %d and generation %d", no, se.no, se.gen)
		case uint64(se.ready) != ready || uint64(se.messages) != ready+handed+aside:
			err = fmt.Errorf("session %d counts %d ready of %d; there are %d, %d locked, %d aside",
				no, se.ready, se.messages, ready, handed, aside)
		case !ok || named != no:
			err = fmt.Errorf("session %d: its id leads to %d", no, named)
		case queued != (ready > 0 && !held && !sh.paused(no)) || queued && head != no || (se.ticket != 0) != queued:
			err = fmt.Errorf("session %d: ticket %d, held is %v, %d ready", no, se.ticket, held, ready)
		case se.held != held:
			err = fmt.Errorf("session %d: held is %v, marked as %v", no, held, se.held)
		case !held && se.handed != nil:
			err = fmt.Errorf("session %d: %d messages locked by nobody", no, handed)
		case !held && !has && se.messages == 0:
			err = fmt.Errorf("session %d is empty", no)
		}
		return err == nil
	})
	if err == nil && sh.d.RequiresSession && locked != sh.boxes[Main].locks.Len() {
		err = fmt.Errorf("%d messages locked in sessions, %d locks", locked, sh.boxes[Main].locks.Len())
	}
	if err == nil && (waiting != sh.tickets.Len() || sh.sessions.Len() != sh.ids.len()) {
		err = fmt.Errorf("%d tickets for %d sessions, %d ids for %d",
			sh.tickets.Len(), waiting, sh.ids.len(), sh.sessions.Len())
	}
	return err
}

// checkHanded checks that what a session has as locked are locked messages of it.
func (sh *share) checkHanded(se *session) (err error) {
	se.eachLocked(0, func(arrival uint64) bool {
		if m, ok := sh.boxes[Main].messages.Get(arrival); !ok || !m.locked() || m.session != se.no {
			err = fmt.Errorf("session %d has message %d as locked", se.no, arrival)
		}
		return err == nil
	})
	return err
}

// checkPlaces checks that no place is without a message or a session.
func (sh *share) checkPlaces() error {
	b := &sh.boxes[Main]
	if sh.d.RequiresSession {
		if n := b.ready.Len() + b.locks.Len() + sh.aside.Len(); n != b.messages.Len() {
			return fmt.Errorf("%d messages, %d places", b.messages.Len(), n)
		}
	} else if n := sh.aside.Len() + sh.sessions.Len(); n > 0 {
		return fmt.Errorf("%d places of sessions without sessions", n)
	}
	var err error
	sh.holders.Scan(func(no uint32, h holder) bool {
		if sh.session(no) == nil || h.token.IsZero() || h.shared != nil && h.shared.token.IsZero() {
			err = fmt.Errorf("session %d is held but not there", no)
		}
		return err == nil
	})
	return err
}

// checkDeadlines checks that every lock, session lock and scheduled message has its deadline, and
// the share's first ones are known to the partition.
func (s *State) checkDeadlines(sh *share) error {
	locks := sh.holders.Len() + sh.pauses.Len() + sh.uploads.Len()
	for sub := range sh.boxes {
		locks += sh.boxes[sub].locks.Len() + sh.boxes[sub].paused.Len()
	}
	locks += sh.formers()
	if sh.d.RequiresSession { // a lock in a session has none of its own
		locks -= sh.boxes[Main].locks.Len()
	}
	if sh.idleReview != 0 {
		locks++
	}
	if locks != sh.leaseDue.Len() || sh.wallDue.Len() != int(sh.boxes[Main].scheduled) {
		return fmt.Errorf("%d locks with %d deadlines, %d scheduled with %d",
			locks, sh.leaseDue.Len(), sh.boxes[Main].scheduled, sh.wallDue.Len())
	}
	var err error
	sh.leaseDue.Scan(func(d leaseDue) bool {
		at := Lease(0)
		switch d.kind {
		case dueSession:
			h, _ := sh.holders.Get(uint32(d.id))
			at = h.deadline
		case dueFormer:
			at = sh.formerUntil(uint32(d.id))
		case dueIdle:
			at = sh.idleReview
		case duePause:
			at, _ = sh.boxes[d.sub].paused.Get(d.id)
		case dueUpload:
			up, _ := sh.uploads.Get(UploadID(d.id))
			at = up.until
		case duePauseSession:
			at, _ = sh.pauses.Get(uint32(d.id))
		default:
			l, _ := sh.boxes[d.sub].locks.Get(d.id)
			at = l.deadline
		}
		if at != d.at {
			err = fmt.Errorf("deadline %v, lock until %d", d, at)
		}
		return err == nil
	})
	sh.wallDue.Scan(func(d wallDue) bool {
		if m, _ := sh.boxes[Main].messages.Get(d.id); m.state() != StateScheduled || m.at != d.at {
			err = fmt.Errorf("deadline %v of no scheduled message", d)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	first, next := sh.nextDue()
	_, ok := s.leaseNext.Get(nextDue[Lease]{at: first, entity: sh.d.ID})
	if sh.leaseReg != first || ok != (first != 0) {
		return fmt.Errorf("first lease deadline %d, registered %d", first, sh.leaseReg)
	}
	_, ok = s.wallNext.Get(nextDue[Wall]{at: next, entity: sh.d.ID})
	if sh.wallReg != next || ok != (next != 0) {
		return fmt.Errorf("first wall deadline %d, registered %d", next, sh.wallReg)
	}
	if _, ok := s.listening.Get(sh.d.ID); ok != (sh.listening && !sh.away()) {
		return fmt.Errorf("a listener is %v, known is %v", sh.listening, ok)
	}
	if limit := sh.d.AutoDeleteOnIdle; (limit > 0 && limit < Unlimited) != (sh.idleReview != 0) {
		return fmt.Errorf("idle after %d, looked at in %d", limit, sh.idleReview)
	}
	return sh.checkSweeps()
}

// checkHistory counts the histories' bytes anew and checks that names and records belong to messages.
func (sh *share) checkHistory() error {
	var err error
	open := 0
	for k := range sh.history {
		c := &sh.history[k]
		size := uint64(0)
		c.records.Scan(func(order uint64, p *past) bool {
			size += p.bytes()
			if at, ok := sh.entered.Get(p.arrival); p.arrival != 0 {
				open++
				if !ok || at != order || !sh.stored(p.arrival) {
					err = fmt.Errorf("record %d of message %d, which is in %d", order, p.arrival, at)
				}
			}
			return err == nil && order <= c.last
		})
		if err == nil && size != c.size {
			err = fmt.Errorf("history %d of %d bytes, counted %d", k, c.size, size)
		}
	}
	if err == nil && open != sh.entered.Len() {
		err = fmt.Errorf("%d records of messages, %d places", open, sh.entered.Len())
	}
	sh.names.Scan(func(arrival uint64, id string) bool {
		if !sh.stored(arrival) {
			err = fmt.Errorf("message id %q of no message", id)
		}
		return err == nil
	})
	return err
}

// stored reports whether a message with that arrival index is there.
func (sh *share) stored(arrival uint64) bool {
	for i := range sh.boxes[:TransferQueue] {
		if _, ok := sh.boxes[i].messages.Get(arrival); ok {
			return true
		}
	}
	return false
}

// checkSeen checks that the two orders of the remembered ids agree.
func (sh *share) checkSeen() error {
	var err error
	last := Wall(math.MinInt64)
	sh.seenOrder.Scan(func(order uint64, h idHash) bool {
		e, ok := sh.seen.Get(seen{hash: h})
		if !ok || e.order != order || e.at < last || order > sh.lastSeen {
			err = fmt.Errorf("message id %x: place %d, at %d after %d", h, e.order, e.at, last)
		}
		last = e.at
		return err == nil
	})
	if err == nil && sh.seen.Len() != sh.seenOrder.Len() {
		err = fmt.Errorf("%d message ids, %d places", sh.seen.Len(), sh.seenOrder.Len())
	}
	return err
}

// checkSweeps checks that only living sessions expire in part.
func (sh *share) checkSweeps() error {
	var err error
	sh.sweeps.Scan(func(no uint32, sw sweep) bool {
		if sh.session(no) == nil || sw.done > sw.limit || sw.limit > sh.arrival {
			err = fmt.Errorf("session %d expires from %d to %d", no, sw.done, sw.limit)
		}
		return err == nil
	})
	sh.spared.Scan(func(k placeKey) bool {
		if _, ok := sh.sweeps.Get(k.session); !ok {
			err = fmt.Errorf("message %d is spared from nothing", k.arrival)
		}
		return err == nil
	})
	return err
}

func (s *State) checkResults() error {
	var err error
	s.results.Scan(func(r result) bool {
		d := resultDue{at: r.review, node: r.node, pump: r.pump}
		if _, ok := s.resultDue.Get(d); !ok || r.review > r.until {
			err = fmt.Errorf("partition %d: pump %x/%d has no review", s.id, r.node, r.pump)
		}
		return err == nil
	})
	if err == nil && s.results.Len() != s.resultDue.Len() {
		err = fmt.Errorf("partition %d: %d results, %d reviews",
			s.id, s.results.Len(), s.resultDue.Len())
	}
	if err == nil && (s.lost.Len() != s.lostAt.Len() || s.lost.Len() > maxLostNodes) {
		err = fmt.Errorf("partition %d: %d lost nodes, %d places", s.id, s.lost.Len(), s.lostAt.Len())
	}
	if err == nil && s.leaseNext.Len()+s.wallNext.Len() > 2*s.shares.Len() {
		err = fmt.Errorf("partition %d: deadlines of unknown entities", s.id)
	}
	return err
}
