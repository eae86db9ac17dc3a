package fsm

import (
	"fmt"
	"strings"
	"testing"
)

// costly is a rule that looks through a long text many times; m is a property of 30 KB.
var costly = strings.Repeat("m LIKE '%_a_b%' OR ", 3) + "m LIKE '%b_a%'"

// costlyTopic has so many subscriptions with a costly rule, and behind them one that takes everything.
func costlyTopic(d *driver, rules int) {
	d.ok(0, Main, topicOf(1))
	for i := range rules {
		d.ok(0, Main, subscriptionOf(EntityID(10+i), 1, nil, costly))
	}
	d.ok(0, Main, subscriptionOf(9999, 1, nil, "1=1"))
}

// sends sends messages to the topic at once.
func (d *driver) sends(m ...Message) Outcome { return d.do(1, Main, &Enqueue{Messages: m}) }

// held is how many messages a box of an entity holds.
func (d *driver) held(id EntityID, box SubQueue) int {
	sh, _ := d.s.shares.Get(id)
	return sh.boxes[box].messages.Len()
}

func costlyMessage() Message { return sent("t", "m:"+strings.Repeat("a", 30_000)).Messages[0] }

// S-350, F3: a message whose rules take too many steps is refused with a text that says what to do, and nothing of it is
// stored. One with less is taken, and so are as many at once as the steps allow.
func TestTheStepsOfRulesAreBounded(t *testing.T) {
	d := newDriver(t)
	costlyTopic(d, 200)
	stored := func() int { return d.held(9999, Main) }
	o := d.sends(costlyMessage())
	if want := fmt.Sprintf("the rules of the topic take more than %d steps for this message: remove some", entrySteps); o.Refusal != QuotaExceeded || !strings.HasPrefix(o.Detail, want) {
		t.Errorf("a message that costs too much: %v %s", o.Refusal, o.Detail)
	}
	if n := stored(); n != 0 || d.s.bodies.Len() != 0 {
		t.Errorf("%d copies and %d bodies of it are stored", n, d.s.bodies.Len())
	}
	small := sent("t", "m:aab").Messages[0]
	if o := d.sends(small, small, small); o.Refusal != None {
		t.Errorf("messages that cost little: %v %s", o.Refusal, o.Detail)
	}
	if o := d.sends(small, costlyMessage()); o.Refusal != QuotaExceeded || !strings.Contains(o.Detail, "they ran out at message 2: send fewer at once") {
		t.Errorf("one among others that costs too much: %v %s", o.Refusal, o.Detail)
	}
	if n := stored(); n != 3 {
		t.Errorf("%d copies, want 3", n)
	}
}

// S-350, F3: what another request of the entry has used up is no fault of a message: its sender is told to try again.
func TestStepsOfOthersAreNoFaultOfAMessage(t *testing.T) {
	d := newDriver(t)
	costlyTopic(d, 45) // one message takes most of the steps
	o := d.apply(Request{ID: RequestID{1, 1, 1}, Entity: 1, Command: &Enqueue{Messages: []Message{costlyMessage()}}},
		Request{ID: RequestID{1, 2, 1}, Entity: 1, Command: &Enqueue{Messages: []Message{costlyMessage()}}}).Outcomes
	if o[0].Refusal != None || o[1].Refusal != Busy {
		t.Errorf("got %v and %v %s", o[0].Refusal, o[1].Refusal, o[1].Detail)
	}
	if o := d.sends(costlyMessage()); o.Refusal != None {
		t.Errorf("alone: %v %s", o.Refusal, o.Detail)
	}
}

// S-350, S-221, F3: a scheduled message that costs too much goes to the subscriptions whose rules the steps sufficed for, and by
// S-221 to the dead letters of those that ask for it; a Tick does no more of them than its work allows.
func TestADueMessageThatCostsTooMuch(t *testing.T) {
	d := newDriver(t)
	costlyTopic(d, 20)
	d.ok(0, Main, subscriptionOf(9998, 1, func(d *Descriptor) { d.DeadLetterOnFilterError = true }, costly))
	m := costlyMessage()
	m.ScheduledAt = d.wall + 1000
	if o := d.sends(m); o.Refusal != None {
		t.Fatalf("a scheduled message: %v %s", o.Refusal, o.Detail)
	}
	d.after(2000)
	d.apply(Request{Command: &Tick{}})
	if n := d.held(9998, DeadLetter); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}

// S-288, S-350: messages that were moved to a topic together take no more steps in one entry than messages that were sent to
// it. The others are asked for again.
func TestMovedMessagesShareTheStepsOfAnEntry(t *testing.T) {
	d := newDriver(t)
	costlyTopic(d, 5) // a message takes most of the steps that one may take
	c := &Enqueue{Origin: &Origin{Entity: 7, Partition: 2, Below: 1}}
	for i := range uint64(2 * entrySteps / dueSteps) {
		m := costlyMessage()
		m.Carried = &Carried{EnqueuedSeq: SequenceNumber(i + 1), Hops: 1}
		c.Messages, c.Origin.Numbers = append(c.Messages, m), append(c.Origin.Numbers, i+1)
	}
	want := len(c.Messages)
	for entries := 1; len(c.Messages) > 0; entries++ {
		taken := 0
		for _, r := range d.ok(1, Main, c).Refusals {
			if r == None {
				taken++
			}
		}
		if taken == 0 || d.s.run.steps < 0 {
			t.Fatalf("entry %d took %d messages and left %d steps", entries, taken, d.s.run.steps)
		}
		c.Messages, c.Origin.Numbers = c.Messages[taken:], c.Origin.Numbers[taken:]
	}
	if n := d.held(9999, Main); n != want {
		t.Errorf("%d copies, want %d", n, want)
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}
