package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func topics() map[string]scenario {
	return map[string]scenario{
		"topic-admin":        topicAdmin,
		"subscription-admin": subscriptionAdmin,
		"rule-admin":         ruleAdmin,
		"topic-fan-out": func(e *env) {
			t, all := e.topic(), []string{"a", "b", "c"}
			for _, name := range all {
				e.subscribe(t, name, nil)
			}
			e.batch(0, t, 5)
			for i, name := range all {
				r := e.subscription(i, t, name, nil)
				got := e.take(r, 5)
				e.equal(name, bodies(got), []string{"m0", "m1", "m2", "m3", "m4"})
				e.complete(r, got...)
				e.none(r)
			}
		},
		"topic-dead-letter": func(e *env) {
			t := e.topic()
			e.subscribe(t, "s", nil)
			e.send(0, t, text("bad"))
			r := e.subscription(1, t, "s", nil)
			e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), &azservicebus.DeadLetterOptions{Reason: to("why")}))
			d := e.subscription(0, t, "s", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
			m := e.one(d)
			e.equal("dead letter", []string{string(m.Body), deref(m.DeadLetterReason)}, []string{"bad", "why"})
			e.complete(d, m)
		},
		"topic-sessions": func(e *env) {
			t := e.topic()
			e.subscribe(t, "s", &admin.SubscriptionProperties{RequiresSession: to(true)})
			for i := range 3 {
				e.send(0, t, inSession("A", fmt.Sprintf("A%d", i)), inSession("B", fmt.Sprintf("B%d", i)))
			}
			var held []string
			for i := range 2 {
				r, err := e.client(i).AcceptNextSessionForSubscription(e.ctx, t, "s", nil)
				e.must("accept", err)
				got, s := e.take(r, 3), r.SessionID()
				e.equal("bodies", bodies(got), []string{s + "0", s + "1", s + "2"})
				e.complete(r, got...)
				held = append(held, s)
			}
			slices.Sort(held)
			e.equal("held", held, []string{"A", "B"})
		},
		"topic-schedule": func(e *env) {
			t, at := e.topic(), time.Now().Add(12*time.Second).Truncate(time.Millisecond)
			e.subscribe(t, "s", nil)
			numbers := e.schedule(t, at, "keep", "drop")
			e.must("cancel", e.sender(0, t).CancelScheduledMessages(e.ctx, numbers[1:], nil))
			r := e.subscription(1, t, "s", nil)
			m := e.one(r)
			e.check(!time.Now().Before(at), "received before its time")
			e.equal("body", string(m.Body), "keep")
			e.complete(r, m)
			e.none(r)
		},
		"topic-receive": func(e *env) {
			_, err := e.receiver(0, e.topic()).ReceiveMessages(e.ctx, 1, nil)
			e.told("receive from a topic", err, "amqp:not-allowed")
		},
		"topic-counts": func(e *env) {
			t := e.topic()
			e.subscribe(t, "s", nil)
			e.batch(0, t, 3)
			r := e.subscription(1, t, "s", nil)
			e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), nil))
			e.until("the counts", func() bool {
				p, err := e.admin(1).GetSubscriptionRuntimeProperties(e.ctx, t, "s", nil)
				e.must("get counts", err)
				return p.ActiveMessageCount == 2 && p.DeadLetterMessageCount == 1 && p.TotalMessageCount == 3
			})
		},
	}
}

func topicAdmin(e *env) {
	a, name := e.admin(0), e.name("t")
	e.later(func(ctx context.Context) { _, _ = a.DeleteTopic(ctx, name, nil) })
	_, err := a.CreateTopic(e.ctx, name, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{
		UserMetadata: to("note"), DefaultMessageTimeToLive: to("PT2H")}})
	e.must("create", err)
	read, err := e.admin(1).GetTopic(e.ctx, name, nil)
	e.must("get", err)
	e.equal("properties", []string{deref(read.UserMetadata), deref(read.DefaultMessageTimeToLive)},
		[]string{"note", "PT2H"})
	read.UserMetadata = to("changed")
	changed, err := a.UpdateTopic(e.ctx, name, read.TopicProperties, nil)
	e.must("update", err)
	e.equal("changed", deref(changed.UserMetadata), "changed")
	_, err = a.CreateTopic(e.ctx, name, nil)
	e.wantStatus("create again", err, http.StatusConflict)
	_, err = a.CreateQueue(e.ctx, name, nil)
	e.wantStatus("create a queue of the name", err, http.StatusConflict)
	e.until("the topic is listed", func() bool {
		for p := a.NewListTopicsPager(nil); p.More(); {
			page, err := p.NextPage(e.ctx)
			e.must("list", err)
			if slices.ContainsFunc(page.Topics, func(t admin.TopicItem) bool { return t.TopicName == name }) {
				return true
			}
		}
		return false
	})
	_, err = a.DeleteTopic(e.ctx, name, nil)
	e.must("delete", err)
	gone, err := a.GetTopic(e.ctx, name, nil)
	e.must("get what is deleted", err)
	e.check(gone == nil, "the deleted topic is there")
}

