package fsm

import "fmt"

// acceptSession takes the lock of a session (S-36 to S-39).
func (s *State) acceptSession(sh *share, req *Request, c *AcceptSession, o *Outcome) {
	if !sh.sessionful(req.Sub) {
		o.refuse(SessionNotSupported, "the entity has no sessions") // S-34
		return
	}
	if what := c.malformed(); what != "" {
		o.refuse(InvalidArgument, what) // S-328
		return
	}
	var no uint32
	if c.Next {
		if !s.serve(sh) {
			o.Refusal = NoSession
			return
		}
		_, head, ok := sh.tickets.Min()
		if !ok {
			o.Refusal = NoSession
			return
		}
		no = head
	} else {
		if !validSessionID(c.ID) {
			o.refuse(InvalidArgument, "the session id is longer than 128 characters")
			return
		}
		if known := sh.lookup(c.ID); known != nil {
			h, held := sh.holders.Get(known.no)
			if held && h.opens(c.Presented) {
				s.takeOver(sh, req, known.no, o)
				return
			}
			if held {
				o.Refusal = SessionCannotBeLocked
				return
			}
		}
		if !c.Presented.IsZero() { // it belongs to no lock (S-328)
			o.Refusal = SessionCannotBeLocked
			return
		}
		s.serve(sh)
		no = s.intern(sh, c.ID)
	}
	sh.leaveList(sh.change(no))
	var with *sharing
	if c.Shared {
		with = &sharing{token: s.token(sh)}
	}
	s.hold(sh, req, no, with, o)
}

// hold gives the lock of a session to who asks.
func (s *State) hold(sh *share, req *Request, no uint32, with *sharing, o *Outcome) {
	h := holder{
		token: s.token(sh), deadline: s.lease.After(sh.d.LockDuration), node: req.ID.Node, shared: with,
	}
	sh.holders.Set(no, h)
	sh.change(no).held = true
	sh.leaseDue.Set(leaseDue{at: h.deadline, kind: dueSession, id: uint64(no)})
	sh.touched = s.wall
	o.Session = SessionProof{ID: sh.session(no).id, Token: h.token}
	if with != nil {
		o.Shared = with.token
	}
	o.LockedUntil = s.shown(h.deadline)
}

