package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// batchOf encodes messages as clients batch them: one data section each.
func batchOf(t *testing.T, messages ...*goamqp.Message) *goamqp.Message {
	t.Helper()
	m := &goamqp.Message{Format: amqp.FormatBatch}
	for _, part := range messages {
		b, err := part.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		m.Data = append(m.Data, b)
	}
	return m
}

// S-138, S-99: a batch is stored whole, in order, or not at all.
func TestABatchIsAllOrNothing(t *testing.T) {
	ts := startServer(t, 3)
	ts.broker.queue("plain")
	ts.broker.queue("grouped", withSessions)
	ts.broker.queue("spread", partitioned)
	session := newSession(t, dial(t, ts))
	tx, rx := newSender(t, session, "plain"), newReceiver(t, session, "plain")
	if err := tx.Send(testContext(t), batchOf(t, goamqp.NewMessage([]byte("1")), goamqp.NewMessage([]byte("2"))), nil); err != nil {
		t.Fatal(err)
	}
	for i, m := range receive(t, rx, 2) {
		if got := string(m.GetData()); got != fmt.Sprint(i+1) {
			t.Errorf("message %d is %q", i, got)
		}
	}
	tx = newSender(t, session, "grouped")
	err := tx.Send(testContext(t), batchOf(t, sessionMessage("s", "1"), goamqp.NewMessage([]byte("no session"))), nil)
	if !isCondition(err, goamqp.ErrCondNotAllowed) {
		t.Errorf("got %v", err)
	}
	if c := ts.broker.counts(t, "grouped"); c.Active != 0 {
		t.Errorf("%d messages of a refused batch are there", c.Active)
	}
	tx = newSender(t, session, "spread")
	err = tx.Send(testContext(t), batchOf(t, sessionMessage("a", "1"), sessionMessage("b", "2")), nil)
	if !isCondition(err, goamqp.ErrCondNotAllowed) {
		t.Errorf("a batch over two sessions: %v", err)
	}
}

// S-137: settled transfers are stored and not answered; bad ones vanish.
func TestSettledTransfersAreFireAndForget(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		for id, body := range [][]byte{amqp.AppendData(nil, []byte("good")), []byte("bad")} {
			tr := transferOf(2, uint32(id+1))
			tr.Settled = amqp.Some(true)
			c.send(0, tr, body)
		}
		c.send(0, transferOf(2, 3), amqp.AppendData(nil, []byte("last")))
		if d, _ := expect[*amqp.Disposition](c); d.First != 3 {
			t.Errorf("answered %d", d.First)
		}
		if n := b.broker.counts(t, "orders").Active; n != 2 {
			t.Errorf("%d messages are stored", n)
		}
		if n := b.server.stats.Rejected[siteSettledLost].Load(); n != 1 {
			t.Errorf("%d lost ones are counted", n)
		}
		c.close()
	})
}

// S-142: receive and delete settles by itself.
func TestReceiveAndDelete(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	session := newSession(t, dial(t, ts))
	if err := newSender(t, session, "orders").Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
		t.Fatal(err)
	}
	rx, err := session.NewReceiver(testContext(t), "orders", &goamqp.ReceiverOptions{
		Credit: -1, RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr(),
		SettlementMode: goamqp.ReceiverSettleModeFirst.Ptr(),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := receive(t, rx, 1)[0]
	if _, locked := m.Annotations["x-opt-locked-until"]; locked {
		t.Error("a deleted message says that it is locked")
	}
	if n := ts.broker.counts(t, "orders").Active; n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// S-18, S-150, S-151: a settlement after the lock has run out is told so, not swallowed.
func TestALateSettlementIsLockLost(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.LockDuration = 5_000 })
		c := b.client()
		c.authenticate()
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		c.send(0, transferOf(2, 1), amqp.AppendData(nil, []byte("x")))
		expect[*amqp.Disposition](c)
		c.attach(0, receiverOf(3, "orders"))
		c.send(0, credit(3, 0, 1, false))
		tr, _ := expect[*amqp.Transfer](c)
		time.Sleep(10 * time.Second) // virtual
		c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value, State: amqp.Accepted{}})
		d, _ := expect[*amqp.Disposition](c)
		r, ok := d.State.(amqp.Rejected)
		if !ok || r.Error == nil || r.Error.Condition != amqp.ConditionMessageLockLost || !d.Settled {
			t.Errorf("got %+v", d)
		}
		// Q8: settled by the client, so nobody is told.
		c.send(0, credit(3, 1, 1, false))
		tr, _ = expect[*amqp.Transfer](c)
		c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value, Settled: true, State: amqp.Accepted{}})
		c.send(0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(1)), IncomingWindow: 2048, Echo: true})
		expect[*amqp.Flow](c)
		c.close()
	})
}

