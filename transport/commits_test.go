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

const messageLockLost = "com.microsoft:message-lock-lost The lock supplied is invalid."

// realDeal is a deal whose commits are done by the state machine.
func realDeal(t *testing.T, b *bubble) *deal {
	t.Helper()
	d := newDeal(t, b)
	b.broker.answer = nil
	return d
}

// settleAll settles a range of deliveries outside of any transaction, without waiting for an answer.
func (d *deal) settleAll(first, last uint32, state amqp.DeliveryState) {
	d.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: first, Last: amqp.Some(last), State: state})
}

// S-233, RUL-30: a disposition within a transaction leaves the delivery unsettled, so that after a roll-back
// every outcome can be sent again over its link, in a session too.
func TestADeliveryCanBeSettledAgainAfterARollBack(t *testing.T) {
	for name, queue := range map[string]string{"a queue": "a", "a session": "s"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("a")
				b.broker.queue("s", withSessions)
				d := realDeal(t, b)
				defer d.c.close()
				d.fill(queue, 4)
				attach := receiverOf(5, queue)
				if queue == "s" {
					attach = sessionReceiverOf(5, queue, "s")
				}
				got := d.takeBy(attach, 4)
				id := d.declare()
				for _, tr := range got {
					if text := d.settle(tr, id, amqp.Accepted{}); text != "(Accepted)" {
						t.Errorf("in the transaction: %s", text)
					}
				}
				if text := d.discharge(id, true); text != "Accepted" {
					t.Errorf("roll-back: %s", text)
				}
				if len(d.settled) != 0 {
					t.Errorf("the roll-back settled %v", d.settled)
				}
				for i, outcome := range []amqp.DeliveryState{amqp.Accepted{}, amqp.Rejected{},
					amqp.Modified{UndeliverableHere: amqp.Some(true)}, amqp.Modified{DeliveryFailed: amqp.Some(true)}} {
					text := d.again(got[i], outcome)
					if want := strings.TrimPrefix(fmt.Sprintf("%T", outcome), "amqp."); text != want {
						t.Errorf("again: %s, want %s", text, want)
					}
				}
				c := b.broker.counts(t, queue)
				if c.Active != 2 || c.DeadLetter != 1 || c.Deferred != 1 {
					t.Errorf("%+v, want one dead letter, and two of which one is deferred", c)
				}
			})
		})
	}
}

// S-232, RUL-30: a commit tells of each delivery that it is settled, before it answers the discharge. Who
// settles one of them later hears that its lock is lost, within a transaction and outside, alone and in a
// range with others.
func TestACommitSettlesItsDeliveries(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := realDeal(t, b)
		defer d.c.close()
		d.fill("a", 4)
		got := d.take(5, "a", 4)
		id := d.declare()
		for _, tr := range got[:3] {
			d.settle(tr, id, amqp.Accepted{})
		}
		if text := d.discharge(id, false); text != "Accepted" {
			t.Fatalf("commit: %s", text)
		}
		for _, tr := range got[:3] { // noted while the answer to the discharge was awaited: they came first
			if text := d.settled[tr.DeliveryID.Value]; text != "(Accepted)" {
				t.Errorf("delivery %d was told %q before the discharge, want (Accepted)", tr.DeliveryID.Value, text)
			}
		}
		if c := b.broker.counts(t, "a"); c.Active != 1 {
			t.Errorf("%+v", c)
		}
		if text := d.again(got[0], amqp.Released{}); !strings.HasPrefix(text, messageLockLost) {
			t.Errorf("settled again: %s", text)
		}
		if text := d.settle(got[1], d.declare(), amqp.Accepted{}); !strings.HasPrefix(text, messageLockLost) {
			t.Errorf("settled again in a transaction: %s", text)
		}
		first, last := got[0].DeliveryID.Value, got[3].DeliveryID.Value
		d.settleAll(first, last, amqp.Accepted{})
		answers := map[uint32]string{}
		for len(answers) < 4 {
			p := d.disposition()
			for i := p.First; i != p.Last.Or(p.First)+1; i++ {
				answers[i] = stateText(p.State)
			}
			if !p.Settled {
				t.Errorf("an answer that does not settle: %+v", p)
			}
		}
		for i, tr := range got {
			want := messageLockLost
			if i == 3 {
				want = "Accepted"
			}
			if text := answers[tr.DeliveryID.Value]; !strings.HasPrefix(text, want) {
				t.Errorf("delivery %d of a range: %s, want %s", i, text, want)
			}
		}
	})
}

