package check

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

const second = int64(1_000_000_000)

// s is a point of time in milliseconds as servers tell it.
func s(seconds float64) int64 { return int64(seconds * 1000) }

// at gives an operation its times, in seconds.
func at(from, to float64, o Op) *Op {
	o.Invoke, o.Return = int64(from*float64(second)), int64(to*float64(second))
	if o.Outcome == "" {
		o.Outcome = OK
	}
	if o.Entity == "" {
		o.Entity = "q"
	}
	return &o
}

func send(from, to float64, id string) *Op {
	return at(from, to, Op{Kind: Send, Message: Message{ID: id, Hash: 7}})
}

// get is a delivery of number seq with a token, locked for ten seconds from its end.
func get(from, to float64, id string, seq int64, token string) *Op {
	return at(from, to, Op{Kind: Receive, Message: Message{ID: id, Hash: 7, Seq: seq, Token: token,
		LockedUntil: s(to) + 10_000}})
}

// settle ends the lock of a delivery.
func settle(from, to float64, kind Kind, of *Op) *Op {
	return at(from, to, Op{Kind: kind, Entity: of.Entity, Sub: of.Sub, Message: of.Message, Conn: of.Conn,
		Holder: of.Holder, Session: of.Session})
}

func history(ops ...*Op) *History {
	return &History{Ops: ops, HasFinal: true, Epsilon: second / 100, WallEpsilon: second / 100, Queues: []Queue{
		{Name: "q", LockMillis: 10_000, MaxDelivery: 3},
		{Name: "s", LockMillis: 10_000, MaxDelivery: 3, Sessions: true},
		{Name: "d", LockMillis: 10_000, MaxDelivery: 3, DedupMillis: 60_000},
	}}
}

func left(h *History, list ...Message) *History {
	for _, m := range list {
		m.Hash = 7
		h.Final = append(h.Final, Place{Entity: "q", Message: m})
	}
	return h
}

func inSession(o *Op, id string, holder int) *Op {
	o.Entity, o.Session, o.Holder = "s", id, holder
	o.Message.Session, o.Message.HasSession = id, true
	return o
}

func accept(from, to float64, id string, holder int) *Op {
	return at(from, to, Op{Kind: Accept, Entity: "s", Session: id, Holder: holder, Until: s(to) + 10_000})
}

// over makes an accept one without exclusion, which presents the session token of another holder if not 0.
func over(o *Op, former int) *Op {
	o.Shared, o.Over, o.Want = true, former, o.Session
	return o
}

// by is a delivery in the hands of another holder.
func by(holder int, o *Op) *Op {
	other := *o
	other.Holder = holder
	return &other
}

// until makes the lock of an accept end at another second.
func until(o *Op, second float64) *Op {
	o.Until = s(second)
	return o
}

// forced is an operation whose connection the broker ended.
func forced(o *Op) *Op {
	o.Outcome, o.Condition = Unknown, "amqp:connection:forced"
	return o
}

func failed(o *Op, condition string) *Op {
	o.Outcome, o.Condition = Failed, "com.microsoft:"+condition
	return o
}

func unknown(o *Op) *Op {
	o.Outcome, o.Return = Unknown, 0
	return o
}

func scheduledOp(from, to float64, id string, seq int64, due float64) *Op {
	return at(from, to, Op{Kind: Schedule, Seq: seq, Message: Message{ID: id, Hash: 7, ScheduledAt: s(due)}})
}

func enqueuedAt(o *Op, seconds float64) *Op {
	o.Message.EnqueuedAt = s(seconds)
	return o
}

func counted(o *Op, attempts uint32) *Op {
	o.Message.Attempts = attempts
	return o
}

func peeked(from, to float64, ids ...string) *Op {
	o := at(from, to, Op{Kind: Peek, From: 1, Max: 50})
	for _, id := range ids {
		o.Messages = append(o.Messages, Message{ID: id, Hash: 7, Seq: int64(id[1] - '0')})
	}
	return o
}

func state(kind Kind, from, to float64, text string) *Op {
	return at(from, to, Op{Kind: kind, Entity: "s", Session: "a", State: text})
}

func entity(kind Kind, from, to float64, id uint64, label string) *Op {
	return at(from, to, Op{Kind: kind, Entity: "e", EntityID: id, Label: label})
}

