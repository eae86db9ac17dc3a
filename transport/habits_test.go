package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// These tests are conversations that the specification of AMQP allows and that ordinary clients do not
// have. Time is virtual.

// habit runs a conversation with a client that has authenticated, and a queue "orders" for it.
func habit(t *testing.T, edit func(*fsm.Descriptor), f func(b *bubble, c *rawClient)) {
	t.Helper()
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) {
			if edit != nil {
				edit(d)
			}
		})
		c := b.client()
		c.authenticate()
		f(b, c)
		c.close()
	})
}

// until returns the next frame that is a T and that ok takes. Flows of other senders may come between.
func until[T amqp.Performative](c *rawClient, ok func(T) bool) T {
	c.t.Helper()
	for {
		p, _ := c.next()
		if v, is := p.(T); is && (ok == nil || ok(v)) {
			return v
		}
		if _, flow := p.(*amqp.Flow); !flow {
			c.t.Fatalf("got %s\n%s", describe(0, p), c.trace.String())
		}
	}
}

// drained reads the answer to a drain: no credit, and that delivery-count.
func (c *rawClient) drained(count uint32) {
	c.t.Helper()
	f, _ := expect[*amqp.Flow](c)
	if !f.LinkCredit.Set || f.LinkCredit.Value != 0 || !f.DeliveryCount.Set || f.DeliveryCount.Value != count || !f.Drain {
		c.t.Fatalf("the drain was answered %+v, want delivery-count %d", f, count)
	}
}

// AMQP 1.0 §2.6.7: no more messages come than there is credit, up to the largest credit there is.
func TestCreditIsExact(t *testing.T) {
	habit(t, nil, func(b *bubble, c *rawClient) {
		c.fill(2, "orders", 10, 1)
		c.attach(0, receiverOf(3, "orders"))
		c.send(0, granted(3, 0, 3, 1, 100))
		wantArrivals(t, c.receive(3), 0, 1, 2, 3)
		c.silent(time.Second)
		c.send(0, granted(3, 3, 2, 4, 100))
		wantArrivals(t, c.receive(2), 0, 4, 5)
		c.silent(time.Second)
		c.send(0, granted(3, 5, 4294967295, 6, 100))
		wantArrivals(t, c.receive(5), 0, 6, 7, 8, 9, 10)
		c.silent(time.Second)
		// The delivery-count is older than the one in force: two of these five are used already.
		c.send(0, granted(3, 8, 5, 11, 100))
		c.silent(time.Second)
		other := b.client()
		other.authenticate()
		other.fill(2, "orders", 4, 1)
		other.close()
		wantArrivals(t, c.receive(3), 0, 11, 12, 13)
		c.silent(time.Second)
	})
}

// G18: the JavaScript SDK ends a call by a drain. In version 7.0.5 its drain carries one credit more than the call
// asked for, and the SDK drops the message that comes for it. A drain of this SDK gives nothing.
func TestADrainOfTheJavaScriptSDKGivesNothing(t *testing.T) {
	for _, mode := range []uint8{amqp.SenderUnsettled, amqp.SenderSettled} {
		t.Run(fmt.Sprint("mode ", mode), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders")
				c, other := b.client(), b.client()
				defer c.close()
				defer other.close()
				c.product = jsProduct
				c.authenticate()
				other.authenticate()
				other.fill(2, "orders", 1, 3)
				a := receiverOf(3, "orders")
				a.SndSettleMode = amqp.Some(mode)
				c.attach(0, a)
				c.send(0, credit(3, 0, 2, true))
				c.drained(2)
				c.send(0, grantOf(3, 2, 1)) // the next call
				wantArrivals(t, c.receive(1), 0, 1)
			})
		})
	}
}

// AMQP 1.0 §2.6.7: a drain gives what there is, and uses up the credit that is left.
func TestDrains(t *testing.T) {
	for name, d := range map[string]struct {
		stored int
		credit uint32
	}{"with credit left": {2, 5}, "with no message": {0, 3}, "with no credit left": {3, 3}, "with no credit": {2, 0}} {
		t.Run(name, func(t *testing.T) {
			habit(t, nil, func(_ *bubble, c *rawClient) {
				c.fill(2, "orders", d.stored, 1)
				c.attach(0, receiverOf(3, "orders"))
				c.send(0, credit(3, 0, d.credit, true))
				for i, g := range c.receive(min(d.stored, int(d.credit))) {
					if g.number != int64(i)+1 || g.count != 0 {
						t.Errorf("message %d is %+v", i+1, g)
					}
				}
				c.drained(d.credit)
				c.silent(time.Second)
				// Again, with as much credit: the rest of the messages, if any, and the same answer.
				c.send(0, credit(3, d.credit, 4, true))
				c.receive(max(0, d.stored-int(d.credit)))
				c.drained(d.credit + 4)
				// A drained link goes on with new credit.
				c.fill(4, "orders", 1, 1)
				c.silent(time.Second)
				c.send(0, credit(3, d.credit+4, 1, false))
				wantArrivals(t, c.receive(1), 0, int64(d.stored)+1)
			})
		})
	}
}

