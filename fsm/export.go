package fsm

// This file tells what a state holds, in the words of a Restore. It is asked of an image that nobody serves: what it
// returns shares memory with the state.

// Place names one reference to a body: a message by its subqueue and arrival, or a record by its order.
type Place struct {
	Entity   EntityID
	Key      uint64
	Sub      SubQueue
	IsRecord bool // of the history Processed
}

// Described lists the entities of the state in the order of their ids.
func (s *State) Described() []*Descriptor {
	list := make([]*Descriptor, 0, s.shares.Len())
	s.shares.Scan(func(_ EntityID, sh *share) bool {
		list = append(list, sh.d)
		return true
	})
	return list
}

// CountersOf returns the counters of the share of an entity.
func (s *State) CountersOf(id EntityID) (n ShareCounters) {
	sh, ok := s.shares.Get(id)
	if !ok {
		return n
	}
	n = ShareCounters{Arrival: sh.arrival, LastTransfer: sh.lastTransfer, Touched: sh.touched, Forgotten: sh.forgotten,
		Drops: sh.drops}
	for sub := range sh.moves {
		n.Moves[sub] = sh.moves[sub].last
	}
	for k := range sh.history {
		n.Histories[k] = sh.history[k].last
	}
	return n
}

// EachPlace calls f with every reference to a body, and with the parts behind that body. A message without a body is
// told with an empty reference.
func (s *State) EachPlace(id EntityID, f func(ref BodyRef, parts []BodyRef, at Place)) {
	sh, ok := s.shares.Get(id)
	if !ok {
		return
	}
	tell := func(ref BodyRef, at Place) {
		d := Delivery{Ref: ref}
		if ref.Length == 0 {
			d.Ref = BodyRef{}
		} else {
			s.whole(&d)
		}
		f(d.Ref, d.Rest, at)
	}
	for sub := range sh.boxes {
		sh.boxes[sub].messages.Scan(func(arrival uint64, m message) bool {
			tell(m.ref(), Place{Entity: id, Key: arrival, Sub: SubQueue(sub)})
			return true
		})
	}
	sh.history[Processed].records.Scan(func(order uint64, p *past) bool {
		if p.Ref.Length > 0 {
			tell(p.Ref, Place{Entity: id, Key: order, IsRecord: true})
		}
		return true
	})
}

// Use returns what is at a place.
func (s *State) Use(at Place) BodyUse {
	u := BodyUse{Entity: at.Entity, IsRecord: at.IsRecord}
	sh, ok := s.shares.Get(at.Entity)
	if !ok {
		return u
	}
	if at.IsRecord {
		if p, there := sh.history[Processed].records.Get(at.Key); there {
			u.Record = RestoredRecord{Kind: Processed, HistoryRecord: p.HistoryRecord}
			u.Record.Ref = BodyRef{}
		}
		return u
	}
	b := &sh.boxes[at.Sub]
	m, _ := b.messages.Get(at.Key)
	out := &u.Message
	*out = RestoredMessage{Sub: at.Sub, Arrival: at.Key, State: m.state(), Attempts: m.attempts(), At: m.at,
		Expires: m.expires}
	if sh.sessionful(at.Sub) {
		out.HasSession, out.SessionID = true, sh.sessionID(&m)
	}
	x := b.extra(at.Key, &m)
	out.ScheduledAt, out.InSession, out.DiedIn = x.scheduledAt, x.inSession, x.session
	out.To, out.Reserved, out.Stuck = x.to, x.reserved, x.stuck
	carried := Carried{Reason: x.reason, Description: x.description, Source: x.source, Properties: x.properties,
		System: x.system}
	if at.Sub != TransferQueue {
		out.MessageID, _ = sh.names.Get(at.Key)
		if o, moved := sh.firsts.Get(at.Key); moved {
			out.HasFirst, carried.EnqueuedSeq, carried.Hops = true, o.number, o.hops
		}
		if w, waits := sh.heads.Get(at.Key); waits {
			out.MessageID, out.HasSession, out.SessionID = w.messageID, w.hasSession, w.sessionID
		}
	}
	if out.HasFirst || x.bytes() > 0 {
		out.Carried = &carried
	}
	if at, rests := b.paused.Get(at.Key); rests {
		out.Rest = max(1, at.Since(s.lease))
	}
	if n, moves := b.moving.Get(at.Key); moves {
		mv, _ := sh.moves[at.Sub].table.Get(n)
		out.Transit, out.TransitTo = n, mv.to
	}
	return u
}

// EachSession calls f with every session that has a state or rests, and with the parts of that state.
func (s *State) EachSession(id EntityID, f func(in RestoredSession, parts []BodyRef)) {
	sh, ok := s.shares.Get(id)
	if !ok {
		return
	}
	sh.sessions.Scan(func(no uint32, se *session) bool {
		st, has := sh.states.Get(no)
		at, rests := sh.pauses.Get(no)
		if !has && !rests {
			return true
		}
		out := RestoredSession{ID: se.id, HasState: has, State: st.data, StateAt: st.at}
		if rests {
			out.Rest = max(1, at.Since(s.lease))
		}
		p, _ := sh.parted.Get(no)
		f(out, p.parts)
		return true
	})
}

// EachID calls f with every message id of the duplicate window, in the order of acceptance.
func (s *State) EachID(id EntityID, f func(RestoredID)) {
	if sh, ok := s.shares.Get(id); ok {
		sh.seenOrder.Scan(func(_ uint64, h idHash) bool {
			e, _ := sh.seen.Get(seen{hash: h})
			f(RestoredID{Hash: e.hash, At: e.at, Arrival: e.arrival})
			return true
		})
	}
}

// EachRecord calls f with every record of the histories that keeps no body.
func (s *State) EachRecord(id EntityID, f func(RestoredRecord)) {
	sh, ok := s.shares.Get(id)
	if !ok {
		return
	}
	for k := range sh.history {
		sh.history[k].records.Scan(func(_ uint64, p *past) bool {
			if p.Ref.Length == 0 {
				f(RestoredRecord{Kind: HistoryKind(k), HistoryRecord: p.HistoryRecord, Arrival: p.arrival})
			}
			return true
		})
	}
}

// EachOrigin calls f with what is remembered of every queue from which messages were moved here.
func (s *State) EachOrigin(id EntityID, f func(RestoredOrigin)) {
	sh, ok := s.shares.Get(id)
	if !ok {
		return
	}
	sh.origins.Scan(func(o origin) bool {
		out := RestoredOrigin{Entity: o.entity, Partition: o.partition, Sub: o.sub, Below: o.below}
		sh.decided.Ascend(decided{originKey: o.originKey}, func(e decided) bool {
			if e.originKey == o.originKey {
				out.Decided = append(out.Decided, Moved{Number: e.number, Refusal: e.refusal})
			}
			return e.originKey == o.originKey
		})
		f(out)
		return true
	})
}

// Whole returns the parts that follow a body, none for one that lies in one place.
func (s *State) Whole(ref BodyRef) (BodyRef, []BodyRef) {
	d := Delivery{Ref: ref}
	s.whole(&d)
	return d.Ref, d.Rest
}
