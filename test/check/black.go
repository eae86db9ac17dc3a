package check

import (
	"cmp"
	"fmt"
	"slices"
)

// Checker is one invariant as clients can see it.
type Checker struct {
	Name string // I1 to I26
	What string
	run  func(v *view) []Violation
}

// Check runs the checker.
func (c *Checker) Check(h *History) []Violation { return c.run(newView(h)) }

// BlackBox returns the checkers that trust nothing but the history.
func BlackBox() []Checker {
	return []Checker{
		{"I1", "no acknowledged message is lost", noLoss},
		{"I2", "what is received was sent, unchanged", noPhantom},
		{"I3", "sequence numbers are unique and follow the order of sends", numbers},
		{"I4", "a message is stored once", storedOnce},
		{"I4", "an id is stored by its first send within a window", duplicateOrder},
		{"I5", "a message has one holder", lockExclusive},
		{"I5", "what is done with a message has an order that its lock allows", lockOrder},
		{"I6", "an old lock decides nothing", fencing},
		{"I7", "a message is settled for good once", settledOnce},
		{"I8", "what was settled for good does not come back", noResurrection},
		{"I9", "a lock lasts as long as was told", lockLifetime},
		{"I10", "delivery counts rise with failed deliveries and end in the dead-letter queue", deliveryCount},
		{"I11", "a session has one holder", sessionExclusive},
		{"I12", "a session's messages come in order", sessionOrder},
		{"I13", "session state is a linearizable register", sessionState},
		{"I14", "scheduled messages come at their time, cancelled ones never", scheduled},
		{"I15", "expired messages are not delivered", timeToLive},
		{"I20", "a batch is stored whole or not at all", batches},
		{"I21", "creating, changing and deleting entities is linearizable", entities},
		{"I22", "peek tells what is there, in order", peeks},
	}
}

// CheckAll runs every checker of BlackBox.
func CheckAll(h *History) []Violation {
	v := newView(h)
	var all []Violation
	for _, c := range BlackBox() {
		all = append(all, c.run(v)...)
	}
	return all
}

// maxTold bounds the violations that one checker tells: the first ones say it all.
const maxTold = 5

// report collects the violations of one checker.
type report struct {
	name string
	list []Violation
}

func (r *report) add(ops []*Op, format string, args ...any) {
	if len(r.list) < maxTold {
		r.list = append(r.list, Violation{r.name, fmt.Sprintf(format, args...), ops})
	}
}

// where names a message in its place.
type where struct {
	entity, sub string
	seq         int64
}

// seen is one sighting of a message: a delivery, a peek, or what was left at the end.
type seen struct {
	op      *Op // nil at the end
	m       *Message
	entity  string
	sub     string
	invoke  int64
	return_ int64
}

// view is a history with its indexes. Everything in it is in the order of the beginnings of the operations. A
// delivery begins when it was asked for.
type view struct {
	*History
	sends    map[string]*Op     // by message id
	born     map[string]int64   // when a message was first sent, by its id
	inBatch  map[string]*Op     // the same, for messages of batches
	grants   map[where][]*Op    // deliveries with a lock
	settles  map[where][]*Op    // of every outcome
	byToken  map[string][]*Op   // what was done with a lock: settlements and renewals
	finals   map[string][]Place // by message id
	sights   []seen
	lostAt   map[int]int64 // by connection
	accepts  []*Op
	overs    map[[2]string][]*Op // take-overs that may have worked, by entity and session
	byHolder map[int][]*Op       // what was done with a session lock
	end      int64
}