// S-21, S-161: closing the link drops no lock; the token settles over another one.
func TestClosingALinkKeepsItsLocks(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	session := newSession(t, dial(t, ts))
	if err := newSender(t, session, "orders").Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
		t.Fatal(err)
	}
	rx := newReceiver(t, session, "orders")
	m := receive(t, rx, 1)[0]
	if err := rx.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if n := ts.broker.counts(t, "orders").Locked; n != 1 {
		t.Errorf("%d messages are locked", n)
	}
	token, _ := amqp.TokenFromTag(m.DeliveryTag)
	other := newSession(t, dial(t, ts))
	if code, _ := management(t, other, "orders", "update-disposition", map[string]any{
		"disposition-status": "completed", "lock-tokens": []goamqp.UUID{goamqp.UUID(token)},
	}); code != 200 {
		t.Errorf("complete by token: %d", code)
	}
}

// T-27, RUL-19: a lost connection's token works in the grace, and no longer.
func TestALostConnectionKeepsItsLocksForTheGrace(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.LockDuration = 300_000 })
		for i := range 2 {
			c := b.client()
			c.authenticate()
			c.attach(0, senderTo(2, "orders"))
			expect[*amqp.Flow](c)
			c.send(0, transferOf(2, 1), amqp.AppendData(nil, []byte("x")))
			expect[*amqp.Disposition](c)
			c.attach(0, receiverOf(3, "orders"))
			c.send(0, credit(3, 0, 1, false))
			tr, _ := expect[*amqp.Transfer](c)
			c.close() // no AMQP close
			token, _ := amqp.TokenFromTag(tr.DeliveryTag)
			wait, want := 3*time.Second, "status 200"
			if i == 1 {
				wait, want = 7*time.Second, "status 410"
			}
			time.Sleep(wait) // virtual
			c = b.client()
			c.reach(atLinks)
			managed("update-disposition", amqp.Map{
				{Key: "disposition-status", Value: "completed"}, {Key: "lock-tokens", Value: []amqp.UUID{token}},
			})(c)
			if got := c.outcome(); got != want {
				t.Errorf("after %v: %s, want %s", wait, got, want)
			}
			c.close()
		}
	})
}

// S-147: what was locked for a client that is gone comes back at once, its count unchanged.
func TestMessagesForAReceiverThatIsGoneComeBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.reach(atLinks)
		c.send(0, credit(3, 0, 5, false))
		c.send(0, credit(3, 0, 0, false)) // and takes its credit back
		c.send(0, transferOf(2, 1), amqp.AppendData(nil, []byte("x")))
		expect[*amqp.Disposition](c)
		c.send(0, &amqp.Flow{NextIncomingID: amqp.Some(uint32(1)), IncomingWindow: 2048, Echo: true})
		expect[*amqp.Flow](c)
		if n := b.broker.counts(t, "orders").Locked; n != 0 {
			t.Errorf("%d messages are locked for nobody", n)
		}
		// A client whose window is shut when its messages come, and which then leaves.
		f := credit(3, 0, 5, false)
		f.IncomingWindow = 0
		c.send(0, f)
		for range 100 {
			if b.broker.counts(t, "orders").Locked == 1 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		c.send(0, &amqp.Detach{Handle: 3, Closed: true})
		expect[*amqp.Detach](c)
		c.attach(0, receiverOf(7, "orders"))
		c.send(0, credit(7, 0, 1, false))
		_, payload := expect[*amqp.Transfer](c)
		s, err := amqp.ParseMessage(payload)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := s.ParseHeader(); err != nil || h.DeliveryCount != 0 {
			t.Errorf("count %d, %v", h.DeliveryCount, err)
		}
		c.close()
	})
}

