package fsm

import (
	"fmt"
	"testing"

	"github.com/busbar-mq/busbar/fsm/rule"
)

func topicOf(id EntityID, change ...func(*Descriptor)) *PutEntity {
	return queue(id, append(change, func(d *Descriptor) { d.Kind = Topic })...)
}

// subscriptionOf describes a subscription with the rules given as expressions, each with an action
// behind a bar if it has one.
func subscriptionOf(id, topic EntityID, change func(*Descriptor), rules ...string) *PutEntity {
	p := queue(id, func(d *Descriptor) { d.Kind, d.Parent = Subscription, topic })
	for i, text := range rules {
		var s rule.Source
		s.Kind, s.Expression = rule.SQLFilter, text
		for j := range text {
			if text[j] == '|' {
				s.Expression, s.Action = text[:j], text[j+1:]
			}
		}
		p.Descriptor.Rules = append(p.Descriptor.Rules, Rule{Name: fmt.Sprint("r", i), Source: s})
	}
	if change != nil {
		change(&p.Descriptor)
	}
	return p
}

// sent is a message in its stored form with application properties.
func sent(label string, properties ...string) *Enqueue {
	return &Enqueue{Messages: []Message{{Body: storedMessage(label, properties, nil, "")}}}
}

// topical adds topics with something of everything.
func topical(d *driver) {
	d.ok(0, Main, topicOf(20))
	d.ok(0, Main, subscriptionOf(21, 20, nil, "1=1"))
	d.ok(0, Main, subscriptionOf(22, 20, withSessions, "1=1", "n=1|SET sys.Label='x' SET m=2 REMOVE n"))
	d.ok(0, Main, subscriptionOf(23, 20, func(d *Descriptor) { d.DeadLetterOnFilterError = true }, "1/n=0", "n=1"))
	c := sent("t", "n:1")
	c.Messages[0].HasSession, c.Messages[0].SessionID = true, "s"
	d.ok(20, Main, c)
	d.ok(20, Main, sent("u", "n:0"))
	c = sent("later", "n:1")
	c.Messages[0].ScheduledAt, c.Messages[0].MessageID = d.wall+60_000, "m"
	d.ok(20, Main, c)
	d.apply(Request{ID: RequestID{5, 9, 1}, Entity: 21, Command: &Lock{Max: 1, Delete: true}})
	d.ok(23, Main, &DropEntity{})
	d.ok(0, Main, queue(30, func(d *Descriptor) { d.ForwardTo, d.ForwardDeadLettersTo = "a", "b" }))
	d.ok(30, Main, &Enqueue{Messages: []Message{{TTL: 1 << 40, Body: []byte("1")}, {Body: []byte("2")}}})
	d.ok(30, Main, &Forward{Epoch: d.epoch, To: 31, Max: 1})
	for range 2 {
		d.ok(30, Main, &Transfer{To: 32, Messages: sent("away").Messages})
	}
	d.ok(30, TransferQueue, &Forward{Epoch: d.epoch, Max: 1})
	d.ok(20, Main, &Enqueue{Messages: sent("moved").Messages, Origin: &Origin{Entity: 7, Partition: 2, Below: 4,
		Numbers: []uint64{5}}})
}

