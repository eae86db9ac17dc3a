package check

// clockShare is how much faster than the history's clock a leader's may run: a lock lasts at least
// LockMillis minus this part of it.
const clockShare = 0.1

// least returns until when a lock lasts at the least that was certainly held at a time. A broker's clocks may run
// fast, and nobody's stands for more than the history's.
func (v *view) least(from int64, q *Queue) int64 {
	return from + int64(float64(q.LockMillis*milli)*(1-clockShare)) - v.Epsilon
}

// heldUntil returns until when the lock of a delivery is surely held, judging by what ended before a
// moment; it ends earlier if its holder did anything that may have ended it, or its connection.
func (v *view) heldUntil(g *Op, moment int64) int64 {
	q := v.Queue(g.Entity)
	if q == nil {
		return 0
	}
	// A client that waited for a message that was not there got it after it was sent, at the earliest.
	until := v.least(max(g.Invoke, v.born[g.Message.ID]), q)
	for _, o := range v.byToken[g.Message.Token] {
		switch {
		case o.Kind.Settles() && o.Maybe():
			until = min(until, o.Invoke)
		case o.Kind == Renew && o.Ok() && o.Return < moment:
			until = max(until, v.least(o.Invoke, q))
		}
	}
	for _, o := range v.byToken[g.Message.Token] {
		if o.Kind.Settles() && o.Maybe() {
			until = min(until, o.Invoke)
		}
	}
	return min(until, v.lost(g.Conn))
}

// grantedLater reports whether a lock was surely given after another of the same message. A message that a client
// gets late may have been locked long ago; the count of deliveries, which never falls, may tell. The end of a lock as
// the broker tells it proves nothing. An answer given again has the time that is left by the wall clock of another
// node, or by a clock that was set since.
func grantedLater(a, b *Op) bool {
	if a.Invoke > b.Return {
		return true
	}
	return a.Return >= b.Invoke && a.Message.Attempts > b.Message.Attempts
}

// surelyTwo reports whether two locks of one message were held at once, in whatever order they were given. Where
// nothing tells the order, both orders must say so.
func (v *view) surelyTwo(a, b *Op) bool {
	meet := func(first, second *Op) bool { return second.Return < v.heldUntil(first, second.Return) }
	return (grantedLater(a, b) || meet(a, b)) && (grantedLater(b, a) || meet(b, a))
}

// I5: while a lock is surely held, nobody else is given the message.
func lockExclusive(v *view) []Violation {
	r := report{name: "I5"}
	for at, list := range v.grants {
		q := v.Queue(at.entity)
		if q == nil || q.Sessions && at.sub == InMain {
			continue // the session's lock counts: I11
		}
		for i, first := range list {
			for _, second := range list[i+1:] {
				if second.Message.Token != first.Message.Token && v.surelyTwo(first, second) {
					r.add([]*Op{first, second}, "%s (number %d) was given to a second while the first held it",
						first.Message.ID, at.seq)
				}
			}
		}
	}
	return r.list
}

// I6: a lock that is not the newest of its message decides nothing.
func fencing(v *view) []Violation {
	r := report{name: "I6"}
	for _, list := range v.grants {
		for i, old := range list {
			for _, newer := range list[i+1:] {
				if newer.Message.Token == old.Message.Token || newer.Invoke <= old.Return {
					continue
				}
				for _, o := range v.byToken[old.Message.Token] {
					if o.Ok() && o.Invoke > newer.Return {
						r.add([]*Op{old, newer, o}, "%s with an old lock of %s worked", o.Kind, old.Message.ID)
					}
				}
			}
		}
	}
	return r.list
}

// I7: at most one terminal settlement of a message in one place is acknowledged, and one settlement of a lock.
func settledOnce(v *view) []Violation {
	r := report{name: "I7"}
	for at, list := range v.settles {
		var first *Op
		for _, o := range list {
			if !o.Ok() || !o.Kind.Terminal() {
				continue
			}
			if first != nil {
				r.add([]*Op{first, o}, "number %d of %s was settled twice", at.seq, at.entity)
			}
			first = o
		}
	}
	for token, list := range v.byToken {
		var first *Op
		for _, o := range list {
			if !o.Ok() || !o.Kind.Settles() || token == "" {
				continue
			}
			if first != nil && !(first.Kind.Terminal() && o.Kind.Terminal()) {
				r.add([]*Op{first, o}, "a lock of %s was used by two settlements", o.Message.ID)
			}
			first = o
		}
	}
	return r.list
}

// I8: what is asked for after a terminal settlement was acknowledged does not hold that message.
func noResurrection(v *view) []Violation {
	r := report{name: "I8"}
	settled := map[where]*Op{}
	for at, list := range v.settles {
		for _, o := range list {
			if o.Ok() && o.Kind.Terminal() && (settled[at] == nil || o.Return < settled[at].Return) {
				settled[at] = o
			}
		}
	}
	for _, s := range v.sights {
		o := settled[where{s.entity, s.sub, s.m.Seq}]
		if o == nil || s.op != nil && s.invoke <= o.Return {
			continue
		}
		r.add(nonNil(o, s.op), "%s (number %d) was seen again after %s", s.m.ID, s.m.Seq, o.Kind)
	}
	return r.list
}

// I9: a lock is not lost while it surely lasts.
func lockLifetime(v *view) []Violation {
	r := report{name: "I9"}
	for at, list := range v.grants {
		q := v.Queue(at.entity)
		if q == nil || q.Sessions && at.sub == InMain {
			continue // judged by the session's lock: I11
		}
		for _, g := range list {
			for _, o := range v.byToken[g.Message.Token] {
				if o.Outcome != Failed || o.Condition != "com.microsoft:message-lock-lost" {
					continue
				}
				if o.Return < v.heldUntil(g, o.Invoke) {
					r.add([]*Op{g, o}, "the lock of %s was lost before its time", g.Message.ID)
				}
			}
		}
	}
	return r.list
}

// I10: along deliveries that surely follow each other the count does not fall, and it rises after an abandoned one.
// It never reaches the maximum in the main queue.
func deliveryCount(v *view) []Violation {
	r := report{name: "I10"}
	for at, list := range v.grants {
		q := v.Queue(at.entity)
		if q == nil {
			continue
		}
		for i, g := range list {
			if at.sub == InMain && g.Message.Attempts >= q.MaxDelivery {
				r.add([]*Op{g}, "%s was delivered with count %d, maximum %d", g.Message.ID,
					g.Message.Attempts+1, q.MaxDelivery)
			}
			for _, next := range list[i+1:] {
				if next.Invoke <= g.Return || next.Message.Token == g.Message.Token {
					continue
				}
				least := g.Message.Attempts
				for _, o := range v.byToken[g.Message.Token] {
					if o.Kind == Abandon && o.Ok() && o.Return < next.Invoke && at.sub == InMain {
						least++
					}
				}
				if next.Message.Attempts < least {
					r.add([]*Op{g, next}, "%s was delivered with count %d after one that makes it at least %d",
						g.Message.ID, next.Message.Attempts, least)
				}
			}
		}
	}
	const exceeded = "MaxDeliveryCountExceeded"
	for _, s := range v.sights {
		q := v.Queue(s.entity)
		if q != nil && s.sub == InDeadLetter && s.m.Reason == exceeded && s.m.Attempts < q.MaxDelivery {
			r.add(nonNil(s.op), "%s was dead-lettered for its count of %d, maximum %d", s.m.ID, s.m.Attempts,
				q.MaxDelivery)
		}
	}
	return r.list
}
