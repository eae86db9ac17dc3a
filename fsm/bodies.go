package fsm

// sharedBody is a body that several copies of a message refer to. More counts them beyond the first;
// a body with one reference is in no table.
type sharedBody struct {
	index  uint64
	offset uint32
	more   uint32
}

func (a sharedBody) less(b sharedBody) bool {
	if a.index != b.index {
		return a.index < b.index
	}
	return a.offset < b.offset
}

// key is e without what changes.
func (a sharedBody) key() sharedBody { return sharedBody{index: a.index, offset: a.offset} }

// reuse makes n references of one; with none the body is free.
func (s *State) reuse(ref BodyRef, n int) {
	switch {
	case n == 0:
		s.free(ref)
	case n > 1:
		b, _ := s.bodies.Get(sharedBody{index: ref.Index, offset: ref.Offset})
		s.bodies.Set(sharedBody{ref.Index, ref.Offset, b.more + uint32(n-1)})
	}
}

// free ends one reference to a body and reports the body when it was the last.
func (s *State) free(ref BodyRef) {
	if s.bodies.Len() > 0 {
		if b, shared := s.bodies.Get(sharedBody{index: ref.Index, offset: ref.Offset}); shared {
			if b.more--; b.more > 0 {
				s.bodies.Set(b)
			} else {
				s.bodies.Delete(b)
			}
			return
		}
	}
	if s.large.Len() > 0 && s.freeLarge(ref) {
		return
	}
	r := s.run.result
	if r.Freed == nil {
		r.Freed = make([]BodyRef, 0, s.run.freed)
	}
	r.Freed = append(r.Freed, ref)
}

// first is what a copy or a moved message remembers of where it was first sent to: 16 bytes without a
// pointer, for a topic may make millions.
type first struct {
	number SequenceNumber // there (S-101, S-102)
	hops   uint8          // moves since (S-208)
}

// since takes over where a message comes from that was moved here. A message that was sent through another entity has
// no number yet, and keeps the one that it has now (S-102).
func (f *first) since(o first) {
	f.hops = o.hops
	if o.number != 0 {
		f.number = o.number
	}
}