func subscriptionAdmin(e *env) {
	t, a := e.topic(), e.admin(0)
	e.subscribe(t, "one", &admin.SubscriptionProperties{LockDuration: to("PT45S"), MaxDeliveryCount: to(int32(7)),
		EnableDeadLetteringOnFilterEvaluationExceptions: to(false)})
	e.subscribe(t, "two", nil)
	read, err := e.admin(1).GetSubscription(e.ctx, t, "one", nil)
	e.must("get", err)
	e.equal("properties", []any{deref(read.LockDuration), deref(read.MaxDeliveryCount)},
		[]any{"PT45S", int32(7)})
	read.UserMetadata = to("changed")
	changed, err := a.UpdateSubscription(e.ctx, t, "one", read.SubscriptionProperties, nil)
	e.must("update", err)
	e.equal("changed", deref(changed.UserMetadata), "changed")
	var names []string
	for p := a.NewListSubscriptionsPager(t, nil); p.More(); {
		page, err := p.NextPage(e.ctx)
		e.must("list", err)
		for _, s := range page.Subscriptions {
			names = append(names, s.SubscriptionName)
		}
	}
	e.equal("listed", names, []string{"one", "two"})
	counts, err := a.GetTopicRuntimeProperties(e.ctx, t, nil)
	e.must("get counts", err)
	e.equal("subscriptions", counts.SubscriptionCount, int32(2))
	_, err = a.CreateSubscription(e.ctx, t, "one", nil)
	e.wantStatus("create again", err, http.StatusConflict)
	_, err = a.DeleteSubscription(e.ctx, t, "one", nil)
	e.must("delete", err)
	gone, err := a.GetSubscription(e.ctx, t, "one", nil)
	e.must("get what is deleted", err)
	e.check(gone == nil, "the deleted subscription is there")
}

func ruleAdmin(e *env) {
	t, a := e.topic(), e.admin(0)
	e.subscribe(t, "s", nil)
	const expression = "price > 10 AND colour IN ('red','blue')"
	for _, r := range []admin.CreateRuleOptions{
		{Name: to("sql"), Filter: &admin.SQLFilter{Expression: expression},
			Action: &admin.SQLAction{Expression: "SET marked = TRUE; REMOVE colour"}},
		{Name: to("corr"), Filter: &admin.CorrelationFilter{Subject: to("l"), CorrelationID: to("c"),
			ContentType: to("ct"), ApplicationProperties: map[string]any{"kind": "a", "n": int64(5)}}},
	} {
		_, err := a.CreateRule(e.ctx, t, "s", &r)
		e.must("create", err)
	}
	rule := func(name string) *admin.GetRuleResponse {
		got, err := e.admin(1).GetRule(e.ctx, t, "s", name, nil)
		e.must("get "+name, err)
		e.check(got != nil, "%s is not there", name)
		return got
	}
	_, always := rule("$Default").Filter.(*admin.TrueFilter)
	e.check(always, "$Default does not choose everything")
	read := rule("sql")
	e.equal("filter and action", []string{read.Filter.(*admin.SQLFilter).Expression, read.Action.(*admin.SQLAction).Expression},
		[]string{expression, "SET marked = TRUE; REMOVE colour"})
	corr := rule("corr").Filter.(*admin.CorrelationFilter)
	e.equal("correlation filter", []any{deref(corr.Subject), deref(corr.CorrelationID), deref(corr.ContentType),
		corr.ApplicationProperties}, []any{"l", "c", "ct", map[string]any{"kind": "a", "n": int64(5)}})
	read.Filter = &admin.SQLFilter{Expression: "price > 20"}
	_, err := a.UpdateRule(e.ctx, t, "s", read.RuleProperties)
	e.must("update", err)
	e.equal("updated", rule("sql").Filter.(*admin.SQLFilter).Expression, "price > 20")
	var names []string
	for p := a.NewListRulesPager(t, "s", nil); p.More(); {
		page, err := p.NextPage(e.ctx)
		e.must("list", err)
		for _, r := range page.Rules {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	e.equal("listed", names, []string{"$Default", "corr", "sql"})
	_, err = a.DeleteRule(e.ctx, t, "s", "$Default", nil)
	e.must("delete", err)
	gone, err := a.GetRule(e.ctx, t, "s", "$Default", nil)
	e.must("get what is deleted", err)
	e.check(gone == nil, "the deleted rule is there")
}

// only creates a subscription whose one rule that is.
func (e *env) only(topic, name string, f admin.RuleFilter, a admin.RuleAction) {
	e.subscribe(topic, name, &admin.SubscriptionProperties{
		DefaultRule: &admin.RuleProperties{Name: "only", Filter: f, Action: a}})
}

func with(body string, properties map[string]any) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), ApplicationProperties: properties}
}

