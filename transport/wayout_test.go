package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// These tests are about what is taken for a client and does not go onto the wire (RUL-28). Time is virtual.

// fill sends messages numbered from 0 over a link of its own, and detaches it.
func (c *rawClient) fill(handle uint32, address string, count, size int) {
	c.t.Helper()
	c.attach(0, senderTo(handle, address))
	expect[*amqp.Flow](c)
	for i := range count {
		body := append([]byte(fmt.Sprint(i)), make([]byte, size)...)
		c.send(0, transferOf(handle, uint32(1000*handle)+uint32(i)), amqp.AppendData(nil, body[:max(size, 1)]))
		if d, _ := expect[*amqp.Disposition](c); d.State != (amqp.Accepted{}) {
			c.t.Fatalf("message %d: %v", i, d.State)
		}
	}
	c.send(0, &amqp.Detach{Handle: handle, Closed: true})
	expect[*amqp.Detach](c)
}

// granted is a flow that gives a link credit and the channel a window, counted from the sent frames.
func granted(handle, count, credit, frames, window uint32) *amqp.Flow {
	f := grantOf(handle, count, credit)
	f.NextIncomingID, f.IncomingWindow = amqp.Some(frames+1), window
	return f
}

func grantOf(handle, count, n uint32) *amqp.Flow { return credit(handle, count, n, false) }

// arrival is one message that a client received.
type arrival struct {
	id     uint32
	number int64 // sequence number
	count  uint32
	until  time.Time
}

// receive reads n transfers of one frame each.
func (c *rawClient) receive(n int) (all []arrival) {
	c.t.Helper()
	for range n {
		t, payload := expect[*amqp.Transfer](c)
		all = append(all, c.arrived(t, payload))
	}
	return all
}

func (c *rawClient) arrived(t *amqp.Transfer, payload []byte) arrival {
	c.t.Helper()
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		c.t.Fatal(err)
	}
	h, err := s.ParseHeader()
	if err != nil {
		c.t.Fatal(err)
	}
	g := arrival{id: t.DeliveryID.Value, count: h.DeliveryCount}
	if v, ok := s.Annotation("x-opt-sequence-number"); ok {
		g.number, _ = v.Int64()
		g.number &= 1<<48 - 1
	}
	if v, ok := s.Annotation("x-opt-locked-until"); ok {
		at, _ := v.Timestamp()
		g.until = time.UnixMilli(int64(at))
	}
	return g
}

// silent fails if the server says anything within d.
func (c *rawClient) silent(d time.Duration) {
	c.t.Helper()
	time.Sleep(d)
	if n := len(c.in); n != 0 {
		p, _ := c.next()
		c.t.Fatalf("%d frames, first %s\n%s", n, describe(0, p), c.trace.String())
	}
}

func (c *rawClient) settle(state amqp.DeliveryState, ids ...uint32) {
	c.t.Helper()
	for _, id := range ids {
		c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: id, State: state})
		d, _ := expect[*amqp.Disposition](c)
		if d.First != id || !d.Settled || d.State.StateCode() != state.StateCode() {
			c.t.Fatalf("settling %d was answered %+v", id, d)
		}
	}
}

// wantArrivals fails unless the messages have these sequence numbers and counts.
func wantArrivals(t *testing.T, all []arrival, count uint32, numbers ...int64) {
	t.Helper()
	for i, g := range all {
		if i >= len(numbers) || g.number != numbers[i] || g.count != count {
			t.Fatalf("got %+v, want the numbers %v with count %d", all, numbers, count)
		}
	}
	if len(all) != len(numbers) {
		t.Fatalf("got %d messages, want %v", len(all), numbers)
	}
}

