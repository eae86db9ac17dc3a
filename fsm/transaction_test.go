package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// transacted returns a driver with a queue of two locked messages and one that is scheduled, a session
// queue with a held session and one locked message, and a topic.
func transacted(t *testing.T) (d *driver, locked []Delivery, session SessionProof, inSession Delivery) {
	d = newDriver(t)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.DetectDuplicates, d.DuplicateWindow = true, 60_000 }))
	d.ok(0, Main, queue(8, withSessions))
	d.ok(0, Main, topicOf(9))
	d.ok(0, Main, subscriptionOf(10, 9, nil, "1=1"))
	d.ok(0, Main, subscriptionOf(11, 9, nil, "1=1|SET n=1"))
	d.ok(7, Main, messages(2))
	d.ok(7, Main, one(Message{ScheduledAt: d.wall + 60_000}))
	locked = d.ok(7, Main, &Lock{Max: 2}).Locked
	d.ok(8, Main, one(Message{HasSession: true, SessionID: "s"}))
	session = d.ok(8, Main, &AcceptSession{ID: "s"}).Session
	inSession = d.ok(8, Main, &Lock{Max: 1, Session: session}).Locked[0]
	return d, locked, session, inSession
}

// T-228 // S-231, S-232, S-323: everything that may be part of a transaction, at one place of the log.
// T-144 // S-73: the state of a session and the message that led to it change together.
func TestATransactionTakesEffectAtOnePlace(t *testing.T) {
	d, locked, session, m := transacted(t)
	o := d.ok(0, Main, &Commit{Ops: []Op{
		{Entity: 7, Command: settle(locked[0].Token, Complete)},
		{Entity: 7, Command: &Renew{Tokens: []LockToken{locked[1].Token}}},
		{Entity: 7, Command: &Cancel{Numbers: []SequenceNumber{3}}},
		{Entity: 7, Command: one(Message{MessageID: "x", Body: []byte("sent")})},
		{Entity: 7, Command: one(Message{MessageID: "x", Body: []byte("again")})}, // S-194
		{Entity: 8, Command: &Settle{Session: session, Items: []SettleItem{{Token: m.Token, Verdict: Complete}}}},
		{Entity: 8, Command: &SetSessionState{Session: session, State: []byte("done")}},
		{Entity: 9, Command: message1("published")},
		{Entity: 7, Command: &Transfer{To: 99, Messages: one(Message{Body: []byte("away")}).Messages}},
	}})
	if len(o.Ops) != 9 || o.Ops[3].Numbers[0] != 4 || !o.Ops[4].Duplicate[0] || o.Ops[7].Numbers[0] != 1 {
		t.Fatalf("%+v", o.Ops)
	}
	c := d.s.Query(QueryRequest{Entity: 7, Query: &Counts{}}).Counts
	if c.Active != 2 || c.Locked != 1 || c.Scheduled != 0 || c.Transfer != 1 {
		t.Errorf("queue: %+v", c)
	}
	state := d.s.Query(QueryRequest{Entity: 8, Query: &GetSessionState{Session: session}})
	if string(state.State) != "done" {
		t.Errorf("session: %+v", state)
	}
	for id := EntityID(10); id < 12; id++ {
		if got := d.ok(id, Main, &Lock{Max: 5}).Locked; len(got) != 1 {
			t.Errorf("subscription %d got %d copies", id, len(got))
		}
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// T-229, T-238, T-94, T-179 // S-233, S-241, S-127, S-91: a transaction that fails leaves everything
// as it was, whatever its other operations would have done, and its bodies are reported once.
func TestAFailedTransactionChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		last func(locked []Delivery, session SessionProof) Op
		why  string
	}{
		{"a lock that is lost", func([]Delivery, SessionProof) Op {
			return Op{Entity: 7, Command: settle(LockToken{0, 0, 1}, Complete)}
		}, "MessageLockLost"},
		{"a session that is lost", func([]Delivery, SessionProof) Op {
			return Op{Entity: 8, Command: &SetSessionState{Session: SessionProof{ID: "s", Token: LockToken{1}}}}
		}, "SessionLockLost"},
		{"a number that is gone", func([]Delivery, SessionProof) Op {
			return Op{Entity: 7, Command: &Cancel{Numbers: []SequenceNumber{77}}}
		}, "MessageNotFound"},
		{"an unknown entity", func([]Delivery, SessionProof) Op {
			return Op{Entity: 70, Command: message1("x")}
		}, "Stale"},
		{"a message without session id", func([]Delivery, SessionProof) Op {
			return Op{Entity: 8, Command: message1("x")}
		}, "SessionRequired"},
		{"no destination", func([]Delivery, SessionProof) Op {
			return Op{Entity: 7, Command: &Transfer{Messages: message1("x").Messages}}
		}, "InvalidArgument"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, locked, session, m := transacted(t)
			before := d.s.Digest()
			ops := []Op{
				{Entity: 7, Command: settle(locked[0].Token, Complete)},
				{Entity: 7, Command: settle(locked[1].Token, Abandon)},
				{Entity: 7, Command: &Cancel{Numbers: []SequenceNumber{3}}},
				{Entity: 7, Command: one(Message{MessageID: "x", Body: []byte("sent")})},
				{Entity: 8, Command: &Settle{Session: session, Items: []SettleItem{{Token: m.Token, Verdict: Defer}}}},
				{Entity: 9, Command: message1("published")},
				{Entity: 7, Command: &Transfer{To: 99, Messages: one(Message{Body: []byte("away")}).Messages}},
				c.last(locked, session),
			}
			r := d.apply(Request{Command: &Commit{Ops: ops}}, Request{Entity: 7, Command: message1("beside")})
			o := r.Outcomes[0]
			if o.Refusal != TransactionAborted || len(o.Ops) != 8 || !strings.Contains(o.Detail, "operation 8 of 8: "+c.why) {
				t.Fatalf("%v %q, %d operations", o.Refusal, o.Detail, len(o.Ops))
			}
			bodies := 0
			EachMessage(&Commit{Ops: ops}, func(*Message) { bodies++ })
			if len(r.Freed) != bodies {
				t.Errorf("%d of %d bodies freed", len(r.Freed), bodies)
			}
			if len(r.Wake) != 1 || r.Wake[0].Entity != 7 { // what was sent beside it wakes still
				t.Errorf("wake %v", r.Wake)
			}
			if n := r.Outcomes[1].Numbers[0]; n != 4 {
				t.Errorf("the next number is %d, want 4", n)
			}
			d.ok(7, Main, &DeleteMessages{Max: 10})
			if d.s.Digest() == before {
				t.Error("the digest does not see the number given")
			}
			if o := d.ok(7, Main, settle(locked[0].Token, Complete)); o.Refusals[0] != None { // S-233
				t.Errorf("settle again: %v", o.Refusals)
			}
			if err := d.s.CheckInvariants(); err != nil {
				t.Error(err)
			}
		})
	}
}