// G11, G19: the client's window holds deliveries back in the middle, and they go on whole.
func TestTheClientsWindowIsRespected(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.header(amqp.ProtocolAMQP)
		c.send(0, &amqp.Open{ContainerID: "c", MaxFrameSize: amqp.Some(uint32(512))})
		expect[*amqp.Open](c)
		c.begin(0)
		c.attachPair(0, 0, "$cbs", "reply")
		c.send(0, text4(transferOf(0, 0)), tokenRequest(t, "1", "reply"))
		sent := uint32(1) // transfer ids that the server has used, from 1
		for more := true; more; sent++ {
			tr, _ := expect[*amqp.Transfer](c)
			more = tr.More
		}
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		body := bytes.Repeat([]byte("b"), 3_000)
		c.send(0, transferOf(2, 1), amqp.AppendData(nil, body))
		expect[*amqp.Disposition](c)
		c.attach(0, receiverOf(3, "orders"))
		var got []byte
		for round := 0; ; round++ {
			f := credit(3, 0, 1, false)
			f.NextIncomingID, f.IncomingWindow = amqp.Some(sent), 2
			if round > 0 {
				f.Handle = amqp.Opt[uint32]{}
			}
			c.send(0, f)
			for range 2 {
				tr, payload := expect[*amqp.Transfer](c)
				sent++
				got = append(got, payload...)
				if !tr.More {
					s, err := amqp.ParseMessage(got)
					if err != nil || !bytes.HasSuffix(s.Body, body) {
						t.Errorf("got %d bytes, %v", len(got), err)
					}
					if round < 2 {
						t.Errorf("it came in %d rounds", round+1)
					}
					c.close()
					return
				}
			}
			time.Sleep(time.Second) // virtual: nothing may come
			if n := len(c.in); n != 0 {
				t.Fatalf("%d frames beyond the window", n)
			}
		}
	})
}

// S-2: what a failed attempt is called on the wire.
func TestFailuresHaveTheirConditions(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want goamqp.ErrCond
	}{
		"busy":        {fsm.ErrBusy, "com.microsoft:server-busy"},
		"unknown":     {fsm.ErrUnknown, "com.microsoft:timeout"},
		"unavailable": {fsm.ErrUnavailable, "com.microsoft:timeout"},
		"no entity":   {fsm.ErrNoEntity, goamqp.ErrCondNotFound},
		"closed":      {fsm.ErrClosed, "com.microsoft:operation-cancelled"},
		"anything":    {errors.New("disk on fire"), goamqp.ErrCondInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, 1)
			ts.broker.queue("orders")
			tx := newSender(t, newSession(t, dial(t, ts)), "orders")
			ts.broker.mu.Lock()
			ts.broker.fail = func(cmd fsm.Command) error {
				if _, ok := cmd.(*fsm.Enqueue); ok {
					return c.err
				}
				return nil
			}
			ts.broker.mu.Unlock()
			if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); !isCondition(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	for why := fsm.None + 1; why <= fsm.Unauthorized; why++ {
		if condition, _ := conditionOf(why); condition == amqp.ConditionInternalError {
			t.Errorf("refusal %d has no condition", why)
		}
	}
}

// RUL-19: a node that was declared lost goes on under a new incarnation.
func TestANodeDeclaredLostTakesANewIncarnation(t *testing.T) {
	ts := startServer(t, 1)
	d := ts.broker.queue("orders")
	conn := dial(t, ts)
	tx := newSender(t, newSession(t, conn), "orders")
	if _, err := ts.broker.Propose(context.Background(), fsm.RequestID{}, waist.ShareKey(d, fsm.Main, 0), &fsm.NodeLost{Node: 7}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
		t.Fatal(err)
	}
	if ts.waist.Incarnation() == 7 {
		t.Error("the incarnation is the old one")
	}
}