// proven refuses unless p proves the lock of a session of the main queue.
func (s *State) proven(sh *share, req *Request, p SessionProof, o *Outcome) (uint32, bool) {
	if !sh.sessionful(req.Sub) {
		o.refuse(SessionNotSupported, "the entity has no sessions")
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

// renewSession extends the session lock, and with it all locks under it (S-44, S-46).
func (s *State) renewSession(sh *share, req *Request, c *RenewSession, o *Outcome) {
	no, ok := s.proven(sh, req, c.Session, o)
	if !ok {
		return
	}
	h, _ := sh.holders.Get(no)
	sh.leaseDue.Delete(leaseDue{at: h.deadline, kind: dueSession, id: uint64(no)})
	h.deadline = s.lease.After(sh.d.LockDuration)
	sh.leaseDue.Set(leaseDue{at: h.deadline, kind: dueSession, id: uint64(no)})
	sh.holders.Set(no, h)
	o.LockedUntil = s.shown(h.deadline)
}

// closeSession releases the session at its holder's wish or because its connection is lost. For a receiver
// from which the session was taken it ends the taking over.
func (s *State) closeSession(sh *share, req *Request, c *ReleaseSession, o *Outcome) {
	if s.handOver(sh, c) {
		return
	}
	if no, ok := s.proven(sh, req, c.Session, o); ok {
		s.releaseSession(sh, no, !c.Orderly)
	}
}

// releaseSession ends a session lock. Messages that were handed out go back, counted or not (S-49, S-50); what was
// never handed out is unchanged.
func (s *State) releaseSession(sh *share, no uint32, counted bool) {
	h, _ := sh.holders.Delete(no)
	sh.change(no).letGo()
	sh.active = s.lease
	sh.leaseDue.Delete(leaseDue{at: h.deadline, kind: dueSession, id: uint64(no)})
	if h.pending() {
		sh.leaseDue.Delete(leaseDue{at: h.shared.former.until, kind: dueFormer, id: uint64(no)})
	}
	id := sh.session(no).id
	s.releaseHanded(sh, no, counted)
	s.queueUp(sh, no)
	s.wakeSession(sh, id) // a waiting receive learns that its lock is lost (S-47)
	if h.shared != nil {
		s.wakeLost(sh, id)
	}
	sh.forgetSession(no)
}

// releaseHanded gives back every message of the session that is locked.
func (s *State) releaseHanded(sh *share, no uint32, counted bool) {
	keys := s.run.keys[:0]
	sh.session(no).eachLocked(0, func(arrival uint64) bool {
		keys = append(keys, placeKey{session: no, arrival: arrival})
		return true
	})
	s.run.keys = keys
	expired := false
	for _, k := range keys {
		m, _ := sh.boxes[Main].messages.Get(k.arrival)
		expired = s.release(sh, Main, k.arrival, &m, counted, 0) || expired
	}
	if expired {
		sh.doom(no)
	}
}

// setSessionState stores or clears the session's state (S-65 to S-71).
func (s *State) setSessionState(sh *share, req *Request, c *SetSessionState, o *Outcome) {
	no, ok := s.proven(sh, req, c.Session, o)
	if !ok {
		return
	}
	if c.Rest != (Upload{}) {
		s.setParted(sh, no, c, o)
		return
	}
	if c.Clear {
		s.clearState(sh, no, c.Session.ID)
		return
	}
	var oldBytes uint64
	if _, had := sh.states.Get(no); had {
		oldBytes = sh.stateBytes(no) + uint64(len(c.Session.ID))
	}
	if sh.d.MaxMessageBytes > 0 && uint64(len(c.State)) > uint64(sh.d.MaxMessageBytes) {
		o.refuse(MessageSizeExceeded, fmt.Sprintf(
			"session state of %d bytes, maximum %d bytes", len(c.State), sh.d.MaxMessageBytes))
		return
	}
	newBytes := uint64(len(c.State) + len(c.Session.ID))
	if newBytes > oldBytes && !sh.fits(newBytes-oldBytes, o) {
		return
	}
	s.clearState(sh, no, c.Session.ID)
	sh.size += newBytes
	sh.states.Set(no, sessionState{data: append([]byte{}, c.State...), at: s.wall})
}

// nodeLost releases every session that is held through an incarnation of a node, counts unchanged. It forgets the
// answers to the pumps of that incarnation, and refuses their further requests (RUL-19).
func (s *State) nodeLost(node Incarnation) {
	if s.isLost(node) {
		return
	}
	s.lostOrder++
	s.lost.Set(s.lostOrder, node)
	s.lostAt.Set(node, s.lostOrder)
	if s.lost.Len() > maxLostNodes {
		_, oldest, _ := s.lost.PopMin()
		s.lostAt.Delete(oldest)
	}
	s.forgetNode(node)
	for _, id := range s.shares.Keys() {
		if sh, _ := s.shares.Get(id); sh.holders.Len() == 0 || sh.away() {
			continue
		}
		sh := s.write(id)
		var nos []uint32
		sh.holders.Scan(func(no uint32, h holder) bool {
			if h.node == node || h.pending() && h.shared.former.node == node {
				nos = append(nos, no)
			}
			return true
		})
		s.expire(sh)
		for _, no := range nos {
			switch h, held := sh.holders.Get(no); {
			case held && h.node == node:
				s.releaseSession(sh, no, false)
			case held && h.pending() && h.shared.former.node == node:
				s.endFormer(sh, no, false)
			}
		}
		s.conclude(sh)
	}
}

// maxLostNodes is how many lives of nodes are known to be over. A life that was declared lost asks
// for minutes at most; the bound only has to outlast that.
const maxLostNodes = 1024

func (s *State) isLost(node Incarnation) bool {
	_, lost := s.lostAt.Get(node)
	return lost
}
