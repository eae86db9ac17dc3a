package scenario

import (
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

// topic creates a topic with subscriptions, each with the default rule.
func (b *bench) topic(name string, subscriptions ...string) {
	b.Helper()
	b.queue(name, func(d *fsm.Descriptor) { d.Kind = fsm.Topic })
	for _, s := range subscriptions {
		b.subscription(name, s)
	}
}

func (b *bench) subscription(topic, name string, options ...func(*fsm.Descriptor)) string {
	b.Helper()
	return b.queue(topic+"/Subscriptions/"+name, append(options, func(d *fsm.Descriptor) { d.Kind = fsm.Subscription })...)
}

// rule adds a SQL rule to a subscription; an action may be empty.
func (c *client) rule(subscription, name, filter, action string) {
	c.b.Helper()
	description := map[string]any{"sql-filter": map[string]any{"expression": filter}, "rule-name": name}
	if action != "" {
		description["sql-rule-action"] = map[string]any{"expression": action}
	}
	c.ask(subscription, "add-rule", map[string]any{"rule-name": name, "rule-description": description})
}

func (c *client) dropRule(subscription, name string) {
	c.b.Helper()
	c.ask(subscription, "remove-rule", map[string]any{"rule-name": name})
}

// only makes a SQL rule the only one of a subscription.
func (c *client) only(subscription, filter, action string) {
	c.b.Helper()
	c.rule(subscription, "only", filter, action)
	c.dropRule(subscription, "$Default")
}

const subA, subB, subC = "t/Subscriptions/a", "t/Subscriptions/b", "t/Subscriptions/c"

// S-214, S-323: a publication is one entry, however many subscriptions take it, and its body is there
// once.
func TestAPublicationIsOneEntry(t *testing.T) {
	const subscriptions, bodyBytes = 100, 10_000
	onThree(t, func(b *bench) {
		b.topic("t")
		for i := range subscriptions {
			b.subscription("t", fmt.Sprint("s", i))
		}
		s := b.client().sender("t")
		s.send(message("first"))
		b.pass(time.Second)
		leader := b.lab.Leader(1)
		entries, bytes := b.lab.Applied(leader, 1), b.lab.BodyBytes(leader, 1)
		m := message("big")
		m.Data = [][]byte{make([]byte, bodyBytes)}
		s.send(m)
		want(b, "entries", b.lab.Applied(leader, 1)-entries, 1)
		if grown := b.lab.BodyBytes(leader, 1) - bytes; grown < bodyBytes || grown > bodyBytes+1000 {
			b.Fatalf("%d bytes of bodies were stored, want those of one", grown)
		}
		for _, i := range []int{0, 57, subscriptions - 1} {
			name := fmt.Sprint("t/Subscriptions/s", i)
			want(b, "in "+name, b.counts(name).Active, 2)
		}
	})
}

// T-70; S-101
func TestT70ACopyHasTheTopicsNumberAndItsOwn(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a", "b")
		c := b.client()
		c.only(subB, "even = true", "")
		s := c.sender("t")
		for i := range 10 {
			s.send(message("x", with("even", i%2 == 1)))
		}
		for i, m := range c.peekAll(subA) {
			want(b, "enqueued number", m.enqueuedSeq(), int64(i+1))
			want(b, "number", m.seq(), int64(i+1))
		}
		for i, m := range c.peekAll(subB) {
			want(b, "enqueued number of the selected", m.enqueuedSeq(), int64(2*i+2))
			want(b, "number of the selected", m.seq(), int64(i+1))
		}
	})
}

// T-89; S-121
func TestT89RulesCountAtActivation(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a", "b")
		c := b.client()
		c.schedule("t", time.Now().Add(5*time.Second), message("m"))
		b.subscription("t", "c")
		c.dropRule(subB, "$Default")
		b.pass(6 * time.Second)
		wantAll(b, "in a", texts(c.peek(subA, 0, 10)), "m")
		want(b, "in b", len(c.peek(subB, 0, 10)), 0)
		wantAll(b, "in c", texts(c.peek(subC, 0, 10)), "m")
	})
}

