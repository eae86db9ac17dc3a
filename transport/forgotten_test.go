package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// S-233: what the client has settled itself it has forgotten. If the transaction does not commit, that
// message is there again at once, counted, as if its lock had run out.
func TestWhatTheClientHasForgottenComesBack(t *testing.T) {
	ends := map[string]func(d *deal, id []byte){
		"after a rollback": func(d *deal, id []byte) { d.discharge(id, true) },
		"after a refused commit": func(d *deal, id []byte) {
			d.outcome = fsm.Outcome{Refusal: fsm.TransactionAborted}
			d.discharge(id, false)
		},
		"after two minutes": func(d *deal, id []byte) { time.Sleep(txnTimeout + time.Second) },
		"when the coordinator is detached": func(d *deal, id []byte) {
			d.c.send(0, &amqp.Detach{Handle: coordinatorHandle, Closed: true})
			expect[*amqp.Detach](d.c)
		},
		"when the connection is closed": func(d *deal, id []byte) {
			d.c.send(0, &amqp.Close{})
			expect[*amqp.Close](d.c)
		},
		"when a later settlement is refused": func(d *deal, id []byte) {
			d.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: d.take(6, "other", 1)[0].DeliveryID.Value,
				Settled: true, State: &amqp.TransactionalState{TxnID: id, Outcome: amqp.Accepted{}}})
		},
		"of a transaction that nobody knows": func(d *deal, id []byte) {},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("a", func(d *fsm.Descriptor) { d.LockDuration = 300_000 })
				b.broker.queue("other")
				d := newDeal(t, b)
				defer d.c.close()
				d.fill("a", 2)
				d.fill("other", 1)
				got := d.take(5, "a", 2)
				id := d.declare()
				named := id
				if name == "of a transaction that nobody knows" {
					named = []byte("nobody knows")
				}
				d.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: got[0].DeliveryID.Value, Settled: true,
					State: &amqp.TransactionalState{TxnID: named, Outcome: amqp.Accepted{}}})
				d.settle(got[1], id, amqp.Accepted{}) // not settled by the client
				end(d, id)
				synctest.Wait()
				other := b.client()
				defer other.close()
				other.authenticate()
				other.attach(0, receiverOf(9, "a"))
				other.send(0, credit(9, 0, 2, true))
				tr, payload := expect[*amqp.Transfer](other)
				parts, err := amqp.ParseMessage(payload)
				if err != nil {
					t.Fatal(err)
				}
				h, err := parts.ParseHeader()
				if err != nil || h.DeliveryCount != 1 || tr.More {
					t.Errorf("%+v, %v", h, err)
				}
				expect[*amqp.Flow](other) // the other one is still locked: the client can settle it again
			})
		})
	}
}

// A client that takes messages over one link after the other, and settles none, leaves nothing behind in its channel but
// what may be locked still. S-161.
func TestWhatEndedLinksWereSentIsForgotten(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.LockDuration, d.MaxDelivery = 5_000, 1_000 })
		c := b.client()
		c.authenticate()
		c.fill(2, "orders", 3, 1)
		for range 50 {
			c.attach(0, receiverOf(3, "orders"))
			c.send(0, granted(3, 0, 3, 0, 1_000))
			c.receive(3)
			c.send(0, &amqp.Detach{Handle: 3, Closed: true})
			expect[*amqp.Detach](c)
			time.Sleep(7 * time.Second)
		}
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		for conn := range b.server.conns {
			remembered := make(chan int)
			conn.post(func() { remembered <- len(conn.channels[0].sent.items) })
			if n := <-remembered; n > 20 {
				t.Errorf("%d of 150 deliveries are remembered", n)
			}
		}
		c.close()
	}, func(c *Config) { c.MaxUnsettled = 10 })
}