// S-3, S-232: an aborted transaction alone leaves the same digest; image and living state agree.
func TestAnAbortedTransactionLeavesNoTrace(t *testing.T) {
	d, locked, _, _ := transacted(t)
	before := d.s.Digest()
	d.do(0, Main, &Commit{Ops: []Op{
		{Entity: 7, Command: settle(locked[0].Token, Complete)},
		{Entity: 9, Command: message1("published")},
		{Entity: 7, Command: settle(locked[0].Token, Complete)},
	}})
	if d.s.Digest() != before {
		t.Error("something has changed")
	}
}

// T-240, T-241 // S-243, S-325: a commit whose answer was lost is asked again under its id and gives
// the same outcome, committed or aborted.
func TestACommitAskedAgainGivesTheSameOutcome(t *testing.T) {
	d, locked, _, _ := transacted(t)
	c := &Commit{Ops: []Op{{Entity: 7, Command: settle(locked[0].Token, Complete)}, {Entity: 7, Command: message1("a")}}}
	first := d.apply(Request{ID: RequestID{1, 1, 1}, Command: c}).Outcomes[0]
	again := d.apply(Request{ID: RequestID{1, 1, 1}, Command: c}).Outcomes[0]
	if first.Refusal != None || again.Refusal != None || !again.Repeated || again.Ops[1].Numbers[0] != 4 {
		t.Fatalf("%+v, again %+v", first, again)
	}
	aborted := d.apply(Request{ID: RequestID{1, 2, 1}, Command: c}).Outcomes[0]
	again = d.apply(Request{ID: RequestID{1, 2, 1}, Command: c}).Outcomes[0]
	if aborted.Refusal != TransactionAborted || again.Refusal != TransactionAborted || !again.Repeated {
		t.Fatalf("%+v, again %+v", aborted, again)
	}
	s := New(1)
	if err := s.Restore(strings.NewReader(string(imageOf(t, d.s)))); err != nil || s.Digest() != d.s.Digest() {
		t.Errorf("restored: %v", err)
	}
}