// unique moves an operation to the queue with duplicate detection.
func unique(o *Op) *Op {
	o.Entity = "d"
	return o
}

func byNumber(o *Op) *Op {
	o.Kind = ReceiveDeferred
	return o
}

// shown sets until when the broker says that the lock lasts, in seconds.
func shown(o *Op, second int64) *Op {
	o.Message.LockedUntil = s(float64(second))
	return o
}

// innocent are histories that a right broker can give.
func innocent() map[string]*History {
	g1, g2 := get(2, 3, "m1", 1, "t1"), counted(get(14, 15, "m1", 1, "t2"), 1)
	a1 := inSession(get(3, 4, "m1", 1, "t1"), "a", 1)
	return map[string]*History{
		"nothing": history(),
		"a message is sent, received and completed": history(send(0, 1, "m1"), g1, settle(4, 5, Complete, g1)),
		"a lock expires and the message is given anew": history(send(0, 1, "m1"), g1, g2,
			failed(settle(16, 17, Complete, g1), "message-lock-lost"), settle(17, 18, Complete, g2)),
		"what is unknown may be gone": history(send(0, 1, "m1"), g1, unknown(settle(4, 5, Complete, g1))),
		"what is unknown may be there": left(history(send(0, 1, "m1"), g1, unknown(settle(4, 5, Complete, g1))),
			Message{ID: "m1", Seq: 1}),
		"an unknown send may have worked": left(history(unknown(send(0, 1, "m1"))), Message{ID: "m1", Seq: 1}),
		"sends at the same time have any order": left(history(send(0, 2, "m1"), send(1, 3, "m2")),
			Message{ID: "m1", Seq: 2}, Message{ID: "m2", Seq: 1}),
		"an abandoned message is given at once": history(send(0, 1, "m1"), g1, settle(4, 5, Abandon, g1),
			counted(get(4, 6, "m1", 1, "t2"), 1), settle(7, 8, Complete, get(4, 6, "m1", 1, "t2"))),
		"an answer given again tells the time that is left": history(send(0, 1, "m1"), shown(get(2, 3, "m1", 1, "t1"), 91),
			settle(3, 9, Abandon, shown(get(2, 3, "m1", 1, "t1"), 91)),
			shown(counted(get(2, 8, "m1", 1, "t2"), 1), 89),
			settle(9, 10, Complete, shown(counted(get(2, 8, "m1", 1, "t2"), 1), 89))),
		"the same behind a lock that was released and did not count": history(send(0, 1, "m1"),
			shown(get(2, 3, "m1", 1, "t1"), 91), settle(3, 9, Release, shown(get(2, 3, "m1", 1, "t1"), 91)),
			shown(get(2, 8, "m1", 1, "t2"), 89), settle(9, 10, Complete, shown(get(2, 8, "m1", 1, "t2"), 89))),
		"a session changes hands when it is closed": history(inSession(send(0, 1, "m1"), "a", 0),
			accept(1, 2, "a", 1), a1, settle(4, 5, Complete, a1),
			at(5, 6, Op{Kind: CloseSession, Entity: "s", Session: "a", Holder: 1}), accept(5, 7, "a", 2)),
		"a repeated accept tells the time that is left": history(accept(1, 2, "a", 1),
			at(3, 4, Op{Kind: CloseSession, Entity: "s", Session: "a", Holder: 1}),
			until(accept(5, 9, "a", 2), 10)),
		"an accept is told when its lock is over, the wall clock standing still": history(
			until(accept(1, 14, "a", 1), 20), until(accept(12, 13, "a", 2), 20),
			at(15, 16, Op{Kind: CloseSession, Entity: "s", Session: "a", Holder: 2})),
		"a node that stops gives its sessions back when their holders have heard of it": history(accept(1, 2, "a", 1),
			forced(inSession(at(2, 5, Op{Kind: GetState}), "a", 1)), at(5, 5, Op{Kind: Lost}), accept(3, 6, "a", 2)),
		"what was handed over is settled by the new holder, and one of it had gone back": history(
			inSession(send(0, 0.4, "m1"), "a", 0), inSession(send(0.5, 1, "m2"), "a", 0),
			over(accept(1, 2, "a", 1), 0), a1, inSession(get(4, 5, "m2", 2, "t2"), "a", 1), over(accept(5, 6, "a", 2), 1),
			failed(settle(6, 7, Complete, a1), "session-lock-lost"), settle(7, 8, Complete, by(2, a1)),
			failed(settle(8, 9, Complete, by(2, inSession(get(4, 5, "m2", 2, "t2"), "a", 1))), "message-lock-lost"),
			counted(inSession(get(9, 10, "m2", 2, "t3"), "a", 2), 1),
			settle(10, 11, Complete, inSession(get(9, 10, "m2", 2, "t3"), "a", 2))),
		"a shared session is taken over": history(over(accept(1, 2, "a", 1), 0), over(accept(3, 4, "a", 2), 1),
			failed(inSession(at(5, 6, Op{Kind: GetState}), "a", 1), "session-lock-lost")),
		"what was sent to who was taken over comes behind": history(inSession(send(0, 1, "m1"), "a", 0),
			inSession(send(1, 2, "m2"), "a", 0), over(accept(1, 2, "a", 1), 0), over(accept(3, 4, "a", 2), 1),
			inSession(get(4, 5, "m2", 2, "t2"), "a", 2), settle(5, 6, Complete, inSession(get(4, 5, "m2", 2, "t2"), "a", 2)),
			at(6, 7, Op{Kind: CloseSession, Entity: "s", Session: "a", Holder: 2}), accept(8, 9, "a", 3),
			inSession(get(10, 11, "m1", 1, "t1"), "a", 3), settle(11, 12, Complete, inSession(get(10, 11, "m1", 1, "t1"), "a", 3))),
		"session state is read as it was written": history(state(SetState, 0, 1, "x"), state(GetState, 2, 3, "x")),
		"an unknown write may be read": history(unknown(state(SetState, 0, 1, "x")), state(GetState, 2, 3, "x"),
			state(GetState, 4, 5, "x")),
		"a scheduled message comes with another number": history(scheduledOp(0, 1, "m1", 1, 5),
			enqueuedAt(get(4, 6, "m1", 2, "t1"), 5), settle(6, 7, Complete, get(4, 6, "m1", 2, "t1"))),
		"an entity is created, deleted and created anew": history(entity(Create, 0, 1, 5, "x"),
			entity(Get, 1, 2, 5, "x"), entity(Delete, 2, 3, 0, ""), entity(Get, 3, 4, 0, ""),
			entity(Create, 4, 5, 6, "y"), entity(Get, 5, 6, 6, "y")),
		"a duplicate is acknowledged and stored once": history(unique(send(0, 1, "m1")), unique(send(2, 3, "m1")),
			unique(get(3, 4, "m1", 1, "t1")), settle(5, 6, Complete, unique(get(3, 4, "m1", 1, "t1"))),
			unique(send(7, 8, "m1"))),
		"an unknown duplicate may be the one that was stored": history(unknown(unique(send(0, 1, "m1"))),
			unique(get(3, 4, "m1", 1, "t1")), settle(5, 6, Complete, unique(get(3, 4, "m1", 1, "t1"))),
			unique(send(7, 8, "m1"))),
		"a lock is given back while the next one is asked for": history(send(0, 1, "m1"), get(2, 3, "m1", 1, "t1"),
			counted(get(3, 8, "m1", 1, "t2"), 1), settle(5, 6, Abandon, get(2, 3, "m1", 1, "t1")),
			settle(9, 10, Complete, counted(get(3, 8, "m1", 1, "t2"), 1))),
		"a deferred message is given by its number, again and again": history(send(0, 1, "m1"), get(2, 3, "m1", 1, "t1"),
			settle(4, 5, Defer, get(2, 3, "m1", 1, "t1")), byNumber(get(6, 7, "m1", 1, "t2")),
			settle(7, 8, Abandon, get(6, 7, "m1", 1, "t2")), counted(byNumber(get(9, 10, "m1", 1, "t3")), 1),
			settle(10, 11, Complete, get(9, 10, "m1", 1, "t3"))),
		"a peek sees all": left(history(send(0, 1, "m1"), send(1, 2, "m2"), peeked(2, 3, "m1", "m2")),
			Message{ID: "m1", Seq: 1}, Message{ID: "m2", Seq: 2}),
	}
}

