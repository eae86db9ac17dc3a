package fsm

import "hash/maphash"

// sessionIndex finds a session faster than the ordered tables, whose comparisons miss the processor's caches a dozen
// times with a million sessions. It is a hint: a hit counts only if the session has that id, and the tables may have
// a session that it misses. So it is no part of the state, and all generations of a share have the same one.
type sessionIndex struct {
	seed maphash.Seed // drawn, so that nobody can choose ids that collide
	at   map[uint64]*session
	most int // entries that at has held at once
}

// namedSession is a session that came into being in a transaction.
type namedSession struct {
	in *sessionIndex
	id string
}

func newSessionIndex() *sessionIndex {
	return &sessionIndex{seed: maphash.MakeSeed(), at: map[uint64]*session{}}
}

func (x *sessionIndex) add(se *session) {
	x.at[maphash.String(x.seed, se.id)] = se
	x.most = max(x.most, len(x.at))
}

func (x *sessionIndex) remove(id string) {
	delete(x.at, maphash.String(x.seed, id))
	if len(x.at) == 0 && x.most >= shrinkHints {
		x.at, x.most = map[uint64]*session{}, 0
	}
}

// lookup returns the session of that id for reading, nil if there is none.
func (sh *share) lookup(id string) *session {
	if se, ok := sh.sessionHints.at[maphash.String(sh.sessionHints.seed, id)]; ok {
		if se.gen != sh.gen { // another one may be current, or it was undone
			se, _ = sh.sessions.Get(se.no)
		}
		if se != nil && se.id == id {
			return se
		}
	}
	no, ok := sh.ids.get(id)
	if !ok {
		return nil
	}
	se, _ := sh.sessions.Get(no)
	return se
}

// session returns the session of that number for reading, nil if there is none.
func (sh *share) session(no uint32) *session {
	if l := sh.latest; l != nil && l.no == no && l.gen == sh.gen {
		return l
	}
	se, _ := sh.sessions.Get(no)
	return se
}

// sessionOf returns the session of that number for reading, which is there; its id is known, too, and is half
// the time of the way by its number.
func (sh *share) sessionOf(no uint32, id []byte) *session {
	se := sh.sessionHints.at[maphash.Bytes(sh.sessionHints.seed, id)]
	if se == nil || se.no != no || se.gen != sh.gen {
		se, _ = sh.sessions.Get(no)
	}
	return se
}

// change returns the session of that number, which is there, for writing. A record of an older generation belongs to
// an image or to a savepoint, so it is copied.
func (sh *share) change(no uint32) *session {
	se := sh.session(no)
	if se.gen != sh.gen {
		c := *se
		c.gen = sh.gen
		if c.handed != nil {
			c.handed = c.handed.Copy()
		}
		se = &c
		sh.sessions.Set(no, se)
		sh.sessionHints.add(se)
	}
	sh.latest = se
	return se
}

// keep remembers the session that a command goes on with.
func (sh *share) keep(se *session) {
	if se.gen == sh.gen {
		sh.latest = se
	}
}

// undoSessions takes the ids out of the indexes that came into being since the transaction began.
func (s *State) undoSessions() {
	for _, n := range s.run.named {
		n.in.remove(n.id)
	}
}
