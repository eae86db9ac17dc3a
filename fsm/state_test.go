package fsm

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// bench drives a State the way a leader does: one entry after the other, with rising indexes and
// ever new seeds.
type driver struct {
	tb    testing.TB
	s     *State
	index uint64
	epoch uint64
	wall  Wall
	lease Lease
	last  Result
	wire  []byte        // see asked
	freed func(BodyRef) // is told of every body that is freed
}

const startWall Wall = 1_700_000_000_000

func newDriver(tb testing.TB) *driver {
	d := &driver{tb: tb, s: New(1), wall: startWall, lease: 1}
	d.lead()
	return d
}

func (d *driver) lead() {
	d.epoch = 0
	d.apply(Request{Command: &BecomeLeader{Node: "n1"}})
	d.epoch = d.index
}

// after lets both clocks run.
func (d *driver) after(t Millis) { d.wall, d.lease = d.wall.After(t), d.lease.After(t) }

func (d *driver) entry(reqs ...Request) *Entry {
	e := &Entry{Wall: d.wall, Lease: d.lease, Epoch: d.epoch, Requests: reqs}
	binary.BigEndian.PutUint64(e.Seed[:], d.index+1)
	return e
}

func (d *driver) apply(reqs ...Request) Result {
	d.tb.Helper()
	e := d.entry(reqs...)
	placeBodies(e)
	d.index++
	d.last = d.s.Apply(d.index, e)
	for _, ref := range d.last.Freed {
		if d.freed != nil {
			d.freed(ref)
		}
	}
	return d.last
}

// do applies one command alone.
func (d *driver) do(entity EntityID, sub SubQueue, c Command) Outcome {
	d.tb.Helper()
	return d.apply(Request{Entity: entity, Sub: sub, Command: c}).Outcomes[0]
}

// ok does one command that must succeed.
func (d *driver) ok(entity EntityID, sub SubQueue, c Command) Outcome {
	d.tb.Helper()
	o := d.do(entity, sub, c)
	if o.Refusal != None {
		d.tb.Fatalf("%T: refusal %d %q", c, o.Refusal, o.Detail)
	}
	return o
}

// queue describes a queue with the defaults of the acceptance scenarios: 5 s of lock, 10 deliveries.
func queue(id EntityID, change ...func(*Descriptor)) *PutEntity {
	d := Descriptor{
		ID: id, Version: 1, Kind: Queue, Name: "q", Partitions: []PartitionID{1},
		LockDuration: 5000, MaxDelivery: 10, MaxMessageBytes: 1 << 20, MaxSizeBytes: 1 << 30,
		DefaultTTL: Unlimited, AutoDeleteOnIdle: Unlimited,
	}
	for _, f := range change {
		f(&d)
	}
	return &PutEntity{Descriptor: d}
}

func withSessions(d *Descriptor) { d.RequiresSession = true }

func message1(body string) *Enqueue { return &Enqueue{Messages: []Message{{Body: []byte(body)}}} }

func messages(n int) *Enqueue {
	c := &Enqueue{}
	for range n {
		c.Messages = append(c.Messages, Message{Body: []byte("body")})
	}
	return c
}

func settle(token LockToken, v Verdict) *Settle {
	return &Settle{Items: []SettleItem{{Token: token, Verdict: v}}}
}

// T-1
func TestACompletedMessageIsGone(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	o := d.ok(7, Main, message1("a"))
	if len(o.Numbers) != 1 || o.Numbers[0] != 1 || o.EnqueuedAt != startWall {
		t.Fatalf("enqueue: %+v", o)
	}
	got := d.ok(7, Main, &Lock{Max: 10}).Locked
	if len(got) != 1 || got[0].Seq != 1 || got[0].LockedUntil != startWall+5000 {
		t.Fatalf("lock: %+v", got)
	}
	if o := d.ok(7, Main, settle(got[0].Token, Complete)); o.Refusals[0] != None {
		t.Fatalf("complete: %+v", o)
	}
	if len(d.last.Freed) != 1 || d.last.Freed[0] != got[0].Ref {
		t.Fatalf("freed %v, want %v", d.last.Freed, got[0].Ref)
	}
	if got := d.ok(7, Main, &Lock{Max: 10}).Locked; len(got) != 0 {
		t.Fatalf("locked again: %+v", got)
	}
	if a := d.s.Query(QueryRequest{Entity: 7, Query: &Peek{Max: 10}}); len(a.Messages) != 0 {
		t.Fatalf("peek: %+v", a)
	}
}

