package transport

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// answers waits for the answers to n deliveries and returns them by id, and the number of frames.
func (d *deal) answers(n int) (all map[uint32]string, frames int) {
	d.t.Helper()
	for all = map[uint32]string{}; len(all) < n; frames++ {
		p := d.disposition()
		if !p.Settled {
			d.t.Fatalf("an answer that does not settle: %s", describe(0, p))
		}
		for i := p.First; i != p.Last.Or(p.First)+1; i++ {
			all[i] = stateText(p.State)
		}
	}
	return all, frames
}

// RUL-30: a disposition of a delivery that the broker has settled is answered once more, alone and in a range.
// What the client has settled itself is not.
func TestALateDispositionIsAnswered(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := realDeal(t, b)
		defer d.c.close()
		d.fill("a", 6)
		got := d.take(5, "a", 6)
		first := got[0].DeliveryID.Value
		outcomes := []amqp.DeliveryState{amqp.Accepted{}, amqp.Rejected{}, amqp.Modified{UndeliverableHere: amqp.Some(true)}}
		for i, outcome := range outcomes {
			if text := d.again(got[i], outcome); strings.Contains(text, ":") {
				t.Fatalf("outcome %d: %s", i, text)
			}
		}
		for i := range outcomes {
			if text := d.again(got[i], amqp.Accepted{}); !strings.HasPrefix(text, messageLockLost) {
				t.Errorf("delivery %d once more: %s", i, text)
			}
		}
		d.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: first + 3, Settled: true, State: amqp.Accepted{}})
		d.settleAll(first, first+5, amqp.Accepted{})
		all, frames := d.answers(5)
		for id, text := range all {
			want := messageLockLost
			if id >= first+3 {
				want = "Accepted"
			}
			if id == first+3 || !strings.HasPrefix(text, want) {
				t.Errorf("delivery %d in a range: %s", id-first, text)
			}
		}
		if frames != 2 {
			t.Errorf("%d frames answer two ranges", frames)
		}
		if text := d.again(got[5], amqp.Released{}); !strings.HasPrefix(text, messageLockLost) {
			t.Errorf("the last once more: %s", text)
		}
		if c := b.broker.counts(t, "a"); c.Deferred != 1 || c.DeadLetter != 1 || c.Active != 1 {
			t.Errorf("%+v, want one deferred message and one dead letter", c)
		}
	})
}

// S-53, RUL-30: in a message session the answer depends on whether the client still holds it.
func TestALateDispositionInASession(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("s", withSessions, func(d *fsm.Descriptor) { d.LockDuration = 30_000 })
		d := realDeal(t, b)
		defer d.c.close()
		d.fill("s", 1)
		got := d.takeBy(sessionReceiverOf(5, "s", "s"), 1)
		if text := d.again(got[0], amqp.Accepted{}); text != "Accepted" {
			t.Fatal(text)
		}
		if text := d.again(got[0], amqp.Accepted{}); !strings.HasPrefix(text, messageLockLost) {
			t.Errorf("while the session is held: %s", text)
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if detached, _ := expect[*amqp.Detach](d.c); detached.Error == nil || detached.Error.Condition != amqp.ConditionSessionLockLost {
			t.Errorf("the link was told %+v", detached.Error)
		}
		if text := d.again(got[0], amqp.Accepted{}); !strings.HasPrefix(text, "com.microsoft:session-lock-lost") {
			t.Errorf("after the session was lost: %s", text)
		}
	})
}

// RUL-30: the answer to a second disposition does not overtake the answer to the first.
func TestALateDispositionWaitsForTheFirst(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := realDeal(t, b)
		defer d.c.close()
		d.fill("a", 1)
		got := d.take(5, "a", 1)
		id := got[0].DeliveryID.Value
		b.broker.mu.Lock()
		d.settleAll(id, id, amqp.Accepted{})
		d.settleAll(id, id, amqp.Released{})
		b.broker.mu.Unlock()
		if all, _ := d.answers(1); all[id] != "Accepted" {
			t.Errorf("the first answer is %s", all[id])
		}
		if c := b.broker.counts(t, "a"); c.Active != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// RUL-30: a settlement that failed is tried again with the next disposition of the delivery, as the Java SDK
// sends it, unless the client settles the delivery itself.
func TestAFailedSettlementCanBeRepeated(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := realDeal(t, b)
		defer d.c.close()
		d.fill("a", 2)
		got := d.take(5, "a", 2)
		b.broker.mu.Lock()
		b.broker.fail = func(c fsm.Command) error {
			if _, ok := c.(*fsm.Settle); ok {
				return fsm.ErrUnavailable
			}
			return nil
		}
		b.broker.mu.Unlock()
		for range 2 {
			for _, tr := range got {
				if text := d.again(tr, amqp.Accepted{}); !strings.HasPrefix(text, "com.microsoft:timeout") {
					t.Fatalf("without a leader: %s", text)
				}
			}
		}
		b.broker.mu.Lock()
		b.broker.fail = nil
		b.broker.mu.Unlock()
		d.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: got[1].DeliveryID.Value, Settled: true, State: amqp.Accepted{}})
		if text := d.again(got[0], amqp.Accepted{}); text != "Accepted" {
			t.Errorf("with a leader: %s", text)
		}
		if text := d.again(got[0], amqp.Accepted{}); !strings.HasPrefix(text, messageLockLost) {
			t.Errorf("once more: %s", text)
		}
		if c := b.broker.counts(t, "a"); c.Active != 1 {
			t.Errorf("%+v, want the message that the client gave up", c)
		}
	})
}

// What was answered is remembered within bounds, in whatever order, also where the ids wrap.
func TestAnsweredDeliveriesAreRememberedWithinBounds(t *testing.T) {
	var a answered
	start := ^uint32(0) - 10
	for i := range uint32(100_000) {
		a.add(start+(i^1), settledBy{})
	}
	if fmt.Sprint(a.runs) != fmt.Sprint([]run{{start, start + 99_999, settledBy{}}}) {
		t.Errorf("consecutive ids are %v", a.runs)
	}
	a.add(start+5, settledBy{how: forgotten}) // it is remembered
	if len(a.runs) != 1 {
		t.Errorf("an id that is remembered is another run: %v", a.runs)
	}
	a = answered{}
	for i := range uint32(3 * maxRuns) {
		a.add(start+2*i, settledBy{})
		if len(a.runs) > maxRuns {
			t.Fatalf("%d runs", len(a.runs))
		}
	}
	last := start + 2*(3*maxRuns-1)
	if got := a.within(start, start); len(got) != 1 {
		t.Errorf("the oldest: %v", got)
	}
	if got := a.within(last-1, last+9); fmt.Sprint(got) != fmt.Sprint([]run{{last, last, settledBy{}}}) {
		t.Errorf("the newest: %v", got)
	}
	if got := a.within(last-1, last-1); got != nil {
		t.Errorf("a gap: %v", got)
	}
	a = answered{}
	for id := uint32(0); id < 4; id++ {
		a.add(id, settledBy{})
	}
	a.runs[0].last = memorySpan + 7 // as after as many deliveries
	a.add(memorySpan+8, settledBy{})
	if got := a.runs[0]; got.first != 8 || got.last != memorySpan+8 {
		t.Errorf("%d to %d are remembered", got.first, got.last)
	}
}
