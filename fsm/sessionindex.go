package fsm

import "hash/maphash"

// sessionIndex finds the number of a session faster than the ordered table of ids, whose comparisons of
// texts miss the processor's caches a dozen times with a million sessions. It is a hint: what it says
// counts only if the session of that number has that id, and what it does not know the table may. So it
// is no part of the state, all generations of a share have the same one, and nothing has to be undone.
type sessionIndex struct {
	seed maphash.Seed // drawn, so that nobody can choose ids that collide
	nos  map[uint64]uint32
	most int // entries that nos has held at once
}

func newSessionIndex() *sessionIndex {
	return &sessionIndex{seed: maphash.MakeSeed(), nos: map[uint64]uint32{}}
}

func (x *sessionIndex) add(id string, no uint32) {
	x.nos[maphash.String(x.seed, id)] = no
	x.most = max(x.most, len(x.nos))
}

func (x *sessionIndex) remove(id string) {
	delete(x.nos, maphash.String(x.seed, id))
	if len(x.nos) == 0 && x.most >= shrinkHints {
		x.nos, x.most = map[uint64]uint32{}, 0
	}
}

// sessionNo returns the number of a session.
func (sh *share) sessionNo(id string) (uint32, bool) {
	if no, ok := sh.sessionHints.nos[maphash.String(sh.sessionHints.seed, id)]; ok {
		if se, ok := sh.sessions.Get(no); ok && se.id == id {
			return no, true
		}
	}
	return sh.sessionNos.Get(id)
}
