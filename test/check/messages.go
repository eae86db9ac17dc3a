package check

import (
	"cmp"
	"slices"
)

// taken returns the settlements, cancellations and so on that may have removed a message for good.
func (v *view) taken() map[string]*Op {
	gone := map[string]*Op{}
	bySeq := map[where]string{} // scheduled numbers
	for _, o := range v.Ops {
		switch {
		case o.Kind == Schedule && o.Ok():
			bySeq[where{o.Entity, InMain, o.Seq}] = o.Message.ID
		case o.Kind == Complete && o.Maybe():
			gone[o.Message.ID] = o
		}
	}
	for _, o := range v.Ops {
		if o.Kind == Cancel && o.Maybe() {
			if id, ok := bySeq[where{o.Entity, InMain, o.Seq}]; ok {
				gone[id] = o
			}
		}
	}
	return gone
}

// expires returns when a message expires at the earliest, Never if it does not.
func (v *view) expires(o *Op, m *Message) int64 {
	ttl := m.TTL
	if q := v.Queue(o.Entity); q != nil && q.DefaultTTL > 0 && (ttl == 0 || q.DefaultTTL < ttl) {
		ttl = q.DefaultTTL
	}
	if ttl == 0 {
		return Never
	}
	return max(o.Invoke, m.ScheduledAt*milli) + ttl*milli
}

// I1: at the end every acknowledged message is somewhere, was completed or cancelled, or expired
// where that deletes it.
func noLoss(v *view) []Violation {
	r := report{name: "I1"}
	if !v.HasFinal {
		return nil
	}
	gone := v.taken()
	deleted := v.deletions()
	v.allSends(func(o *Op, m *Message) {
		if !o.Ok() || gone[m.ID] != nil || len(v.finals[m.ID]) > 0 || deleted[o.Entity] {
			return
		}
		q := v.Queue(o.Entity)
		if q != nil && !q.DeadExpired && v.expires(o, m) <= v.end+v.WallEpsilon {
			return
		}
		if q != nil && q.DedupMillis > 0 && v.duplicateOf(o, m) {
			return
		}
		if q != nil && q.NoDeadLetter {
			return
		}
		r.add(v.story(o, m), "%s was acknowledged and is nowhere", m.ID)
	})
	return r.list
}

// deletions returns the entities that somebody may have deleted.
func (v *view) deletions() map[string]bool {
	out := map[string]bool{}
	for _, o := range v.Ops {
		if o.Kind == Delete && o.Maybe() {
			out[o.Entity] = true
		}
	}
	return out
}

func (v *view) duplicateOf(o *Op, m *Message) bool {
	for _, p := range v.Ops {
		if p != o && p.Kind == Send && p.Entity == o.Entity && p.Message.ID == m.ID && p.Maybe() {
			return true
		}
	}
	return false
}

// story returns the operations on one message, the first of them.
func (v *view) story(first *Op, m *Message) []*Op {
	out := []*Op{first}
	for _, o := range v.Ops {
		if o != first && o.Message.ID == m.ID && len(out) < 12 {
			out = append(out, o)
		}
	}
	return out
}

// I2: what was seen was sent before, by a send that may have worked, and is as it was sent.
func noPhantom(v *view) []Violation {
	r := report{name: "I2"}
	for _, s := range v.sights {
		o, m := v.sendOf(s.m.ID)
		ops := []*Op{o, s.op}
		if s.op == nil {
			ops = ops[:1]
		}
		switch {
		case o == nil:
			r.add([]*Op{s.op}, "%q was seen in %s and never sent", s.m.ID, s.entity)
		case !o.Maybe():
			r.add(ops, "%s was refused and seen all the same", s.m.ID)
		case o.Entity != s.entity:
			r.add(ops, "%s was sent to %s and seen in %s", s.m.ID, o.Entity, s.entity)
		case s.return_ < o.Invoke:
			r.add(ops, "%s was seen before it was sent", s.m.ID)
		case s.m.Hash != m.Hash || s.m.Session != m.Session || s.m.HasSession != m.HasSession:
			r.add(ops, "%s was seen with hash %x and session %q, sent with %x and %q", s.m.ID, s.m.Hash,
				s.m.Session, m.Hash, m.Session)
		}
	}
	return r.list
}

