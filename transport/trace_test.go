package transport

import (
	"bytes"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// These are the conversations of the official clients, frame by frame, with every byte. Rewrite the
// files with -update, then read the difference.

// G1, G2, G3, G4, G5, G6, G8: how the Go SDK sends.
func TestTraceOfASend(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.send(0, &amqp.Detach{Handle: 0, Closed: true})
		expect[*amqp.Detach](c)
		c.send(0, &amqp.Detach{Handle: 1, Closed: true})
		expect[*amqp.Detach](c)
		c.send(0, &amqp.End{})
		expect[*amqp.End](c)
		c.begin(0) // Q1: the number is free again
		a := senderTo(0, "orders")
		a.SndSettleMode, a.RcvSettleMode = amqp.Some(amqp.SenderMixed), amqp.Some(amqp.ReceiverFirst)
		reply := c.attach(0, a)
		if reply.MaxMessageSize.Or(0) == 0 || reply.Source == nil || reply.Target == nil ||
			reply.SndSettleMode != a.SndSettleMode || reply.RcvSettleMode != a.RcvSettleMode {
			t.Errorf("attach reply %+v", reply)
		}
		flow, _ := expect[*amqp.Flow](c)
		if flow.LinkCredit.Or(0) == 0 || !flow.DeliveryCount.Set || !flow.NextIncomingID.Set {
			t.Errorf("flow %+v", flow)
		}
		for id := range uint32(3) {
			c.send(0, transferOf(0, id), amqp.AppendData(nil, []byte("hello")))
			d, _ := expect[*amqp.Disposition](c)
			if d.First != id || !d.Settled || d.Role != amqp.RoleReceiver {
				t.Errorf("disposition %+v", d)
			}
		}
		c.send(0, &amqp.Close{})
		expect[*amqp.Close](c)
		c.golden("go_send")
		c.close()
	})
}

// G17, G18, G19, Q4: how the JavaScript SDK receives a batch, and drains.
func TestTraceOfAReceiveWithDrain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		for id := range uint32(2) {
			c.send(0, transferOf(2, id+1), amqp.AppendData(nil, []byte("hello")))
			expect[*amqp.Disposition](c)
		}
		reply := c.attach(0, receiverOf(3, "orders"))
		if !reply.InitialDeliveryCount.Set {
			t.Error("no initial-delivery-count")
		}
		c.send(0, credit(3, 0, 5, false))
		for i := range 2 {
			tr, _ := expect[*amqp.Transfer](c)
			if !tr.DeliveryID.Set || len(tr.DeliveryTag) != 16 || !tr.MessageFormat.Set {
				t.Errorf("transfer %d: %+v", i, tr)
			}
		}
		c.send(0, credit(3, 2, 3, true))
		f, _ := expect[*amqp.Flow](c)
		if !f.Drain || f.LinkCredit.Or(9) != 0 || f.DeliveryCount.Or(0) != 5 {
			t.Errorf("drain reply %+v", f)
		}
		// One range, which also covers the settled reply of $cbs (Q24).
		c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 0, Last: amqp.Some(uint32(2)), State: amqp.Accepted{}})
		d, _ := expect[*amqp.Disposition](c)
		if d.First != 1 || d.Last.Or(0) != 2 || !d.Settled || d.Role != amqp.RoleSender {
			t.Errorf("disposition %+v", d)
		}
		c.send(0, credit(3, 5, 0, true)) // nothing to drain is still answered
		expect[*amqp.Flow](c)
		c.golden("js_receive_batch")
		c.close()
	})
}

// G16, S-40, §6.3: how the .NET SDK accepts a session, and fails to.
func TestTraceOfASessionAccept(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.RequiresSession = true })
		c := b.client()
		c.authenticate()
		filter := func(id any) amqp.Raw {
			w := amqp.BeginSymbolMap(nil)
			raw, err := amqp.AppendValue(nil, id)
			if err != nil {
				t.Fatal(err)
			}
			w.Raw(string(amqp.FilterSession), raw)
			return w.End()
		}
		timeout := amqp.BeginSymbolMap(nil)
		timeout.Uint("com.microsoft:timeout", 2_000)
		a := receiverOf(2, "/orders")
		a.Source.Filter = filter(nil)
		a.Properties = timeout.End()
		started := time.Now()
		c.send(0, a)
		refused, _ := expect[*amqp.Attach](c)
		if waited := time.Since(started); waited < 2*time.Second || waited > 4*time.Second {
			t.Errorf("refused after %v", waited)
		}
		d, _ := expect[*amqp.Detach](c)
		if refused.Source != nil || d.Error == nil || d.Error.Condition != amqp.ConditionTimeout || !d.Closed { // G9, G10
			t.Errorf("refusal %+v, detach %+v", refused, d)
		}
		c.send(0, &amqp.Detach{Handle: 2, Closed: true})
		a = receiverOf(3, "/orders")
		a.Source.Filter = filter("s1")
		reply := c.attach(0, a)
		if f, ok, err := reply.Source.SessionFilter(); err != nil || !ok || f.SessionID.Or("") != "s1" || f.Described {
			t.Errorf("filter %+v", f)
		}
		if reply.Source.Address.Or("") != "/orders" {
			t.Errorf("address %v", reply.Source.Address)
		}
		if v, ok := reply.Properties.Get(lockedUntilProperty); !ok {
			t.Error("no locked-until-utc")
		} else if ticks, _ := v.Int64(); amqp.TimestampOfTicks(ticks) != amqp.Timestamp(time.Now().UnixMilli()+60_000) {
			t.Errorf("locked until %d", ticks)
		}
		c.send(0, credit(3, 0, 1, true))
		expect[*amqp.Flow](c)
		c.send(0, &amqp.Detach{Handle: 3, Closed: true})
		expect[*amqp.Detach](c)
		c.golden("net_session_accept")
		c.close()
	})
}

