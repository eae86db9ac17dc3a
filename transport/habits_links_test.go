package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// AMQP 1.0 §2.2: frames come in any number of pieces, and after the fixed header may stand an extended one.
func TestBytesOneByOneAndAnExtendedHeader(t *testing.T) {
	habit(t, nil, func(b *bubble, c *rawClient) {
		frames := amqp.AppendFrame(nil, 0, senderTo(2, "orders"))
		message := amqp.AppendData(nil, []byte("x"))
		frames = amqp.AppendTransfer(frames, 0, transferOf(2, 1), message)
		for i := range frames {
			c.write(frames[i : i+1])
		}
		expect[*amqp.Attach](c)
		extended := amqp.AppendTransfer(nil, 0, transferOf(2, 2), message)
		extended = append(append(append([]byte{}, extended[:8]...), 1, 2, 3, 4), extended[8:]...)
		extended[3], extended[4] = byte(len(extended)), 3
		c.write(extended)
		for next := uint32(1); next <= 2; { // one answer may be for both
			d := until[*amqp.Disposition](c, nil)
			if d.First != next || d.Last.Or(d.First) > 2 || d.State != (amqp.Accepted{}) {
				t.Fatalf("deliveries %d to %d: %v, want %d and on", d.First, d.Last.Or(d.First), d.State, next)
			}
			next = d.Last.Or(d.First) + 1
		}
		if n := b.broker.counts(t, "orders").Active; n != 2 {
			t.Errorf("%d messages are stored", n)
		}
	})
}

// AMQP 1.0 §2.6.3: a handle is free again when its detach is sent.
func TestAHandleIsUsedAgainWithoutWaiting(t *testing.T) {
	habit(t, nil, func(_ *bubble, c *rawClient) {
		c.hold = true
		for i := range 100 {
			a := receiverOf(2, "orders")
			if a.Name = fmt.Sprint("link-", i); i%2 == 0 {
				a = senderTo(2, "orders")
				a.Name = fmt.Sprint("link-", i)
			}
			c.send(0, a)
			c.hold = i < 99
			c.send(0, &amqp.Detach{Handle: 2, Closed: true})
		}
		for i := range 100 {
			if a := until[*amqp.Attach](c, nil); a.Name != fmt.Sprint("link-", i) || a.Handle != 2 {
				t.Fatalf("attach %d is answered %+v", i, a)
			}
			if d := until[*amqp.Detach](c, nil); !d.Closed || d.Error != nil {
				t.Fatalf("detach %d is answered %+v", i, d)
			}
		}
		c.fill(2, "orders", 1, 1)
	})
}

// deliver sends n messages whose bodies are s0, s1 and so on, behind what head says.
func (c *rawClient) deliver(handle uint32, address string, n uint32, head func(uint32) []byte) {
	c.t.Helper()
	c.attach(0, senderTo(handle, address))
	expect[*amqp.Flow](c)
	for i := range n {
		c.send(0, transferOf(handle, 1_000*handle+i), amqp.AppendData(head(i), fmt.Append(nil, "s", i)))
		if d := until[*amqp.Disposition](c, nil); d.State != (amqp.Accepted{}) {
			c.t.Fatalf("message %d: %v", i, d.State)
		}
	}
}

// S-60: one AMQP session takes 300 receivers and 60 message sessions, and each gets what is its own.
func TestManyLinksOnOneSession(t *testing.T) {
	habit(t, nil, func(b *bubble, c *rawClient) {
		b.broker.queue("grouped", withSessions)
		const plain, sessions = 300, 60
		for i := range uint32(plain) {
			c.attach(0, receiverOf(100+i, "orders"))
			c.send(0, grantOf(100+i, 0, 1))
			c.trace.Reset()
		}
		for i := range uint32(sessions) {
			c.attach(0, sessionReceiverOf(1_000+i, "grouped", fmt.Sprint("s", i)))
			c.send(0, grantOf(1_000+i, 0, 1))
			c.trace.Reset()
		}
		other := b.client()
		other.authenticate()
		other.deliver(2, "orders", plain, func(uint32) []byte { return nil })
		other.deliver(3, "grouped", sessions, func(i uint32) []byte {
			return amqp.AppendProperties(nil, &amqp.Properties{GroupID: fmt.Append(nil, "s", i)})
		})
		other.close()
		seen, numbers := map[uint32]bool{}, map[int64]bool{}
		for range plain + sessions {
			tr, payload := expect[*amqp.Transfer](c)
			if seen[tr.Handle] {
				t.Errorf("link %d got two messages for a credit of one", tr.Handle)
			}
			seen[tr.Handle] = true
			if tr.Handle < 1_000 {
				numbers[c.arrived(tr, payload).number] = true
				continue
			}
			s, err := amqp.ParseMessage(payload)
			if err != nil {
				t.Fatal(err)
			}
			if want := amqp.AppendData(nil, fmt.Append(nil, "s", tr.Handle-1_000)); string(s.Body) != string(want) {
				t.Errorf("link %d got %q", tr.Handle, s.Body)
			}
		}
		if len(numbers) != plain {
			t.Errorf("%d different messages came over the %d plain links", len(numbers), plain)
		}
		c.silent(time.Second)
	})
}

