package smoke

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func topicCRUD(e *env) {
	t := e.topic(&admin.TopicProperties{DefaultMessageTimeToLive: p("PT3M")})
	e.sub(t, "s1", &admin.SubscriptionProperties{MaxDeliveryCount: p(int32(4))})
	d, err := e.a.GetRule(e.ctx, t, "s1", "$Default", nil)
	e.must("get $Default", err)
	e.check(d != nil, "no $Default rule")
	_, isTrue := d.Filter.(*admin.TrueFilter)
	e.check(isTrue, "$Default is %T, want TrueFilter", d.Filter)
	e.rule(t, "s1", "r1", &admin.SQLFilter{Expression: "a = @x", Parameters: map[string]any{"@x": int64(3)}}, &admin.SQLAction{Expression: "SET b = 1"})
	e.rule(t, "s1", "r2", &admin.CorrelationFilter{Subject: p("sub"), ApplicationProperties: map[string]any{"k": "v"}}, nil)
	var names []string
	for pg := e.a.NewListRulesPager(t, "s1", nil); pg.More(); {
		page, err := pg.NextPage(e.ctx)
		e.must("list rules", err)
		for _, r := range page.Rules {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	e.check(slices.Equal(names, []string{"$Default", "r1", "r2"}), "rules %v", names)
	_, err = e.a.UpdateRule(e.ctx, t, "s1", admin.RuleProperties{Name: "r1", Filter: &admin.FalseFilter{}})
	e.must("update rule", err)
	r1, err := e.a.GetRule(e.ctx, t, "s1", "r1", nil)
	e.must("get rule", err)
	_, isFalse := r1.Filter.(*admin.FalseFilter)
	e.check(isFalse, "updated rule is %T", r1.Filter)
	_, err = e.a.DeleteRule(e.ctx, t, "s1", "r1", nil)
	e.must("delete rule", err)
	gone, err := e.a.GetRule(e.ctx, t, "s1", "r1", nil)
	e.must("get deleted rule", err)
	e.check(gone == nil, "deleted rule still there")
	_, err = e.a.DeleteSubscription(e.ctx, t, "s1", nil)
	e.must("delete subscription", err)
	s, err := e.a.GetSubscription(e.ctx, t, "s1", nil)
	e.must("get deleted subscription", err)
	e.check(s == nil, "deleted subscription still there")
}

func deferred(e *env) {
	q := e.queue(nil)
	e.send(e.sender(q), msg("later"), msg("now"))
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	e.check(string(m.Body) == "later", "first is %q", m.Body)
	e.must("defer", r.DeferMessage(e.ctx, m, nil))
	n := e.one(r, wait)
	e.check(string(n.Body) == "now", "after defer got %q", n.Body)
	e.complete(r, n)
	e.none(r, time.Second)
	pk, err := r.PeekMessages(e.ctx, 5, &azservicebus.PeekMessagesOptions{FromSequenceNumber: p(int64(0))})
	e.must("peek", err)
	e.check(len(pk) == 1 && pk[0].State == azservicebus.MessageStateDeferred, "peek shows %d messages, want one deferred", len(pk))
	d, err := r.ReceiveDeferredMessages(e.ctx, []int64{*m.SequenceNumber}, nil)
	e.must("receive deferred", err)
	e.check(len(d) == 1 && string(d[0].Body) == "later", "deferred %v", bodies(d))
	e.complete(r, d[0])
	_, err = r.ReceiveDeferredMessages(e.ctx, []int64{*m.SequenceNumber}, nil)
	e.check(err != nil, "a completed deferred message was received again")
}

func scheduleCancel(e *env) {
	q := e.queue(nil)
	s := e.sender(q)
	at := time.Now().Add(4 * time.Second)
	seqs, err := s.ScheduleMessages(e.ctx, []*azservicebus.Message{msg("cancelled"), msg("kept")}, at, nil)
	e.must("schedule", err)
	e.check(len(seqs) == 2 && seqs[0] != seqs[1], "sequence numbers %v", seqs)
	r := e.receiver(q, nil)
	pk, err := r.PeekMessages(e.ctx, 5, &azservicebus.PeekMessagesOptions{FromSequenceNumber: p(int64(0))})
	e.must("peek", err)
	e.check(len(pk) == 2 && pk[0].State == azservicebus.MessageStateScheduled, "peek shows %d", len(pk))
	e.must("cancel", s.CancelScheduledMessages(e.ctx, seqs[:1], nil))
	m := e.one(r, 15*time.Second)
	e.check(string(m.Body) == "kept", "got %q", m.Body)
	e.check(time.Now().After(at.Add(-500*time.Millisecond)), "delivered before its time")
	e.complete(r, m)
	e.none(r, 1500*time.Millisecond)
}

func scheduledProperty(e *env) {
	q := e.queue(nil)
	at := time.Now().Add(3 * time.Second)
	m := msg("later")
	m.ScheduledEnqueueTime = &at
	s := e.sender(q)
	e.send(s, m, msg("first"))
	r := e.receiver(q, nil)
	a := e.one(r, wait)
	e.check(string(a.Body) == "first", "the scheduled message came first")
	e.complete(r, a)
	b := e.one(r, wait)
	e.check(string(b.Body) == "later" && time.Now().After(at.Add(-500*time.Millisecond)), "delivered early or wrong: %q", b.Body)
	e.complete(r, b)
}

func dupDetection(e *env) {
	q := e.queue(&admin.QueueProperties{RequiresDuplicateDetection: p(true), DuplicateDetectionHistoryTimeWindow: p("PT1M")})
	s := e.sender(q)
	for _, id := range []string{"a", "a", "b", "a", "b"} {
		e.send(s, &azservicebus.Message{Body: []byte(id), MessageID: p(id)})
	}
	r := e.receiver(q, nil)
	ms := e.take(r, 2, wait)
	e.check(slices.Equal(bodies(ms), []string{"a", "b"}), "got %v", bodies(ms))
	e.complete(r, ms...)
	e.send(s, &azservicebus.Message{Body: []byte("again"), MessageID: p("a")}) // still inside the window after completion
	e.none(r, 1500*time.Millisecond)
}

func ttlDrop(e *env) {
	q := e.queue(nil)
	s := e.sender(q)
	e.send(s, &azservicebus.Message{Body: []byte("short"), TimeToLive: p(time.Second)}, msg("long"))
	time.Sleep(2500 * time.Millisecond)
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	e.check(string(m.Body) == "long", "an expired message was delivered: %q", m.Body)
	e.complete(r, m)
	e.none(e.dlq(q), 1500*time.Millisecond)
}

func ttlDLQ(e *env) {
	q := e.queue(&admin.QueueProperties{DeadLetteringOnMessageExpiration: p(true), DefaultMessageTimeToLive: p("PT2S")})
	e.send(e.sender(q), msg("x"))
	time.Sleep(3 * time.Second)
	e.none(e.receiver(q, nil), time.Second)
	d := e.dlq(q)
	m := e.one(d, 15*time.Second)
	e.check(str(m.DeadLetterReason) == "TTLExpiredException", "reason %q", str(m.DeadLetterReason))
	e.complete(d, m)
}

func fanout(e *env) {
	t := e.topic(nil)
	e.sub(t, "s1", nil)
	e.sub(t, "s2", nil)
	e.send(e.sender(t), msg("m1"), msg("m2"))
	for _, s := range []string{"s1", "s2"} {
		r := e.subReceiver(t, s, nil)
		ms := e.take(r, 2, wait)
		e.check(slices.Equal(bodies(ms), []string{"m1", "m2"}), "%s got %v", s, bodies(ms))
		e.complete(r, ms...)
	}
}

func (e *env) onlyRule(t, s string, f admin.RuleFilter, a admin.RuleAction) {
	e.sub(t, s, &admin.SubscriptionProperties{DefaultRule: &admin.RuleProperties{Name: "only", Filter: f, Action: a}})
}

func prop(body string, kv map[string]any) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), ApplicationProperties: kv}
}

