package fsm

import (
	"reflect"
	"testing"
)

// tallied is what the last entry counted of an entity.
func (d *driver) tallied(id EntityID) Tally {
	d.tb.Helper()
	var sum Tally
	n := 0
	for _, t := range d.last.Tallies {
		if t.Entity == id {
			sum = t
			n++
		}
	}
	if n > 1 {
		d.tb.Errorf("%d tallies of entity %d in one entry", n, id)
	}
	sum.Entity = 0
	return sum
}

func (d *driver) wantTally(what string, id EntityID, want Tally) {
	d.tb.Helper()
	if got := d.tallied(id); got != want {
		d.tb.Errorf("%s: tally of entity %d is\n%+v, want\n%+v", what, id, got, want)
	}
}

// Each thing that can happen to a message is counted once, by the entry that does it.
func TestEachEntryCountsWhatItDid(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.MaxDelivery, d.DeadLetterOnExpiration = 2, true }))
	d.wantTally("a new queue", 7, Tally{})
	d.ok(7, Main, messages(5))
	d.wantTally("a batch", 7, Tally{In: 5, InBytes: 20})
	got := d.ok(7, Main, &Lock{Max: 4}).Locked
	d.wantTally("a lock", 7, Tally{Out: [Sides]uint64{4}, OutBytes: [Sides]uint64{16}})
	d.ok(7, Main, &Settle{Items: []SettleItem{{Token: got[0].Token, Verdict: Complete}, {Token: got[1].Token, Verdict: Abandon},
		{Token: got[2].Token, Verdict: Defer}, {Token: got[3].Token, Verdict: Kill, Reason: "free text"}}})
	d.wantTally("settlements", 7, Tally{Completed: [Sides]uint64{1}, Abandoned: [Sides]uint64{1}, Deferred: [Sides]uint64{1},
		Died: [Deaths]uint64{DeathReceiver: 1}})
	d.ok(7, Main, &Lock{Max: 1, Delete: true})
	d.wantTally("receive and delete", 7, Tally{Out: [Sides]uint64{1}, OutBytes: [Sides]uint64{4}, Completed: [Sides]uint64{1}})
	dead := d.ok(7, DeadLetter, &Lock{Max: 1}).Locked
	d.wantTally("a lock of a dead letter", 7, Tally{Out: [Sides]uint64{SideDead: 1}, OutBytes: [Sides]uint64{SideDead: 4}})
	d.ok(7, DeadLetter, settle(dead[0].Token, Complete))
	d.wantTally("a dead letter completed", 7, Tally{Completed: [Sides]uint64{SideDead: 1}})

	d.ok(7, Main, &Lock{Max: 1})
	d.after(6000)
	d.apply(Request{Command: &Tick{}})
	d.wantTally("a lock that ran out", 7, Tally{Unlocked: 1})
	d.ok(7, Main, &Lock{Max: 1})
	d.after(6000)
	d.apply(Request{Command: &Tick{}})
	d.wantTally("the last delivery", 7, Tally{Unlocked: 1, Died: [Deaths]uint64{DeathMaxDelivery: 1}})

	d.ok(7, Main, one(Message{TTL: 1000, Body: []byte("t")}))
	d.after(2000)
	d.apply(Request{Command: &Tick{Listeners: []EntityID{7}}})
	d.wantTally("an expiry", 7, Tally{Expired: 1, Died: [Deaths]uint64{DeathExpired: 1}})

	d.ok(7, Main, one(Message{ScheduledAt: d.wall + 1000, Body: []byte("s")}))
	d.wantTally("a scheduled message", 7, Tally{In: 1, InBytes: 1})
	d.after(2000)
	d.apply(Request{Command: &Tick{}})
	d.wantTally("its time", 7, Tally{Activated: 1})

	d.ok(7, Main, &Transfer{To: 9, Messages: one(Message{Body: []byte("t")}).Messages})
	for _, refusal := range []Refusal{EntityNotFound, None} {
		d.ok(7, Main, &Transfer{To: 9, Messages: one(Message{Body: []byte("t")}).Messages})
		moves := d.ok(7, TransferQueue, &Forward{Epoch: d.epoch, To: 9, Max: 1}).Moves
		d.ok(7, TransferQueue, &Forward{Epoch: d.epoch, Done: []Moved{{Number: moves[0].Number, Refusal: refusal}}})
		want := Tally{Forwarded: 1}
		if refusal != None {
			want = Tally{Died: [Deaths]uint64{DeathForward: 1}}
		}
		d.wantTally("a move", 7, want)
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// A message of a topic counts there, and each copy at its subscription.
func TestCopiesCountAtTheirSubscription(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, topicOf(1))
	d.ok(0, Main, subscriptionOf(2, 1, nil, "1=1"))
	d.ok(0, Main, subscriptionOf(3, 1, func(d *Descriptor) { d.DeadLetterOnFilterError = true }, "1/n=0"))
	d.ok(0, Main, subscriptionOf(4, 1, withSessions, "1=1"))
	d.ok(1, Main, sent("a", "n:0"))
	size := d.tallied(1).InBytes
	if size == 0 {
		t.Error("no bytes are counted")
	}
	d.wantTally("the topic", 1, Tally{In: 1, InBytes: size})
	d.wantTally("a copy", 2, Tally{In: 1, InBytes: size})
	d.wantTally("a rule that fails", 3, Tally{In: 1, InBytes: size, Died: [Deaths]uint64{DeathFilter: 1}})
	d.wantTally("no session id", 4, Tally{In: 1, InBytes: size, Died: [Deaths]uint64{DeathSession: 1}})
}

