package fsm

import "fmt"

// Apply changes the state by the entry with that raft index and says what each request did. It
// panics if index is not above that of the last entry, for then the log is not a log.
//
// From then on, each body of the entry is either referred to by the state or reported in Freed. This or a later
// Result reports it, exactly once.
func (s *State) Apply(index uint64, e *Entry) Result {
	if index <= s.index {
		panic(fmt.Sprintf("fsm: partition %d: entry %d after entry %d", s.id, index, s.index))
	}
	s.index = index
	r := Result{Outcomes: make([]Outcome, len(e.Requests))}
	s.begin(&r, e)
	if !s.admit(e) {
		for i := range e.Requests {
			r.Outcomes[i].Refusal = NotLeader
			s.freeUnstored(&e.Requests[i])
		}
		s.run.result = nil
		return r
	}
	s.wall = max(s.wall, e.Wall)
	s.lease = max(s.lease, e.Lease)
	if s.holding != 0 && s.heldUntil <= s.lease {
		s.endHold()
	}
	for i := range e.Requests {
		s.run.place = i
		s.run.stamp++
		s.perform(&e.Requests[i], &r.Outcomes[i])
	}
	s.rescheduleAll()
	s.run.freed = min(len(r.Freed), maxFreedExpected)
	s.run.result = nil
	if len(s.run.tallies) > 0 { // otherwise nil, whatever room is kept
		r.Tallies = s.run.tallies
	}
	return r
}

// maxFreedExpected bounds the room that is made for freed bodies before there are any: 8 KiB.
const maxFreedExpected = 512

// maxTalliesKept bounds the room that is kept for tallies between entries: 200 KiB.
const maxTalliesKept = 1024

func (s *State) begin(r *Result, e *Entry) {
	s.run.result = r
	s.run.seed = e.Seed
	s.run.seeded = false
	s.run.steps = entrySteps
	s.run.tallies = s.run.tallies[:0]
	if cap(s.run.tallies) > maxTalliesKept {
		s.run.tallies = nil
	}
	clear(s.run.woken)
}

// admit reports whether the entry's leadership is the current one, and begins a new one.
func (s *State) admit(e *Entry) bool {
	if e.Epoch == 0 && len(e.Requests) > 0 {
		if _, ok := e.Requests[0].Command.(*BecomeLeader); ok {
			s.epoch = s.index
			return true
		}
	}
	return e.Epoch == s.epoch
}

// perform answers one request: from memory if it was answered before, else by doing it.
func (s *State) perform(req *Request, o *Outcome) {
	if !req.ID.IsZero() {
		if s.isLost(req.ID.Node) {
			o.Refusal = NodeExpired
			s.freeUnstored(req)
			return
		}
		if s.recall(req, o) {
			s.freeUnstored(req)
			return
		}
	}
	s.run.by = req.ID
	s.dispatch(req, o)
	if o.Refusal != None {
		s.freeUnstored(req)
	}
	if !req.ID.IsZero() {
		s.remember(req, o)
	}
}

// dispatch does the commands that concern the whole partition. The others concern a share: see dispatchShare.
func (s *State) dispatch(req *Request, o *Outcome) {
	switch c := req.Command.(type) {
	case *Tick:
		s.tick(c)
	case *Barrier:
	case *BecomeLeader:
		if s.epoch != s.index {
			o.refuse(InvalidOperation, "a leadership begins with its own entry")
		}
	case *DropPumps:
		s.dropPumps(c)
	case *NodeLost:
		s.nodeLost(c.Node)
	case *HoldForwards:
		s.holdForwards(c, o)
	case *PutEntity:
		s.putEntity(req, c, o)
	case *DropEntity:
		s.dropEntity(req.Entity)
	case *Rehome:
		s.rehome(req, c, o)
	case *Commit:
		s.commit(req, c, o)
	default:
		s.dispatchShare(req, o)
	}
}

// dispatchShare does the commands that concern one share, after what is due in it (S-290).
func (s *State) dispatchShare(req *Request, o *Outcome) {
	sh := s.write(req.Entity)
	if sh == nil || sh.away() {
		o.Refusal = Stale
		return
	}
	_, forward := req.Command.(*Forward)
	if req.Sub > TransferDeadLetter && !forward {
		o.refuse(InvalidArgument, "no such subqueue")
		return
	}
	if req.Sub != Main && sh.d.NoDeadLetter && !forward {
		o.refuse(EntityNotFound, "the entity has no dead-letter queue") // S-169
		return
	}
	if sh.restoring && !restores(req.Command) {
		o.refuse(Busy, restoringText)
		return
	}
	s.expire(sh)
	if !sh.allows(req, o) {
		s.conclude(sh)
		return
	}
	switch c := req.Command.(type) {
	case *Enqueue:
		if sh.repeats(c) || s.claim(sh, c.Messages, o) {
			s.enqueue(sh, req, c, o)
			s.dropRefused(sh, c.Messages, o)
		}
	case *Lock:
		s.lock(sh, req, c, o)
	case *Settle:
		s.settle(sh, req, c, o)
	case *Renew:
		s.renew(sh, req, c, o)
	case *Receive:
		s.receive(sh, req, c, o)
	case *Redrive:
		s.redrive(sh, req, c, o)
	case *Touch:
		s.touch(sh)
	case *Revoke:
		s.revokeLocks(sh, req, c, o)
	case *DeleteMessages:
		s.deleteMessages(sh, req, c, o)
	case *Cancel:
		s.cancel(sh, req, c, o)
	case *Transfer:
		s.transfer(sh, req, c, o)
		s.dropRefused(sh, c.Messages, o)
	case *Forward:
		s.forward(sh, req, c, o)
	case *DropLocks:
		s.dropLocks(sh, c)
	case *Restore:
		s.putBack(sh, c, o)
	default:
		s.dispatchSession(sh, req, o)
	}
	if !traitsOf(req.Command).Has(Silent) && o.Refusal == None {
		sh.active = s.lease
	}
	s.conclude(sh)
}

// dispatchSession does the commands that concern one session.
func (s *State) dispatchSession(sh *share, req *Request, o *Outcome) {
	switch c := req.Command.(type) {
	case *AcceptSession:
		s.acceptSession(sh, req, c, o)
	case *WatchSession:
		s.watchSession(sh, req, c, o)
	case *RenewSession:
		s.renewSession(sh, req, c, o)
	case *ReleaseSession:
		s.closeSession(sh, req, c, o)
	case *SetSessionState:
		s.setSessionState(sh, req, c, o)
	default:
		s.prepare(sh, req, o)
	}
}

// freeUnstored reports the bodies of a request that stored nothing.
func (s *State) freeUnstored(req *Request) {
	if part, ok := req.Command.(*BodyPart); ok {
		s.free(s.partRef(part))
		return
	}
	EachMessage(req.Command, s.freeBody)
}
