package fsm

import (
	"bytes"
	"reflect"
	"testing"
)

func (d *driver) dropsOf(id EntityID) Drops {
	return d.s.Query(QueryRequest{Entity: id, Query: &Counts{}}).Counts.Dropped
}

// S-169, S-225: a transaction that the quota stops counts what it was refused, once, and nothing of what
// was undone with it.
func TestAnUndoneTransactionCountsOnlyItsRefusal(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.MaxSizeBytes = 10 }))
	d.ok(7, Main, one(Message{ScheduledAt: d.wall + 60_000, Body: []byte("s")}))
	c := &Commit{Ops: []Op{
		{Entity: 7, Command: &Cancel{Numbers: []SequenceNumber{1}}},
		{Entity: 7, Command: one(Message{MessageID: "big", Body: make([]byte, 11)})},
	}}
	for range 2 { // the second is the repetition of the first
		r := d.apply(Request{ID: RequestID{1, 2, 3}, Command: c})
		if r.Outcomes[0].Refusal != TransactionAborted {
			t.Fatalf("%+v", r.Outcomes[0])
		}
		if r.Outcomes[0].Repeated {
			if len(r.Drops) != 0 {
				t.Errorf("the repetition tells of %+v", r.Drops)
			}
			continue
		}
		want := []Drop{{Entity: 7, Name: r.Drops[0].Name, Reason: DropQuota, MessageID: "big", Count: 1, Total: 1}}
		if !reflect.DeepEqual(r.Drops, want) {
			t.Errorf("told of %+v, want %+v", r.Drops, want)
		}
	}
	if got, want := d.dropsOf(7), (Drops{DropQuota: 1}); got != want {
		t.Errorf("drops %v, want %v", got, want)
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// S-169, S-209: what a destination refuses is dropped if its source has no dead-letter queue.
func TestARefusedMoveWithoutDeadLetterQueueIsCounted(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.ForwardTo, d.NoDeadLetter = "gone", true }))
	d.ok(7, Main, messages(1))
	d.ok(7, Main, &Transfer{To: 9, Messages: one(Message{Body: []byte("t")}).Messages})
	for _, sub := range []SubQueue{Main, TransferQueue} {
		moves := d.ok(7, sub, &Forward{Epoch: d.epoch, To: 8, Max: 1}).Moves
		r := d.apply(Request{Entity: 7, Sub: sub, Command: &Forward{Epoch: d.epoch,
			Done: []Moved{{Number: moves[0].Number, Refusal: EntityNotFound}}}})
		if len(r.Drops) != 1 || r.Drops[0].Reason != DropForward || (r.Drops[0].Number == 1) != (sub == Main) ||
			r.Drops[0].Ref.Length == 0 {
			t.Errorf("%v: told of %+v", sub, r.Drops)
		}
	}
	if got, want := d.dropsOf(7), (Drops{DropForward: 2}); got != want {
		t.Errorf("drops %v, want %v", got, want)
	}
}

// S-221, S-31: a copy that a subscription does not get is counted there, and a message with such a copy is
// not one that nobody wanted.
func TestCopiesThatAreNotMadeAreCounted(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, topicOf(1))
	noDLQ := func(d *Descriptor) { d.NoDeadLetter = true }
	d.ok(0, Main, subscriptionOf(2, 1, nil, "1/n=0"))
	d.ok(0, Main, subscriptionOf(3, 1, func(d *Descriptor) { noDLQ(d); d.DeadLetterOnFilterError = true }, "1/n=0"))
	d.ok(0, Main, subscriptionOf(4, 1, func(d *Descriptor) { noDLQ(d); d.RequiresSession = true }, "1=1"))
	d.ok(0, Main, subscriptionOf(5, 1, func(d *Descriptor) { d.DeadLetterOnFilterError = true }, "1/n=0"))
	d.ok(1, Main, sent("a", "n:0"))
	for id, want := range map[EntityID]Drops{1: {}, 2: {DropFilter: 1}, 3: {DropFilter: 1}, 4: {DropSession: 1}, 5: {}} {
		if got := d.dropsOf(id); got != want {
			t.Errorf("entity %d: drops %v, want %v", id, got, want)
		}
	}
	if c := d.s.Query(QueryRequest{Entity: 5, Query: &Counts{}}).Counts; c.DeadLetter != 1 {
		t.Errorf("the subscription with dead letters: %+v", c)
	}
}

// S-169: the number of examples and of listed entities is bounded, the counters are not; a restart from an
// image keeps all.
func TestDropsOfManyEntitiesAreBounded(t *testing.T) {
	d := newDriver(t)
	const entities = maxDrops + 6
	var refused []Request
	for id := EntityID(1); id <= entities; id++ {
		d.ok(0, Main, queue(id, func(d *Descriptor) { d.MaxSizeBytes = 1 }))
		refused = append(refused, Request{Entity: id, Command: one(Message{Body: []byte("22")})})
	}
	if r := d.apply(refused...); len(r.Drops) != maxDrops {
		t.Errorf("%d examples, want %d", len(r.Drops), maxDrops)
	}
	restored := New(1)
	if err := restored.Restore(bytes.NewReader(imageOf(t, d.s))); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*State{d.s, restored} {
		list, others := s.Dropped(10)
		if len(list) != 10 || list[9].Entity != 10 || list[9].Drops[DropQuota] != 1 || others != (Drops{DropQuota: entities - 10}) {
			t.Errorf("%d entities and %v", len(list), others)
		}
	}
}
