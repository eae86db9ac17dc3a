package fsm

// sharing is what a session that is held without exclusion has beside its lock (S-326). Values are
// replaced and never changed: an image may share them.
type sharing struct {
	token  LockToken // what a receiver presents to take the session over (S-327)
	former former
}

// former is the receiver from which a session was taken. It is kept until its front end has told which messages it
// locked for the receiver and did not send (S-333). Its token is zero if nobody is waited for.
type former struct {
	token LockToken // of the session lock that it had
	node  Incarnation
	until Lease // when its session lock would have ended
}

// pending reports whether the former receiver of a session has not left yet.
func (h holder) pending() bool { return h.shared != nil && !h.shared.former.token.IsZero() }

// opens reports whether a receiver that presents the token may take the session over.
func (h holder) opens(token LockToken) bool {
	return h.shared != nil && !token.IsZero() && h.shared.token == token
}

// passing reports whether the holder of a session is given nothing yet, because the receiver before it
// has not left (S-333).
func (sh *share) passing(no uint32) bool {
	h, _ := sh.holders.Get(no)
	return h.pending()
}

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
	if !h.pending() && sh.hands(no) {
		f = former{token: h.token, node: h.node, until: h.deadline}
		sh.leaseDue.Set(leaseDue{at: f.until, kind: dueFormer, id: uint64(no)})
	}
	sh.leaseDue.Delete(leaseDue{at: h.deadline, kind: dueSession, id: uint64(no)})
	s.hold(sh, req, no, &sharing{token: h.shared.token, former: f}, o)
	id := sh.session(no).id
	s.wakeSession(sh, id)
	s.wakeLost(sh, id)
}

// hands reports whether messages of the session are locked.
func (sh *share) hands(no uint32) (any bool) {
	sh.handed.Ascend(placeKey{session: no}, func(k placeKey) bool {
		any = k.session == no
		return false
	})
	return any
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
		arrival, _, ok := sh.locked(Main, t)
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

func appendAccept(dst []byte, c *AcceptSession) []byte {
	kind := kindAcceptSession
	if c.Shared {
		kind = kindAcceptShared
	}
	dst = appendTime(appendBool(appendString(append(dst, kind), c.ID), c.Next), c.Wait)
	if c.Shared {
		dst = append(dst, c.Presented[:]...)
	}
	return dst
}

func appendRelease(dst []byte, c *ReleaseSession) []byte {
	kind := kindReleaseSession
	if len(c.Unsent) > 0 || c.Unsure {
		kind = kindLeaveSession
	}
	dst = appendBool(appendProof(append(dst, kind), c.Session), c.Orderly)
	if kind == kindLeaveSession {
		dst = appendTokens(appendBool(dst, c.Unsure), c.Unsent)
	}
	return dst
}

func (r *reader) sharedSession(kind uint8) Command {
	switch kind {
	case kindAcceptShared:
		c := &AcceptSession{ID: r.string(), Next: r.boolean(), Wait: r.millis(), Shared: true}
		r.fixed(c.Presented[:])
		return c
	case kindLeaveSession:
		return &ReleaseSession{Session: r.proof(), Orderly: r.boolean(), Unsure: r.boolean(), Unsent: r.tokens()}
	case kindWatchSession:
		return &WatchSession{Session: r.proof(), Wait: r.millis()}
	}
	return r.large(kind)
}

// shared appends the record of a session that is held without exclusion.
func (f *frameWriter) shared(no uint32, h holder) []byte {
	b := append(appendUint(append(f.buf, recordShared), uint64(no)), h.shared.token[:]...)
	b = appendBool(b, h.pending())
	if h.pending() {
		f := &h.shared.former
		b = appendTime(append(b, f.token[:]...), f.until)
		b = appendUint(b, uint64(f.node))
	}
	return b
}

func (l *loader) shared(r *reader) {
	sh, no := l.sh, r.u32()
	var sg sharing
	r.fixed(sg.token[:])
	pending := r.boolean()
	if pending {
		r.fixed(sg.former.token[:])
		sg.former.until = r.lease()
		sg.former.node = Incarnation(r.uvarint())
	}
	h, held := sh.holders.Get(no)
	if r.err != nil {
		return
	}
	if !held || h.shared != nil || sg.token.IsZero() || pending && (sg.former.token.IsZero() || sg.former.until <= 0) {
		r.fail("shared session contradicts its lock")
		return
	}
	if pending {
		sh.leaseDue.Set(leaseDue{at: sg.former.until, kind: dueFormer, id: uint64(no)})
	}
	h.shared = &sg
	sh.holders.Set(no, h)
}

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