func newView(h *History) *view {
	v := &view{History: h, sends: map[string]*Op{}, born: map[string]int64{}, inBatch: map[string]*Op{}, grants: map[where][]*Op{},
		settles: map[where][]*Op{}, byToken: map[string][]*Op{}, finals: map[string][]Place{},
		lostAt: map[int]int64{}, byHolder: map[int][]*Op{}, overs: map[[2]string][]*Op{}}
	for _, o := range h.Ops {
		v.end = max(v.end, o.Invoke, o.Return)
		v.index(o)
	}
	for i := range h.Final {
		p := &h.Final[i]
		v.finals[p.Message.ID] = append(v.finals[p.Message.ID], *p)
		v.sights = append(v.sights, seen{m: &p.Message, entity: p.Entity, sub: p.Sub, invoke: v.end + 1,
			return_: v.end + 1})
	}
	for _, g := range v.grants {
		slices.SortStableFunc(g, func(a, b *Op) int { return cmp.Compare(a.Return, b.Return) })
	}
	return v
}

// bear notes that a message cannot have been there before it was sent.
func (v *view) bear(id string, sent int64) {
	if at, ok := v.born[id]; !ok || sent < at {
		v.born[id] = sent
	}
}

func (v *view) index(o *Op) {
	switch {
	case o.Kind == Send || o.Kind == Schedule:
		v.bear(o.Message.ID, o.Invoke)
		if len(o.Messages) > 0 {
			for i := range o.Messages {
				v.bear(o.Messages[i].ID, o.Invoke)
				v.inBatch[o.Messages[i].ID] = o
			}
			break
		}
		if first := v.sends[o.Message.ID]; first == nil || !first.Maybe() {
			v.sends[o.Message.ID] = o // the first that may have worked: the others are duplicates
		}
	case (o.Kind == Receive || o.Kind == ReceiveDeferred) && o.Ok():
		at := where{o.Entity, o.Sub, o.Message.Seq}
		v.grants[at] = append(v.grants[at], o)
		v.sights = append(v.sights, seen{o, &o.Message, o.Entity, o.Sub, o.Invoke, o.Return})
	case o.Kind.Settles():
		at := where{o.Entity, o.Sub, o.Message.Seq}
		v.settles[at] = append(v.settles[at], o)
		v.byToken[o.Message.Token] = append(v.byToken[o.Message.Token], o)
	case o.Kind == Renew:
		v.byToken[o.Message.Token] = append(v.byToken[o.Message.Token], o)
	case o.Kind == Peek && o.Ok():
		for i := range o.Messages {
			v.sights = append(v.sights, seen{o, &o.Messages[i], o.Entity, o.Sub, o.Invoke, o.Return})
		}
	case o.Kind == Lost:
		v.lostAt[o.Conn] = o.Invoke
	case o.Kind == Accept && o.Over != 0 && o.Maybe():
		k := [2]string{o.Entity, o.Want}
		v.overs[k] = append(v.overs[k], o)
		if o.Ok() {
			v.accepts = append(v.accepts, o)
		}
	case o.Kind == Accept && o.Ok():
		v.accepts = append(v.accepts, o)
	}
	if o.Holder != 0 && o.Kind != Accept {
		v.byHolder[o.Holder] = append(v.byHolder[o.Holder], o)
	}
}

// lost returns when a connection ended, Never if it did not.
func (v *view) lost(conn int) int64 {
	if at, ok := v.lostAt[conn]; ok {
		return at
	}
	return Never
}

// sendOf returns the send of a message, alone or in a batch, and the message as its sender made it.
func (v *view) sendOf(id string) (*Op, *Message) {
	if o := v.sends[id]; o != nil {
		return o, &o.Message
	}
	if o := v.inBatch[id]; o != nil {
		for i := range o.Messages {
			if o.Messages[i].ID == id {
				return o, &o.Messages[i]
			}
		}
	}
	return nil, nil
}

// allSends calls f with every message that was sent.
func (v *view) allSends(f func(o *Op, m *Message)) {
	for _, o := range v.Ops {
		if o.Kind != Send && o.Kind != Schedule {
			continue
		}
		if len(o.Messages) == 0 {
			f(o, &o.Message)
		}
		for i := range o.Messages {
			f(o, &o.Messages[i])
		}
	}
}

const milli = int64(1_000_000) // nanoseconds
