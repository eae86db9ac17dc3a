package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// drained asks for a drain with the credit that is left, and waits for the flow that answers it.
func (e *rawEnv) drained(handle, credit uint32) *amqp.Flow {
	e.Helper()
	e.c.Credit(handle, credit, true)
	f, err := e.c.Await(func(f raw.Frame) bool {
		p, ok := f.P.(*amqp.Flow)
		return ok && p.Handle.Set && p.Handle.Value == handle
	})
	e.must("drain", err)
	return f.P.(*amqp.Flow)
}

// S-346
func rawDrain(e *rawEnv) {
	q := e.queue(nil)
	rx := e.receiver(q, nil)
	for _, credit := range []uint32{10, 0} {
		f := e.drained(rx, credit)
		e.check(f.Drain && f.LinkCredit.Set && f.LinkCredit.Value == 0 && f.DeliveryCount.Set, "drain is answered with %+v", f)
		if credit == 10 {
			e.check(f.DeliveryCount.Value == 10, "delivery-count %d, want the credit given back", f.DeliveryCount.Value)
		}
	}
}

// S-345, S-346
func rawReceiver(e *rawEnv) {
	q := e.queue(nil)
	tx := e.sender(q)
	// The source begins with a slash; the target is the client's identifier; the filter is always there.
	a, err := e.c.Receiver("/"+q, nil)
	e.must("attach with a slash", err)
	e.check(a.Source.Address.Value == "/"+q && a.Target.Address.Value == "identifier", "echoed %+v, %+v", a.Source, a.Target)
	// Credit stays when a receive call ends; what comes then is released at once and costs nothing.
	e.deliver(tx, encode("x"))
	m := e.take(a.Handle)
	e.settle(m, amqp.Released{})
	again := e.take(a.Handle)
	h, err := again.Parts.ParseHeader()
	e.must("header", err)
	e.check(again.Body == "x" && h.DeliveryCount == 0, "%q came back with the count %d", again.Body, h.DeliveryCount)
	// Close: drain, wait for the flow with credit 0, detach.
	e.settle(again, amqp.Accepted{})
	e.drained(a.Handle, 1)
	e.c.Send(&amqp.Detach{Handle: a.Handle, Closed: true})
	_, err = e.c.Await(func(f raw.Frame) bool {
		p, ok := f.P.(*amqp.Detach)
		return ok && p.Handle == a.Handle && p.Closed && p.Error == nil
	})
	e.must("detach", err)
	// Receive and delete: the sender is settled.
	e.deliver(tx, encode("y"))
	one, err := e.c.Attach(amqp.Attach{Role: amqp.RoleReceiver, SndSettleMode: amqp.Some(amqp.SenderSettled),
		RcvSettleMode: amqp.Some(amqp.ReceiverFirst), Source: &amqp.Source{Address: amqp.Some(q)}, Target: &amqp.Target{}})
	e.must("attach to receive and delete", err)
	e.c.Credit(one.Handle, 1, false)
	f, err := e.c.Await(func(f raw.Frame) bool {
		p, ok := f.P.(*amqp.Transfer)
		return ok && p.Handle == one.Handle
	})
	e.must("receive", err)
	e.check(f.P.(*amqp.Transfer).Settled.Or(false), "receive-and-delete delivers unsettled")
}

// S-345
func rawSessionReceiver(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true)})
	tx := e.sender(q)
	e.deliver(tx, encode("x", group("s")))
	w := amqp.BeginSymbolMap(nil)
	w.Uint("com.microsoft:timeout", 5_000)
	filter := amqp.BeginSymbolMap(nil)
	filter.Null(string(amqp.FilterSession))
	a, err := e.c.Attach(amqp.Attach{Role: amqp.RoleReceiver, SndSettleMode: amqp.Some(amqp.SenderUnsettled),
		RcvSettleMode: amqp.Some(amqp.ReceiverSecond), Target: &amqp.Target{Address: amqp.Some("identifier")},
		Source: &amqp.Source{Address: amqp.Some("/" + q), Filter: filter.End()}, Properties: w.End()})
	e.must("accept the next session", err)
	until, _ := a.Properties.Get("com.microsoft:locked-until-utc")
	ticks, ok := until.Int64()
	e.check(ok && len(until) == 9, "locked-until-utc is %x, no long", []byte(until))
	left := time.Until(time.UnixMilli(int64(amqp.TimestampOfTicks(ticks))))
	e.check(left > 0 && left <= 61*time.Second, "the session is locked for %s", left)
	id, _ := a.Source.Filter.Get(string(amqp.FilterSession))
	text, ok := id.Text()
	e.check(ok && text == "s", "the session in the filter is %x, no bare string", []byte(id))
	m := e.take(a.Handle)
	e.settle(m, amqp.Accepted{})
	w = amqp.BeginSymbolMap(nil)
	w.Uint("com.microsoft:timeout", 1_000)
	began := time.Now()
	_, err = e.c.Attach(amqp.Attach{Role: amqp.RoleReceiver, Target: &amqp.Target{}, Properties: w.End(),
		Source: &amqp.Source{Address: amqp.Some(q), Filter: filter.End()}})
	e.refused("accept where there is none", err, "com.microsoft:timeout")
	e.check(time.Since(began) < 30*time.Second, "com.microsoft:timeout of a second was not kept")
}