// S-14, S-147: messages beyond the client's session window are not locked, and so neither count nor
// become dead letters.
func TestMessagesBeyondTheWindowDoNotCount(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxDelivery, d.LockDuration = 1, 5_000 })
		c := b.client()
		c.authenticate()
		c.fill(2, "orders", 3, 1)
		c.attach(0, receiverOf(3, "orders"))
		c.send(0, granted(3, 0, 3, 1, 1))
		wantArrivals(t, c.receive(1), 0, 1)
		if n := b.broker.counts(t, "orders").Locked; n != 1 {
			t.Errorf("%d messages are locked, one is sent", n)
		}
		c.silent(7500 * time.Millisecond)
		if n := b.broker.counts(t, "orders"); n.DeadLetter != 1 || n.Active != 2 {
			t.Errorf("%d active and %d dead, want 2 and the one that was sent", n.Active, n.DeadLetter)
		}
		c.send(0, granted(3, 1, 2, 2, 10))
		wantArrivals(t, c.receive(2), 0, 2, 3)
		c.close()
	})
}

// S-142: receive-and-delete removes what goes onto the wire, and a clean detach loses nothing.
func TestReceiveAndDeleteRemovesWhatIsSent(t *testing.T) {
	for name, window := range map[string]uint32{"window of 1": 1, "window of 4": 4} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders")
				c := b.client()
				c.authenticate()
				c.fill(2, "orders", 10, 1)
				c.attach(0, removerOf(3, "orders"))
				c.send(0, granted(3, 0, 10, 1, window))
				c.receive(int(window))
				c.silent(time.Second)
				c.send(0, &amqp.Detach{Handle: 3, Closed: true})
				expect[*amqp.Detach](c)
				if n := b.broker.counts(t, "orders").Active; n != uint64(10-window) {
					t.Errorf("%d of 10 messages are left, %d were sent", n, window)
				}
				c.close()
			})
		})
	}
}

func removerOf(handle uint32, address string) *amqp.Attach {
	a := receiverOf(handle, address)
	a.SndSettleMode, a.RcvSettleMode = amqp.Some(amqp.SenderSettled), amqp.Some(amqp.ReceiverFirst)
	return a
}

// S-142: what was removed before the detach was read goes onto the wire before its answer.
func TestWhatIsRemovedWhileALinkDetachesIsSent(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		late := b.holdBack(func(cmd fsm.Command) bool { l, ok := cmd.(*fsm.Lock); return ok && l.Delete })
		c := b.client()
		c.authenticate()
		c.fill(2, "orders", 3, 1)
		c.attach(0, removerOf(3, "orders"))
		c.send(0, grantOf(3, 0, 3))
		<-late.there
		c.send(0, &amqp.Detach{Handle: 3, Closed: true})
		c.silent(time.Second)
		close(late.answer)
		wantArrivals(t, c.receive(3), 0, 1, 2, 3)
		expect[*amqp.Detach](c)
		if n := b.broker.counts(t, "orders").Active; n != 0 {
			t.Errorf("%d are left", n)
		}
		c.close()
	})
}

// S-142: two receive-and-delete links of one AMQP session with a window of one frame both get on,
// though each keeps the frame while it waits.
func TestRemoversShareATightWindow(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("empty")
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.fill(2, "orders", 2, 1)
		c.attach(0, removerOf(3, "empty"))
		c.send(0, granted(3, 0, 5, 1, 1))
		c.attach(0, removerOf(4, "orders"))
		c.send(0, granted(4, 0, 5, 1, 1))
		c.receive(1)
		c.send(0, granted(4, 1, 4, 2, 1))
		c.receive(1)
		c.close()
	})
}

// S-147: what a full socket keeps from the client goes back as soon as credit is taken back.
func TestCreditTakenBackGivesBackWhatIsHeld(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c, other, gate := stalled(b)
		c.send(0, grantOf(3, 0, 5))
		time.Sleep(time.Millisecond)
		if n := b.broker.counts(t, "orders").Locked; n != 5 {
			t.Errorf("%d messages are locked for a credit of 5", n)
		}
		c.send(0, grantOf(3, 0, 0))
		time.Sleep(time.Millisecond)
		if n := b.broker.counts(t, "orders").Locked; n != 0 {
			t.Errorf("%d messages are locked for a client without credit", n)
		}
		close(gate)
		other.attach(0, receiverOf(3, "orders"))
		other.send(0, grantOf(3, 0, 20))
		for i, g := range other.receive(20) {
			if g.number != int64(i)+1 || g.count != 0 {
				t.Errorf("message %d is number %d with count %d", i, g.number, g.count)
			}
		}
		c.close()
		other.close()
	}, small)
}

