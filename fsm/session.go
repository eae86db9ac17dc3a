package fsm

import (
	"strings"

	"github.com/tidwall/btree"
)

// session is one session of a share: 64 bytes, a line of the processor's cache, for there may be a
// million. Four thousand million messages of one session would not fit into memory.
// Invariant: it is in the ready list exactly if nobody holds it, it does not pause and ready > 0
// (S-39).
type session struct {
	id       string
	gen      uint64 // of the share that may write to it: see share.change
	no       uint32
	messages uint32             // in the main queue, in any state
	ready    uint32             // of them deliverable
	held     bool               // somebody has the session lock: see share.holders
	ticket   uint64             // place in the ready list, 0 if not there
	woken    uint64             // index of the entry that last woke who waits for its messages
	handed   *btree.Set[uint64] // messages that are locked, by arrival; nil if nobody holds it
}

// holder is who has the session lock.
type holder struct {
	token    LockToken
	deadline Lease
	node     Incarnation
	shared   *sharing // nil for one that holds the session exclusively
}

// sessionState is what SetSessionState stored; data is not nil, but may be empty (S-67).
type sessionState struct {
	data []byte
	at   Wall
}

// intern returns the number of a session, which begins to exist with that.
func (s *State) intern(sh *share, id string) uint32 {
	if se := sh.lookup(id); se != nil {
		sh.keep(se)
		return se.no
	}
	for {
		sh.lastNo++
		if _, taken := sh.sessions.Get(sh.lastNo); sh.lastNo != 0 && !taken {
			break
		}
	}
	se := &session{id: strings.Clone(id), gen: sh.gen, no: sh.lastNo}
	sh.ids.add(se.id, se.no, sh.gen)
	sh.sessionHints.add(se)
	sh.sessions.Set(se.no, se)
	sh.latest = se
	if s.run.undoable {
		s.run.named = append(s.run.named, namedSession{in: sh.sessionHints, id: se.id})
	}
	return se.no
}

// forgetSession ends a session without message, holder and state (S-24).
func (sh *share) forgetSession(no uint32) {
	se := sh.session(no)
	if se == nil || se.messages > 0 || se.held {
		return
	}
	if _, has := sh.states.Get(no); has {
		return
	}
	sh.sessions.Delete(no)
	sh.ids.remove(se.id, sh.gen)
	sh.sessionHints.remove(se.id)
	sh.latest = nil
	sh.undoom(no)
	sh.wakeUp(no)
}

// holds returns the session whose current lock p proves, nil if there is none. Expired messages are gone already.
func (sh *share) holds(p SessionProof) *session {
	se := sh.lookup(p.ID)
	if se == nil {
		return nil
	}
	if h, held := sh.holders.Get(se.no); !held || h.token != p.Token {
		return nil
	}
	return se
}

// sessionGained counts a message that became deliverable.
func (s *State) sessionGained(sh *share, no uint32) {
	se := sh.change(no)
	se.ready++
	if se.held && se.woken != s.index && !sh.paused(no) {
		se.woken = s.index
		s.wakeSession(sh, se.id)
	}
	if !se.held {
		s.queueUp(sh, no)
	}
}

// letGo notes that nobody holds the session, which may be written to. Its locks end next.
func (se *session) letGo() {
	se.held = false
	if se.locked() == 0 {
		se.handed = nil
	}
}

// hand notes that a message of the session, which may be written to, is locked.
func (se *session) hand(arrival uint64) {
	if se.handed == nil {
		se.handed = new(btree.Set[uint64])
	}
	se.handed.Load(arrival)
}

// takeBack undoes hand.
func (se *session) takeBack(arrival uint64) {
	se.handed.Delete(arrival)
	if !se.held && se.handed.Len() == 0 {
		se.handed = nil
	}
}

// locked returns how many messages of the session are locked.
func (se *session) locked() int {
	if se.handed == nil {
		return 0
	}
	return se.handed.Len()
}

// eachLocked calls f with the arrivals of the session's locked messages in order, from one on, until it says no.
func (se *session) eachLocked(from uint64, f func(arrival uint64) bool) {
	if se != nil && se.handed != nil {
		se.handed.Ascend(from, f)
	}
}

// sessionLostOne counts a message that is deliverable no more.
func (sh *share) sessionLostOne(no uint32) {
	se := sh.change(no)
	se.ready--
	if se.ready == 0 {
		sh.leaveList(se)
	}
}

// leaveList takes a session, which may be written to, out of the ready list.
func (sh *share) leaveList(se *session) {
	if se.ticket != 0 {
		sh.tickets.Delete(se.ticket)
		se.ticket = 0
	}
}

// queueUp appends an unheld session with deliverable messages to the ready list, once.
func (s *State) queueUp(sh *share, no uint32) {
	se := sh.session(no)
	if se == nil || se.ready == 0 || se.ticket != 0 || sh.paused(no) {
		return
	}
	sh.lastTicket++
	se = sh.change(no)
	se.ticket = sh.lastTicket
	sh.tickets.Set(se.ticket, no)
	if sh.wokenNext != s.run.stamp {
		sh.wokenNext = s.run.stamp
		s.wake(WaitKey{Entity: sh.d.ID, Kind: WaitSession})
	}
}

// wakeSession tells who waits for messages of a held session.
func (s *State) wakeSession(sh *share, id string) {
	s.wake(WaitKey{Entity: sh.d.ID, Kind: WaitMessage, HasSession: true, Session: id})
}

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