// I3: a number belongs to one message for ever, and a send that ended before another began has the
// lower number in the same share.
func numbers(v *view) []Violation {
	r := report{name: "I3"}
	owner := map[where]*seen{}
	known := map[string]int64{}
	note := func(s *seen) {
		at := where{s.entity, "", s.m.Seq}
		old := owner[at]
		if old == nil {
			owner[at] = s
		} else if old.m.ID != s.m.ID {
			r.add(nonNil(old.op, s.op), "number %d of %s is of %s and of %s", s.m.Seq, s.entity, old.m.ID, s.m.ID)
		}
		known[s.m.ID] = s.m.Seq
	}
	for i := range v.sights {
		note(&v.sights[i])
	}
	for _, o := range v.Ops {
		if o.Kind == Schedule && o.Ok() && o.Seq != 0 {
			m := o.Message
			m.Seq = o.Seq
			note(&seen{op: o, m: &m, entity: o.Entity})
			delete(known, o.Message.ID) // its number changes when its time comes
		}
	}
	type stamped struct {
		at  int64
		op  *Op
		seq int64
		end bool
	}
	shares := map[where][]stamped{}
	v.allSends(func(o *Op, m *Message) {
		seq, ok := known[m.ID]
		if !ok || o.Kind != Send || m.ScheduledAt != 0 {
			return
		}
		at := where{entity: o.Entity, seq: seq >> 48}
		shares[at] = append(shares[at], stamped{o.Invoke, o, seq, false})
		if o.Ok() {
			shares[at] = append(shares[at], stamped{o.Return, o, seq, true})
		}
	})
	for _, list := range shares {
		slices.SortStableFunc(list, func(a, b stamped) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmpBool(a.end, b.end))
		})
		var highest stamped
		for _, s := range list {
			switch {
			case s.end && s.seq > highest.seq:
				highest = s
			case !s.end && highest.op != nil && s.seq < highest.seq:
				r.add([]*Op{highest.op, s.op}, "%s has number %d, but a send that began later has %d",
					highest.op.Message.ID, highest.seq, s.seq)
			}
		}
	}
	return r.list
}

// cmpBool puts beginnings before ends of the same instant: they overlap.
func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func nonNil(ops ...*Op) []*Op {
	return slices.DeleteFunc(ops, func(o *Op) bool { return o == nil })
}

// I4: without duplicate detection a message has as many numbers as it was sent; with it, two stored
// ones of the same id are a window apart.
func storedOnce(v *view) []Violation {
	r := report{name: "I4"}
	type copyOf struct {
		seq, at int64
		op      *Op
	}
	copies := map[[2]string][]copyOf{}
	for _, s := range v.sights {
		if s.m.State == Scheduled {
			continue
		}
		k := [2]string{s.entity, s.m.ID}
		if !slices.ContainsFunc(copies[k], func(c copyOf) bool { return c.seq == s.m.Seq }) {
			copies[k] = append(copies[k], copyOf{s.m.Seq, s.m.EnqueuedAt, s.op})
		}
	}
	sends := map[[2]string]int{}
	v.allSends(func(o *Op, m *Message) {
		if o.Maybe() {
			sends[[2]string{o.Entity, m.ID}]++
		}
	})
	for k, list := range copies {
		if n := sends[k]; n > 0 && len(list) > n {
			r.add(v.storyOf(k[1]), "%s was sent %d times to %s and has %d numbers", k[1], n, k[0], len(list))
		}
		q := v.Queue(k[0])
		if q == nil || q.DedupMillis == 0 {
			continue
		}
		slices.SortFunc(list, func(a, b copyOf) int { return cmp.Compare(a.at, b.at) })
		for i := 1; i < len(list); i++ {
			if list[i].at-list[i-1].at < q.DedupMillis {
				r.add(v.storyOf(k[1]), "%s was stored twice within the window", k[1])
			}
		}
	}
	return r.list
}

func (v *view) storyOf(id string) []*Op {
	o, m := v.sendOf(id)
	if o == nil {
		return nil
	}
	return v.story(o, m)
}