// Q7, G15, G22: how the Python SDK sends: one channel for all, numbers from 1, ids of type ulong,
// no reply-to, URLs as addresses, and a transfer before it has seen our attach.
func TestTraceOfPython(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.open("ANONYMOUS")
		c.begin(1)
		for i, role := range []amqp.Role{amqp.RoleSender, amqp.RoleReceiver} {
			c.send(1, &amqp.Attach{
				Name: "cbs", Handle: uint32(i + 1), Role: role, SndSettleMode: amqp.Some(amqp.SenderUnsettled),
				RcvSettleMode: amqp.Some(amqp.ReceiverFirst),
				Source:        &amqp.Source{Address: amqp.Some("$cbs")}, Target: &amqp.Target{Address: amqp.Some("$cbs")},
			})
			expect[*amqp.Attach](c)
			if role == amqp.RoleSender {
				expect[*amqp.Flow](c)
			}
		}
		c.send(1, credit(2, 0, 300, false))
		c.send(1, transferOf(1, 0), tokenRequest(t, uint64(0), ""))
		expect[*amqp.Disposition](c)
		tr, payload := expect[*amqp.Transfer](c)
		s, err := amqp.ParseMessage(payload)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.ParseProperties()
		if err != nil || string(p.CorrelationID) != string(amqp.AppendUlong(nil, 0)) {
			t.Errorf("correlation id % x", p.CorrelationID)
		}
		if _, ok := s.ApplicationProperty("error-condition"); ok { // G14
			t.Error("error-condition on a CBS reply")
		}
		c.send(1, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value, Settled: true, State: amqp.Accepted{}})
		a := senderTo(3, "amqps://localhost:5671/orders")
		a.Source = &amqp.Source{Address: amqp.Some("amqps://localhost:5671/orders")}
		c.hold = true
		c.send(1, a)
		c.hold = false
		c.send(1, transferOf(3, 1), amqp.AppendData(nil, []byte("early")))
		expect[*amqp.Attach](c)
		expect[*amqp.Flow](c)
		d, _ := expect[*amqp.Disposition](c)
		if _, ok := d.State.(amqp.Accepted); !ok {
			t.Errorf("state %T", d.State)
		}
		c.golden("py_send")
		c.close()
	})
}

// The coordinator of the Java and .NET SDKs (amqp-protocol.md 8.1 to 8.3).
func TestTraceOfATransaction(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.attach(0, &amqp.Attach{
			Name: "coordinator", Handle: 2, Role: amqp.RoleSender, Source: &amqp.Source{}, Coordinator: &amqp.Coordinator{},
		})
		expect[*amqp.Flow](c)
		c.attach(0, senderTo(3, "orders"))
		expect[*amqp.Flow](c)
		c.send(0, transferOf(2, 1), amqp.AppendDeclare(nil, amqp.Declare{}))
		d, _ := expect[*amqp.Disposition](c)
		id := bytes.Clone(d.State.(amqp.Declared).TxnID)
		tr := transferOf(3, 2)
		tr.State = &amqp.TransactionalState{TxnID: id}
		c.send(0, tr, encoded("hello"))
		expect[*amqp.Disposition](c)
		c.send(0, transferOf(2, 3), amqp.AppendDischarge(nil, amqp.Discharge{TxnID: id}))
		if d, _ := expect[*amqp.Disposition](c); d.State != (amqp.Accepted{}) {
			t.Errorf("discharge: %v", d.State)
		}
		if n := b.broker.counts(t, "orders"); n.Active != 1 {
			t.Errorf("%+v", n)
		}
		c.golden("java_coordinator")
		c.close()
	})
}

// Q6: a client without a SASL layer; Q19: settled requests, which need no disposition.
func TestAClientMaySkipSASL(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.client()
		c.open("")
		c.begin(7)
		c.attachPair(7, 4, "$cbs", "reply")
		c.send(7, &amqp.Transfer{Handle: 4, DeliveryID: amqp.Some(uint32(0)), Settled: amqp.Some(true)}, tokenRequest(t, "x", "reply"))
		expect[*amqp.Transfer](c)
		c.close()
	})
}

