package fsm

import (
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// counts asks for the counters of an entity.
func (c *partitions) counts(id EntityID) EntityCounts {
	return c.parts[c.home[id]].s.Query(QueryRequest{Entity: id, Query: &Counts{}}).Counts
}

func (c *partitions) dead(t *testing.T, id EntityID, sub SubQueue) Delivery {
	t.Helper()
	got := c.parts[c.home[id]].s.Query(QueryRequest{Entity: id, Sub: sub, Query: &Peek{Max: 10}}).Messages
	if len(got) != 1 {
		t.Fatalf("%d messages in %v, want 1", len(got), sub)
	}
	return got[0]
}

// T-191 // S-208, S-102: after four moves the fifth dead-letters at its source.
func TestAMessageMakesFourMoves(t *testing.T) {
	c := newPartitions(t, 2, 0)
	for id := EntityID(1); id <= 6; id++ {
		c.put(PartitionID(1+id%2), queue(id, func(d *Descriptor) {
			if id < 6 {
				d.ForwardTo = "next"
			}
		}))
	}
	c.must(1, Main, sent("a"))
	for id := EntityID(1); id < 6; id++ {
		c.forward(id, Main, id+1)
	}
	c.holds(5, Main)
	c.holds(6, Main)
	d := c.dead(t, 5, DeadLetter)
	if d.Reason != "MaxTransferHopCountExceeded" || d.EnqueuedSeq != 1 {
		t.Errorf("%+v", d)
	}
}

// S-207, S-208, RUL-24, B5: what goes in a circle ends after four moves in the transfer dead-letter queue,
// from the main queue as from the DLQ, and nothing else happens to it.
func TestACircleEndsInTheTransferDeadLetterQueue(t *testing.T) {
	for _, sub := range []SubQueue{Main, DeadLetter} {
		c := newPartitions(t, 1, 0)
		c.put(1, queue(1, func(d *Descriptor) {
			if d.MaxDelivery = 1; sub == Main {
				d.ForwardTo = "itself"
			} else {
				d.ForwardDeadLettersTo = "itself"
			}
		}))
		c.must(1, Main, sent("a"))
		for range 6 {
			if sub == DeadLetter { // it is dead-lettered each time that it comes back
				c.kill(t, 1)
			}
			c.forward(1, sub, 1)
		}
		c.holds(1, Main)
		c.holds(1, DeadLetter)
		d := c.dead(t, 1, TransferDeadLetter)
		if d.Reason != "MaxTransferHopCountExceeded" || d.EnqueuedSeq != 1 || d.Seq != 5 {
			t.Errorf("from %v: %+v", sub, d)
		}
	}
}

// kill dead-letters what the main queue of an entity holds.
func (c *partitions) kill(t *testing.T, id EntityID) {
	t.Helper()
	o := c.must(id, Main, &Lock{Max: 10})
	for i := range o.Locked {
		c.must(id, Main, &Settle{Items: []SettleItem{{Seq: o.Locked[i].Seq, Token: o.Locked[i].Token, Verdict: Kill}}})
	}
}

// RUL-24: a subscription that forwards to its own topic is such a circle.
func TestASubscriptionCirclesThroughItsTopic(t *testing.T) {
	sh := &share{}
	for _, one := range []struct {
		d    Descriptor
		to   EntityID
		want bool
	}{
		{Descriptor{ID: 7, Kind: Queue}, 7, true},
		{Descriptor{ID: 7, Kind: Queue}, 8, false},
		{Descriptor{ID: 7, Kind: Subscription, Parent: 4}, 4, true},
		{Descriptor{ID: 7, Kind: Subscription, Parent: 4}, 5, false},
		{Descriptor{ID: 7, Kind: Queue}, 0, false},
	} {
		sh.d = &one.d
		if got := sh.circles(one.to); got != one.want {
			t.Errorf("%+v to %d: %v", one.d, one.to, got)
		}
	}
}

// T-192, T-194 // S-209, S-210, S-237: what the destination will not have is dead-lettered at the
// source and stays there.
func TestWhatADestinationRefusesIsDeadLetteredAtTheSource(t *testing.T) {
	for _, one := range []struct {
		name   string
		dest   func(*Descriptor)
		to     EntityID
		reason string
	}{
		{"disabled", func(d *Descriptor) { d.Status = SendDisabled }, 2, "MessagingEntityDisabled"},
		{"full", func(d *Descriptor) { d.MaxSizeBytes = 1 }, 2, "QuotaExceeded"},
		{"deleted", nil, 99, "MessagingEntityNotFound"},
		{"its name names nothing", nil, 0, "MessagingEntityNotFound"},
		{"sessions", withSessions, 2, "Session ID is null."},
		{"a smaller maximum", func(d *Descriptor) { d.MaxMessageBytes = 10 }, 2, "MessageSizeExceeded"},
		{"a subscription", func(d *Descriptor) { d.Kind, d.Parent = Subscription, 5 }, 2, "InvalidOperation"},
	} {
		t.Run(one.name, func(t *testing.T) {
			c := newPartitions(t, 2, 0)
			c.put(1, queue(1, forwardTo("e2")))
			dest := queue(2)
			if one.dest != nil {
				one.dest(&dest.Descriptor)
			}
			c.put(2, dest)
			long := "a long enough body for every limit of this test, with its overhead: " + string(make([]byte, 600))
			c.must(1, Main, sent(long))
			c.forward(1, Main, one.to)
			c.holds(1, Main)
			if d := c.dead(t, 1, DeadLetter); d.Reason != one.reason {
				t.Errorf("reason %q, want %q", d.Reason, one.reason)
			}
			dest.Descriptor.Version, dest.Descriptor.Status = 9, Active
			dest.Descriptor.MaxSizeBytes, dest.Descriptor.MaxMessageBytes = 1<<30, 1<<20
			c.put(2, dest)
			if one.to == 2 && dest.Descriptor.Kind == Queue && !dest.Descriptor.RequiresSession {
				c.must(1, Main, sent("new"))
				c.forward(1, Main, 2)
				c.holds(2, Main, "new")
			}
			c.dead(t, 1, DeadLetter)
		})
	}
}

// T-234 // S-237: a transfer to a disabled destination dies in the transfer dead-letter queue, one to a
// full destination waits and keeps the order.
func TestTransfersDieOrWait(t *testing.T) {
	c := newPartitions(t, 2, 0)
	c.put(1, queue(1))
	full := queue(2, func(d *Descriptor) { d.MaxSizeBytes = 200 })
	c.put(2, full)
	for _, label := range []string{"a", string(make([]byte, 190)), "b"} {
		c.must(1, Main, &Transfer{To: 2, Messages: sent(label).Messages})
	}
	c.forward(1, TransferQueue, 0)
	if n := c.counts(1); n.Transfer != 2 || n.TransferDeadLetter != 0 {
		t.Fatalf("%+v", n)
	}
	c.holds(2, Main, "a")
	c.must(2, Main, &DeleteMessages{Max: 10})
	full.Descriptor.Version, full.Descriptor.MaxSizeBytes = 2, 1<<20
	c.put(2, full)
	c.forward(1, TransferQueue, 0)
	c.holds(2, Main, string(make([]byte, 190)), "b")
	full.Descriptor.Version, full.Descriptor.Status = 3, Disabled
	c.put(2, full)
	c.must(1, Main, &Transfer{To: 2, Messages: sent("late").Messages})
	c.forward(1, TransferQueue, 0)
	if d := c.dead(t, 1, TransferDeadLetter); d.Reason != "MessagingEntityDisabled" {
		t.Errorf("%+v", d)
	}
	if n := c.counts(1); n.Transfer != 0 || n.TransferDeadLetter != 1 {
		t.Fatalf("%+v", n)
	}
	got := c.must(1, TransferDeadLetter, &Lock{Max: 1}).Locked
	c.must(1, TransferDeadLetter, settle(got[0].Token, Complete))
	c.keeps(2)
}

// T-164 // S-177, S-206: dead letters go on, saying where they died; nobody receives at the source. One
// that its destination will not have stays in the DLQ and is not offered again.
func TestDeadLettersAreForwarded(t *testing.T) {
	c := newPartitions(t, 2, 0)
	dying := func(d *Descriptor) { d.ForwardDeadLettersTo = "errors"; d.MaxDelivery = 1 }
	c.put(1, queue(1, dying))
	dest := queue(2, func(d *Descriptor) { d.Status = SendDisabled })
	c.put(2, dest)
	kill := func(label string) {
		c.must(1, Main, sent(label, "n:1"))
		c.must(1, Main, settle(c.must(1, Main, &Lock{Max: 1}).Locked[0].Token, Abandon))
	}
	kill("first")
	c.forward(1, DeadLetter, 2)
	c.holds(1, DeadLetter, "first")
	if c.parts[1].s.Deliverable(WaitKey{Entity: 1, Sub: DeadLetter}) {
		t.Error("a refused dead letter is offered again")
	}
	dest.Descriptor.Version, dest.Descriptor.Status = 2, Active
	c.put(2, dest)
	kill("second")
	c.forward(1, DeadLetter, 2)
	c.holds(1, DeadLetter, "first")
	c.holds(2, Main, "second")
	d := c.dead(t, 2, Main)
	if d.Source != "e1" || d.Reason != "MaxDeliveryCountExceeded" || d.Attempts != 0 {
		t.Errorf("%+v", d)
	}
	for _, sub := range []SubQueue{DeadLetter} {
		if o := c.ask(1, sub, &Lock{Max: 1}); o.Refusal != InvalidOperation {
			t.Errorf("receive from %v: %v", sub, o.Refusal)
		}
	}
	c.put(1, queue(1, func(d *Descriptor) { d.Version = 5 }))
	if got := c.must(1, DeadLetter, &Lock{Max: 5}).Locked; len(got) != 1 {
		t.Errorf("%d dead letters can be received when forwarding has ended", len(got))
	}
}

// T-189 // S-206: nobody receives from a source; what waits there counts as in transfer (T-193, S-277).
// S-213 T-197: a source is never idle.
func TestASourceIsNotReceivedFrom(t *testing.T) {
	c := newPartitions(t, 1, 0)
	c.put(1, queue(1, forwardTo("e2"), func(d *Descriptor) { d.AutoDeleteOnIdle = 300_000 }))
	c.must(1, Main, sent("a"))
	for _, cmd := range []Command{&Lock{Max: 1}, &Receive{Numbers: []SequenceNumber{1}}, &AcceptSession{Next: true}} {
		if o := c.ask(1, Main, cmd); o.Refusal != InvalidOperation {
			t.Errorf("%T: %v", cmd, o.Refusal)
		}
	}
	if n := c.counts(1); n.Transfer != 1 || n.Active != 0 {
		t.Errorf("%+v", n)
	}
	p := c.parts[1]
	p.after(10 * 300_000)
	if r := p.apply(Request{Command: &Tick{}}); len(r.Idle) != 0 {
		t.Error("a source is idle")
	}
}

// T-181 // S-196: a duplicate at the destination is dropped and the move is done.
func TestADuplicateAtTheDestinationEndsTheMove(t *testing.T) {
	c := newPartitions(t, 2, 0)
	c.put(1, queue(1, forwardTo("e2")))
	c.put(2, queue(2, func(d *Descriptor) { d.DetectDuplicates = true }))
	body := storedMessage("a", nil, map[rule.SystemProperty]string{rule.MessageID: "x"}, "")
	c.must(2, Main, &Enqueue{Messages: []Message{{MessageID: "x", Body: body}}})
	c.must(1, Main, &Enqueue{Messages: []Message{{MessageID: "x", Body: body}}})
	c.forward(1, Main, 2)
	c.holds(1, Main)
	c.holds(1, DeadLetter)
	c.holds(2, Main, "a")
	c.keeps(1)
}

// S-311: a repetition is recognised however late, whether it was taken or refused, and what is settled
// is forgotten.
func TestADecisionAboutAMoveIsFinal(t *testing.T) {
	c := newPartitions(t, 1, 0)
	dest := queue(2, func(d *Descriptor) { d.Status = SendDisabled })
	c.put(1, dest)
	move := func(below uint64, numbers ...uint64) []Refusal {
		m := &Enqueue{Origin: &Origin{Entity: 7, Partition: 3, Sub: Main, Below: below, Numbers: numbers}}
		for range numbers {
			m.Messages = append(m.Messages, sent("m").Messages...)
		}
		return c.must(2, Main, m).Refusals
	}
	if got := move(1, 1, 2); !slices.Equal(got, []Refusal{EntityDisabled, EntityDisabled}) {
		t.Fatal(got)
	}
	dest.Descriptor.Version, dest.Descriptor.Status = 2, Active
	c.put(1, dest)
	if got := move(1, 1, 2, 3); !slices.Equal(got, []Refusal{EntityDisabled, EntityDisabled, None}) {
		t.Fatal(got)
	}
	c.holds(2, Main, "m")
	if got := move(4, 5); !slices.Equal(got, []Refusal{None}) || c.parts[1].s.write(2).decided.Len() != 1 {
		t.Fatalf("%v, %d decisions", got, c.parts[1].s.write(2).decided.Len())
	}
	move(1, 1, 2, 3, 5) // very late
	c.holds(2, Main, "m", "m")
	if o := c.ask(2, Main, &Enqueue{Messages: sent("m").Messages, Origin: &Origin{Numbers: []uint64{0}}}); o.Refusal != InvalidArgument {
		t.Errorf("number 0: %v", o.Refusal)
	}
	if o := c.ask(2, Main, &Enqueue{Messages: messages(2).Messages, Origin: &Origin{Numbers: []uint64{2, 2}}}); o.Refusal != InvalidArgument {
		t.Errorf("a number twice: %v", o.Refusal)
	}
}

// A15, A23: a forwarder of an earlier leadership is not believed.
func TestAForwarderOfAnotherLeadershipIsRefused(t *testing.T) {
	c := newPartitions(t, 1, 0)
	c.put(1, queue(1, forwardTo("e2")))
	c.must(1, Main, sent("a"))
	p := c.parts[1]
	old := p.epoch
	c.entry(p, Request{Entity: 1, Command: &Forward{Epoch: old, To: 2, Max: 1}})
	c.leads(p)
	if o := c.ask(1, Main, &Forward{Epoch: old, Done: []Moved{{Number: 1}}}); o.Refusal != NotLeader {
		t.Errorf("%v", o.Refusal)
	}
	for _, r := range []Refusal{Stale, Busy} { // no end of a move
		c.must(1, Main, &Forward{Epoch: p.epoch, Done: []Moved{{Number: 1, Refusal: r}, {Number: 77}}})
	}
	if a := p.s.Query(QueryRequest{Entity: 1, Query: &Moving{}}); len(a.Moves) != 1 || a.Moves[0].To != 2 {
		t.Errorf("%+v", a)
	}
	if o := c.ask(1, TransferDeadLetter, &Forward{Epoch: p.epoch}); o.Refusal != InvalidOperation {
		t.Errorf("%v", o.Refusal)
	}
}

// Forwarding to a topic makes copies; what an action changed goes along, and takes effect behind the
// next move (S-220).
func TestForwardingMeetsTopics(t *testing.T) {
	c := newPartitions(t, 2, 0)
	c.put(1, queue(1, forwardTo("e2")))
	c.put(2, topicOf(2))
	c.put(2, subscriptionOf(3, 2, forwardTo("e4"), "n=1|SET n=2 SET sys.Label='l' SET sys.SessionId='s' SET sys.TimeToLive=sys.TimeToLive"))
	c.put(2, subscriptionOf(5, 2, nil, "n=2", "DeadLetterReason='r'"))
	c.put(1, queue(4, withSessions))
	c.must(1, Main, sent("a", "n:1"))
	c.forward(1, Main, 2)
	c.forward(3, Main, 4)
	c.holds(5, Main)
	got := c.dead(t, 4, Main)
	if len(got.System) != 2 || len(got.Properties) != 2 || got.EnqueuedSeq != 1 {
		t.Errorf("%+v", got)
	}
	if s := c.must(4, Main, &AcceptSession{Next: true}).Session; s.ID != "s" {
		t.Errorf("session %q", s.ID)
	}
}

// A body that is no stored message cannot be moved: an error, no panic.
func TestWhatCannotBeCarried(t *testing.T) {
	for _, body := range []string{"", "x", "\x01", "\x01\x04", "\x01\x06\x00", "\x01\x00\xff", "\x01\x00\x05ab"} {
		if _, err := Carry(&Delivery{Body: []byte(body)}, &Move{}); err == nil {
			t.Errorf("%q was carried", body)
		}
	}
}

// S-206, S-255: what waits in a queue that forwards goes on at once when receiving is allowed again.
func TestAForwarderIsWokenWhenReceivingIsAllowedAgain(t *testing.T) {
	for _, sub := range []SubQueue{Main, DeadLetter} {
		d := newDriver(t)
		put := func(version uint64, st Status) []WaitKey {
			c := queue(7, func(d *Descriptor) {
				d.Version, d.Status, d.ForwardTo, d.ForwardDeadLettersTo = version, st, "next", "next"
				if sub == DeadLetter {
					d.ForwardTo = ""
				}
			})
			return d.apply(Request{Command: c}).Wake
		}
		put(1, Active)
		d.ok(7, Main, message1("m"))
		if sub == DeadLetter {
			token := d.ok(7, Main, &Lock{Max: 1}).Locked[0].Token
			d.ok(7, Main, settle(token, Kill))
		}
		put(2, Disabled)
		if o := d.do(7, sub, &Forward{Epoch: d.epoch, Max: 1}); len(o.Moves) != 0 {
			t.Fatalf("%v of a disabled queue was taken", o.Moves)
		}
		key := WaitKey{Entity: 7, Sub: sub}
		if woken := put(3, Active); !slices.Contains(woken, key) {
			t.Errorf("%v is not woken, only %v", key, woken)
		}
		if o := d.do(7, sub, &Forward{Epoch: d.epoch, Max: 1}); len(o.Moves) != 1 {
			t.Errorf("%d messages were taken", len(o.Moves))
		}
	}
}