// nextSession attaches a receiver of the next session that waits that many milliseconds.
func nextSession(handle uint32, wait uint32) *amqp.Attach {
	a := receiverOf(handle, "grouped")
	w := amqp.BeginSymbolMap(nil)
	w.Raw(string(amqp.FilterSession), amqp.Raw{0x40})
	a.Source.Filter = w.End()
	w = amqp.BeginSymbolMap(nil)
	w.Raw("com.microsoft:timeout", amqp.Raw{0x70, byte(wait >> 24), byte(wait >> 16), byte(wait >> 8), byte(wait)})
	a.Properties = w.End()
	return a
}

// S-40: an accept ends after the time that the client names. One whose client detaches while it waits
// takes no session that comes later.
func TestAnAcceptEndsInTimeOrWithItsDetach(t *testing.T) {
	habit(t, nil, func(b *bubble, c *rawClient) {
		b.broker.queue("grouped", withSessions)
		began := time.Now()
		c.send(0, nextSession(2, 1_500))
		until[*amqp.Attach](c, nil)
		d := until[*amqp.Detach](c, nil)
		if waited := time.Since(began); d.Error == nil || d.Error.Condition != "com.microsoft:timeout" ||
			waited < 1_500*time.Millisecond || waited > 1_600*time.Millisecond {
			t.Errorf("after %v: %+v", waited, d.Error)
		}
		c.send(0, &amqp.Detach{Handle: 2, Closed: true})

		c.send(0, nextSession(3, 60_000))
		c.silent(time.Second)
		c.send(0, &amqp.Detach{Handle: 3, Closed: true})
		time.Sleep(time.Second)
		other := b.client()
		other.authenticate()
		other.attach(0, senderTo(2, "grouped"))
		expect[*amqp.Flow](other)
		m := amqp.AppendProperties(nil, &amqp.Properties{GroupID: []byte("late")})
		other.send(0, transferOf(2, 1), amqp.AppendData(m, []byte("x")))
		if d := until[*amqp.Disposition](other, nil); d.State != (amqp.Accepted{}) {
			t.Fatalf("sent: %v", d.State)
		}
		a := other.attach(0, nextSession(4, 1_000))
		if a.Source == nil {
			t.Fatalf("the next session was not accepted: %+v", a)
		}
		other.send(0, grantOf(4, 0, 1))
		wantArrivals(t, other.receive(1), 0, 1)
		other.close()
	})
}

// Pre-settled messages beyond the link's credit are stored as far as the broker lets a client overrun.
func TestPreSettledMessagesBeyondCreditAreStored(t *testing.T) {
	habit(t, nil, func(b *bubble, c *rawClient) {
		c.attach(0, senderTo(2, "orders"))
		f, _ := expect[*amqp.Flow](c)
		if f.LinkCredit.Value >= 3_000 {
			t.Fatalf("the credit of %d is not overrun", f.LinkCredit.Value)
		}
		for id := range uint32(3_000) {
			tr := transferOf(2, id+1)
			tr.Settled = amqp.Some(true)
			c.send(0, tr, amqp.AppendData(nil, fmt.Append(nil, id)))
			c.trace.Reset()
		}
		time.Sleep(5 * time.Second)
		if n := b.broker.counts(t, "orders").Active; n != 3_000 {
			t.Errorf("%d of 3000 messages are stored", n)
		}
	})
}

