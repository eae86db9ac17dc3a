package transport

import (
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// requestScene is a client with one pair of request links per node and no other link.
func requestScene(t *testing.T, b *bubble, nodes ...string) *scene {
	t.Helper()
	s := &scene{t: t, b: b, c: b.client(), nodes: map[string]uint32{}, locked: map[string]fsm.Delivery{},
		number: map[string]fsm.SequenceNumber{}, last: 100}
	s.c.authenticate()
	for i, node := range nodes {
		s.nodes[node] = uint32(10 + 2*i)
		s.c.attachPair(0, s.nodes[node], node+"/$management", node+"-reply")
		s.c.send(0, credit(s.nodes[node]+1, 0, 10_000, false))
	}
	return s
}

// want asks and fails unless the answer has that code.
func (s *scene) want(code int64, node, op string, body any) amqp.Map {
	s.t.Helper()
	got, answer, text := s.ask(node, op, body)
	if got != code {
		s.t.Fatalf("%s: %d %s, want %d", op, got, text, code)
	}
	return answer
}

// scheduleOf is the body of a request that schedules one message in an hour.
func scheduleOf(text string) amqp.Map {
	w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
	w.Timestamp(annScheduledTime, amqp.Timestamp(time.Now().Add(time.Hour).UnixMilli()))
	return mapOf("messages", amqp.List{mapOf("message", append(w.End(), amqp.AppendData(nil, []byte(text))...))})
}

// S-259, E2: a request link serves the entity that has the name when the request comes, at once after
// it was deleted and made again, also where this node's catalog still has the old one.
func TestARequestFindsTheEntityOfItsName(t *testing.T) {
	for _, lags := range []bool{false, true} {
		inBubble(t, func(b *bubble) {
			b.broker.subscription("news", "all")
			b.broker.queue("orders")
			b.broker.queue("grouped", withSessions)
			s := requestScene(t, b, ruleNode, "orders", "grouped")
			defer s.c.close()
			s.want(codeOK, "orders", "schedule-message", scheduleOf("of the first"))
			s.want(codeOK, ruleNode, "add-rule", ruleMap("first", "sql-filter", mapOf("expression", "a = 1")))
			old := map[string]*fsm.Descriptor{}
			for _, name := range []string{ruleNode, "orders", "grouped"} {
				old[name], _ = b.broker.Entity(t.Context(), name)
				b.broker.remove(name)
			}
			b.broker.subscription("news", "all")
			b.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxMessageBytes = 4 << 20 })
			b.broker.queue("grouped", withSessions)
			if lags {
				b.broker.mu.Lock()
				b.broker.lagging = old
				b.broker.mu.Unlock()
			}
			if all := s.rules(); len(all) != 1 || all[0][2] != "$Default" {
				t.Errorf("rules of the second: %v", all)
			}
			s.want(codeOK, ruleNode, "add-rule", ruleMap("second", "sql-filter", mapOf("expression", "a = 2")))
			s.want(codeOK, ruleNode, "remove-rule", mapOf("rule-name", "$Default"))
			if all := s.rules(); len(all) != 1 || all[0][2] != "second" {
				t.Errorf("rules of the second, changed: %v", all)
			}
			s.want(codeNoContent, "orders", "peek-message", mapOf("from-sequence-number", int64(0), "message-count", int32(5)))
			answer := s.want(codeOK, "orders", "schedule-message", scheduleOf("of the second"))
			numbers, _ := answer.Get("sequence-numbers")
			if n, ok := amqp.ToInt64s(numbers); !ok || len(n) != 1 || n[0] != 1 {
				t.Errorf("numbers of the second: %v", numbers)
			}
			answer = s.want(codeOK, "orders", "peek-message", mapOf("from-sequence-number", int64(0), "message-count", int32(5)))
			if got := string(peeked(answer)); !strings.Contains(got, "of the second") {
				t.Errorf("peeked %q", got)
			}
			s.want(codeOK, "orders", "cancel-scheduled-message", mapOf("sequence-numbers", []int64{1}))
			s.want(codeNoContent, "grouped", "get-message-sessions", mapOf("skip", int32(0), "top", int32(5)))
			// The limit is the second one's as well.
			s.want(codeOK, "orders", "schedule-message", scheduleOf(strings.Repeat("x", 3<<19)))
		})
	}
}