func sqlFilter(e *env) {
	t := e.topic(nil)
	e.onlyRule(t, "s", &admin.SQLFilter{Expression: "color IN ('blue','green') AND qty >= @min AND name LIKE 'a%' AND sys.Label IS NULL",
		Parameters: map[string]any{"@min": int64(5)}}, nil)
	s := e.sender(t)
	e.send(s,
		prop("1", map[string]any{"color": "blue", "qty": int64(5), "name": "abc"}),
		prop("2", map[string]any{"color": "red", "qty": int64(9), "name": "abc"}),
		prop("3", map[string]any{"color": "green", "qty": int64(4), "name": "abc"}),
		prop("4", map[string]any{"color": "green", "qty": 7.5, "name": "azz"}),
		prop("5", map[string]any{"color": "green", "qty": int64(7), "name": "zzz"}),
		prop("6", map[string]any{"color": "green", "name": "abc"}))
	r := e.subReceiver(t, "s", nil)
	ms := e.take(r, 2, wait)
	e.check(slices.Equal(bodies(ms), []string{"1", "4"}), "matched %v, want [1 4]", bodies(ms))
	e.none(r, time.Second)
}

func corrFilter(e *env) {
	t := e.topic(nil)
	e.onlyRule(t, "s", &admin.CorrelationFilter{Subject: p("order"), CorrelationID: p("c1"), ApplicationProperties: map[string]any{"region": "eu"}}, nil)
	s := e.sender(t)
	mk := func(b, subj, corr, region string) *azservicebus.Message {
		return &azservicebus.Message{Body: []byte(b), Subject: p(subj), CorrelationID: p(corr), ApplicationProperties: map[string]any{"region": region}}
	}
	e.send(s, mk("1", "order", "c1", "eu"), mk("2", "order", "c1", "us"), mk("3", "order", "c2", "eu"), mk("4", "other", "c1", "eu"), mk("5", "order", "c1", "eu"))
	r := e.subReceiver(t, "s", nil)
	ms := e.take(r, 2, wait)
	e.check(slices.Equal(bodies(ms), []string{"1", "5"}), "matched %v, want [1 5]", bodies(ms))
	e.none(r, time.Second)
}