// AMQP 1.0 §2.7.4: each flow with echo is answered with a flow.
func TestEachEchoIsAnswered(t *testing.T) {
	habit(t, nil, func(_ *bubble, c *rawClient) {
		c.attach(0, receiverOf(3, "orders"))
		for i := range uint32(1_000) {
			f := grantOf(3, 0, i%7)
			f.Echo = true
			c.send(0, f)
			if got, _ := expect[*amqp.Flow](c); got.Handle.Value != 3 || got.LinkCredit.Value != i%7 || got.Echo {
				t.Fatalf("echo %d: %+v", i, got)
			}
			c.trace.Reset()
		}
		c.silent(time.Second)
	})
}

// AMQP 1.0 §2.7.3, §3.4.1: in the second settle mode a delivery is settled when the broker says so;
// the state received decides nothing, and what comes after it does.
func TestReceivedThenAccepted(t *testing.T) {
	habit(t, nil, func(b *bubble, c *rawClient) {
		c.fill(2, "orders", 2, 1)
		if a := c.attach(0, receiverOf(3, "orders")); a.RcvSettleMode.Or(0) != amqp.ReceiverSecond {
			t.Errorf("the settle mode is %d", a.RcvSettleMode.Or(0))
		}
		c.send(0, grantOf(3, 0, 2))
		got := c.receive(2)
		c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: got[0].id, Last: amqp.Some(got[1].id),
			State: amqp.Received{SectionNumber: 1}})
		c.silent(time.Second)
		if n := b.broker.counts(t, "orders"); n.Locked != 2 {
			t.Errorf("after received: %+v", n)
		}
		c.settle(amqp.Accepted{}, got[0].id, got[1].id)
		if n := b.broker.counts(t, "orders"); n.Locked+n.Active != 0 {
			t.Errorf("after accepted: %+v", n)
		}
	})
}

// AMQP 1.0 §2.6.13: an attach with an unsettled map is answered with a link that has none; a delivery of the
// link before can still be settled.
func TestAttachWithAnUnsettledMap(t *testing.T) {
	habit(t, func(d *fsm.Descriptor) { d.LockDuration = 60_000 }, func(b *bubble, c *rawClient) {
		c.fill(2, "orders", 1, 1)
		c.attach(0, receiverOf(3, "orders"))
		c.send(0, grantOf(3, 0, 1))
		tr, payload := expect[*amqp.Transfer](c)
		g := c.arrived(tr, payload)
		tag := append([]byte{0xa0, byte(len(tr.DeliveryTag))}, tr.DeliveryTag...)
		c.send(0, &amqp.Detach{Handle: 3})
		if d, _ := expect[*amqp.Detach](c); d.Error != nil {
			t.Fatalf("detached with %v", d.Error)
		}
		again := receiverOf(3, "orders")
		again.Unsettled = append([]byte{0xc1, byte(len(tag) + 2), 2}, append(tag, 0x40)...)
		a := c.attach(0, again)
		if a.Source == nil || len(a.Unsettled) > 0 && a.Unsettled[0] != 0x40 || a.InitialDeliveryCount.Or(9) != 0 {
			t.Errorf("attached with %+v", a)
		}
		c.send(0, granted(3, 0, 1, 2, 100))
		c.silent(time.Second) // the message is still locked
		c.settle(amqp.Accepted{}, g.id)
		if n := b.broker.counts(t, "orders"); n.Active+n.Locked != 0 {
			t.Errorf("the queue holds %+v", n)
		}
	})
}

// AMQP 1.0 §4.4.1, §2.6.14: a delivery that is aborted in a transaction is no part of it.
func TestAbortInATransaction(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		d := newDeal(t, b)
		d.sender(2, "orders")
		id := d.declare()
		tr := transferOf(2, 50)
		tr.State, tr.More = &amqp.TransactionalState{TxnID: id}, true
		d.c.send(0, tr, make([]byte, 100))
		end := transferOf(2, 50)
		end.Aborted = true
		d.c.send(0, end)
		if got := d.send(2, id, amqp.AppendData(nil, []byte("whole"))); got == "" {
			t.Error("the second message has no state")
		}
		if got := d.discharge(id, false); got != "Accepted" {
			t.Errorf("the commit: %s", got)
		}
		if len(d.commits) != 1 || len(d.commits[0].Ops) != 1 {
			t.Errorf("committed %+v, want the one message that was sent whole", d.commits)
		}
		d.c.close()
	})
}
