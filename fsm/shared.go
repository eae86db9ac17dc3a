package fsm

// malformed reports what is wrong with an accept, "" if nothing is.
func (c *AcceptSession) malformed() string {
	switch {
	case c.Presented.IsZero():
		return ""
	case !c.Shared:
		return "a session token is presented for a session without exclusion only"
	case c.Next:
		return "a session token is presented with the id of its session"
	}
	return ""
}

// takeOver gives a session to a receiver that presented its token (S-327). Messages that are locked stay so. The new
// receiver settles those that were delivered (S-332). It is given no others before the former one has left (S-333).
func (s *State) takeOver(sh *share, req *Request, no uint32, o *Outcome) {
	h, _ := sh.holders.Get(no)
	f := h.shared.former
	if !h.pending() && sh.session(no).locked() > 0 {
		f = former{token: h.token, node: h.node, until: h.deadline}
		sh.leaseDue.Set(leaseDue{at: f.until, kind: dueFormer, id: uint64(no)})
	}
	sh.leaseDue.Delete(leaseDue{at: h.deadline, kind: dueSession, id: uint64(no)})
	s.hold(sh, req, no, &sharing{token: h.shared.token, former: f}, o)
	id := sh.session(no).id
	s.wakeSession(sh, id)
	s.wakeLost(sh, id)
}

// handOver is what the front end of a former receiver says: which of the messages that are locked were never
// sent to it. They go back uncounted, and the holder may receive (S-333). The result tells whether c is
// that.
func (s *State) handOver(sh *share, c *ReleaseSession) bool {
	se := sh.lookup(c.Session.ID)
	if se == nil || c.Session.Token.IsZero() {
		return false
	}
	h, _ := sh.holders.Get(se.no)
	if !h.pending() || h.shared.former.token != c.Session.Token {
		return false
	}
	no := se.no
	if c.Unsure {
		s.endFormer(sh, no, false)
		return true
	}
	for _, t := range c.Unsent {
		arrival, ok := sh.locked(Main, t)
		if !ok {
			continue
		}
		if m, _ := sh.boxes[Main].messages.Get(arrival); m.session == no {
			s.giveBack(sh, Main, arrival, &m, false, 0)
		}
	}
	s.forgetFormer(sh, no)
	return true
}

// endFormer gives back everything that is locked in a session whose former receiver did not leave.
func (s *State) endFormer(sh *share, no uint32, counted bool) {
	s.releaseHanded(sh, no, counted)
	s.forgetFormer(sh, no)
}

// forgetFormer lets the holder of a session receive.
func (s *State) forgetFormer(sh *share, no uint32) {
	h, _ := sh.holders.Get(no)
	sh.leaseDue.Delete(leaseDue{at: h.shared.former.until, kind: dueFormer, id: uint64(no)})
	h.shared = &sharing{token: h.shared.token}
	sh.holders.Set(no, h)
	s.wakeSession(sh, sh.session(no).id)
}

// wakeLost tells the front end that watches the lock of a shared session that it has ended.
func (s *State) wakeLost(sh *share, id string) {
	s.wake(WaitKey{Entity: sh.d.ID, Kind: WaitLost, HasSession: true, Session: id})
}

// watchSession answers nothing while the session is held, and a refusal when it is not (S-330).
func (s *State) watchSession(sh *share, req *Request, c *WatchSession, o *Outcome) {
	s.proven(sh, req, c.Session, o)
}

// Codec of what only sessions without exclusion have.

// For CheckInvariants: how many sessions have a former receiver, and until when one is waited for.

func (sh *share) formers() (n int) {
	sh.holders.Scan(func(_ uint32, h holder) bool {
		if h.pending() {
			n++
		}
		return true
	})
	return n
}

func (sh *share) formerUntil(no uint32) Lease {
	if h, _ := sh.holders.Get(no); h.pending() {
		return h.shared.former.until
	}
	return 0
}