// S-347
func rawAnswerTypes(e *rawEnv) {
	q := e.queue(nil)
	e.deliver(e.sender(q), encode("x"))
	m := e.take(e.receiver(q, nil))
	a := e.asker(q)
	body := e.ask(a, 200, "renew-lock", fields("lock-tokens", []amqp.UUID{m.Token})).Body
	v, _ := body.Get("expirations")
	times, ok := v.([]amqp.Timestamp)
	e.check(ok && len(times) == 1, "expirations are %T %v", v, v)
	body = e.ask(a, 200, "schedule-message", fields("messages", amqp.List{fields("message", annotatedTime(encode("y")))})).Body
	v, _ = body.Get("sequence-numbers")
	numbers, ok := v.([]int64)
	e.check(ok && len(numbers) == 1, "sequence-numbers are %T %v", v, v)
	e.ask(a, 200, "cancel-scheduled-message", fields("sequence-numbers", numbers))
	e.check(e.ask(a, 404, "cancel-scheduled-message", fields("sequence-numbers", numbers)).Condition ==
		"com.microsoft:message-not-found", "cancelled twice")
	e.check(e.ask(a, 410, "renew-lock", fields("lock-tokens", []amqp.UUID{{1}})).Condition == lockLost, "a lock of nobody")
}

// annotatedTime makes an encoded message one of an hour from now.
func annotatedTime(payload []byte) []byte {
	w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
	at := amqp.AppendTimestamp(nil, amqp.Timestamp(time.Now().Add(time.Hour).UnixMilli()))
	w.SymbolPair(amqp.AppendSymbol(nil, "x-opt-scheduled-enqueue-time"), at)
	return append(w.End(), payload...)
}

// S-349, S-84
func rawSessionList(e *rawEnv) {
	topic := e.name()
	a := e.admin(0)
	_, err := a.CreateTopic(e.ctx, topic, nil)
	e.must("create a topic", err)
	e.Cleanup(func() { _, _ = a.DeleteTopic(e.T.Context(), topic, nil) })
	_, err = a.CreateSubscription(e.ctx, topic, "s", &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{RequiresSession: to(true)}})
	e.must("create a subscription", err)
	queue := e.queue(&admin.QueueProperties{RequiresSession: to(true)})
	for sendTo, path := range map[string]string{queue: queue, topic: topic + "/Subscriptions/s"} {
		tx := e.sender(sendTo)
		e.deliver(tx, encode("x", group("messages")))
		e.deliver(tx, encode("x", group("both")))
		asker := e.asker(path)
		state := func(session string) {
			e.receiver(path, session)
			e.ask(asker, 200, "set-session-state", fields("session-id", session, "session-state", []byte("x")))
		}
		state("both")
		time.Sleep(20 * time.Millisecond)
		middle := time.Now()
		state("state")
		for at, want := range map[time.Time][]string{
			time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC): {"both", "messages", "state"},
			time.UnixMilli(1):         {"both", "state"},
			middle:                    {"state"},
			time.Now().Add(time.Hour): nil,
		} {
			code := int64(200)
			if want == nil {
				code = 204
			}
			body := e.ask(asker, code, "get-message-sessions", fields("last-updated-time", amqp.Timestamp(at.UnixMilli()),
				"skip", int32(0), "top", int32(100))).Body
			v, _ := body.Get("sessions-ids")
			ids, _ := v.([]string)
			slices.Sort(ids)
			e.check(fmt.Sprint(ids) == fmt.Sprint(want), "%s since %s: %v, want %v", path, at, ids, want)
		}
	}
}

// S-344
func rawFailedLink(e *rawEnv) {
	q := e.queue(nil)
	k := e.coordinator() // with transactions over entities all links are in one session, the coordinator's first
	tx := e.sender(q)
	_, err := e.c.Sender(e.name())
	e.refused("a link to what is missing", err, "amqp:not-found")
	_, err = e.c.Receiver(q, "s")
	e.refused("a session of a queue without", err, "amqp:not-allowed")
	txn := e.declare(k)
	_, err = e.c.Deliver(tx, &amqp.TransactionalState{TxnID: txn}, encode("x"))
	e.must("send beside links that failed", err)
	e.must("commit beside links that failed", e.c.Discharge(k, txn, false))
	e.check(e.take(e.receiver(q, nil)).Body == "x", "what was committed")
}

const messageSize = "amqp:link:message-size-exceeded"

// S-347: a request that is larger than a message of its entity and 64 KiB ends its link with
// amqp:link:message-size-exceeded, and a smaller one with too large a message is answered 403 with that condition. The
// links that receive stay, and so does what they hold.
func rawLargeRequest(e *rawEnv) {
	const limit = 1<<20 + 64<<10
	q := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(int64(1024))})
	e.deliver(e.sender(q), encode("x"))
	rx := e.receiver(q, nil)
	held := e.take(rx)
	schedule := func(n int) amqp.Map {
		return fields("messages", amqp.List{fields("message", annotatedTime(amqp.AppendData(nil, make([]byte, n))))})
	}
	a := e.asker(q)
	got := e.ask(a, 403, "schedule-message", schedule(1<<20))
	e.check(got.Condition == messageSize, "a message of 1 MiB and its headers: %s", got.Condition)
	got = e.ask(a, 200, "schedule-message", schedule(1<<20-4096))
	v, _ := got.Body.Get("sequence-numbers")
	numbers, _ := v.([]int64)
	e.check(len(numbers) == 1, "a message within the limit is answered %v", v)
	e.ask(a, 200, "cancel-scheduled-message", fields("sequence-numbers", numbers))
	_, err := a.Ask("schedule-message", nil, schedule(limit))
	e.refused("a request above the limit", err, messageSize)
	e.settle(held, amqp.Accepted{})
	p, err := e.admin(0).GetQueueRuntimeProperties(e.ctx, q, nil)
	e.must("count", err)
	e.check(p.TotalMessageCount == 0, "%d messages are left", p.TotalMessageCount)
	e.ask(e.asker(q), 204, "peek-message", fields("from-sequence-number", int64(0), "message-count", int32(1)))
}