// S-214: a publication to many subscriptions stores the body once, and frees it once, with the last
// copy, whatever way each of them goes.
func TestABodyWithManyCopiesIsFreedOnce(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, topicOf(1))
	for id := EntityID(2); id < 102; id++ {
		d.ok(0, Main, subscriptionOf(id, 1, func(d *Descriptor) {
			d.ProcessedHistory, d.ProcessedHistoryBody, d.HistoryCount, d.HistoryAge = id%7 == 0, true, 1, 1
		}, "1=1"))
	}
	d.ok(1, Main, sent("a", "n:1"))
	d.ok(1, Main, sent("b", "n:1"))
	freed := 0
	for id := EntityID(2); id < 102; id++ {
		switch id % 4 {
		case 0:
			d.ok(id, Main, &DropEntity{})
		case 1:
			d.apply(Request{ID: RequestID{1, uint64(id), 1}, Entity: id, Command: &Lock{Max: 2, Delete: true}})
			d.apply(Request{Command: &DropPumps{Node: 1, Pumps: []uint64{uint64(id)}}})
		case 2:
			for range 2 {
				d.ok(id, Main, settle(d.ok(id, Main, &Lock{Max: 1}).Locked[0].Token, Complete))
			}
		default:
			d.ok(id, Main, &DeleteMessages{Max: 4000})
		}
		freed += len(d.last.Freed)
		if err := d.s.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	if freed != 0 {
		t.Fatalf("%d bodies freed while graves and histories refer to them", freed)
	}
	d.after(10 * 60_000)
	for range 3 {
		freed += len(d.apply(Request{Command: &Tick{}}).Freed)
	}
	for id := EntityID(7); id < 102; id += 7 { // the newest record of each history stays
		if id%4 != 0 {
			d.ok(id, Main, &DropEntity{})
			freed += len(d.last.Freed)
		}
	}
	freed += len(d.apply(Request{Command: &Tick{}}).Freed)
	if freed != 2 || d.s.bodies.Len() != 0 {
		t.Fatalf("%d bodies freed, %d shared left", freed, d.s.bodies.Len())
	}
}

// A batch for very many subscriptions is refused as a whole: what one entry makes is bounded.
func TestAFanOutIsBounded(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, topicOf(1))
	for id := EntityID(2); id < 202; id++ {
		d.ok(0, Main, subscriptionOf(id, 1, nil))
	}
	before := d.s.Digest()
	if o := d.do(1, Main, messages(1001)); o.Refusal != MessageSizeExceeded || d.s.Digest() != before {
		t.Fatalf("%+v", o)
	}
	d.ok(1, Main, messages(1000))
}

func benchmarkPublish(b *testing.B, subscriptions int, rule func(i int) string) {
	d := newDriver(b)
	d.ok(0, Main, topicOf(1))
	for i := range subscriptions {
		d.ok(0, Main, subscriptionOf(EntityID(2+i), 1, nil, rule(i)))
	}
	c := sent("body", "color:red", "price:10", "customer:987654", "region:west")
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		d.ok(1, Main, c)
	}
}

// A publication that 100 subscriptions take.
func BenchmarkPublishTo100(b *testing.B) {
	benchmarkPublish(b, 100, func(int) string { return "1=1" })
}

// A publication that 2,000 subscriptions look at with a filter each, and one takes.
func BenchmarkPublishThrough2000Filters(b *testing.B) {
	benchmarkPublish(b, 2000, func(i int) string {
		return fmt.Sprintf("customer = %d AND (region = 'west' OR price > 100)", 987654+i)
	})
}

// S-102, S-121: what a transaction sent to a topic for later has no number before it comes to the topic,
// so the copies carry that of its activation there; what had one elsewhere keeps it.
func TestCopiesOfAScheduledMoveCarryTheNumberOfTheTopic(t *testing.T) {
	for elsewhere, want := range map[SequenceNumber]SequenceNumber{0: 3, 99: 99} {
		d := newDriver(t)
		d.ok(0, Main, topicOf(1))
		d.ok(0, Main, subscriptionOf(2, 1, nil, "1=1"))
		d.ok(1, Main, sent("first"))
		c := sent("moved")
		c.Messages[0].ScheduledAt = d.wall + 1000
		c.Messages[0].Carried = &Carried{EnqueuedSeq: elsewhere, Hops: 1}
		c.Origin = &Origin{Entity: 7, Partition: 2, Sub: TransferQueue, Below: 1, Numbers: []uint64{1}}
		d.ok(1, Main, c)
		d.after(1000)
		d.ok(0, Main, &Tick{})
		got := d.ok(2, Main, &Lock{Max: 9}).Locked
		if len(got) != 2 || got[1].EnqueuedSeq != want {
			t.Errorf("sent as number %d: %+v, want %d", elsewhere, got, want)
		}
		if at, _ := d.s.write(2).firsts.Get(2); at.hops != 1 {
			t.Errorf("%d moves", at.hops)
		}
	}
}