// guilty are histories that break one promise each, by the name of the checker and what it shows.
func guilty() map[string]*History {
	g1 := get(2, 3, "m1", 1, "t1")
	g2 := counted(get(4, 5, "m1", 1, "t2"), 1)
	later := counted(get(14, 15, "m1", 1, "t2"), 1)
	s1, s2 := inSession(get(3, 4, "m1", 1, "t1"), "a", 1), inSession(get(4, 5, "m2", 2, "t2"), "a", 1)
	first := func(ops ...*Op) *History { return history(append([]*Op{send(0, 1, "m1")}, ops...)...) }
	mortal := send(0, 1, "m1")
	mortal.Message.TTL = 2000
	batch := unknown(at(0, 1, Op{Kind: Send, Messages: []Message{{ID: "m1", Hash: 7}, {ID: "m2", Hash: 7}}}))
	wrong := get(2, 3, "m1", 1, "t1")
	wrong.Message.Hash = 8
	return map[string]*History{
		"I1 acknowledged and nowhere":       first(),
		"I1 dead-lettered and nowhere":      first(g1, settle(4, 5, Kill, g1)),
		"I2 never sent":                     first(get(2, 3, "m9", 2, "t1"), g1, settle(4, 5, Complete, g1)),
		"I2 changed":                        first(wrong, settle(4, 5, Complete, wrong)),
		"I2 refused":                        left(history(failed(send(0, 1, "m1"), "not-allowed")), Message{ID: "m1", Seq: 1}),
		"I3 one number for two":             left(history(send(0, 1, "m1"), send(0, 1, "m2")), Message{ID: "m1", Seq: 1}, Message{ID: "m2", Seq: 1}),
		"I3 numbers against time":           left(history(send(0, 1, "m1"), send(2, 3, "m2")), Message{ID: "m1", Seq: 2}, Message{ID: "m2", Seq: 1}),
		"I4 stored twice":                   left(first(), Message{ID: "m1", Seq: 1}, Message{ID: "m1", Seq: 2}),
		"I4 acknowledged twice and nowhere": history(unique(send(0, 1, "m1")), unique(send(2, 3, "m1"))),
		"I4 a duplicate took the place of the first": history(unique(send(0, 1, "m1")),
			unique(get(1, 2, "m1", 1, "t1")), unique(send(2, 3, "m1")),
			settle(4, 5, Complete, unique(get(1, 2, "m1", 1, "t1"))),
			enqueuedAt(unique(get(13, 15, "m1", 2, "t2")), 99), settle(16, 17, Complete, unique(get(13, 15, "m1", 2, "t2")))),
		"I5 completed and given at once": first(get(2, 3, "m1", 1, "t1"), counted(get(4, 6, "m1", 1, "t2"), 1),
			settle(5, 7, Complete, get(2, 3, "m1", 1, "t1")), settle(8, 9, Abandon, counted(get(4, 6, "m1", 1, "t2"), 1))),
		"I5 deferred and given all the same": left(first(get(2, 3, "m1", 1, "t1"), settle(4, 5, Defer, get(2, 3, "m1", 1, "t1")),
			counted(get(6, 7, "m1", 1, "t2"), 1), settle(8, 9, Abandon, counted(get(6, 7, "m1", 1, "t2"), 1))),
			Message{ID: "m1", Seq: 1, State: Deferred}),
		"I5 two holders": first(g1, g2, settle(6, 7, Complete, g2)),
		"I5 given to both who waited for it": history(get(0, 21, "m1", 1, "t1"), get(0, 22, "m1", 1, "t2"),
			send(20, 21, "m1"), settle(23, 24, Complete, get(0, 22, "m1", 1, "t2"))),
		"I5 given to a second, who releases it, while the first holds it": first(g1, get(3, 4, "m1", 1, "t2"),
			settle(5, 6, Release, get(3, 4, "m1", 1, "t2")), settle(7, 8, Complete, g1)),
		"I6 an old lock settles":                first(g1, later, settle(16, 17, Abandon, g1), settle(17, 18, Complete, later)),
		"I7 completed twice":                    first(g1, settle(4, 5, Complete, g1), settle(5, 6, Complete, g1)),
		"I8 back after completion":              first(g1, settle(4, 5, Complete, g1), counted(get(6, 7, "m1", 1, "t2"), 1)),
		"I8 left after completion":              left(first(g1, settle(4, 5, Complete, g1)), Message{ID: "m1", Seq: 1}),
		"I9 lost before its time":               left(first(g1, failed(settle(4, 5, Complete, g1), "message-lock-lost")), Message{ID: "m1", Seq: 1}),
		"I10 the count falls":                   first(counted(get(2, 3, "m1", 1, "t1"), 1), get(14, 15, "m1", 1, "t2"), settle(16, 17, Complete, get(14, 15, "m1", 1, "t2"))),
		"I10 abandoned for nothing":             first(g1, settle(4, 5, Abandon, g1), get(6, 7, "m1", 1, "t2"), settle(7, 8, Complete, get(6, 7, "m1", 1, "t2"))),
		"I10 delivered too often":               first(counted(get(2, 3, "m1", 1, "t1"), 3), settle(4, 5, Complete, g1)),
		"I11 two holders of a session":          history(accept(1, 2, "a", 1), accept(3, 4, "a", 2)),
		"I11 two holders until the same moment": history(until(accept(1, 3, "a", 1), 11), until(accept(2, 4, "a", 2), 11)),
		"I11 given away before its holder hears that the node stops": history(accept(1, 2, "a", 1),
			forced(inSession(at(2, 5, Op{Kind: GetState}), "a", 1)), at(5, 5, Op{Kind: Lost}), accept(2, 4, "a", 2)),
		"I11 lost before its time":   history(accept(1, 2, "a", 1), failed(inSession(at(3, 4, Op{Kind: RenewSession}), "a", 1), "session-lock-lost")),
		"I11 a former holder writes": history(accept(1, 2, "a", 1), accept(14, 15, "a", 2), inSession(at(16, 17, Op{Kind: SetState, State: "x"}), "a", 1)),
		"I11 who was taken over goes on": history(over(accept(1, 2, "a", 1), 0), over(accept(3, 4, "a", 2), 1),
			inSession(at(5, 6, Op{Kind: RenewSession}), "a", 1)),
		"I11 who was taken over settles what was handed over": history(inSession(send(0, 1, "m1"), "a", 0),
			over(accept(1, 2, "a", 1), 0), inSession(get(2, 3, "m1", 1, "t1"), "a", 1), over(accept(3, 4, "a", 2), 1),
			settle(5, 6, Complete, inSession(get(2, 3, "m1", 1, "t1"), "a", 1))),
		"I7 abandoned by one holder, completed by the next with the same lock": history(inSession(send(0, 1, "m1"), "a", 0), inSession(get(2, 3, "m1", 1, "t1"), "a", 1),
			settle(4, 5, Abandon, inSession(get(2, 3, "m1", 1, "t1"), "a", 1)), by(2, settle(6, 7, Complete, inSession(get(2, 3, "m1", 1, "t1"), "a", 1)))),
		"I11 who was taken over is told that the message is gone": history(inSession(send(0, 1, "m1"), "a", 0),
			over(accept(1, 2, "a", 1), 0), inSession(get(2, 3, "m1", 1, "t1"), "a", 1), over(accept(3, 4, "a", 2), 1),
			failed(settle(5, 6, Complete, inSession(get(2, 3, "m1", 1, "t1"), "a", 1)), "message-lock-lost"),
			by(2, settle(7, 8, Complete, inSession(get(2, 3, "m1", 1, "t1"), "a", 1)))),
		"I11 an exclusive session is taken over": history(accept(1, 2, "a", 1), over(accept(3, 4, "a", 2), 1)),
		"I12 the second before the first, to who took over": history(inSession(send(0, 1, "m1"), "a", 0), inSession(send(1, 2, "m2"), "a", 0),
			over(accept(1, 2, "a", 1), 0), over(accept(2, 2.5, "a", 2), 1),
			inSession(get(3, 4, "m2", 2, "t2"), "a", 2), inSession(get(4, 5, "m1", 1, "t1"), "a", 2),
			settle(5, 6, Complete, inSession(get(4, 5, "m1", 1, "t1"), "a", 2)), settle(6, 7, Complete, inSession(get(3, 4, "m2", 2, "t2"), "a", 2))),
		"I12 what was sent after a take-over comes behind": history(over(accept(1, 2, "a", 1), 0), over(accept(3, 4, "a", 2), 1),
			inSession(send(4.5, 5, "m1"), "a", 0), inSession(send(5, 5.5, "m2"), "a", 0),
			inSession(get(6, 7, "m2", 2, "t2"), "a", 2), settle(7, 8, Complete, inSession(get(6, 7, "m2", 2, "t2"), "a", 2)),
			at(8, 9, Op{Kind: CloseSession, Entity: "s", Session: "a", Holder: 2}), accept(9.5, 10, "a", 3),
			inSession(get(10, 11, "m1", 1, "t1"), "a", 3), settle(11, 12, Complete, inSession(get(10, 11, "m1", 1, "t1"), "a", 3))),
		"I12 the second before the first": history(inSession(send(0, 1, "m1"), "a", 0), inSession(send(1, 2, "m2"), "a", 0), inSession(get(2, 3, "m2", 2, "t2"), "a", 1), inSession(get(4, 5, "m1", 1, "t1"), "a", 1), settle(5, 6, Complete, s1), settle(6, 7, Complete, s2)),
		"I13 an old state":                history(state(SetState, 0, 1, "x"), state(SetState, 2, 3, "y"), state(GetState, 4, 5, "x")),
		"I13 a state from nowhere":        history(state(GetState, 4, 5, "z")),
		"I14 too early":                   history(scheduledOp(0, 1, "m1", 1, 9), enqueuedAt(get(2, 3, "m1", 2, "t1"), 9), settle(4, 5, Complete, get(2, 3, "m1", 2, "t1"))),
		"I14 cancelled and delivered": history(scheduledOp(0, 1, "m1", 1, 9), at(1, 2, Op{Kind: Cancel, Seq: 1}),
			enqueuedAt(get(8, 10, "m1", 2, "t1"), 9), settle(10, 11, Complete, get(8, 10, "m1", 2, "t1"))),
		"I15 after its time": history(mortal, enqueuedAt(get(5, 6, "m1", 1, "t1"), 1), settle(6, 7, Complete, get(5, 6, "m1", 1, "t1"))),
		"I20 half a batch":   left(history(batch), Message{ID: "m1", Seq: 1}),
		"I21 created twice":  history(entity(Create, 0, 1, 5, "x"), entity(Create, 2, 3, 6, "y")),
		"I21 not there":      history(entity(Create, 0, 1, 5, "x"), entity(Get, 2, 3, 0, "")),
		"I21 the one before": history(entity(Create, 0, 1, 5, "x"), entity(Delete, 2, 3, 0, ""), entity(Create, 4, 5, 6, "x"), entity(Get, 6, 7, 5, "x")),
		"I22 left out": left(history(send(0, 1, "m1"), send(1, 2, "m2"), peeked(2, 3, "m2")),
			Message{ID: "m1", Seq: 1}, Message{ID: "m2", Seq: 2}),
		"I22 not ascending": left(history(send(0, 1, "m1"), send(1, 2, "m2"), peeked(2, 3, "m2", "m1")),
			Message{ID: "m1", Seq: 1}, Message{ID: "m2", Seq: 2}),
	}
}

