package transport

import (
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// S-232, S-236, S-241, T-238: with the real state machine: all of it or nothing, management included.
func TestTransactionsTakeEffect(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a", withSessions)
		b.broker.queue("b")
		d := newDeal(t, b)
		defer d.c.close()
		b.broker.answer = nil
		d.fill("a", 2)
		d.sender(3, "b")
		d.c.attachPair(0, 10, "a/$management", "a-reply")
		d.c.attachPair(0, 12, "b/$management", "b-reply")
		a := receiverOf(5, "a")
		w := amqp.BeginSymbolMap(nil)
		w.String(string(amqp.FilterSession), "s")
		a.Source.Filter = w.End()
		d.c.attach(0, a)
		d.c.send(0, credit(5, 0, 2, false))
		first, _ := expect[*amqp.Transfer](d.c)
		one := *first
		expect[*amqp.Transfer](d.c)
		manage := func(handle uint32, id []byte, op string, body amqp.Map) string {
			t.Helper()
			out := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m")})
			w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
			w.String("operation", "com.microsoft:"+op)
			out, err := amqp.AppendValueBody(w.End(), body)
			if err != nil {
				t.Fatal(err)
			}
			d.next++
			tr := transferOf(handle, d.next)
			tr.Settled, tr.State = amqp.Some(true), &amqp.TransactionalState{TxnID: id}
			d.c.send(0, tr, out)
			return d.c.outcome()
		}
		id := d.declare()
		for want, got := range map[string]string{
			"settle":   d.settle(&one, id, amqp.Accepted{}),
			"send":     d.send(3, id, encoded("to b")),
			"state":    manage(10, id, "set-session-state", mapOf("session-id", "s", "session-state", []byte("done"))),
			"schedule": manage(12, id, "schedule-message", mapOf("messages", amqp.List{oneMessage(annotated(annScheduledTime, amqp.Timestamp(1<<42)))})),
		} {
			if got != "(Accepted)" && got != "status 200" {
				t.Errorf("%s: %s", want, got)
			}
		}
		// S-231: a renewal is answered with what it did; what only shows or takes is no part of it.
		if got := manage(10, id, "renew-session-lock", mapOf("session-id", "s")); got != "status 200" {
			t.Errorf("renewal: %s", got)
		}
		if got := manage(10, []byte("nobody"), "renew-session-lock", mapOf("session-id", "s")); got == "status 200" {
			t.Errorf("a renewal in a transaction of nobody: %s", got)
		}
		for _, op := range []string{"peek-message", "receive-by-sequence-number", "get-session-state"} {
			if got := manage(10, id, op, mapOf("session-id", "s")); got != "status 400" {
				t.Errorf("%s: %s", op, got)
			}
		}
		if got := manage(10, []byte("nobody"), "set-session-state", mapOf("session-id", "s")); got != "status 500" && got != "status 400" {
			t.Errorf("in a transaction of nobody: %s", got)
		}
		if c := b.broker.counts(t, "a"); c.Active != 2 || c.Transfer != 0 {
			t.Errorf("before: %+v", c)
		}
		if got := d.discharge(id, false); got != "Accepted" {
			t.Fatalf("commit: %s", got)
		}
		if c := b.broker.counts(t, "a"); c.Active != 1 || c.Transfer != 2 {
			t.Errorf("after: %+v, want the message gone and two on their way to b", c)
		}
		id = d.declare()
		d.send(3, id, encoded("to b"))
		d.settle(&one, id, amqp.Accepted{})
		if got := d.discharge(id, false); !strings.HasPrefix(got, "amqp:not-found") && !strings.HasPrefix(got, "amqp:transaction:rollback") &&
			got != "Accepted" {
			t.Errorf("settled before: %s", got)
		}
	})
}

// S-236: a link that names a destination sends through the transfer queue of its entity, in a
// transaction and without one.
func TestALinkThroughAnEntity(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		b.broker.queue("b", func(e *fsm.Descriptor) { e.RequiresSession = true })
		d := newDeal(t, b)
		defer d.c.close()
		through := func(handle uint32, to string) *amqp.Attach {
			a := senderTo(handle, "a")
			w := amqp.BeginSymbolMap(nil)
			w.String(transferDestination, to)
			a.Properties = w.End()
			return d.c.attach(0, a)
		}
		through(6, "b")
		expect[*amqp.Flow](d.c)
		inSession := encoded("x", func(p *amqp.Properties) { p.GroupID = []byte("s") })
		id := d.declare()
		if got := d.send(6, id, inSession); got != "(Accepted)" {
			t.Errorf("send: %s", got)
		}
		if got := d.send(6, id, encoded("x")); !strings.HasPrefix(got, "amqp:not-allowed The SessionId was not set") {
			t.Errorf("what the destination would refuse: %s", got)
		}
		d.discharge(id, false)
		if got := d.ops(); got != "via a: a->b x1" {
			t.Error(got)
		}
		if state := d.transfer(6, nil, inSession); state != (amqp.Accepted{}) {
			t.Errorf("without a transaction: %s", stateText(state))
		}
		if c := b.broker.counts(t, "a"); c.Transfer != 1 || c.Active != 0 {
			t.Errorf("%+v", c)
		}
		for to, want := range map[string]amqp.Symbol{"missing": amqp.ConditionNotFound, "": amqp.ConditionInvalidField,
			"b/$DeadLetterQueue": amqp.ConditionInvalidField} {
			through(7, to)
			if got, _ := expect[*amqp.Detach](d.c); got.Error.Condition != want {
				t.Errorf("to %q: %v", to, got.Error)
			}
			d.c.send(0, &amqp.Detach{Handle: 7, Closed: true})
		}
	})
}
