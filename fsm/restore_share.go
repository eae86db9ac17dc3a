package fsm

// drops reads the counters of the share, or those of the partition.
func (l *loader) drops(r *reader) {
	d := r.drops()
	switch {
	case l.sh != nil && !l.dropped && l.sh.drops == (Drops{}):
		l.sh.drops = d
		l.s.dropping.Set(l.sh.d.ID, struct{}{})
	case l.sh == nil && l.s.shares.Len() == 0 && l.s.dropped.Len() == 0 && l.s.deleted == 0:
		l.s.deleted = d[DropWithEntity]
	default:
		r.fail("counters out of order")
	}
}

func (l *loader) seen(r *reader) {
	sh := l.sh
	var e seen
	r.fixed(e.hash[:])
	e.at, e.arrival = r.wall(), r.uvarint()
	last, any := sh.seen.Get(seen{hash: l.lastSeen})
	_, twice := sh.seen.Get(e)
	if !sh.d.DetectDuplicates || twice || any && e.at < last.at || e.arrival > sh.arrival {
		r.fail("remembered message id out of order")
		return
	}
	sh.lastSeen++
	e.order = sh.lastSeen
	sh.seen.Set(e)
	sh.seenOrder.Set(e.order, e.hash)
	l.lastSeen = e.hash
}

// pause reads the pause of a message or of a session; what pauses was read before.
func (l *loader) pause(r *reader, kind uint8) {
	sh := l.sh
	sub, id, at := r.sub(), r.uvarint(), r.lease()
	if r.err != nil {
		return
	}
	if kind == recordPauseSession {
		no := uint32(id)
		se := sh.session(no)
		if se == nil || uint64(no) != id || se.ticket != 0 || sh.paused(no) || at <= 0 {
			r.fail("pause of a session contradicts it")
			return
		}
		sh.pauses.Set(no, at)
		sh.leaseDue.Set(leaseDue{at: at, kind: duePauseSession, id: id})
		return
	}
	b := &sh.boxes[sub]
	m, ok := b.messages.Get(id)
	_, twice := b.paused.Get(id)
	if !ok || twice || m.session != 0 || m.locked() || m.state() != StateActive || at <= 0 {
		r.fail("pause of a message contradicts it")
		return
	}
	b.ready.Delete(placeKey{arrival: id})
	b.paused.Set(id, at)
	sh.leaseDue.Set(leaseDue{at: at, kind: duePause, sub: sub, id: id})
}

func (l *loader) past(r *reader) {
	sh := l.sh
	k := HistoryKind(r.u8())
	p := &past{HistoryRecord: r.history(), arrival: r.uvarint()}
	l.translate(r, &p.Ref.Index, &p.Ref.Offset, p.Ref.Length)
	if r.err != nil {
		return
	}
	if k > Releases || (k == Releases) != (p.End == Released) {
		r.fail("unknown history")
		return
	}
	c := &sh.history[k]
	last, _, any := c.records.Max()
	_, twice := sh.entered.Get(p.arrival)
	if p.arrival != 0 && !sh.stored(p.arrival) || p.Order == 0 || p.Order > c.last || any && p.Order <= last || p.arrival > sh.arrival ||
		p.Ref.Index > l.s.index || p.arrival != 0 && (k != Accepted || twice || p.End != StillThere) {
		r.fail("history out of order")
		return
	}
	if p.Ref.Length > 0 {
		l.refer(p.Ref)
	}
	c.records.Set(p.Order, p)
	c.size += p.bytes()
	if p.Ref.Length > 0 {
		c.bodies++
	}
	if p.arrival != 0 {
		sh.entered.Set(p.arrival, p.Order)
	}
}

func (l *loader) name(r *reader) {
	arrival, id := r.uvarint(), r.string()
	if _, twice := l.sh.names.Get(arrival); twice || !l.sh.stored(arrival) {
		r.fail("message id of no message")
		return
	}
	l.sh.names.Set(arrival, id)
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

// backup reads a hold of forwards, or that the share is being restored.
func (l *loader) backup(r *reader, kind uint8) {
	if kind == recordHold {
		l.s.holding, l.s.heldUntil = r.uvarint(), r.lease()
		if l.sh != nil || l.s.holding == 0 || l.s.heldUntil <= l.s.lease {
			r.fail("hold of forwards that is over")
		}
		return
	}
	if l.sh == nil || l.dropped || l.sh.restoring {
		r.fail("restore of no share")
		return
	}
	l.sh.restoring = true
}

func (l *loader) sweep(r *reader) {
	sh := l.sh
	no := r.u32()
	sw := sweep{done: r.uvarint(), limit: r.uvarint()}
	known := sh.session(no) != nil
	_, twice := sh.sweeps.Get(no)
	if !known || twice || sw.limit > sh.arrival || sw.done > sw.limit {
		r.fail("expiry of a session contradicts it")
		return
	}
	sh.sweeps.Set(no, sw)
	for _, a := range r.numbers() {
		sh.spared.Set(placeKey{session: no, arrival: uint64(a)})
	}
}