// small makes a node write little ahead, so that a test need not send much.
func small(c *Config) { c.MaxWriteBytes = 100 << 10 }

// stalled returns a client that has stopped to read and for which 20 messages are locked that wait for its
// socket, and a client that reads. Closing gate lets the first read on; three large messages come first.
func stalled(b *bubble) (c, other *rawClient, gate chan struct{}) {
	b.t.Helper()
	b.broker.queue("large")
	c, other = b.client(), b.client()
	c.authenticate()
	other.authenticate()
	other.fill(2, "large", 4, 60_000)
	c.attach(0, receiverOf(3, "orders"))
	c.attach(0, receiverOf(4, "large"))
	gate = make(chan struct{})
	c.send(0, grantOf(3, 0, 20)) // waits
	time.Sleep(time.Millisecond)
	c.gate.Store(&gate)
	c.send(0, grantOf(4, 0, 4))
	time.Sleep(time.Millisecond)
	other.attach(0, senderTo(2, "orders"))
	expect[*amqp.Flow](other)
	t := transferOf(2, 1)
	t.MessageFormat = amqp.Some(amqp.FormatBatch)
	var batch []byte
	for range 20 {
		batch = amqp.AppendData(batch, amqp.AppendData(nil, []byte("x")))
	}
	other.send(0, t, batch)
	expect[*amqp.Disposition](other)
	time.Sleep(time.Millisecond)
	if n := b.broker.counts(b.t, "orders").Locked; n != 20 {
		b.t.Fatalf("%d messages are locked, want 20 that wait for the socket", n)
	}
	return c, other, gate
}

// S-147, S-148: what waits for the socket of a client that does not read goes to others after a second.
func TestASlowReaderHoldsWhatIsWritten(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c, other, gate := stalled(b)
		time.Sleep(maxHold)
		if n := b.broker.counts(t, "orders").Locked; n != 0 {
			t.Errorf("%d messages are locked for a client that does not read", n)
		}
		other.attach(0, receiverOf(3, "orders"))
		other.send(0, grantOf(3, 0, 20))
		for i, g := range other.receive(20) {
			if g.number != int64(i)+1 || g.count != 0 {
				t.Errorf("message %d is number %d with count %d", i, g.number, g.count)
			}
			other.settle(amqp.Accepted{}, g.id)
		}
		close(gate) // it reads on, and gets what others have not got
		large := 0
		time.Sleep(time.Second)
		for range len(c.in) {
			if tr, _ := expect[*amqp.Transfer](c); tr.Handle == 4 && !tr.More {
				large++
			} else if tr.Handle != 4 {
				t.Errorf("link %d got delivery %d", tr.Handle, tr.DeliveryID.Value)
			}
		}
		if large != 4 {
			t.Errorf("%d of 4 large messages came", large)
		}
		c.close()
		other.close()
	}, small)
}

// S-148: a window that is shut past the lock keeps nothing from others, and nothing is sent under a lock
// that is over when it opens.
func TestAShutWindowKeepsNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.LockDuration = 5_000 })
		c, other := b.client(), b.client()
		c.authenticate()
		other.authenticate()
		c.attach(0, receiverOf(3, "orders"))
		c.send(0, granted(3, 0, 3, 1, 10)) // waits with an open window
		time.Sleep(time.Millisecond)
		c.send(0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(2)), IncomingWindow: 0})
		other.fill(2, "orders", 3, 1)
		c.silent(time.Millisecond)
		if n := b.broker.counts(t, "orders").Locked; n != 0 {
			t.Errorf("%d messages are locked for a client that takes no frame", n)
		}
		other.attach(0, receiverOf(3, "orders"))
		other.send(0, grantOf(3, 0, 3))
		wantArrivals(t, other.receive(3), 0, 1, 2, 3)
		c.silent(6 * time.Second) // their locks are over
		c.send(0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(2)), IncomingWindow: 10})
		all := c.receive(3)
		wantArrivals(t, all, 1, 1, 2, 3)
		for _, g := range all {
			if left := time.Until(g.until); left < 4*time.Second {
				t.Errorf("number %d is sent with %v of its lock left", g.number, left)
			}
		}
		c.close()
		other.close()
	})
}

