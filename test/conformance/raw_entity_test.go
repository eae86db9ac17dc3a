package conformance

import (
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// S-340, RUL-36, N2
func rawBurst(e *rawEnv) {
	q := e.queue(nil)
	a := e.asker(q)
	const all = 2_000
	sent, done := 0, 0
	for done < all {
		for sent < all {
			_, ok, err := a.Send("schedule-message", nil, fields("messages", amqp.List{
				fields("message-id", fmt.Sprint(sent), "message", encode(fmt.Sprint(sent)))}))
			e.must("schedule", err)
			if !ok {
				break
			}
			sent++
		}
		got, err := a.Take()
		e.must(fmt.Sprintf("the answer behind %d of %d", done, sent), err)
		if got != nil {
			e.check(got.Code == 200, "schedule: %d %s", got.Code, got.Text)
			done++
		}
	}
	p, err := e.admin(0).GetQueueRuntimeProperties(e.ctx, q, nil)
	e.must("count", err)
	e.check(p.TotalMessageCount == all, "%d messages, want %d", p.TotalMessageCount, all)
}

// Decision 0040, N3
func rawSegments(e *rawEnv) {
	conn, ok := e.c.Conn().(*net.TCPConn)
	if !ok {
		d := net.Dialer{}
		plain, err := d.DialContext(e.ctx, "tcp", e.node(0).TLS)
		e.must("connect", err)
		defer plain.Close()
		conn = plain.(*net.TCPConn)
	}
	size, err := segmentBytes(conn)
	if errors.Is(err, errors.ErrUnsupported) {
		e.Skip("segments can be looked at on Linux only")
	}
	e.must("look at the segments", err)
	e.check(size <= 1460, "a segment has %d bytes, more than one of Ethernet", size)
}

// tiny is a batch of n messages of a byte each.
func tiny(n int) []byte {
	var out []byte
	for range n {
		out = amqp.AppendData(out, amqp.AppendData(nil, []byte("x")))
	}
	return out
}

// S-342, RUL-32, N4
func rawBatch(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(int64(1024))})
	tx := e.sender(q)
	_, err := e.c.Outcome(amqp.RoleReceiver, e.c.Transfer(tx, amqp.FormatBatch, false, nil, tiny(9_000)))
	e.must("send 9,000 messages in one batch", err)
	p, err := e.admin(0).GetQueueRuntimeProperties(e.ctx, q, nil)
	e.must("count", err)
	e.check(p.ActiveMessageCount == 9_000, "%d messages, want 9,000", p.ActiveMessageCount)
}

// S-342, RUL-32, N4
func rawBatchLimit(e *rawEnv) {
	for size, want := range map[int64]int64{1024: 0, 4096: 1 << 20} {
		q := e.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to(size)})
		a, err := e.c.Sender(q)
		e.must("attach", err)
		v, _ := a.Properties.Get("com.microsoft:max-message-batch-size")
		if want == 0 {
			e.check(v == nil, "a limit of batches that is no other than that of messages")
			continue
		}
		e.check(string(v) == string(amqp.AppendLong(nil, want)), "max-message-batch-size is %x", []byte(v))
		large := append(amqp.AppendData(nil, amqp.AppendData(nil, make([]byte, 1<<20))), tiny(1)...)
		_, err = e.c.Outcome(amqp.RoleReceiver, e.c.Transfer(a.Handle, amqp.FormatBatch, false, nil, large))
		e.refused("a batch beyond the limit", err, "amqp:link:message-size-exceeded")
	}
}

// S-53, RUL-31, N6
func rawTokenGone(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true)})
	tx := e.sender(q)
	e.deliver(tx, encode("x", group("s")))
	m := e.take(e.receiver(q, "s"))
	a := e.asker(q)
	done := func(session string) amqp.Map {
		return fields("disposition-status", "completed", "lock-tokens", []amqp.UUID{m.Token}, "session-id", session)
	}
	e.ask(a, 200, "update-disposition", done("s"))
	e.check(e.ask(a, 410, "update-disposition", done("s")).Condition == lockLost, "a token that is gone")
	e.check(e.ask(a, 410, "update-disposition", done("other")).Condition == sessionLost, "a session that is not held")
	e.ask(a, 200, "get-session-state", fields("session-id", "s"))
}