// T-107; S-31, S-174
func TestT107ASessionSubscriptionWantsASession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a")
		b.subscription("t", "b", sessions)
		c := b.client()
		c.send("t", "m")
		want(b, "plain", c.receiver(subA).one().text(), "m")
		dead := c.receiver(deadLetters(subB)).one()
		want(b, "reason", dead.reason(), "Session ID is null.")
	})
}

// T-198; S-214, S-215
func TestT198EverySubscriptionHasItsOwnCopy(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t")
		c := b.client()
		c.send("t", "nobody")
		for _, s := range []string{"a", "b", "c"} {
			b.subscription("t", s)
		}
		c.send("t", "m")
		c.receiver(subA).one().complete()
		c.receiver(subB).one().abandon()
		want(b, "in a", len(c.peek(subA, 0, 10)), 0)
		m := c.receiver(subB).one()
		want(b, "in b", m.text(), "m")
		want(b, "count in b", m.count(), 2)
		want(b, "count in c", c.receiver(subC).one().count(), 1)
	})
}

// T-199; S-216
func TestT199RulesWithActionsGiveCopiesOfTheirOwn(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a")
		c := b.client()
		c.rule(subA, "plain 1", "1 = 1", "")
		c.rule(subA, "plain 2", "x = 1", "")
		c.rule(subA, "act 1", "x = 1", "SET y = 1")
		c.rule(subA, "act 2", "x = 1", "SET y = 2")
		c.sender("t").send(message("m", with("x", int32(1))))
		names := map[any]int{}
		for _, m := range c.receiver(subA).take(3) {
			names[m.property("RuleName")]++
			m.complete()
		}
		want(b, "copies left", len(c.peek(subA, 0, 10)), 0)
		if names[nil] != 1 || names["act 1"] != 1 || names["act 2"] != 1 {
			b.Fatalf("copies by RuleName: %v", names)
		}
	})
}

// T-200; S-217, S-222
func TestT200ARuleConcernsWhatComesAfterIt(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a")
		c := b.client()
		s := c.sender("t")
		s.send(message("1"))
		c.dropRule(subA, "$Default")
		s.send(message("2"))
		c.rule(subA, "all", "1 = 1", "")
		s.send(message("3"))
		wantAll(b, "selected", texts(c.peek(subA, 0, 10)), "1", "3")
	})
}

// T-201; S-218
func TestT201ACorrelationFilterWantsAllItsProperties(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a")
		c := b.client()
		c.ask(subA, "add-rule", map[string]any{"rule-name": "r", "rule-description": map[string]any{
			"rule-name": "r", "correlation-filter": map[string]any{
				"label": "Red", "properties": map[string]any{"size": "L"},
			},
		}})
		c.dropRule(subA, "$Default")
		s := c.sender("t")
		labelled := func(id, label, size string) *goamqp.Message {
			m := message(id, with("size", size))
			m.Properties.Subject = &label
			return m
		}
		s.send(labelled("both", "Red", "L"), labelled("case", "red", "L"), labelled("one", "Red", "S"), message("Red L"))
		wantAll(b, "selected", texts(c.peek(subA, 0, 10)), "both")
	})
}

// T-203; S-220
func TestT203AnActionChangesItsCopyOnly(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a", "b")
		c := b.client()
		c.only(subA, "1 = 1", "SET quantity = quantity / 2; REMOVE note; SET sys.ScheduledEnqueueTimeUtc = later")
		c.sender("t").send(message("m", with("quantity", int64(10)), with("note", "x"),
			with("later", time.Now().Add(time.Hour))))
		m := c.receiver(subA).one()
		want[any](b, "quantity", m.property("quantity"), int64(5))
		want[any](b, "note", m.property("note"), nil)
		m = c.receiver(subB).one()
		want[any](b, "quantity of the other", m.property("quantity"), int64(10))
		want[any](b, "note of the other", m.property("note"), "x")
	})
}