func names(list []Violation) []string {
	var out []string
	for _, v := range list {
		if !slices.Contains(out, v.Invariant) {
			out = append(out, v.Invariant)
		}
	}
	return out
}

func TestInnocentHistoriesAreNotAccused(t *testing.T) {
	for name, h := range innocent() {
		if got := CheckAll(h); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestEachBrokenPromiseIsCaughtByItsCheckerAlone(t *testing.T) {
	caught := map[string]bool{}
	for name, h := range guilty() {
		want, _, _ := bytes.Cut([]byte(name), []byte(" "))
		if got := names(CheckAll(h)); !slices.Equal(got, []string{string(want)}) {
			t.Errorf("%s: caught by %v: %v", name, got, CheckAll(h))
		}
		caught[string(want)] = true
	}
	for _, c := range BlackBox() {
		if !caught[c.Name] {
			t.Errorf("%s has no canary", c.Name)
		}
	}
}

func TestEverySinNamesACheckerAndEveryCheckerOfABrokerHasASin(t *testing.T) {
	sins := map[string]bool{"I21": true} // the catalog is asked past the broker
	for _, s := range Sins() {
		sins[s.Invariant] = true
	}
	for _, c := range BlackBox() {
		if !sins[c.Name] {
			t.Errorf("%s has no sin", c.Name)
		}
	}
}

func TestAHistoryIsReadAsItWasWritten(t *testing.T) {
	for name, h := range guilty() {
		var b bytes.Buffer
		if err := h.Write(&b); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, h) {
			t.Errorf("%s: read %+v, wrote %+v", name, got, h)
		}
	}
}