// S-313, RUL-33, N8
func rawSessionAndKey(e *rawEnv) {
	for _, partitioned := range []bool{false, true} {
		q := e.queue(&admin.QueueProperties{RequiresSession: to(true), EnablePartitioning: to(partitioned)})
		tx := e.sender(q)
		_, err := e.c.Deliver(tx, nil, annotated("x-opt-partition-key", "other", "x", group("s")))
		if partitioned {
			e.refused("another key on a partitioned queue", err, "amqp:not-allowed")
			continue
		}
		e.must("another key", err)
		m := e.take(e.receiver(q, "s"))
		key, _ := m.Parts.Annotation("x-opt-partition-key")
		text, _ := key.Text()
		e.check(text == "other", "the key is %q", text)
		e.settle(m, amqp.Accepted{})
	}
}

// RUL-35, N9
func rawReason(e *rawEnv) {
	q := e.queue(nil)
	e.deliver(e.sender(q), encode("x"))
	w := amqp.BeginSymbolMap(nil)
	w.Int("DeadLetterReason", 5)
	w.String("DeadLetterErrorDescription", "text")
	e.settle(e.take(e.receiver(q, nil)), amqp.Rejected{Error: &amqp.Error{Condition: amqp.ConditionDeadLetter, Info: w.End()}})
	m := e.take(e.receiver(q+"/$DeadLetterQueue", nil))
	reason, _ := m.Parts.ApplicationProperty("DeadLetterReason")
	description, _ := m.Parts.ApplicationProperty("DeadLetterErrorDescription")
	e.check(string(reason) == string(amqp.AppendInt(nil, 5)), "the reason is %x", []byte(reason))
	e.check(string(description) == string(amqp.AppendString(nil, "text")), "the description is %x", []byte(description))
}

// topicOf creates a topic with a subscription without rules and returns their paths.
func (e *rawEnv) topicOf() (topic, subscription string, rules *raw.Asker) {
	e.Helper()
	topic = e.name()
	a := e.admin(0)
	_, err := a.CreateTopic(e.ctx, topic, nil)
	e.must("create a topic", err)
	e.Cleanup(func() { _, _ = a.DeleteTopic(e.T.Context(), topic, nil) })
	_, err = a.CreateSubscription(e.ctx, topic, "s", nil)
	e.must("create a subscription", err)
	subscription = topic + "/Subscriptions/s"
	rules = e.asker(subscription)
	e.ask(rules, 200, "remove-rule", fields("rule-name", "$Default"))
	return topic, subscription, rules
}

// netDecimal is 1.25 as .NET writes a decimal.
var netDecimal = amqp.Decimal128{0x0c, 0x3c, 15: 0x7d}

// RUL-38, S-218, N10
func rawDecimal(e *rawEnv) {
	topic, subscription, rules := e.topicOf()
	e.ask(rules, 200, "add-rule", fields("rule-name", "larger", "rule-description",
		fields("sql-filter", fields("expression", "p > 1.2 AND p < 1.3"))))
	e.ask(rules, 200, "add-rule", fields("rule-name", "same", "rule-description",
		fields("correlation-filter", fields("properties", fields("p", netDecimal)))))
	tx := e.sender(topic)
	with := func(v any) []byte {
		raw, err := amqp.AppendValue(nil, v)
		e.must("encode", err)
		w := amqp.BeginMapSection(nil, amqp.CodeApplicationProperties)
		w.Raw("p", raw)
		return append(w.End(), amqp.AppendData(nil, fmt.Append(nil, v))...)
	}
	e.deliver(tx, with(int32(5)))
	e.deliver(tx, with(netDecimal))
	m := e.take(e.receiver(subscription, nil))
	e.check(m.Body == fmt.Sprint(netDecimal), "%q was selected", m.Body)
}