// T-204; S-221
func TestT204AFailingFilterConcernsItsSubscription(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "c")
		c := b.client()
		b.subscription("t", "a", func(d *fsm.Descriptor) { d.DeadLetterOnFilterError = true })
		b.subscription("t", "b")
		for _, s := range []string{subA, subB} {
			c.only(s, "x / 0 = 1", "")
		}
		c.sender("t").send(message("m", with("x", int32(1))))
		want(b, "dead letter of a", c.receiver(deadLetters(subA)).one().reason(), "FilterException")
		want(b, "in b", len(c.peek(subB, 0, 10))+len(c.peek(deadLetters(subB), 0, 10)), 0)
		want(b, "in c", c.receiver(subC).one().text(), "m")
	})
}

// T-205; S-223
func TestT205NobodyReceivesFromATopic(t *testing.T) {
	onOne(t, func(b *bench) {
		b.topic("t", "a")
		_, err := b.client().tryReceiver("t")
		b.refused("receive", err, notAllowed)
	})
}

// T-206; S-224, S-281
func TestT206ChanceIsTheSameOnEveryReplica(t *testing.T) {
	onThree(t, func(b *bench) {
		b.topic("t", "a")
		c := b.client()
		c.only(subA, "1 = 1", "SET id = newid()")
		c.send("t", "m")
		var ids []any
		for i := range 3 {
			b.must("lead", b.lab.Lead(1, i))
			ids = append(ids, b.clientAt(i).peek(subA, 0, 10)[0].property("id"))
		}
		if ids[0] == nil || ids[0] != ids[1] || ids[1] != ids[2] {
			b.Fatalf("ids on the nodes: %v", ids)
		}
	})
}

// T-213; S-253
func TestT213StatusOfTopicAndSubscription(t *testing.T) {
	onThree(t, func(b *bench) {
		for i, s := range []struct {
			topic, subscription fsm.Status
			send, receive       bool
		}{
			{fsm.Active, fsm.Active, true, true},
			{fsm.Active, fsm.ReceiveDisabled, true, false},
			{fsm.Active, fsm.Disabled, true, false},
			{fsm.SendDisabled, fsm.Active, false, true},
			{fsm.Disabled, fsm.Active, false, true},
			{fsm.SendDisabled, fsm.ReceiveDisabled, false, false},
			{fsm.Disabled, fsm.Disabled, false, false},
		} {
			topic := fmt.Sprint("t", i)
			sub := topic + "/Subscriptions/a"
			b.topic(topic, "a")
			b.client().send(topic, "before")
			b.update(topic, status(s.topic))
			b.update(sub, status(s.subscription))
			left := []string{"before"}
			tx, err := b.client().trySender(topic)
			if err == nil {
				err = tx.try(message("meanwhile"))
			}
			if s.send {
				b.must("send", err)
				left = append(left, "meanwhile") // copies go on arriving
			} else {
				b.refused(fmt.Sprint("send in case ", i), err, entityDisabled)
			}
			c := b.client()
			if rx, err := c.tryReceiver(sub); s.receive {
				b.must(fmt.Sprint("receive in case ", i), err)
				m := rx.one()
				want(b, "received", m.text(), "before")
				m.release()
				rx.close()
			} else {
				b.refused(fmt.Sprint("receive in case ", i), err, entityDisabled)
			}
			wantAll(b, "kept", texts(c.peek(sub, 0, 10)), left...)
			b.update(topic, status(fsm.Active))
			b.update(sub, status(fsm.Active))
			wantAll(b, "received at last", texts(b.client().receiver(sub).take(len(left))), left...)
		}
	})
}

// T-180; S-195
func TestT180DetectionIsOfTheTopic(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("t", func(d *fsm.Descriptor) { d.Kind, d.DetectDuplicates = fsm.Topic, true })
		b.subscription("t", "a")
		b.subscription("t", "b")
		c := b.client()
		c.only(subB, "1 = 1", "SET sys.MessageId = 'same'")
		s := c.sender("t")
		s.send(message("x"), message("x"), message("y"))
		want(b, "in a", len(c.peek(subA, 0, 10)), 2)
		want(b, "in b", len(c.peek(subB, 0, 10)), 2)
	})
}