// A6: pumps of links that are gone are dropped.
func TestPumpsAreDroppedWhenTheirLinkEnds(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	conn := dial(t, ts)
	sendAndReceive(t, conn, "orders")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() (bool, error) {
		ts.waist.Flush(testContext(t))
		ts.broker.mu.Lock()
		defer ts.broker.mu.Unlock()
		if len(ts.broker.dropped) < 3 { // the sender's, and the receiver's two
			return false, fmt.Errorf("dropped %v", ts.broker.dropped)
		}
		return true, nil
	})
}

// What a sender writes comes back as it was: types, annotations, header, footer (Q26, A10).
func TestAMessageComesBackAsItWas(t *testing.T) {
	w := amqp.BeginMapSection(amqp.AppendHeader(nil, amqp.Header{
		Durable: true, Priority: amqp.Some(uint8(9)), TTL: amqp.Some(uint32(60_000)), DeliveryCount: 7,
	}), amqp.CodeMessageAnnotations)
	w.String("x-opt-partition-key", "k")
	w.Long("x-opt-sequence-number", 666) // not the sender's to say
	w.Int("custom", 5)
	head := w.End()
	bare := amqp.AppendProperties(nil, &amqp.Properties{
		MessageID: amqp.AppendUlong(nil, 12), CorrelationID: amqp.AppendUUID(nil, amqp.UUID{1, 2}), ContentType: []byte("text/plain"),
		AbsoluteExpiryTime: amqp.Some(amqp.Timestamp(1e15)), CreationTime: amqp.Some(amqp.Timestamp(5)),
	})
	p := amqp.BeginMapSection(bare, amqp.CodeApplicationProperties)
	p.Bool("flag", true)
	bare = amqp.AppendData(p.End(), []byte("body"))
	desc := &fsm.Descriptor{Kind: fsm.Queue}
	m, text, byText, refusal := translateMessage(append(bytes.Clone(head), bare...), desc, noID)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if m.MessageID != "12" || m.TTL != 60_000 || text != "k" || !byText || m.HasSession {
		t.Errorf("message %+v, text %q", m, text)
	}
	d := &fsm.Delivery{Seq: 3, EnqueuedAt: 1000, ExpiresAt: 31_000, Attempts: 2, Body: m.Body, State: fsm.StateDeferred}
	out, err := appendDelivery(nil, d, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := amqp.ParseMessage(out)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.ParseHeader()
	if err != nil || !h.Durable || h.Priority.Or(0) != 9 || h.TTL.Or(0) != 30_000 || h.DeliveryCount != 2 {
		t.Errorf("header %+v, %v", h, err)
	}
	for key, want := range map[string]int64{"x-opt-sequence-number": 3, "custom": 5, "x-opt-message-state": 1} {
		v, _ := s.Annotation(amqp.Symbol(key))
		if got, _ := v.Int64(); got != want {
			t.Errorf("%s is %d, want %d", key, got, want)
		}
	}
	props, err := s.ParseProperties()
	if err != nil || props.AbsoluteExpiryTime.Or(0) != 31_000 || props.CreationTime.Or(0) != 5 || string(props.ContentType) != "text/plain" {
		t.Errorf("properties %+v, %v", props, err)
	}
	d.ExpiresAt = 0
	if out, err = appendDelivery(nil, d, false); err != nil || !bytes.HasSuffix(out, bare) {
		t.Errorf("the bare message was changed, %v", err)
	}
	if !bytes.Contains(m.Body, bare) {
		t.Error("the bare message is not stored as it came")
	}
}

func noID() string { return "made-up" }

// S-140: a message without an id gets one, and only that changes.
func TestAMessageWithoutAnIDGetsOne(t *testing.T) {
	p := amqp.BeginMapSection(nil, amqp.CodeApplicationProperties)
	p.Bool("flag", true)
	rest := amqp.AppendData(p.End(), []byte("body"))
	for name, properties := range map[string][]byte{
		"no properties": nil, "other properties": amqp.AppendProperties(nil, &amqp.Properties{Subject: []byte("s")}),
	} {
		t.Run(name, func(t *testing.T) {
			m, _, _, refusal := translateMessage(append(bytes.Clone(properties), rest...), &fsm.Descriptor{}, noID)
			if refusal != nil {
				t.Fatal(refusal)
			}
			out, err := appendDelivery(nil, &fsm.Delivery{Seq: 1, EnqueuedAt: 1, Body: m.Body}, false)
			if err != nil {
				t.Fatal(err)
			}
			s, err := amqp.ParseMessage(out)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.ParseProperties()
			if id, _ := got.MessageID.Text(); err != nil || id != "made-up" || (properties != nil) != (string(got.Subject) == "s") {
				t.Errorf("properties %+v, %v", got, err)
			}
			if !bytes.HasSuffix(out, rest) {
				t.Error("the rest of the message was changed")
			}
		})
	}
}

// The stored form is versioned; what is not of it is an error, never a panic.
func FuzzParseStored(f *testing.F) {
	m, _, _, _ := translateMessage(amqp.AppendData(nil, []byte("x")), &fsm.Descriptor{Kind: fsm.Queue}, noID)
	f.Add(m.Body)
	f.Add([]byte{1, 6, 9, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := appendDelivery(nil, &fsm.Delivery{Body: b, Seq: 1, EnqueuedAt: 5, Reason: "r"}, true)
		if err == nil && len(out) < len(b)/2 {
			t.Errorf("%d bytes became %d", len(b), len(out))
		}
	})
}

// A21: deliveries that are never finished take no more than their share, and stop nothing else.
func TestUnfinishedDeliveriesAreBounded(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxMessageBytes = hostileMessageBytes })
		c := b.client()
		c.authenticate()
		part := make([]byte, 60_000)
		for i := range uint32(8) {
			c.attach(0, senderTo(10+i, "orders"))
			expect[*amqp.Flow](c)
		}
		for i := range uint32(8) {
			tr := transferOf(10+i, 1+i)
			tr.More = true
			c.send(0, tr, part)
		}
		refused := 0
		for range 5 { // three fit
			d, _ := expect[*amqp.Disposition](c)
			if r, ok := d.State.(amqp.Rejected); ok && r.Error.Condition == amqp.ConditionServerBusy {
				refused++
			}
		}
		if refused != 5 {
			t.Errorf("%d were refused", refused)
		}
		last := amqp.Transfer{Handle: 10}
		c.send(0, &last, make([]byte, 10)) // finishes the first one, which is no message
		if d, _ := expect[*amqp.Disposition](c); d.First != 1 {
			t.Errorf("answered %d", d.First)
		}
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		c.send(0, transferOf(2, 50), amqp.AppendData(nil, []byte("x")))
		if d, _ := expect[*amqp.Disposition](c); d.State != (amqp.Accepted{}) {
			t.Errorf("got %v", d.State)
		}
		c.close()
	}, func(c *Config) { c.MaxConnBytes = 128 << 10 })
}

