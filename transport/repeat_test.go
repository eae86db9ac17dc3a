package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// S-343: whoever attaches again and again where nothing can come of it waits longer and longer for the refusal, up to
// a second. What may change at any moment is refused at once.
func TestARepeatedRefusalWaits(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("grouped", withSessions)
		c := b.client()
		c.authenticate()
		refused := func(handle uint32, a *amqp.Attach, want amqp.Symbol) time.Duration {
			t.Helper()
			began := time.Now()
			if got := c.attach(0, a); got.Source != nil || got.Target != nil {
				t.Fatal("attached")
			}
			d, _ := expect[*amqp.Detach](c)
			if d.Error.Condition != want {
				t.Fatalf("refused with %v", d.Error)
			}
			c.send(0, &amqp.Detach{Handle: handle, Closed: true})
			return time.Since(began)
		}
		var waits []time.Duration
		for range 15 {
			waits = append(waits, refused(2, receiverOf(2, "gone"), amqp.ConditionNotFound))
		}
		want := "[0s 0s 0s 0s 0s 10ms 20ms 40ms 80ms 160ms 320ms 640ms 1s 1s 1s]"
		if fmt.Sprint(waits) != want {
			t.Errorf("waits %v, want %s", waits, want)
		}
		if w := refused(2, receiverOf(2, "gone too"), amqp.ConditionNotFound); w != 0 {
			t.Errorf("another entity: %v", w)
		}
		// A detach in the meantime is answered at once.
		c.send(0, receiverOf(2, "gone"))
		began := time.Now()
		c.send(0, &amqp.Detach{Handle: 2, Closed: true})
		expect[*amqp.Attach](c)
		if expect[*amqp.Detach](c); time.Since(began) != 0 {
			t.Errorf("a detach waited %v", time.Since(began))
		}
		// Silence for a minute is enough.
		time.Sleep(repeatsForgotten)
		if w := refused(2, receiverOf(2, "gone"), amqp.ConditionNotFound); w != 0 {
			t.Errorf("after a minute: %v", w)
		}
		b.broker.queue("gone")
		if a := c.attach(0, receiverOf(2, "gone")); a.Source == nil {
			t.Error("refused though it is there")
		}
		// The holder of a session may go at any moment.
		session := func(handle uint32) *amqp.Attach {
			a := receiverOf(handle, "grouped")
			w := amqp.BeginSymbolMap(nil)
			w.String(string(amqp.FilterSession), "s")
			a.Source.Filter = w.End()
			return a
		}
		c.attach(0, session(3))
		for range 20 {
			if w := refused(4, session(4), amqp.ConditionSessionCannotBeLocked); w != 0 {
				t.Fatalf("a session that is held: %v", w)
			}
		}
		c.close()
	})
}

// S-343: what is remembered of refusals is bounded.
func TestRepeatsAreBounded(t *testing.T) {
	var r repeats
	now := time.Unix(0, 0)
	for i := range 3 * maxRepeats {
		r.wait(repeat{"host", fmt.Sprint(i), refusal.EntityNotFound}, now)
	}
	if len(r.seen) != maxRepeats {
		t.Errorf("%d are remembered", len(r.seen))
	}
	now = now.Add(repeatsForgotten)
	r.wait(repeat{"host", "new", refusal.EntityNotFound}, now)
	if len(r.seen) != 1 {
		t.Errorf("%d are remembered after a minute", len(r.seen))
	}
}

// S-40, N14: where the client names no time, a wait for a session ends before the client gives up.
func TestAnAcceptOfUnknownLengthEndsBeforeTheClientGivesUp(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("grouped", withSessions)
		c := b.client()
		c.authenticate()
		a := receiverOf(2, "grouped")
		w := amqp.BeginSymbolMap(nil)
		w.Null(string(amqp.FilterSession))
		a.Source.Filter = w.End()
		began := time.Now()
		c.send(0, a)
		expect[*amqp.Attach](c)
		d, _ := expect[*amqp.Detach](c)
		if took := time.Since(began); took != 55*time.Second || d.Error.Condition != amqp.ConditionTimeout {
			t.Errorf("ended after %v: %v", took, d.Error)
		}
		c.close()
	}, func(c *Config) { c.AcceptWait = Defaults().AcceptWait })
}

// S-343: a refusal that is held back stays one, though the look-up of the entity ends meanwhile. The link would be attached
// without the frames for which it was refused.
func TestARefusalThatWaitsIsNoLink(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		for i := range repeatsAtOnce + 2 {
			c.hold = true // everything goes out at once
			c.send(0, senderTo(2, "orders"))
			for id := range uint32(maxEarlyFrames) {
				c.send(0, transferOf(2, id), amqp.AppendData(nil, []byte("x")))
			}
			c.hold = false
			c.send(0, transferOf(2, maxEarlyFrames), amqp.AppendData(nil, []byte("x")))
			if got, _ := expect[*amqp.Attach](c); got.Target != nil {
				t.Fatalf("attach %d: attached", i)
			}
			if d, _ := expect[*amqp.Detach](c); d.Error == nil || d.Error.Condition != amqp.ConditionTransferLimitExceeded {
				t.Fatalf("attach %d: %+v", i, d)
			}
			c.send(0, &amqp.Detach{Handle: 2, Closed: true})
		}
		if n := b.broker.counts(t, "orders").Active; n != 0 {
			t.Errorf("%d messages of refused links are stored", n)
		}
		c.close()
	})
}