// Found by the model, seed 1580: a request that forgets its own pump freed the bodies of the
// remembered answer twice, once as acknowledged and once as forgotten.
func TestAPumpThatForgetsItselfFreesItsBodiesOnce(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, message1("a"))
	d.apply(Request{ID: RequestID{1, 2, 3}, Entity: 7, Command: &Lock{Max: 1, Delete: true}})
	r := d.apply(Request{ID: RequestID{1, 2, 4}, Command: &DropPumps{Node: 1, Pumps: []uint64{2}}})
	if len(r.Freed) != 1 {
		t.Fatalf("freed %v", r.Freed)
	}
}

// The memory for answers is bounded: a further pump is refused, those known go on.
func TestTooManyPumpsAreRefused(t *testing.T) {
	d := newDriver(t)
	d.s.maxResults = 2
	d.ok(0, Main, queue(7))
	id := func(pump, counter uint64) Request {
		return Request{ID: RequestID{1, pump, counter}, Entity: 7, Command: message1("a")}
	}
	r := d.apply(id(1, 1), id(2, 1), id(3, 1), id(2, 2))
	for i, want := range []Refusal{None, None, Busy, None} {
		if got := r.Outcomes[i].Refusal; got != want {
			t.Errorf("request %d: refusal %d, want %d", i, got, want)
		}
	}
	d.apply(Request{Command: &DropPumps{Node: 1, Pumps: []uint64{1}}})
	if r := d.apply(id(3, 1)); r.Outcomes[0].Refusal != None {
		t.Errorf("still refused: %+v", r.Outcomes[0])
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// RUL-19: only so many lives of nodes are remembered as lost, the latest ones.
func TestTheLatestLostNodesAreRemembered(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	for n := range Incarnation(maxLostNodes + 1) {
		d.ok(0, Main, &NodeLost{Node: 1 + n})
		d.ok(0, Main, &NodeLost{Node: 1 + n})
	}
	for node, want := range map[Incarnation]Refusal{1: None, 2: NodeExpired, 1025: NodeExpired} {
		r := d.apply(Request{ID: RequestID{node, 1, 1}, Entity: 7, Command: message1("a")})
		if got := r.Outcomes[0].Refusal; got != want {
			t.Errorf("node %d: refusal %d, want %d", node, got, want)
		}
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
	if err := New(1).Restore(bytes.NewReader(imageOf(t, d.s))); err != nil {
		t.Error(err)
	}
}

// T-225 // S-248: a question changes nothing.
func TestQueriesChangeNothing(t *testing.T) {
	d := populated(t)
	before := d.s.Digest()
	for _, sub := range []SubQueue{Main, DeadLetter, TransferDeadLetter, 9} {
		for id := EntityID(6); id < 10; id++ {
			for _, q := range []Query{&Counts{}, &Peek{Max: 9}, &Peek{}, &ListSessions{}, &Ask{},
				&GetSessionState{}, &Peek{Max: 9, HasSession: true, Session: "a"}, nil} {
				d.s.Query(QueryRequest{Entity: id, Sub: sub, Query: q})
			}
		}
	}
	if d.s.Digest() != before {
		t.Error("the digest changed")
	}
}

// T-16, T-22 // S-22, S-102: what receive-and-delete gives has no token, and every delivery of a
// message that was never forwarded has its own number as the original one.
func TestDeliveriesCarryTheirNumbers(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, messages(2))
	kept := d.ok(7, Main, &Lock{Max: 1}).Locked[0]
	gone := d.ok(7, Main, &Lock{Max: 1, Delete: true}).Locked[0]
	if kept.Token.IsZero() || !gone.Token.IsZero() || gone.LockedUntil != 0 {
		t.Errorf("tokens %v and %v", kept.Token, gone.Token)
	}
	if kept.First() != kept.Seq || gone.First() != gone.Seq {
		t.Errorf("original numbers %d and %d", kept.EnqueuedSeq, gone.EnqueuedSeq)
	}
}

func TestAVerdictThatIsNoneIsRefused(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, message1("a"))
	tok := d.ok(7, Main, &Lock{Max: 1}).Locked[0].Token
	for _, it := range []SettleItem{{Token: tok}, {Token: tok, Verdict: Return + 1},
		{Token: tok, Verdict: Abandon, Delay: -1}, {Token: tok, Verdict: Return, Delay: 1},
		{Token: tok, Verdict: Abandon, Delay: maxRetryDelay + 1}} {
		if o := d.do(7, Main, &Settle{Items: []SettleItem{it}}); o.Refusals[0] != InvalidArgument {
			t.Errorf("%+v: %+v", it, o)
		}
	}
	if o := d.ok(7, Main, settle(tok, Complete)); o.Refusals[0] != None {
		t.Errorf("the lock is gone: %+v", o)
	}
}

// A2: the leader compares what its partition knows with the catalog.
func TestKnownListsEntitiesWithTheirVersions(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(9, func(d *Descriptor) { d.Version = 4 }))
	d.ok(0, Main, queue(7))
	got := d.s.Known()
	if len(got) != 2 || got[0] != (KnownEntity{ID: 7, Version: 1}) || got[1] != (KnownEntity{ID: 9, Version: 4}) {
		t.Errorf("%+v", got)
	}
}