// AMQP 1.0 §2.5.6: a message of any size goes in frames of 512 bytes both ways, and never beyond a window.
func TestLargeMessagesInSmallFrames(t *testing.T) {
	for _, size := range []int{900_000, 3_000_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxMessageBytes = 4 << 20 })
				c := b.client()
				c.openAs(func(o *amqp.Open) { o.MaxFrameSize = amqp.Some(uint32(512)) })
				c.begin(0)
				c.attachPair(0, 0, "$cbs", "reply")
				(&scene{t: t, b: b, c: c}).putToken(testPolicy)
				body := make([]byte, size)
				for i := range body {
					body[i] = byte(i * i >> 8)
				}
				c.inFrames(2, "orders", amqp.AppendData(nil, body), 400)
				c.largest = 0
				got := c.byWindows(3, "orders", 64)
				s, err := amqp.ParseMessage(got)
				if err != nil {
					t.Fatal(err)
				}
				if want := amqp.AppendData(nil, body); !bytes.HasSuffix(got, want) || len(s.Body) == 0 {
					t.Errorf("%d bytes came back, and not with the body that was sent", len(got))
				}
				if c.largest > 512 {
					t.Errorf("a frame of %d bytes", c.largest)
				}
				c.close()
			})
		})
	}
}

// inFrames sends one message in frames of that many bytes and waits until it is accepted.
func (c *rawClient) inFrames(handle uint32, address string, message []byte, bytes int) {
	c.t.Helper()
	c.attach(0, senderTo(handle, address))
	expect[*amqp.Flow](c)
	for at := 0; at < len(message); at += bytes {
		tr := transferOf(handle, 1)
		tr.More = at+bytes < len(message)
		c.send(0, tr, message[at:min(at+bytes, len(message))])
		c.trace.Reset()
	}
	d := until(c, func(d *amqp.Disposition) bool { return d.Settled })
	if d.First != 1 || d.State != (amqp.Accepted{}) {
		c.t.Fatalf("delivery %d: %v", d.First, d.State)
	}
}

// byWindows receives one message over windows of that many frames, and fails if more come.
func (c *rawClient) byWindows(handle uint32, address string, window uint32) (message []byte) {
	c.t.Helper()
	c.attach(0, receiverOf(handle, address))
	for frames := uint32(1); ; frames += window { // the answer to put-token was one
		c.send(0, granted(handle, 0, 1, frames, window))
		for range window {
			tr, payload := expect[*amqp.Transfer](c)
			message = append(message, payload...)
			if !tr.More {
				return message
			}
		}
		time.Sleep(time.Millisecond)
		if len(c.in) != 0 {
			p, _ := c.next()
			c.t.Fatalf("beyond the window came %s", describe(0, p))
		}
		c.trace.Reset()
	}
}

// AMQP 1.0 §2.6.14: an aborted delivery leaves nothing, and the link goes on with its credit.
func TestAbortedDeliveriesLeaveNothing(t *testing.T) {
	habit(t, nil, func(b *bubble, c *rawClient) {
		c.attach(0, senderTo(2, "orders"))
		first, _ := expect[*amqp.Flow](c)
		limit := first.LinkCredit.Value
		for id := range uint32(1_500) {
			if id%3 != 0 { // every third is aborted with its first frame
				tr := transferOf(2, id+1)
				tr.More = true
				c.send(0, tr, make([]byte, 100))
			}
			end := transferOf(2, id+1)
			end.Aborted = true
			c.send(0, end)
			c.trace.Reset()
			for len(c.in) > 0 {
				f, _ := expect[*amqp.Flow](c)
				limit = f.DeliveryCount.Value + f.LinkCredit.Value
			}
		}
		time.Sleep(time.Second)
		for len(c.in) > 0 {
			f, _ := expect[*amqp.Flow](c)
			limit = f.DeliveryCount.Value + f.LinkCredit.Value
		}
		if left := limit - 1_500; left != first.LinkCredit.Value && left < first.LinkCredit.Value/2 {
			t.Errorf("%d of %d credit is left", left, first.LinkCredit.Value)
		}
		c.send(0, transferOf(2, 2_000), amqp.AppendData(nil, []byte("whole")))
		if d := until[*amqp.Disposition](c, nil); d.First != 2_000 || d.State != (amqp.Accepted{}) {
			t.Errorf("delivery %d: %v", d.First, d.State)
		}
		if n := b.broker.counts(t, "orders").Active; n != 1 {
			t.Errorf("%d messages are stored, one was sent whole", n)
		}
	})
}

