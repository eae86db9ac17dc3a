package fsm

import "io"

// Census counts what a state holds, by what becomes of it. It is taken of an image that nobody serves.
type Census struct {
	Entities            uint64 `json:"entities"`
	Active              uint64 `json:"active"` // resting ones, too
	Locked              uint64 `json:"locked"`
	Scheduled           uint64 `json:"scheduled"`
	Deferred            uint64 `json:"deferred"`
	DeadLetters         uint64 `json:"dead_letters"`
	TransferDeadLetters uint64 `json:"transfer_dead_letters"`
	Leaving             uint64 `json:"leaving"`    // in transfer queues, not in transit yet
	InTransit           uint64 `json:"in_transit"` // of all subqueues
	Sessions            uint64 `json:"sessions"`
	SessionStates       uint64 `json:"session_states"`
	DuplicateIDs        uint64 `json:"duplicate_ids"`
	HistoryRecords      uint64 `json:"history_records"`
}

// Load reads an image of any partition into a state of its own. It reads the bytes of the image and no more. An error
// that comes of the bytes wraps ErrFormat.
func Load(r io.Reader) (*State, error) {
	l := loader{s: New(0), anyID: true}
	if err := l.frames(r); err != nil {
		return nil, err
	}
	return l.s, nil
}

// ID returns the partition of the state.
func (s *State) ID() PartitionID { return s.id }

// Index returns the index of the last entry that was applied.
func (s *State) Index() uint64 { return s.index }

// Census counts what the state holds. It takes time in proportion to what is stored.
func (s *State) Census() Census {
	var c Census
	s.shares.Scan(func(_ EntityID, sh *share) bool {
		if sh.home.phase == left {
			return true
		}
		c.Entities++
		for sub := range sh.boxes {
			b := &sh.boxes[sub]
			c.InTransit += uint64(b.moving.Len())
			b.messages.Scan(func(arrival uint64, m message) bool {
				if _, moves := b.moving.Get(arrival); !moves {
					*c.of(SubQueue(sub), &m)++
				}
				return true
			})
		}
		c.Sessions += uint64(sh.sessions.Len())
		c.SessionStates += uint64(sh.states.Len())
		c.DuplicateIDs += uint64(sh.seen.Len())
		for k := range sh.history {
			c.HistoryRecords += uint64(sh.history[k].records.Len())
		}
		return true
	})
	return c
}

// of returns the counter of a message that is not in transit.
func (c *Census) of(sub SubQueue, m *message) *uint64 {
	switch {
	case m.locked():
		return &c.Locked
	case m.state() == StateScheduled:
		return &c.Scheduled
	case m.state() == StateDeferred:
		return &c.Deferred
	case sub == DeadLetter:
		return &c.DeadLetters
	case sub == TransferDeadLetter:
		return &c.TransferDeadLetters
	case sub == TransferQueue:
		return &c.Leaving
	}
	return &c.Active
}

// EachBody calls f with the place of every body that the state refers to. A body with several references is named
// several times.
func (s *State) EachBody(f func(BodyRef)) {
	name := func(ref BodyRef) {
		if ref.Length == 0 {
			return
		}
		if s.large.Len() > 0 {
			if b, ok := s.large.Get(largeBody{index: ref.Index, offset: ref.Offset}); ok {
				ref.Length = b.head
				for _, part := range b.parts {
					f(part)
				}
			}
		}
		f(ref)
	}
	for _, shares := range [...]interface {
		Scan(func(EntityID, *share) bool)
	}{s.shares, s.dropped} {
		shares.Scan(func(_ EntityID, sh *share) bool {
			sh.eachBody(name)
			return true
		})
	}
	s.arriving.Scan(func(_ EntityID, a *arriving) bool {
		a.bodies.Scan(func(b stagedBody) bool { f(b.here); return true })
		return true
	})
	s.results.Scan(func(r result) bool {
		if r.answer != nil && r.answer.removed {
			for i := range r.answer.outcome.Locked {
				name(r.answer.outcome.Locked[i].Ref)
			}
		}
		return true
	})
}

func (sh *share) eachBody(f func(BodyRef)) {
	for i := range sh.boxes {
		sh.boxes[i].messages.Scan(func(_ uint64, m message) bool { f(m.ref()); return true })
	}
	sh.history[Processed].records.Scan(func(_ uint64, p *past) bool { f(p.Ref); return true })
	sh.uploads.Scan(func(_ UploadID, up upload) bool { each(up.parts, f); return true })
	sh.parted.Scan(func(_ uint32, p parted) bool { each(p.parts, f); return true })
}

func each(refs []BodyRef, f func(BodyRef)) {
	for _, ref := range refs {
		f(ref)
	}
}