// RUL-38, S-219, N11
func rawRuleTypes(e *rawEnv) {
	_, _, rules := e.topicOf()
	sent := fields("int", int32(5), "long", int64(5), "double", 1.5, "float", float32(1.5), "byte", uint8(5), "text", "x",
		"decimal", netDecimal, "infinite", math.Inf(1), "when", amqp.Timestamp(1_700_000_000_000), "id", amqp.UUID{1})
	e.ask(rules, 200, "add-rule", fields("rule-name", "r", "rule-description",
		fields("correlation-filter", fields("properties", sent))))
	for i := range 150 { // an older .NET asks once, for as many as there can be
		e.ask(rules, 200, "add-rule", fields("rule-name", fmt.Sprintf("t%d", i), "rule-description",
			fields("sql-filter", fields("expression", "1=1"))))
	}
	body := e.ask(rules, 200, "enumerate-rules", fields("skip", int32(0), "top", int32(math.MaxInt32))).Body
	list, _ := body.Get("rules")
	all, _ := list.(amqp.List)
	e.check(len(all) == 151, "%d rules, want 151", len(all))
	inner, _ := all[0].(amqp.Map).Get("rule-description")
	filter := inner.(amqp.Described).Value.(amqp.List)[0].(amqp.Described).Value.(amqp.List)
	got := filter[8].(amqp.Map)
	for _, p := range sent {
		v, _ := got.Get(p.Key.(string))
		e.check(fmt.Sprintf("%T %v", v, v) == fmt.Sprintf("%T %v", p.Value, p.Value), "%s: %T %v, want %T %v", p.Key, v, v, p.Value, p.Value)
	}
}

// Durations of 100 ns, N12.
func rawDurations(e *rawEnv) {
	const exact = "PT1M1.2345678S"
	q := e.queue(&admin.QueueProperties{DefaultMessageTimeToLive: to(exact)})
	p, err := e.admin(1).GetQueue(e.ctx, q, nil)
	e.must("get the queue", err)
	e.check(deref(p.DefaultMessageTimeToLive) == exact, "DefaultMessageTimeToLive is %s", deref(p.DefaultMessageTimeToLive))
	topic, _, rules := e.topicOf()
	e.ask(rules, 200, "add-rule", fields("rule-name", "r", "rule-description",
		fields("correlation-filter", fields("properties", fields("p", math.Inf(1), "m", math.Inf(-1))))))
	got, err := e.admin(0).GetRule(e.ctx, topic, "s", "r", nil)
	e.must("get the rule", err)
	c, ok := got.Filter.(*admin.CorrelationFilter)
	e.check(ok && fmt.Sprint(c.ApplicationProperties["p"]) == "+Inf" && fmt.Sprint(c.ApplicationProperties["m"]) == "-Inf",
		"the filter is %+v", got.Filter)
}

// S-1, N13: what exists already is counted as that.
func rawTakenName(e *rawEnv) {
	topic, _, _ := e.topicOf()
	const taken = `busbar_refusals_total{code="MessagingEntityAlreadyExists"}`
	before, err := e.node(0).Metric(e.ctx, taken)
	e.must("read the metric", err)
	_, err = e.admin(0).CreateSubscription(e.ctx, topic, "s", nil)
	var r *azcore.ResponseError
	e.check(errors.As(err, &r) && r.StatusCode == 409, "create it again: %v", err)
	after, err := e.node(0).Metric(e.ctx, taken)
	e.must("read the metric", err)
	e.check(after > before, "it was not counted as what it is")
}

// S-343, N13
func rawRefusedAgain(e *rawEnv) {
	missing := e.name()
	for range 12 {
		_, err := e.c.Receiver(missing, nil)
		e.refused("attach to what is missing", err, "amqp:not-found")
	}
	e.receiver(e.queue(nil), nil) // what is there attaches
}

// S-40, N14
func rawAcceptNext(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true)})
	began := time.Now()
	_, err := e.c.Receiver(q, false) // the filter is null
	e.refused("accept the next session", err, "com.microsoft:timeout")
	e.check(time.Since(began) < 60*time.Second, "the client would have given up")
}