// T-236 // S-239, S-231: what is no transaction is refused before anything is done.
func TestWhatATransactionMayBe(t *testing.T) {
	d, _, _, _ := transacted(t)
	many := func(n int) *Commit {
		c := &Commit{}
		for range n {
			c.Ops = append(c.Ops, Op{Entity: 7, Command: message1("m")})
		}
		return c
	}
	for _, c := range []struct {
		c    *Commit
		want Refusal
	}{
		{many(100), None},
		{many(101), TransactionTooLarge},
		{&Commit{Ops: []Op{{Entity: 7, Command: messages(60)}, {Entity: 7, Command: &Transfer{To: 1, Messages: messages(41).Messages}}}}, TransactionTooLarge},
		{&Commit{Ops: make([]Op, 1001)}, TransactionTooLarge},
		{&Commit{Ops: []Op{{Entity: 7, Command: &Lock{Max: 1}}}}, InvalidOperation},
		{&Commit{Ops: []Op{{Entity: 8, Command: &AcceptSession{Next: true}}}}, InvalidOperation},
		{&Commit{Ops: []Op{{Entity: 7, Command: &Receive{}}}}, InvalidOperation},
		{&Commit{Ops: []Op{{Command: &Commit{}}}}, InvalidOperation},
		{&Commit{Ops: []Op{{Command: &DropEntity{}, Entity: 7}}}, InvalidOperation},
		{&Commit{Ops: []Op{{Entity: 7, Command: &Enqueue{Origin: &Origin{}}}}}, InvalidOperation},
		{&Commit{ID: make([]byte, 65)}, InvalidArgument},
		{&Commit{}, None},
	} {
		if o := d.do(0, Main, c.c); o.Refusal != c.want || o.Refusal != None && o.Detail == "" {
			t.Errorf("%d operations: %v %q, want %v", len(c.c.Ops), o.Refusal, o.Detail, c.want)
		}
	}
}

// A cycle of send, lock and complete in a transaction. Its savepoint is a few pointers; what is written
// behind it copies the nodes on its way, which a backlog makes deeper.
func BenchmarkCommit(b *testing.B) {
	for _, backlog := range []int{0, 100_000} {
		b.Run(fmt.Sprint(backlog), func(b *testing.B) {
			d := newDriver(b)
			d.ok(0, Main, queue(7))
			for range backlog / 1000 {
				d.ok(7, Main, messages(1000))
			}
			b.ReportAllocs()
			for range b.N {
				d.ok(7, Main, message1("m"))
				token := d.ok(7, Main, &Lock{Max: 1}).Locked[0].Token
				d.ok(0, Main, &Commit{Ops: []Op{{Entity: 7, Command: settle(token, Complete)}}})
			}
		})
	}
}

func one(m Message) *Enqueue { return &Enqueue{Messages: []Message{m}} }

