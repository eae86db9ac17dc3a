package check

import (
	"slices"
	"sync"

	"github.com/anishathalye/porcupine"
)

// lockState is a message in one place as its lock sees it.
type lockState struct {
	token    string // of the newest lock that nobody gave back, "" for none
	deferred bool
	gone     bool
}

// lockModel is the lock of one message. A lock may run out at any moment, so a delivery always takes
// it over; nothing is done with any but the newest, and nothing is delivered after the end.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(lockState), input.(*Op)
		switch o.Kind {
		case Receive, ReceiveDeferred:
			possible := !s.gone && s.deferred == (o.Kind == ReceiveDeferred)
			s.token = o.Message.Token
			return possible, s
		}
		if s.token != o.Message.Token {
			return o.Outcome == Unknown, s // then it happened to be refused
		}
		switch o.Kind {
		case Complete, Kill:
			s = lockState{gone: true}
		case Defer:
			s = lockState{deferred: true}
		case Abandon, Release:
			s.token = ""
		}
		return true, s
	},
	Equal: func(a, b any) bool { return a == b },
}

// I5, by a model: there is an order of all that was done with a message that its lock allows. It judges messages of
// several deliveries that the other checkers of locks have nothing against. Those look at two or three operations at
// a time and tell more.
func lockOrder(v *view) []Violation {
	r := report{name: "I5"}
	accused := sync.OnceValue(func() map[string]bool { return accusedOfLocks(v) })
	for at, grants := range v.grants {
		q := v.Queue(at.entity)
		if q == nil || q.Sessions && at.sub == InMain || len(grants) < 2 {
			continue // in a session the session's lock counts: I11
		}
		ops := slices.Clone(grants)
		seen := map[string]bool{}
		for _, g := range grants {
			if t := g.Message.Token; !seen[t] {
				seen[t] = true
				ops = append(ops, slices.DeleteFunc(slices.Clone(v.byToken[t]),
					func(o *Op) bool { return !o.Maybe() })...) // a lock may be lost at any moment
			}
		}
		if !linear(lockModel, ops) && len(accused()) < maxTold && !accused()[grants[0].Message.ID] {
			slices.SortFunc(ops, byInvoke)
			r.add(firstBad(lockModel, ops), "no order of what was done with number %d of %s fits its lock",
				at.seq, at.entity)
		}
	}
	return r.list
}

// accusedOfLocks returns the messages that the other checkers of locks tell of. As many as they may
// tell mean that they have left out others.
func accusedOfLocks(v *view) map[string]bool {
	accused := map[string]bool{}
	for _, check := range []func(*view) []Violation{lockExclusive, fencing, settledOnce, noResurrection} {
		for _, found := range check(v) {
			for _, o := range found.Ops {
				accused[o.Message.ID] = true
			}
		}
	}
	return accused
}

// copyState is one message id in an entity with duplicate detection.
type copyState struct {
	stored bool
	seq    int64 // 0: nobody has seen it
	gone   bool
}

// copyModel is one message id within a window: the first send stores it, further ones store nothing,
// and what is seen is always that one. Absence at the end is told by an operation without a number.
var copyModel = porcupine.Model{
	Init: func() any { return copyState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(copyState), input.(*Op)
		switch o.Kind {
		case Send:
			s.stored = true
			return true, s
		case Complete:
			if o.Outcome == Unknown && !s.stored {
				return true, s
			}
			possible := s.stored && (s.seq == 0 || s.seq == o.Message.Seq)
			s.seq, s.gone = o.Message.Seq, true
			return possible, s
		}
		if o.Message.Seq == 0 {
			return !s.stored || s.gone, s
		}
		possible := s.stored && (s.seq == 0 || s.seq == o.Message.Seq)
		s.seq = o.Message.Seq
		return possible, s
	},
	Equal: func(a, b any) bool { return a == b },
}

// I4, by a model: within a window of duplicate detection an id is stored by its first send and by no
// other, whatever was acknowledged. Ids whose operations span more than a window, and those that may
// have gone by themselves, are left to storedOnce.
func duplicateOrder(v *view) []Violation {
	r := report{name: "I4"}
	told := sync.OnceValue(func() bool { // the others tell more
		return len(storedOnce(v)) > 0 || len(noPhantom(v)) > 0 || len(noLoss(v)) > 0
	})
	deleted := v.deletions()
	ids, others := map[[2]string][]*Op{}, map[[2]string]bool{}
	for _, o := range v.Ops {
		q := v.Queue(o.Entity)
		if q == nil || q.DedupMillis == 0 || q.Mortal || q.DefaultTTL > 0 || q.NoDeadLetter ||
			deleted[o.Entity] || !o.Maybe() {
			continue
		}
		k := [2]string{o.Entity, o.Message.ID}
		switch {
		case o.Kind == Schedule || o.Kind == Send && len(o.Messages) > 0:
			others[k] = true // comes later, or with others
			for i := range o.Messages {
				others[[2]string{o.Entity, o.Messages[i].ID}] = true
			}
		case o.Kind == Send, o.Kind == Complete,
			(o.Kind == Receive || o.Kind == ReceiveDeferred) && o.Ok():
			ids[k] = append(ids[k], o)
		}
	}
	for k, ops := range ids {
		window := v.Queue(k[0]).DedupMillis * milli
		if others[k] || ops[0].Kind != Send || v.end-ops[0].Invoke+v.WallEpsilon >= window {
			continue
		}
		if v.HasFinal {
			last := &Op{Kind: Peek, Entity: k[0], Outcome: OK, Invoke: v.end + 1, Return: v.end + 2}
			last.Message.ID = k[1]
			for _, p := range v.finals[k[1]] {
				if p.Entity == k[0] {
					last.Message.Seq = p.Message.Seq
				}
			}
			ops = append(ops, last)
		}
		if !linear(copyModel, ops) && !told() {
			r.add(firstBad(copyModel, ops), "%s was not stored once by its first send to %s", k[1], k[0])
		}
	}
	return r.list
}