// A token that was drawn before is drawn anew: tokens of two entries with one seed differ.
func TestTokensOfEqualSeedsDiffer(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, messages(2))
	var tokens [2]LockToken
	for i := range tokens {
		e := d.entry(Request{Entity: 7, Command: &Lock{Max: 1}})
		e.Seed = [32]byte{1}
		d.index++
		tokens[i] = d.s.Apply(d.index, e).Outcomes[0].Locked[0].Token
	}
	if tokens[0] == tokens[1] || tokens[0].IsZero() {
		t.Errorf("tokens %v", tokens)
	}
}

// What decodes may be applied, whatever it says: no panic, and the invariants hold.
func FuzzApply(f *testing.F) {
	for _, c := range goldenCommands() {
		for id := EntityID(7); id < 9; id++ {
			e := Entry{Requests: []Request{
				{ID: RequestID{5, 6, 8}, Entity: id, Command: c}, {Entity: id, Sub: DeadLetter, Command: c},
				{Command: c},
			}}
			f.Add(AppendEntry(nil, &e))
		}
	}
	img := imageOf(f, populated(f).s)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		s := New(1)
		if err := s.Restore(bytes.NewReader(img)); err != nil {
			t.Fatal(err)
		}
		wall, lease := s.Clocks()
		e.Epoch = s.epoch
		e.Wall, e.Lease = min(e.Wall, wall+1e9), min(e.Lease, lease+1e9)
		s.Apply(s.index+1, e)
		s.Apply(s.index+1, &Entry{Epoch: s.epoch, Lease: 1 << 62, Wall: 1 << 62,
			Requests: []Request{{Command: &Tick{}}}})
		if err := s.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
		if err := New(1).Restore(bytes.NewReader(imageOf(t, s))); err != nil {
			t.Fatal(err)
		}
	})
}

// placeBodies gives every body of an entry a place of its own, as encoding would.
func placeBodies(e *Entry) {
	at := uint32(100)
	for i := range e.Requests {
		if part, ok := e.Requests[i].Command.(*BodyPart); ok {
			part.BodyOffset = at
			at += uint32(len(part.Body)) + 10
		}
		EachMessage(e.Requests[i].Command, func(m *Message) {
			m.BodyOffset = at
			at += uint32(len(m.Body)) + 10
		})
	}
}