func ruleAction(e *env) {
	t := e.topic(nil)
	e.onlyRule(t, "s", &admin.SQLFilter{Expression: "1=1"}, &admin.SQLAction{Expression: "SET priority = 'high'; SET qty = qty + 1; SET sys.Label = 'relabelled'; REMOVE secret"})
	e.sub(t, "plain", nil)
	e.send(e.sender(t), prop("x", map[string]any{"qty": int64(4), "secret": "s"}))
	m := e.one(e.subReceiver(t, "s", nil), wait)
	_, has := m.ApplicationProperties["secret"]
	e.check(m.ApplicationProperties["priority"] == "high" && !has && str(m.Subject) == "relabelled", "after action: %v subject %s", m.ApplicationProperties, str(m.Subject))
	e.check(fmt.Sprint(m.ApplicationProperties["qty"]) == "5", "qty is %v", m.ApplicationProperties["qty"])
	o := e.one(e.subReceiver(t, "plain", nil), wait)
	e.check(o.ApplicationProperties["priority"] == nil && o.ApplicationProperties["secret"] == "s", "the other subscription's copy was changed: %v", o.ApplicationProperties)
}

func severalRules(e *env) {
	t := e.topic(nil)
	e.sub(t, "s", nil)
	e.rule(t, "s", "r1", &admin.SQLFilter{Expression: "n > 1"}, nil)
	e.rule(t, "s", "r2", &admin.SQLFilter{Expression: "n > 2"}, nil)
	_, err := e.a.DeleteRule(e.ctx, t, "s", "$Default", nil)
	e.must("delete $Default", err)
	s := e.sender(t)
	e.send(s, prop("1", map[string]any{"n": int64(1)}), prop("3", map[string]any{"n": int64(3)}))
	r := e.subReceiver(t, "s", nil)
	m := e.one(r, wait)
	e.check(string(m.Body) == "3", "got %q", m.Body)
	e.complete(r, m)
	e.none(r, 1500*time.Millisecond) // two plain matching rules still make one copy
	e.rule(t, "s", "r3", &admin.SQLFilter{Expression: "n > 2"}, &admin.SQLAction{Expression: "SET via = 'r3'"})
	e.send(s, prop("5", map[string]any{"n": int64(5)}))
	ms := e.take(r, 2, wait) // a rule with an action adds its own copy
	n := 0
	for _, m := range ms {
		if m.ApplicationProperties["via"] == "r3" {
			n++
		}
	}
	e.check(n == 1, "%d of 2 copies carry the action's mark, want 1", n)
	e.none(r, time.Second)
}

func subDeadLetter(e *env) {
	t := e.topic(nil)
	e.sub(t, "s", nil)
	e.send(e.sender(t), msg("bad"))
	r := e.subReceiver(t, "s", nil)
	m := e.one(r, wait)
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, m, &azservicebus.DeadLetterOptions{Reason: p("why")}))
	d := e.subReceiver(t, "s", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	g := e.one(d, wait)
	e.check(str(g.DeadLetterReason) == "why", "reason %q", str(g.DeadLetterReason))
	e.complete(d, g)
}

