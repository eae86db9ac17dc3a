package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// S-272, T-264: whoever took a lock can be named, by the node that the client is or was connected to.
func TestALockTellsItsLinkAndClient(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		var by fsm.RequestID
		b.broker.failAs = func(id fsm.RequestID, c fsm.Command) error {
			if _, ok := c.(*fsm.Lock); ok {
				by = id
			}
			return nil
		}
		deal := newDeal(t, b)
		defer deal.c.close()
		deal.fill("orders", 2)
		deal.take(5, "orders", 1)
		want := Holder{Client: "client", Link: receiverOf(5, "orders").Name, Remote: b.server.Holder(by).Remote}
		if got := b.server.Holder(by); got != want || got.Remote == "" || got.Link == "" {
			t.Errorf("%+v, want %+v", got, want)
		}
		for _, other := range []fsm.RequestID{{Node: by.Node + 2, Pump: by.Pump}, {Node: by.Node, Pump: by.Pump + 99}} {
			if got := b.server.Holder(other); got != (Holder{}) {
				t.Errorf("%+v is called %+v", other, got)
			}
		}
		b.server.waist.Renew(by.Node)
		deal.c.send(0, &amqp.Detach{Handle: 5, Closed: true})
		expect[*amqp.Detach](deal.c)
		synctest.Wait()
		if got := b.server.Holder(by); got != want { // the lock goes on without the link
			t.Errorf("behind the end of its link and of a life of the node: %+v", got)
		}
		time.Sleep(10*time.Minute + time.Second)
		b.server.waist.Holders().End(by.Pump + 99)
		if got := b.server.Holder(by); got != (Holder{}) {
			t.Errorf("long after: %+v", got)
		}
	})
}