// G20: silence on either side.
func TestIdleness(t *testing.T) {
	t.Run("the server shows signs of life at half the client's time-out", func(t *testing.T) {
		inBubble(t, func(b *bubble) {
			c := b.client()
			c.header(amqp.ProtocolAMQP)
			c.send(0, &amqp.Open{ContainerID: "client", IdleTimeOut: amqp.Some(uint32(8_000))})
			expect[*amqp.Open](c)
			before := time.Now()
			if f := <-c.in; f.err != nil || len(f.frame.Body) != 0 || time.Since(before) > 5*time.Second {
				t.Errorf("%+v after %v", f, time.Since(before))
			}
			c.close()
		})
	})
	t.Run("a silent client is told and dropped after twice the announced time", func(t *testing.T) {
		inBubble(t, func(b *bubble) {
			c := b.client()
			c.authenticate()
			before := time.Now()
			p, _ := expect[*amqp.Close](c)
			if p.Error == nil || p.Error.Condition != amqp.ConditionResourceLimitExceeded || time.Since(before) < 4*time.Minute-time.Second {
				t.Errorf("%+v after %v", p.Error, time.Since(before))
			}
			if p, _ := c.next(); p != nil {
				t.Errorf("got %T after close", p)
			}
			c.close()
		})
	})
	t.Run("a client that puts no token is dropped", func(t *testing.T) {
		inBubble(t, func(b *bubble) {
			c := b.client()
			c.open("MSSBCBS")
			p, _ := expect[*amqp.Close](c)
			if p.Error == nil || p.Error.Condition != amqp.ConditionConnectionForced {
				t.Errorf("%+v", p.Error)
			}
			c.close()
		})
	})
}

// A token that runs out takes its links with it.
func TestLinksEndWhenTheirTokenExpires(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate() // for an hour
		c.attach(0, receiverOf(2, "orders"))
		for range 100 {
			time.Sleep(time.Minute) // virtual
			c.write(amqp.AppendEmptyFrame(nil))
			for len(c.in) > 0 {
				f := <-c.in
				if len(f.frame.Body) == 0 {
					continue
				}
				p, _, err := amqp.DecodePerformative(f.frame.Body)
				d, ok := p.(*amqp.Detach)
				if err != nil || !ok || d.Handle != 2 || d.Error == nil || d.Error.Condition != amqp.ConditionUnauthorizedAccess {
					t.Fatalf("got %s, %v", describe(0, p), err)
				}
				c.close()
				return
			}
		}
		t.Error("the link outlived its token")
	})
}

// Q25: a client that grants credit on its own may send a flow just behind its detach; the channel and
// its other links live on.
func TestAFlowBehindADetachIsIgnored(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.attach(0, receiverOf(5, "orders"))
		c.send(0, &amqp.Detach{Handle: 5, Closed: true})
		expect[*amqp.Detach](c)
		late := credit(5, 0, 10, false)
		late.Echo = true
		c.send(0, late)
		if f, _ := expect[*amqp.Flow](c); f.Handle.Set {
			t.Errorf("the echo speaks of link %d, which is gone", f.Handle.Value)
		}
		c.attach(0, receiverOf(5, "orders"))
		c.close()
	})
}

// RUL-2: the Java SDK settles without a state, behind its detach or in one write with its end, what its
// application has received and holds on to. That decides nothing: the lock outlives the link.
func TestSettlingWithoutAStateBehindADetachKeepsTheLock(t *testing.T) {
	for _, goodbye := range []amqp.Performative{&amqp.Detach{Handle: 3, Closed: true}, &amqp.End{}} {
		t.Run(describe(0, goodbye), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders")
				c := b.client()
				c.reach(atLinks)
				c.send(0, credit(3, 0, 1, false))
				c.send(0, transferOf(2, 1), amqp.AppendData(nil, []byte("x")))
				expect[*amqp.Disposition](c)
				tr, _ := expect[*amqp.Transfer](c)
				c.send(0, goodbye)
				c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value, Settled: true})
				c.next()
				time.Sleep(time.Second) // virtual: time enough to give something back
				if n := b.broker.counts(t, "orders").Locked; n != 1 {
					t.Errorf("%d messages are locked, want 1", n)
				}
				c.close()
			})
		})
	}
}

// S-58: a client that gives a message back and asks for more in one write gets the same one again.
func TestWhatIsGivenBackIsNext(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxDelivery = 100 })
		c := b.client()
		c.reach(atLinks)
		for id := range uint32(2) {
			c.send(0, transferOf(2, id), amqp.AppendData(nil, []byte("x")))
			expect[*amqp.Disposition](c)
		}
		c.send(0, credit(3, 0, 1, false))
		first := int64(0)
		for i := range uint32(50) { // the order of two goroutines decided
			tr, payload := expect[*amqp.Transfer](c)
			m, err := amqp.ParseMessage(payload)
			if err != nil {
				t.Fatal(err)
			}
			number, _ := m.Annotation("x-opt-sequence-number")
			got, _ := number.Int64()
			if first == 0 {
				first = got
			}
			if got != first {
				t.Fatalf("delivery %d is of message %d, want %d", i, got, first)
			}
			c.hold = true
			c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value, Settled: true,
				State: amqp.Modified{DeliveryFailed: amqp.Some(i%2 == 0)}})
			c.hold = false
			c.send(0, credit(3, i+1, 1, false))
		}
		c.close()
	})
}