// S-148: an answer that comes when the lock is over is not sent on.
func TestALockThatIsOverIsNotSent(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.LockDuration = 5_000 })
		late := b.holdBack(func(cmd fsm.Command) bool { _, ok := cmd.(*fsm.Lock); return ok })
		c := b.client()
		c.authenticate()
		c.fill(2, "orders", 1, 1)
		c.attach(0, receiverOf(3, "orders"))
		c.send(0, grantOf(3, 0, 1))
		<-late.there
		c.silent(6 * time.Second)
		close(late.answer)
		all := c.receive(1)
		wantArrivals(t, all, 1, 1)
		if left := time.Until(all[0].until); left < 4*time.Second {
			t.Errorf("it is sent with %v of its lock left", left)
		}
		c.close()
	})
}

// G18: a drain behind a shut window locks nothing; it is over when the window has let through what was there.
func TestADrainBehindAShutWindow(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.fill(2, "orders", 3, 1)
		c.attach(0, receiverOf(3, "orders"))
		f := credit(3, 0, 5, true)
		f.IncomingWindow = 0
		c.send(0, f)
		c.silent(time.Second)
		if n := b.broker.counts(t, "orders").Locked; n != 0 {
			t.Errorf("%d messages are locked", n)
		}
		c.send(0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(2)), IncomingWindow: 2})
		wantArrivals(t, c.receive(2), 0, 1, 2)
		c.silent(time.Second)
		c.send(0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(4)), IncomingWindow: 2})
		wantArrivals(t, c.receive(1), 0, 3)
		if f, _ := expect[*amqp.Flow](c); f.LinkCredit.Or(9) != 0 || f.DeliveryCount.Or(0) != 5 || !f.Drain {
			t.Errorf("the drain was answered %+v", f)
		}
		c.close()
	})
}

// Large messages: as many are locked as the window has frames for their bytes.
func TestAWindowCountsFramesNotMessages(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.fill(2, "orders", 10, 50_000)
		c.attach(0, receiverOf(3, "orders"))
		c.send(0, granted(3, 0, 10, 1, 3))
		c.receive(3)
		c.silent(time.Second)
		if n := b.broker.counts(t, "orders").Locked; n != 3 {
			t.Errorf("%d messages are locked, three are sent", n)
		}
		c.close()
	})
}

// held is one request whose answer a test keeps back.
type held struct{ there, answer chan struct{} }

// holdBack keeps the answer of the first chosen command that locked something, after it was applied, until
// answer is closed.
func (b *bubble) holdBack(chosen func(fsm.Command) bool) held {
	return b.holdBackAfter(func(cmd fsm.Command, out fsm.Outcome) bool { return len(out.Locked) > 0 && chosen(cmd) })
}

// holdBackAny is holdBack for commands that lock nothing.
func (b *bubble) holdBackAny(chosen func(fsm.Command) bool) held {
	return b.holdBackAfter(func(cmd fsm.Command, _ fsm.Outcome) bool { return chosen(cmd) })
}

func (b *bubble) holdBackAfter(chosen func(fsm.Command, fsm.Outcome) bool) held {
	h := held{make(chan struct{}), make(chan struct{})}
	done := false
	b.broker.mu.Lock()
	defer b.broker.mu.Unlock()
	b.broker.after = func(cmd fsm.Command, out fsm.Outcome) (wait chan struct{}) {
		if done || !chosen(cmd, out) {
			return nil
		}
		done = true
		close(h.there)
		return h.answer
	}
	return h
}

// A client that does not read gets no more signs of life behind what waits for it.
func TestAClientThatDoesNotReadGetsNoSignsOfLife(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.client()
		c.authenticate()
		gate := make(chan struct{})
		c.gate.Store(&gate)
		time.Sleep(4 * heartbeatMax) // the second sign of life waits for the socket
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		for conn := range b.server.conns {
			waiting := make(chan int)
			conn.post(func() { waiting <- len(conn.out) })
			if n := <-waiting; n > 0 {
				t.Errorf("%d bytes wait behind it", n)
			}
		}
		close(gate)
		c.close()
	}, func(c *Config) { c.WriteTimeout = time.Hour })
}
