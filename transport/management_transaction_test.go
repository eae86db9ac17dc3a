package transport

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// request sends a request to a management node as part of a transaction.
func (d *deal) request(handle uint32, id []byte, op string, body amqp.Map) {
	d.t.Helper()
	out := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m")})
	w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
	w.String("operation", "com.microsoft:"+op)
	out, err := amqp.AppendValueBody(w.End(), body)
	if err != nil {
		d.t.Fatal(err)
	}
	d.next++
	tr := transferOf(handle, d.next)
	tr.Settled, tr.State = amqp.Some(true), &amqp.TransactionalState{TxnID: id}
	d.c.send(0, tr, out)
}

// S-3, S-234: a request about two shares is refused as a whole. Nothing of it is done when its transaction commits.
func TestARefusedRequestLeavesNothingInItsTransaction(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a", partitioned)
		d := newDeal(t, b)
		defer d.c.close()
		d.c.attachPair(0, 10, "a/$management", "a-reply")
		id := d.declare()
		for op, body := range map[string]amqp.Map{
			"cancel-scheduled-message": mapOf("sequence-numbers", []int64{1<<48 | 5, 2<<48 | 5}),
			"update-disposition":       mapOf("disposition-status", "completed", "lock-tokens", []amqp.UUID{{0, 1}, {0, 2}}),
		} {
			if d.request(10, id, op, body); d.c.outcome() != "status 400" {
				t.Errorf("%s was not refused", op)
			}
		}
		if got := d.discharge(id, false); got != "Accepted" || len(d.commits) != 0 {
			t.Errorf("discharge: %s, with the commits %s", got, d.ops())
		}
	})
}

// S-232: a request that is under way while its transaction is discharged is no part of it any more, and says so.
func TestARequestBehindItsTransactionIsRefused(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := newDeal(t, b)
		defer d.c.close()
		d.c.attachPair(0, 10, "a/$management", "a-reply")
		reserving := make(chan struct{})
		b.broker.before = func(c fsm.Command) chan struct{} {
			if _, ok := c.(*fsm.Reserve); ok {
				return reserving
			}
			return nil
		}
		id := d.declare()
		d.request(10, id, "schedule-message", mapOf("messages", amqp.List{oneMessage(annotated(annScheduledTime, amqp.Timestamp(1<<42)))}))
		if got := d.discharge(id, false); got != "Accepted" {
			t.Fatalf("discharge: %s", got)
		}
		b.broker.answer = nil
		close(reserving)
		if got := d.c.outcome(); got == "status 200" || len(d.commits) != 0 {
			t.Errorf("the message is scheduled: %s, with %d commits", got, len(d.commits))
		}
	})
}