// What a transaction did and undid is not counted, and what was counted before it in the same entry is.
func TestAnUndoneTransactionCountsNothing(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.MaxSizeBytes = 100 }))
	d.ok(0, Main, queue(8))
	d.apply(
		Request{Entity: 7, Command: message1("before")},
		Request{ID: RequestID{1, 2, 3}, Command: &Commit{Ops: []Op{
			{Entity: 8, Command: message1("undone")},
			{Entity: 7, Command: message1("undone")},
			{Entity: 7, Command: one(Message{Body: make([]byte, 101)})},
		}}},
		Request{Entity: 7, Command: message1("behind")},
		Request{Entity: 8, Command: message1("behind")},
	)
	if d.last.Outcomes[1].Refusal != TransactionAborted {
		t.Fatalf("%+v", d.last.Outcomes[1])
	}
	d.wantTally("around the transaction", 7, Tally{In: 2, InBytes: 12})
	d.wantTally("the other queue", 8, Tally{In: 1, InBytes: 6})
	d.apply(Request{ID: RequestID{1, 2, 4}, Command: &Commit{Ops: []Op{
		{Entity: 8, Command: message1("done")}, {Entity: 7, Command: message1("done")}}}})
	d.wantTally("a transaction", 7, Tally{In: 1, InBytes: 4})
	d.wantTally("a transaction", 8, Tally{In: 1, InBytes: 4})
}

// The lock of a session that runs out takes those of its messages with it.
func TestASessionThatRunsOutCountsItsMessages(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, withSessions))
	for range 3 {
		d.ok(7, Main, one(Message{HasSession: true, SessionID: "s", Body: []byte("b")}))
	}
	proof := d.ok(7, Main, &AcceptSession{ID: "s"}).Session
	d.ok(7, Main, &Lock{Session: proof, Max: 2})
	d.after(6000)
	d.apply(Request{Command: &Tick{}})
	d.wantTally("the end of the session's lock", 7, Tally{Unlocked: 2})
}

// Levels come in pages, in the order of ids.
func TestLevelsTellAgeAndStates(t *testing.T) {
	d := newDriver(t)
	for id := EntityID(7); id < 12; id++ {
		d.ok(0, Main, queue(id))
	}
	d.ok(0, Main, queue(12, withSessions))
	d.ok(7, Main, one(Message{ScheduledAt: d.wall + 100_000, Body: []byte("s")}))
	d.ok(12, Main, one(Message{ScheduledAt: d.wall + 100_000, HasSession: true, SessionID: "a", Body: []byte("s")}))
	deferred := func(e EntityID, p SessionProof) {
		o := d.ok(e, Main, &Lock{Session: p, Max: 1}).Locked
		d.ok(e, Main, &Settle{Session: p, Items: []SettleItem{{Token: o[0].Token, Verdict: Defer}}})
	}
	first := d.wall
	d.ok(7, Main, message1("d"))
	deferred(7, SessionProof{})
	d.after(1000)
	second := d.wall
	d.ok(7, Main, message1("locked"))
	d.ok(7, Main, &Lock{Max: 1})
	d.after(1000)
	d.ok(7, Main, message1("ready"))
	d.ok(12, Main, one(Message{HasSession: true, SessionID: "z", Body: []byte("s")}))
	third := d.wall
	d.after(1000)
	d.ok(12, Main, one(Message{HasSession: true, SessionID: "b", Body: []byte("s")}))
	got := map[EntityID]EntityLevels{}
	var order []EntityID
	for after, calls := EntityID(0), 0; ; calls++ {
		seen := len(order)
		after = d.s.Levels(after, 2, func(l *EntityLevels) { got[l.Entity], order = *l, append(order, l.Entity) })
		if after == 0 {
			break
		}
		if len(order)-seen != 2 || calls > 5 {
			t.Fatalf("a page of %d entities, call %d", len(order)-seen, calls)
		}
	}
	if want := []EntityID{7, 8, 9, 10, 11, 12}; !reflect.DeepEqual(order, want) {
		t.Errorf("entities %v, want %v", order, want)
	}
	if l := got[7]; l.Oldest[SideMain] != second || l.Counts.Deferred != 1 || l.Counts.Locked != 1 || l.Counts.Scheduled != 1 ||
		l.Counts.Active != 3 || l.Quota != 1<<30 || l.Name != "q" {
		t.Errorf("levels %+v; enqueued %d, %d, %d", l, first, second, third)
	}
	if l := got[12]; l.Oldest[SideMain] != third {
		t.Errorf("the oldest of a queue with sessions is of %d, want %d", l.Oldest[SideMain], third)
	}
	if l := got[8]; l.Oldest != ([Sides]Wall{}) {
		t.Errorf("an empty queue has the oldest %v", l.Oldest)
	}
}