// chosen returns the bodies that reached a subscription.
func (e *env) chosen(topic, name string) []string {
	r := e.subscription(1, topic, name, nil)
	var all []string
	for wait := 5 * time.Second; ; wait = 1500 * time.Millisecond {
		ctx, cancel := context.WithTimeout(e.ctx, wait)
		got, err := r.ReceiveMessages(ctx, 10, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return all
		}
		e.must("receive", err)
		all = append(all, bodies(got)...)
		e.complete(r, got...)
	}
}

func filters() map[string]scenario {
	return map[string]scenario{
		"topic-sql": func(e *env) {
			t := e.topic()
			for name, expression := range map[string]string{"dear": "price > 10", "bare": "price IS NULL",
				"red": "colour = 'red' OR sys.Label LIKE 'r%'", "nothing": "1=0"} {
				e.only(t, name, &admin.SQLFilter{Expression: expression}, nil)
			}
			rose := with("c", map[string]any{"price": 20.5})
			rose.Subject = to("rose")
			e.send(0, t, with("a", map[string]any{"price": int64(5), "colour": "red"}),
				with("b", map[string]any{"price": int64(15), "colour": "blue"}), rose, text("d"))
			for name, want := range map[string][]string{"dear": {"b", "c"}, "red": {"a", "c"}, "bare": {"d"}, "nothing": nil} {
				e.equal(name, e.chosen(t, name), want)
			}
		},
		"topic-correlation": func(e *env) {
			t := e.topic()
			e.only(t, "label", &admin.CorrelationFilter{Subject: to("l")}, nil)
			e.only(t, "both", &admin.CorrelationFilter{CorrelationID: to("c"),
				ApplicationProperties: map[string]any{"kind": "a"}}, nil)
			a, b, c := text("a"), text("b"), with("c", map[string]any{"kind": "a"})
			a.Subject, b.CorrelationID, c.CorrelationID = to("l"), to("c"), to("c")
			e.send(0, t, a, b, c)
			e.equal("label", e.chosen(t, "label"), []string{"a"})
			e.equal("both", e.chosen(t, "both"), []string{"c"})
		},
		"topic-action": func(e *env) {
			t := e.topic()
			e.only(t, "changed", &admin.SQLFilter{Expression: "1=1"},
				&admin.SQLAction{Expression: "SET total = price * 2; SET sys.Label = 'marked'; REMOVE secret"})
			e.send(0, t, with("x", map[string]any{"price": int64(21), "secret": "s"}))
			m := e.one(e.subscription(1, t, "changed", nil))
			_, secret := m.ApplicationProperties["secret"]
			e.equal("changed", []any{fmt.Sprint(m.ApplicationProperties["total"]), secret, deref(m.Subject)},
				[]any{"42", false, "marked"})
		},
	}
}

func forwarding() map[string]scenario {
	return map[string]scenario{
		"forward": func(e *env) {
			last := e.queue(nil)
			second := e.queue(&admin.QueueProperties{ForwardTo: &last})
			first := e.queue(&admin.QueueProperties{ForwardTo: &second})
			m := with("x", map[string]any{"k": "v"})
			m.MessageID = to("the-id")
			e.send(0, first, m)
			r := e.receiver(1, last)
			got := e.one(r)
			e.equal("forwarded", []any{string(got.Body), got.MessageID, got.DeliveryCount, got.ApplicationProperties},
				[]any{"x", "the-id", uint32(1), map[string]any{"k": "v"}})
			e.complete(r, got)
			_, err := e.receiver(1, first).ReceiveMessages(e.ctx, 1, nil)
			e.told("receive where messages are forwarded from", err, "amqp:not-allowed")
		},
		"forward-topic": func(e *env) {
			q, t := e.queue(nil), e.topic()
			e.subscribe(t, "s", &admin.SubscriptionProperties{ForwardTo: &q})
			e.send(0, t, text("a"), text("b"))
			got := bodies(e.take(e.receiver(1, q), 2))
			slices.Sort(got)
			e.equal("forwarded", got, []string{"a", "b"})
		},
		"forward-dead-letters": func(e *env) {
			deadLetters := e.queue(nil)
			q := e.queue(&admin.QueueProperties{ForwardDeadLetteredMessagesTo: &deadLetters})
			e.send(0, q, text("bad"))
			r := e.receiver(1, q)
			e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), &azservicebus.DeadLetterOptions{Reason: to("why")}))
			d := e.receiver(0, deadLetters)
			m := e.one(d)
			e.equal("dead letter", []string{string(m.Body), deref(m.DeadLetterReason),
				strings.ToLower(deref(m.DeadLetterSource))}, []string{"bad", "why", strings.ToLower(q)})
			e.complete(d, m)
		},
	}
}
