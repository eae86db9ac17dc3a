package check

import (
	"cmp"
	"slices"
)

// sessionHeldUntil returns until when a session is surely held by who accepted it.
func (v *view) sessionHeldUntil(a *Op, moment int64) int64 {
	q := v.Queue(a.Entity)
	if q == nil {
		return 0
	}
	until := v.least(a.Invoke, q)
	for _, o := range v.byHolder[a.Holder] {
		if o.Kind == RenewSession && o.Ok() && o.Return < moment {
			until = max(until, v.least(o.Invoke, q))
		}
	}
	for _, o := range v.byHolder[a.Holder] {
		if o.Kind == CloseSession {
			until = min(until, o.Invoke)
		}
	}
	for _, o := range v.overs[[2]string{a.Entity, a.Session}] { // S-327: only one that is shared can be
		if o != a && a.Shared && o.End() > a.Invoke {
			until = min(until, max(o.Invoke, a.Invoke))
		}
	}
	return min(until, v.lost(a.Conn))
}

// grantedBefore orders two accepts of a session: by when they happened if they did not overlap, else by the ends of
// the locks. The end alone says nothing. A repeated accept is answered with what is left of its lock, which may end
// before one that was given back early. If they end alike neither was before the other: ends are told by the wall
// clock, which stands still after a step back.
func grantedBefore(a, b *Op) bool {
	switch {
	case a.Return < b.Invoke:
		return true
	case b.Return < a.Invoke:
		return false
	}
	return a.Until < b.Until
}

// I11: while a session is surely held nobody else gets it; who was followed by another can do
// nothing, and is told that the session is lost; and a session is not lost before its time.
func sessionExclusive(v *view) []Violation {
	r := report{name: "I11"}
	taken := func(first, second *Op) bool { return second.Return < v.sessionHeldUntil(first, second.Return) }
	bySession := map[[2]string][]*Op{}
	for _, a := range v.accepts {
		k := [2]string{a.Entity, a.Session}
		bySession[k] = append(bySession[k], a)
	}
	for _, list := range bySession {
		for i, first := range list {
			for _, o := range v.byHolder[first.Holder] {
				lost := o.Condition == "com.microsoft:session-lock-lost" ||
					o.Condition == "com.microsoft:message-lock-lost" && !v.settledBefore(o) && !v.handedOver(o)
				if o.Outcome == Failed && lost && o.Return < v.sessionHeldUntil(first, o.Invoke) {
					r.add([]*Op{first, o}, "session %q was lost before its time", first.Session)
				}
			}
			for j, second := range list {
				before := grantedBefore(first, second)
				if i == j || !before && (j < i || grantedBefore(second, first)) {
					continue
				}
				if taken(first, second) && (before || taken(second, first)) {
					r.add([]*Op{first, second}, "session %q was given to a second while the first held it",
						first.Session)
				}
				if second.Invoke <= first.Return {
					continue
				}
				for _, o := range v.byHolder[first.Holder] {
					if o.Kind == CloseSession || o.Kind == Receive || o.Invoke <= second.Return {
						continue
					}
					switch {
					case o.Ok():
						r.add([]*Op{first, second, o}, "%s of session %q worked for a holder who was followed by another",
							o.Kind, first.Session)
					case o.Outcome == Failed && o.Condition == "com.microsoft:message-lock-lost": // S-53, S-330
						r.add([]*Op{first, second, o}, "%s of session %q by a holder who was followed by another was "+
							"refused, but not with session-lock-lost", o.Kind, first.Session)
					}
				}
			}
		}
	}
	return r.list
}

// settledBefore reports whether something may have ended the lock that o uses.
func (v *view) settledBefore(o *Op) bool {
	for _, p := range v.byToken[o.Message.Token] {
		if p != o && p.Kind.Settles() && p.Maybe() && p.Invoke <= o.Invoke {
			return true
		}
	}
	return false
}

// handedOver reports whether the lock that o uses was another receiver's: it may have ended at that
// receiver's time, or with its node (S-333).
func (v *view) handedOver(o *Op) bool {
	for _, g := range v.grants[where{o.Entity, o.Sub, o.Message.Seq}] {
		if g.Message.Token == o.Message.Token && g.Holder == o.Holder {
			return false
		}
	}
	return o.Kind.Settles()
}

// settledByOthers returns how often other holders of the session may have done what o was refused. The lock goes over
// with the session (S-332), so they may do it after the refusal.
func (v *view) settledByOthers(o *Op) (n int) {
	for _, p := range v.byToken[o.Message.Token] {
		if p.Holder != o.Holder && p.Kind == o.Kind && p.Maybe() {
			n++
		}
	}
	return n
}

// I12: the first deliveries of a session's messages are in the order of their numbers. Messages that
// were scheduled are left out: their place is in the past when their time comes.
func sessionOrder(v *view) []Violation {
	r := report{name: "I12"}
	first := map[where]*Op{}
	for at, list := range v.grants {
		q := v.Queue(at.entity)
		if q == nil || !q.Sessions || at.sub != InMain {
			continue
		}
		for _, g := range list {
			o, m := v.sendOf(g.Message.ID)
			if o == nil || o.Kind == Schedule || m.ScheduledAt != 0 || g.Kind != Receive {
				continue
			}
			if first[at] == nil || g.Return < first[at].Return {
				first[at] = g
			}
		}
	}
	tookOver := map[int]*Op{}
	for _, a := range v.accepts {
		if a.Over != 0 {
			tookOver[a.Holder] = a
		}
	}
	bySession := map[[3]string][]*Op{}
	for at, g := range first {
		k := [3]string{at.entity, g.Message.Session}
		bySession[k] = append(bySession[k], g)
	}
	for _, list := range bySession {
		slices.SortFunc(list, func(a, b *Op) int { return cmp.Compare(a.Message.Seq, b.Message.Seq) })
		// For each message: was any with a higher number seen before this one was even asked for? A message sent to a
		// receiver that did not read it before it was taken over belongs to the new one. It is not given to that one
		// (S-332). Others may get it behind what the new one got. So it is where a connection is cut while a delivery
		// is under way (seed 9005). A message sent to the queue after the take-over was with nobody before, and the
		// rule holds for it.
		var early *Op        // of those behind, the one that returned first, unless its holder took over
		own := map[int]*Op{} // likewise, by holder
		for i := len(list) - 1; i >= 0; i-- {
			g := list[i]
			before := early
			if same := own[g.Holder]; same != nil && same.Return < g.Return {
				before = same
			}
			sent, _ := v.sendOf(g.Message.ID)
			for holder, e := range own {
				if a := tookOver[holder]; a != nil && a.Return < sent.Invoke && (before == nil || e.Return < before.Return) {
					before = e
				}
			}
			if before != nil && (before.Return < g.Invoke || before.Holder == g.Holder && before.Return < g.Return) {
				r.add([]*Op{before, g}, "session %q: number %d came before number %d", g.Message.Session,
					before.Message.Seq, g.Message.Seq)
			}
			if tookOver[g.Holder] == nil && (early == nil || g.Return < early.Return) {
				early = g
			}
			if same := own[g.Holder]; same == nil || g.Return < same.Return {
				own[g.Holder] = g
			}
		}
	}
	return r.list
}