// A client that grants credit and does not read holds a bounded number of messages; the rest stays
// for others.
func TestAClientThatDoesNotReadHoldsLittle(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		c.attach(0, senderTo(2, "orders"))
		expect[*amqp.Flow](c)
		for i := range uint32(10) { // all wait with an open window
			c.attach(0, receiverOf(10+i, "orders"))
			c.send(0, credit(10+i, 0, 2, false))
		}
		shut := &amqp.Flow{NextIncomingID: amqp.Some(uint32(2)), IncomingWindow: 0}
		c.send(0, shut)
		for id := range uint32(20) {
			c.send(0, transferOf(2, id+1), amqp.AppendData(nil, make([]byte, 50_000)))
			expect[*amqp.Disposition](c)
		}
		time.Sleep(10 * time.Second)                          // virtual, and less than a lock
		if n := b.broker.counts(t, "orders").Locked; n != 0 { // RUL-28
			t.Errorf("%d messages are locked for it", n)
		}
		// It opens up, and gets them all.
		f := credit(10, 0, 2, false)
		f.NextIncomingID, f.IncomingWindow, f.Handle = amqp.Some(uint32(2)), 2048, amqp.Opt[uint32]{}
		c.send(0, f)
		for range 20 {
			expect[*amqp.Transfer](c)
		}
		c.close()
	}, func(c *Config) { c.MaxConnBytes = 100 << 10; c.MaxFrameBytes = 128 << 10 })
}
