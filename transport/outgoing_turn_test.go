package transport

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A link that writes one message goes to the end of the channel's list of senders for the next one.
func TestALinkGetsItsNextTurnWithoutMemory(t *testing.T) {
	ch := &channel{c: &conn{}}
	o := &outgoing{}
	ch.line(o)
	if n := testing.AllocsPerRun(100, func() {
		ch.sender = ch.sender[1:]
		ch.line(o)
	}); n != 0 {
		t.Errorf("%v allocations for a turn, want none", n)
	}
	other := &outgoing{}
	ch.line(other)
	if len(ch.sender) != 2 || ch.sender[0] != o || ch.sender[1] != other {
		t.Error("links are not served in the order in which they came")
	}
}

// G11: a delivery is finished before another one begins, even if the client's window has frames for that one alone.
func TestADeliveryIsFinishedBeforeAnotherBegins(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("large", func(d *fsm.Descriptor) { d.MaxMessageBytes = 4 << 20 })
		b.broker.queue("small")
		c, other := b.client(), b.client()
		c.authenticate()
		other.authenticate()
		c.attach(0, removerOf(3, "small"))
		c.send(0, granted(3, 0, 3, 1, 40)) // keeps frames of the window
		other.attach(0, senderTo(2, "large"))
		expect[*amqp.Flow](other)
		body := amqp.AppendData(nil, make([]byte, 3<<20)) // for more frames than are left
		for at, size := 0, 60_000; at < len(body); at += size {
			part := transferOf(2, 1)
			part.More = at+size < len(body)
			other.send(0, part, body[at:min(len(body), at+size)])
		}
		expect[*amqp.Disposition](other)
		c.attach(0, receiverOf(4, "large"))
		c.send(0, granted(4, 0, 1, 1, 40))
		time.Sleep(time.Millisecond)
		other.fill(5, "small", 1, 1)
		time.Sleep(time.Millisecond)
		if n := len(c.in); n != 40 {
			t.Errorf("%d frames came, the window had 40", n)
		}
		c.send(0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(41)), IncomingWindow: 100})
		inside, begun := false, 0
		for begun < 2 || inside {
			got, _ := expect[*amqp.Transfer](c)
			if got.DeliveryID.Set {
				if begun++; inside {
					t.Errorf("delivery %d begins inside another one", got.DeliveryID.Value)
				}
			}
			inside = got.More
		}
		c.close()
		other.close()
	})
}
