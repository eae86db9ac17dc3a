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
		b.server.rebirth(uint64(by.Node))
		deal.c.send(0, &amqp.Detach{Handle: 5, Closed: true})
		expect[*amqp.Detach](deal.c)
		synctest.Wait()
		if got := b.server.Holder(by); got != want { // the lock goes on without the link
			t.Errorf("behind the end of its link and of a life of the node: %+v", got)
		}
		time.Sleep(holderTime + time.Second)
		b.server.holders.end(by.Pump + 99)
		if got := b.server.Holder(by); got != (Holder{}) {
			t.Errorf("long after: %+v", got)
		}
		if n := len(b.server.holders.ended); n != 0 {
			t.Errorf("%d names of links that ended long ago", n)
		}
	})
}

// The names of ended links and the lives of a node have bounds.
func TestHoldersAreBounded(t *testing.T) {
	h := holders{names: map[uint64]Holder{}}
	for pump := range uint64(maxHolders + 10) {
		h.names[pump] = Holder{Client: "c"}
		h.end(pump)
	}
	for life := range fsm.Incarnation(2 * maxLives) {
		h.born(life)
	}
	if len(h.names) != maxHolders || len(h.ended) != maxHolders || len(h.lives) != maxLives || h.lives[0] != maxLives {
		t.Errorf("%d names, %d ended, lives %v", len(h.names), len(h.ended), h.lives)
	}
}