// S-259, E2: the session that a connection holds of the second entity of a name is found by requests on
// the link that was attached to the first.
func TestARequestFindsTheSessionOfTheNewEntity(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("grouped", withSessions)
		s := requestScene(t, b, "grouped")
		defer s.c.close()
		b.broker.remove("grouped")
		d := b.broker.queue("grouped", withSessions)
		s.enqueue(d, fsm.Main, "in session")
		a := receiverOf(5, "grouped")
		w := amqp.BeginSymbolMap(nil)
		w.String(string(amqp.FilterSession), "s")
		a.Source.Filter = w.End()
		s.c.attach(0, a)
		s.want(codeOK, "grouped", "renew-session-lock", mapOf("session-id", "s"))
	})
}

// S-259, E2: where nothing has the name any more the answer says so of the entity, and not of a rule of
// it; the link stays and serves what is made later.
func TestARequestForADeletedEntityNamesIt(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.subscription("news", "all")
		s := requestScene(t, b, ruleNode)
		defer s.c.close()
		d, _ := b.broker.Entity(t.Context(), ruleNode)
		b.broker.remove(ruleNode)
		for _, lags := range []bool{false, true} {
			if lags {
				b.broker.mu.Lock()
				b.broker.lagging = map[string]*fsm.Descriptor{ruleNode: d}
				b.broker.mu.Unlock()
			}
			for op, body := range map[string]amqp.Map{
				"remove-rule":     mapOf("rule-name", "$Default"),
				"add-rule":        ruleMap("r", "sql-filter", mapOf("expression", "a = 1")),
				"enumerate-rules": mapOf("top", int32(1)),
				"peek-message":    mapOf("from-sequence-number", int64(0), "message-count", int32(5)),
			} {
				code, condition, _, text := s.askFully(ruleNode, "com.microsoft:"+op, body)
				if code != 404 || condition != string(amqp.ConditionNotFound) ||
					!strings.Contains(text, "/news/Subscriptions/all' could not be found") {
					t.Errorf("%s: %d %s %s", op, code, condition, text)
				}
			}
		}
		b.broker.mu.Lock()
		b.broker.lagging = nil
		b.broker.mu.Unlock()
		time.Sleep(time.Minute) // the links of what is gone have been looked for many times
		b.broker.subscription("news", "all")
		if all := s.rules(); len(all) != 1 {
			t.Errorf("rules: %v", all)
		}
	})
}

// S-254, S-259, E2: the links of a deleted or disabled entity hear of it when this node's catalog knows,
// and not at the next look.
func TestLinksHearAtOnceOfADeletedEntity(t *testing.T) {
	changes := map[amqp.Symbol]func(*singleBroker){
		amqp.ConditionNotFound: func(b *singleBroker) { b.remove("orders") },
		amqp.ConditionEntityDisabled: func(b *singleBroker) {
			b.update("orders", func(d *fsm.Descriptor) { d.Status = fsm.Disabled })
		},
	}
	for want, change := range changes {
		inBubble(t, func(b *bubble) {
			b.broker.queue("orders")
			c := b.client()
			defer c.close()
			c.authenticate()
			c.attach(0, receiverOf(7, "orders"))
			started := time.Now()
			change(b.broker)
			detach, _ := expect[*amqp.Detach](c)
			if detach.Error == nil || detach.Error.Condition != want {
				t.Errorf("%s: %+v", want, detach.Error)
			}
			if took := time.Since(started); took > 100*time.Millisecond {
				t.Errorf("%s: the link heard after %v", want, took)
			}
		}, func(c *Config) { c.WatchInterval = time.Hour })
	}
}
