package fsm

// Version 3 of an image: moves, copies and topics.

// counters reads the counters of a share's moves.
func (l *loader) counters(r *reader, sh *share) {
	sh.lastTransfer, sh.refusedTo = r.uvarint(), r.uvarint()
	largest := max(sh.lastTransfer, sh.refusedTo)
	for sub := range sh.moves {
		sh.moves[sub].last = r.uvarint()
		largest = max(largest, sh.moves[sub].last)
	}
	if largest > maxRestored {
		r.fail("counter too large")
	}
}

// moving reads that a message is in transit; the message was read before, as if it waited.
func (l *loader) moving(r *reader) {
	sh := l.sh
	sub, number, mv := r.sub(), r.uvarint(), moving{arrival: r.uvarint(), to: EntityID(r.uvarint())}
	if r.err != nil {
		return
	}
	b := &sh.boxes[sub]
	m, ok := b.messages.Get(mv.arrival)
	_, waits := b.ready.Get(placeKey{session: m.session, arrival: mv.arrival})
	_, twice := sh.moves[sub].table.Get(number)
	if !ok || !waits || twice || m.session != 0 || number == 0 || sub == TransferDeadLetter ||
		sh.moves[sub].table.Len() >= maxMoving {
		r.fail("message in transit contradicts others")
		return
	}
	b.ready.Delete(placeKey{arrival: mv.arrival})
	if sub == Main && m.expires != 0 {
		sh.expiring.Delete(expiry{at: m.expires, arrival: mv.arrival})
	}
	b.moving.Set(mv.arrival, number)
	sh.moves[sub].table.Set(number, mv)
}

// source reads what was moved here from one queue.
func (l *loader) source(r *reader) {
	sh := l.sh
	o := origin{originKey{EntityID(r.uvarint()), PartitionID(r.u16()), r.sub()}, r.uvarint()}
	if _, twice := sh.origins.Get(o); twice || sh.origins.Len() >= maxOrigins {
		r.fail("origin of moves is given twice")
		return
	}
	sh.origins.Set(o)
	for range r.count(2) {
		e := decided{o.originKey, r.uvarint(), r.refusal()}
		if _, twice := sh.decided.Get(e); twice || e.number < o.below {
			r.fail("decision about a move contradicts others")
			return
		}
		sh.decided.Set(e)
	}
}

// body reads that a body has several references, which are read later.
func (l *loader) body(r *reader) {
	e := sharedBody{index: r.uvarint(), offset: r.u32(), more: r.u32()}
	l.translate(r, &e.index, &e.offset, 1)
	if _, twice := l.s.bodies.Get(e); twice || l.sh != nil || e.more == 0 || e.more == 1<<32-1 {
		r.fail("shared body out of order")
		return
	}
	l.s.bodies.Set(e)
}

// refer counts a reference to a body if that is shared.
func (l *loader) refer(ref BodyRef) {
	if len(l.wanted) > 0 {
		delete(l.wanted, sharedBody{index: ref.Index, offset: ref.Offset})
	}
	if l.s.bodies.Len() == 0 {
		return
	}
	if e, shared := l.s.bodies.Get(sharedBody{index: ref.Index, offset: ref.Offset}); shared {
		if l.refs == nil {
			l.refs = map[sharedBody]uint64{}
		}
		l.refs[e.key()]++
	}
}

// origin reads where a message comes from, or what a topic keeps of it; the message was read before.
func (l *loader) origin(r *reader, kind uint8) {
	sh := l.sh
	arrival := r.uvarint()
	if kind == recordFirst {
		o := first{number: SequenceNumber(r.uvarint()), hops: r.u8()}
		if _, twice := sh.firsts.Get(arrival); twice || r.err == nil && !sh.stored(arrival) {
			r.fail("origin of no message")
		}
		sh.firsts.Set(arrival, o)
		return
	}
	w := waiting{head: r.string(), messageID: r.string(), hasSession: r.boolean(), sessionID: r.string()}
	m, ok := sh.boxes[Main].messages.Get(arrival)
	if _, twice := sh.heads.Get(arrival); !ok || twice || sh.d.Kind != Topic || m.state() != StateScheduled {
		r.fail("properties of no scheduled message of a topic")
	}
	sh.heads.Set(arrival, w)
}
