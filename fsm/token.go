package fsm

import "encoding/binary"

// tokenIndex finds locked messages by their tokens. It is derived from the locks, it is only looked up, and no image
// has it. So it can be a hash table, which has no order. All generations of a share have the same one, so what a
// transaction does to it is undone by a list.
type tokenIndex struct {
	refs map[uint64]tokenRef
	most int // entries that refs has held at once
}

// tokenRef is where the message with a token is.
type tokenRef struct {
	arrival uint64
	head    uint64 // what the token has beside its key
	sub     SubQueue
}

// tokenChange is one change of an index in a transaction.
type tokenChange struct {
	in    *tokenIndex
	key   uint64
	ref   tokenRef
	added bool
}

// shrinkHints is how large an emptied index is when its memory is given back: a map keeps what its
// largest day took.
const shrinkHints = 4096

func newTokenIndex() *tokenIndex { return &tokenIndex{refs: map[uint64]tokenRef{}} }

// ref returns what the index has of a lock with that token.
func (t LockToken) ref(arrival uint64, sub SubQueue) tokenRef {
	return tokenRef{arrival: arrival, head: binary.BigEndian.Uint64(t[:8]), sub: sub}
}

func (x *tokenIndex) get(t LockToken) (tokenRef, bool) {
	ref, ok := x.refs[t.key()]
	return ref, ok
}

func (x *tokenIndex) add(key uint64, ref tokenRef) {
	x.refs[key] = ref
	x.most = max(x.most, len(x.refs))
}

func (x *tokenIndex) remove(key uint64) {
	delete(x.refs, key)
	if len(x.refs) == 0 && x.most >= shrinkHints {
		x.refs, x.most = map[uint64]tokenRef{}, 0
	}
}

// addToken makes a locked message known by its token.
func (s *State) addToken(sh *share, t LockToken, ref tokenRef) {
	sh.tokens.add(t.key(), ref)
	if s.run.undoable {
		s.run.tokens = append(s.run.tokens, tokenChange{in: sh.tokens, key: t.key(), ref: ref, added: true})
	}
}

// removeToken forgets the token of a lock that ends.
func (s *State) removeToken(sh *share, t LockToken) {
	if s.run.undoable {
		if ref, ok := sh.tokens.get(t); ok {
			s.run.tokens = append(s.run.tokens, tokenChange{in: sh.tokens, key: t.key(), ref: ref})
		}
	}
	sh.tokens.remove(t.key())
}

// undoTokens takes back what was done to tokens since the transaction began, the last first.
func (s *State) undoTokens() {
	for i := len(s.run.tokens) - 1; i >= 0; i-- {
		if c := &s.run.tokens[i]; c.added {
			c.in.remove(c.key)
		} else {
			c.in.add(c.key, c.ref)
		}
	}
}

// endUndo ends the time in which the indexes are undoable.
func (s *State) endUndo() {
	clear(s.run.tokens)
	clear(s.run.named)
	s.run.undoable, s.run.tokens, s.run.named = false, s.run.tokens[:0], s.run.named[:0]
}