// S-90, S-231, S-232: a message scheduled in a transaction has its number before the commit, which cancels
// it later. The commit may come after other messages, another leader, a snapshot and its own time.
func TestAReservedNumberCancelsItsMessage(t *testing.T) {
	d, _, session, _ := transacted(t)
	reserved := d.ok(7, Main, &Reserve{Count: 2}).Numbers
	if fmt.Sprint(reserved) != "[4 5]" {
		t.Fatalf("reserved %v", reserved)
	}
	ofTopic := d.ok(9, Main, &Reserve{Count: 1}).Numbers[0]
	if o := d.ok(7, Main, messages(1)); o.Numbers[0] != 6 {
		t.Fatalf("the next message has number %v", o.Numbers)
	}
	at := d.wall + 60_000
	commit := func(id byte) *Commit {
		return &Commit{ID: []byte{id}, Ops: []Op{
			{Entity: 7, Command: &Enqueue{Messages: []Message{
				{ScheduledAt: at, Body: []byte("a"), Reserved: reserved[0]},
				{ScheduledAt: at, Body: []byte("b"), Reserved: reserved[1]}}}},
			{Entity: 9, Command: one(Message{ScheduledAt: at, Body: []byte("c"), Reserved: ofTopic})},
			{Entity: 8, Command: &SetSessionState{Session: session, State: []byte("done")}},
		}}
	}
	failing := commit(1)
	failing.Ops[2].Command = &SetSessionState{Session: SessionProof{ID: "s", Token: LockToken{1}}}
	if o := d.do(0, Main, failing); o.Refusal != TransactionAborted {
		t.Fatalf("%+v", o)
	}
	if o := d.do(7, Main, &Cancel{Numbers: reserved[:1]}); o.Refusal != MessageNotFound {
		t.Fatalf("cancelled before a commit: %+v", o)
	}
	restored := New(1)
	if err := restored.Restore(bytes.NewReader(imageOf(t, d.s))); err != nil {
		t.Fatal(err)
	}
	d.s = restored
	o := d.ok(0, Main, commit(2))
	if fmt.Sprint(o.Ops[0].Numbers, o.Ops[1].Numbers) != fmt.Sprint(reserved, []SequenceNumber{ofTopic}) {
		t.Fatalf("stored as %v and %v", o.Ops[0].Numbers, o.Ops[1].Numbers)
	}
	if o := d.do(0, Main, commit(3)); o.Refusal != TransactionAborted || o.Ops[0].Refusal != InvalidArgument {
		t.Fatalf("a number that a message has: %+v", o)
	}
	never := one(Message{ScheduledAt: at, Reserved: 1000})
	if o := d.do(7, Main, never); o.Refusal != InvalidArgument {
		t.Fatalf("a number that was never issued: %+v", o)
	}
	d.ok(7, Main, &Cancel{Numbers: reserved[:1]})
	d.ok(9, Main, &Cancel{Numbers: []SequenceNumber{ofTopic}})
	d.wall = at
	d.apply(Request{Command: &Tick{}})
	peeked := d.s.Query(QueryRequest{Entity: 7, Query: &Peek{From: 6, Max: 9}}).Messages
	if len(peeked) != 3 || peeked[0].Seq != 6 || peeked[1].Seq != 7 || peeked[2].Seq != 8 {
		t.Fatalf("after the activation: %+v", peeked)
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// S-232: a commit after the scheduled time stores the message as scheduled, and it comes behind all others.
// S-236: through a transfer queue a reserved number reaches its destination, whatever happens to be there.
func TestAReservedNumberIsKept(t *testing.T) {
	d, _, _, _ := transacted(t)
	late := d.ok(7, Main, &Reserve{Count: 1}).Numbers[0]
	d.ok(7, Main, messages(1))
	d.ok(0, Main, &Commit{Ops: []Op{{Entity: 7, Command: one(Message{ScheduledAt: d.wall - 1, Reserved: late})}}})
	if n := d.s.Query(QueryRequest{Entity: 7, Query: &Counts{}}).Counts; n.Scheduled != 2 {
		t.Fatalf("%+v", n)
	}
	d.apply(Request{Command: &Tick{}})
	got := d.ok(7, Main, &Lock{Max: 5}).Locked
	if len(got) != 2 || got[0].Seq != 5 || got[1].Seq != 6 {
		t.Fatalf("%+v", got)
	}
	d.ok(0, Main, &Commit{Ops: []Op{{Entity: 7, Command: &Transfer{To: 99, Messages: []Message{
		{ScheduledAt: d.wall + 60_000, Reserved: 12}}}}}})
	moved := d.ok(7, TransferQueue, &Forward{Epoch: d.s.epoch, Max: 1})
	if len(moved.Locked) != 1 || moved.Locked[0].Seq != 12 {
		t.Fatalf("%+v", moved)
	}
	arrive := func(n uint64, reserved SequenceNumber) SequenceNumber {
		o := d.ok(7, Main, &Enqueue{Origin: &Origin{Entity: 99, Partition: 1, Sub: TransferQueue, Numbers: []uint64{n}},
			Messages: []Message{{ScheduledAt: d.wall + 60_000, Reserved: reserved}}})
		return o.Numbers[0]
	}
	known := d.ok(7, Main, &Reserve{Count: 1}).Numbers[0]
	if n := arrive(1, known); n != known {
		t.Errorf("arrived as %d, reserved was %d", n, known)
	}
	if n := arrive(2, known); n != known+1 {
		t.Errorf("a message whose number is taken arrived as %d", n)
	}
}
