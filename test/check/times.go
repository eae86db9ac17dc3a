package check

// I14: a scheduled message is not delivered before its time, and after a cancellation never.
func scheduled(v *view) []Violation {
	r := report{name: "I14"}
	cancelled := map[where]*Op{}
	for _, o := range v.Ops {
		if o.Kind == Cancel && o.Ok() {
			cancelled[where{o.Entity, InMain, o.Seq}] = o
		}
	}
	ended := map[string]*Op{}
	for _, o := range v.Ops {
		if o.Kind == Schedule && o.Ok() {
			if c := cancelled[where{o.Entity, InMain, o.Seq}]; c != nil {
				ended[o.Message.ID] = c
			}
		}
	}
	for _, s := range v.sights {
		o, m := v.sendOf(s.m.ID)
		if o == nil {
			continue
		}
		delivered := s.op == nil || s.op.Kind == Receive
		if c := ended[s.m.ID]; c != nil && (s.op == nil || s.op.Kind != Peek || s.invoke > c.Return) {
			r.add(nonNil(o, c, s.op), "%s was cancelled and seen all the same", s.m.ID)
		}
		if delivered && m.ScheduledAt != 0 && s.m.State != Scheduled && s.m.EnqueuedAt < m.ScheduledAt {
			r.add(nonNil(o, s.op), "%s was enqueued %d ms before its time", s.m.ID, m.ScheduledAt-s.m.EnqueuedAt)
		}
		if delivered && s.op != nil && m.ScheduledAt != 0 && s.return_ < m.ScheduledAt*milli-v.WallEpsilon {
			r.add([]*Op{o, s.op}, "%s was delivered %d ms before its time", s.m.ID,
				m.ScheduledAt-s.return_/milli)
		}
	}
	return r.list
}

// I15: what has expired is not delivered, and only that is dead-lettered for it.
func timeToLive(v *view) []Violation {
	r := report{name: "I15"}
	for _, s := range v.sights {
		o, m := v.sendOf(s.m.ID)
		if o == nil || s.op == nil || s.op.Kind == Peek {
			continue
		}
		due := v.expires(o, m)
		if s.sub == InDeadLetter && s.m.Reason == "TTLExpiredException" {
			q := v.Queue(s.entity)
			if s.return_ < due-v.WallEpsilon {
				r.add([]*Op{o, s.op}, "%s was dead-lettered as expired before its time", s.m.ID)
			}
			if q != nil && !q.DeadExpired {
				r.add([]*Op{o, s.op}, "%s was dead-lettered as expired and should be gone", s.m.ID)
			}
			continue
		}
		// The time to live begins when the message is enqueued, which may be long after it was scheduled.
		if s.sub == InMain && due != Never && s.op.Kind == Receive &&
			s.invoke > s.m.EnqueuedAt*milli+due-max(o.Invoke, m.ScheduledAt*milli)+v.WallEpsilon {
			r.add([]*Op{o, s.op}, "%s was delivered after it had expired", s.m.ID)
		}
	}
	return r.list
}

// I20: of a batch all messages are somewhere, or none is.
func batches(v *view) []Violation {
	r := report{name: "I20"}
	sighted := map[string]bool{}
	for _, s := range v.sights {
		sighted[s.m.ID] = true
	}
	for _, o := range v.Ops {
		if o.Kind != Send || len(o.Messages) == 0 || !v.HasFinal {
			continue
		}
		var there, missing string
		for i := range o.Messages {
			if sighted[o.Messages[i].ID] {
				there = o.Messages[i].ID
			} else {
				missing = o.Messages[i].ID
			}
		}
		if there != "" && missing != "" {
			r.add([]*Op{o}, "of one batch %s was stored and %s was not", there, missing)
		}
	}
	return r.list
}

// I22: peek gives ascending numbers from where it was asked to begin, and leaves out nothing that was
// there before and is there afterwards.
func peeks(v *view) []Violation {
	r := report{name: "I22"}
	type stay struct {
		since, until int64
		s            seen
	}
	stays := map[where]*stay{}
	for _, s := range v.sights {
		o, m := v.sendOf(s.m.ID)
		if o == nil || !o.Ok() || o.Kind == Schedule || m.ScheduledAt != 0 || s.sub != InMain {
			continue
		}
		at := where{s.entity, s.sub, s.m.Seq}
		// A delivery shows that the message was there when it was locked, which is not before it was
		// asked for.
		if x := stays[at]; x == nil {
			stays[at] = &stay{o.Return, s.invoke, s}
		} else {
			x.until = max(x.until, s.invoke)
		}
	}
	byEntity := map[string][]*stay{}
	for at, x := range stays {
		byEntity[at.entity] = append(byEntity[at.entity], x)
	}
	for _, o := range v.Ops {
		if o.Kind != Peek || !o.Ok() {
			continue
		}
		last := int64(-1)
		got := map[int64]bool{}
		for i := range o.Messages {
			m := &o.Messages[i]
			if m.Seq <= last || m.Seq < o.From {
				r.add([]*Op{o}, "peek from %d gave number %d after %d", o.From, m.Seq, last)
			}
			last = m.Seq
			got[m.Seq] = true
		}
		if o.Sub != InMain || o.Session != "" {
			continue
		}
		full := len(o.Messages) >= o.Max || o.Max == 0
		for _, x := range byEntity[o.Entity] {
			n := x.s.m.Seq
			if x.since < o.Invoke && x.until > o.Return && n >= o.From && !got[n] && !(full && n > last) {
				first, _ := v.sendOf(x.s.m.ID)
				r.add(nonNil(first, o, x.s.op), "peek left out number %d, which was there", n)
			}
		}
	}
	return r.list
}