// AMQP 1.0 §2.6.12: a disposition names deliveries of the AMQP session in any order, over gaps, and over
// several links; each delivery is decided once. What was decided before is answered with message-lock-lost
// (RUL-30, decision 0047).
func TestDispositionsInAnyOrder(t *testing.T) {
	habit(t, nil, func(b *bubble, c *rawClient) {
		b.broker.queue("others")
		c.fill(2, "orders", 5, 1)
		c.fill(4, "others", 5, 1)
		c.attach(0, receiverOf(3, "orders"))
		other := receiverOf(5, "others")
		c.attach(0, other)
		c.send(0, grantOf(3, 0, 5))
		a := c.receive(5)
		c.send(0, granted(5, 0, 5, 6, 100))
		z := c.receive(5)
		first, last := a[0].id, z[4].id
		answered, late := map[uint32]int{}, map[uint32]int{}
		collect := func(want int) {
			t.Helper()
			for n := 0; n < want; {
				d := until[*amqp.Disposition](c, nil)
				if d.Role != amqp.RoleSender || !d.Settled {
					t.Fatalf("answered %+v", d)
				}
				for id := d.First; id != d.Last.Or(d.First)+1; id++ {
					n++
					switch text := stateText(d.State); {
					case text == "Accepted":
						answered[id]++
					case strings.HasPrefix(text, messageLockLost):
						late[id]++
					default:
						t.Fatalf("delivery %d: %s", id, text)
					}
				}
			}
			c.silent(time.Second)
		}
		settle := func(from, to uint32) {
			c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: from, Last: amqp.Some(to), State: amqp.Accepted{}})
		}
		settle(z[3].id, z[3].id)
		settle(a[1].id, a[1].id)
		collect(2)
		settle(first, last+1_000) // over what is settled, over both links, and far beyond
		collect(10)
		if len(late) != 2 || late[z[3].id] != 1 || late[a[1].id] != 1 {
			t.Errorf("answered once more: %v", late)
		}
		for id := first; id <= last; id++ {
			if answered[id] != 1 {
				t.Errorf("delivery %d was answered %d times", id, answered[id])
			}
		}
		for _, q := range []string{"orders", "others"} {
			if n := b.broker.counts(t, q); n.Active+n.Locked != 0 {
				t.Errorf("%s holds %+v", q, n)
			}
		}
	})
}

// AMQP 1.0 §2.8.10: ids and counts are serial numbers and wrap.
func TestIDsAndCountsWrap(t *testing.T) {
	const start = 4294967293
	habit(t, nil, func(b *bubble, c *rawClient) {
		c.send(1, &amqp.Begin{NextOutgoingID: start, IncomingWindow: 2048, OutgoingWindow: 2048})
		expect[*amqp.Begin](c)
		a := senderTo(0, "orders")
		a.InitialDeliveryCount = amqp.Some(uint32(start))
		c.attach(1, a)
		expect[*amqp.Flow](c)
		id := uint32(start)
		for range 6 {
			c.send(1, transferOf(0, id), amqp.AppendData(nil, []byte("x")))
			if d := until[*amqp.Disposition](c, nil); d.First != id || d.State != (amqp.Accepted{}) {
				t.Errorf("delivery %d: disposition of %d, %v", id, d.First, d.State)
			}
			id++
		}
		if n := b.broker.counts(t, "orders").Active; n != 6 {
			t.Errorf("%d messages are stored", n)
		}
		c.send(1, &amqp.Flow{NextIncomingID: amqp.Some(uint32(0)), IncomingWindow: 100, NextOutgoingID: id,
			OutgoingWindow: 2048, Handle: amqp.Some(uint32(0)), DeliveryCount: amqp.Some(id), Echo: true})
		if f, _ := expect[*amqp.Flow](c); f.NextIncomingID.Value != id || f.DeliveryCount.Value != id || f.LinkCredit.Value == 0 {
			t.Errorf("the flow is %+v, want the counts at %d", f, id)
		}
	})
}