// S-241, RUL-30: a lock that has run out is noticed at the disposition, and the rest of the transaction
// commits. One that was renewed elsewhere is none.
func TestALockThatRanOutIsNoticedInTheTransaction(t *testing.T) {
	inBubble(t, func(b *bubble) {
		queue := b.broker.queue("a", func(d *fsm.Descriptor) { d.LockDuration = 30_000 })
		d := realDeal(t, b)
		defer d.c.close()
		d.fill("a", 2)
		got := d.take(5, "a", 2)
		d.sender(2, "a")
		renewed := fsm.LockToken(amqp.GuidTag(amqp.UUID(got[0].DeliveryTag)))
		time.Sleep(20 * time.Second)
		s := &scene{t: t, b: b, number: map[string]fsm.SequenceNumber{}}
		s.propose(queue, fsm.Main, 0, &fsm.Renew{Tokens: []fsm.LockToken{renewed}})
		time.Sleep(20 * time.Second) // the other lock ended
		id := d.declare()
		d.send(2, id, encoded("x"))
		if text := d.settle(got[0], id, amqp.Accepted{}); text != "(Accepted)" {
			t.Errorf("renewed elsewhere: %s", text)
		}
		if text := d.settle(got[1], id, amqp.Accepted{}); !strings.HasPrefix(text, messageLockLost) {
			t.Errorf("ran out: %s", text)
		}
		if text := d.again(got[1], amqp.Accepted{}); !strings.HasPrefix(text, messageLockLost) {
			t.Errorf("settled again: %s", text)
		}
		if text := d.discharge(id, false); text != "Accepted" {
			t.Errorf("commit of the rest: %s", text)
		}
		if c := b.broker.counts(t, "a"); c.Active != 2 { // one is completed, one was sent
			t.Errorf("%+v", c)
		}
	})
}

// S-241, RUL-30: within a session that is lost the disposition is answered session-lock-lost.
func TestALostSessionIsNoticedInTheTransaction(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("s", withSessions, func(d *fsm.Descriptor) { d.LockDuration = 30_000 })
		d := realDeal(t, b)
		defer d.c.close()
		d.fill("s", 1)
		got := d.takeBy(sessionReceiverOf(5, "s", "s"), 1)
		id := d.declare()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if detached, _ := expect[*amqp.Detach](d.c); detached.Error == nil ||
			detached.Error.Condition != amqp.ConditionSessionLockLost {
			t.Errorf("the link was told %+v", detached.Error)
		}
		if text := d.settle(got[0], id, amqp.Accepted{}); !strings.HasPrefix(text, "com.microsoft:session-lock-lost") {
			t.Errorf("session lost: %s", text)
		}
		if text := d.discharge(id, false); text != "Accepted" {
			t.Errorf("commit of nothing: %s", text)
		}
	})
}

// S-241: if a lock runs out between the disposition and the commit, the commit says that nothing was done,
// which is not in doubt, and leaves the other deliveries unsettled.
func TestACommitWithALostLockDoesNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a", func(d *fsm.Descriptor) { d.LockDuration = 30_000 })
		d := realDeal(t, b)
		defer d.c.close()
		d.fill("a", 1)
		d.sender(2, "a")
		got := d.take(5, "a", 1)
		id := d.declare()
		d.send(2, id, encoded("x"))
		d.settle(got[0], id, amqp.Accepted{})
		time.Sleep(40 * time.Second)
		text := d.discharge(id, false)
		if !strings.HasPrefix(text, "amqp:transaction:rollback TransactionAborted: nothing of the transaction was done.") ||
			!strings.Contains(text, "message-lock-lost") {
			t.Errorf("commit: %s", text)
		}
		if len(d.settled) != 0 || b.broker.counts(t, "a").Active != 1 {
			t.Errorf("settled %v, %+v", d.settled, b.broker.counts(t, "a"))
		}
		if got := d.b.server.Outcome(id); got != TransactionAborted {
			t.Errorf("the outcome is %s", got)
		}
		if text := d.again(got[0], amqp.Accepted{}); !strings.HasPrefix(text, messageLockLost) {
			t.Errorf("settled again: %s", text)
		}
	})
}