func autoForward(e *env) {
	dst := e.queue(nil)
	mid := e.queue(&admin.QueueProperties{ForwardTo: &dst})
	src := e.queue(&admin.QueueProperties{ForwardTo: &mid})
	e.send(e.sender(src), &azservicebus.Message{Body: []byte("hop"), MessageID: p("fwd-1")})
	r := e.receiver(dst, nil)
	m := e.one(r, wait)
	e.check(string(m.Body) == "hop" && m.MessageID == "fwd-1", "got %q", m.Body)
	e.check(m.DeliveryCount == 1, "delivery count %d", m.DeliveryCount)
	e.complete(r, m)
}

func autoForwardSub(e *env) {
	dst := e.queue(nil)
	t := e.topic(nil)
	e.sub(t, "s", &admin.SubscriptionProperties{ForwardTo: &dst})
	e.send(e.sender(t), msg("via topic"))
	r := e.receiver(dst, nil)
	m := e.one(r, wait)
	e.check(string(m.Body) == "via topic", "got %q", m.Body)
	e.complete(r, m)
}

func forwardDLQ(e *env) {
	dst := e.queue(nil)
	src := e.queue(&admin.QueueProperties{ForwardDeadLetteredMessagesTo: &dst})
	e.send(e.sender(src), msg("bad"))
	r := e.receiver(src, nil)
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r, wait), &azservicebus.DeadLetterOptions{Reason: p("why")}))
	d := e.receiver(dst, nil)
	m := e.one(d, wait)
	e.check(string(m.Body) == "bad" && str(m.DeadLetterReason) == "why", "got %q reason %q", m.Body, str(m.DeadLetterReason))
	e.check(strings.EqualFold(str(m.DeadLetterSource), src), "dead-letter source %q, want %q", str(m.DeadLetterSource), src)
	e.complete(d, m)
}

func runtimeCounts(e *env) {
	q := e.queue(nil)
	s := e.sender(q)
	e.send(s, msg("1"), msg("2"), msg("3"))
	_, err := s.ScheduleMessages(e.ctx, []*azservicebus.Message{msg("s")}, time.Now().Add(time.Hour), nil)
	e.must("schedule", err)
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, m, nil))
	var last string
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
		g, err := e.a.GetQueueRuntimeProperties(e.ctx, q, nil)
		e.must("runtime properties", err)
		e.check(g != nil, "nil runtime properties")
		last = fmt.Sprintf("active %d dead %d scheduled %d total %d size %d", g.ActiveMessageCount, g.DeadLetterMessageCount, g.ScheduledMessageCount, g.TotalMessageCount, g.SizeInBytes)
		if g.ActiveMessageCount == 2 && g.DeadLetterMessageCount == 1 && g.ScheduledMessageCount == 1 && g.TotalMessageCount == 4 && g.SizeInBytes > 0 {
			return
		}
	}
	e.check(false, "counts: %s; want active 2 dead 1 scheduled 1 total 4", last)
}

func statusDisabled(e *env) {
	q := e.queue(nil)
	s := e.sender(q)
	e.send(s, msg("before"))
	g, err := e.a.GetQueue(e.ctx, q, nil)
	e.must("get", err)
	g.Status = p(admin.EntityStatusSendDisabled)
	_, err = e.a.UpdateQueue(e.ctx, q, g.QueueProperties, nil)
	e.must("disable send", err)
	ctx, cancel := context.WithTimeout(e.ctx, 8*time.Second)
	defer cancel()
	err = s.SendMessage(ctx, msg("refused"), nil)
	e.check(err != nil, "a SendDisabled queue accepted a message")
	r := e.receiver(q, nil)
	m := e.one(r, wait)
	e.check(string(m.Body) == "before", "got %q", m.Body)
	e.complete(r, m)
}

func updateDetach(e *env) {
	q := e.queue(nil)
	s, r := e.sender(q), e.receiver(q, nil)
	e.send(s, msg("1"))
	e.complete(r, e.one(r, wait))
	_, err := e.a.UpdateQueue(e.ctx, q, admin.QueueProperties{MaxDeliveryCount: p(int32(20))}, nil)
	e.must("update", err) // Azure detaches the links here; the client must get over it
	e.send(s, msg("2"))
	m := e.one(r, wait)
	e.check(string(m.Body) == "2", "got %q", m.Body)
	e.complete(r, m)
}
