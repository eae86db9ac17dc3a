package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// J1: the Java SDKs up to 7.17.0 attach the links of $management, then those of $cbs, and wait for no
// answer. Such links attach, whether the entity exists or not; each request needs the right of its
// operation by the time it comes.
func TestManagementLinksAttachBeforeAToken(t *testing.T) {
	for name, c := range map[string]struct {
		node   string
		policy string
		want   map[string]int64 // status by operation, with the token
	}{
		"full rights":       {"orders", testPolicy, map[string]int64{"peek-message": 200, "cancel-scheduled-message": 404}},
		"a dead-letter one": {"orders/$DeadLetterQueue", testPolicy, map[string]int64{"peek-message": 204}},
		"Listen alone":      {"orders", "listener", map[string]int64{"peek-message": 200, "cancel-scheduled-message": 401}},
		"Send alone":        {"orders", "sender", map[string]int64{"peek-message": 401, "cancel-scheduled-message": 404}},
		"a missing entity":  {"nothing", testPolicy, map[string]int64{"peek-message": 404, "cancel-scheduled-message": 404}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				orders := b.broker.queue("orders")
				s := &scene{t: t, b: b, c: b.client(), nodes: map[string]uint32{c.node: 2},
					number: map[string]fsm.SequenceNumber{}, last: 100}
				s.enqueue(orders, fsm.Main, "active")
				s.c.open("ANONYMOUS")
				s.c.begin(0)
				s.c.hold = true // nothing waits for an answer
				s.c.send(0, senderTo(2, c.node+"/$management"))
				reply := receiverOf(3, c.node+"/$management")
				reply.SndSettleMode, reply.Target.Address = amqp.Some(amqp.SenderSettled), amqp.Some(c.node+"-reply")
				s.c.send(0, reply)
				s.c.send(0, senderTo(0, "$cbs"))
				cbs := receiverOf(1, "$cbs")
				cbs.SndSettleMode = amqp.Some(amqp.SenderSettled)
				s.c.send(0, cbs)
				s.c.send(0, credit(3, 0, 100, false))
				s.c.hold = false
				s.c.send(0, credit(1, 0, 100, false))
				for _, handle := range []uint32{2, 3, 0, 1} {
					a, _ := expect[*amqp.Attach](s.c)
					if a.Handle != handle || a.Source == nil || a.Target == nil {
						t.Fatalf("attach of handle %d: %+v", handle, a)
					}
					if a.Role == amqp.RoleReceiver {
						expect[*amqp.Flow](s.c)
					}
				}
				body := mapOf("message-count", int32(1), "sequence-numbers", []int64{77})
				for op := range c.want {
					if code, condition, _, _ := s.askFully(c.node, "com.microsoft:"+op, body); code != 401 ||
						condition != string(amqp.ConditionUnauthorizedAccess) {
						t.Errorf("%s without a token: %d %s", op, code, condition)
					}
				}
				s.putToken(c.policy)
				for op, want := range c.want {
					if code, _, _, text := s.askFully(c.node, "com.microsoft:"+op, body); code != want {
						t.Errorf("%s: %d %s, want %d", op, code, text, want)
					}
				}
				// The links are there for whatever has the name by then.
				d := b.broker.queue("nothing")
				s.enqueue(d, fsm.Main, "late")
				if code, _, _, text := s.askFully(c.node, "com.microsoft:peek-message", body); c.node == "nothing" && code != 200 {
					t.Errorf("peek of an entity that was created meanwhile: %d %s", code, text)
				}
				s.c.close()
			})
		})
	}
}

// putToken sends a token of a policy over the links 0 and 1 of channel 0, and waits for the answer.
func (s *scene) putToken(policy string) {
	s.t.Helper()
	out := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "token")})
	w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
	w.String("operation", "put-token")
	w.String("name", "amqp://localhost/")
	out, err := amqp.AppendValueBody(w.End(), auth.NewToken("amqp://localhost/", policy, testKey, time.Now().Add(time.Hour)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.last++
	tr := transferOf(0, s.last)
	tr.Settled = amqp.Some(true)
	s.c.send(0, tr, out)
	_, payload := expect[*amqp.Transfer](s.c)
	m, err := amqp.ParseMessage(payload)
	if err != nil {
		s.t.Fatal(err)
	}
	if v, _ := m.ApplicationProperty("status-code"); string(v) != string(amqp.AppendInt(nil, 202)) {
		s.t.Fatalf("put-token: %x", []byte(v))
	}
}

// RUL-29: a request without a session id means the session of the link that it names, as the Go SDK
// asks for deferred messages; the id wins where both are there, and no other link will do.
func TestARequestMeansTheSessionOfItsLink(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b) // link rx-5 holds the session "s" of grouped
		defer s.c.close()
		grouped := b.broker.entities["grouped"]
		s.enqueue(grouped, fsm.Main, "second")
		other, _, _, _ := translateMessage(encoded("other", func(p *amqp.Properties) { p.GroupID = []byte("z") }), grouped, noID)
		s.propose(grouped, fsm.Main, 0, &fsm.Enqueue{Messages: []fsm.Message{other}})
		w := amqp.BeginSymbolMap(nil)
		w.String(string(amqp.FilterSession), "z")
		a := receiverOf(6, "grouped")
		a.Source.Filter = w.End()
		s.c.attach(0, a)

		s.c.send(0, credit(5, 0, 2, false))
		first, _ := expect[*amqp.Transfer](s.c)
		last, _ := expect[*amqp.Transfer](s.c)
		s.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: first.DeliveryID.Value, Last: last.DeliveryID,
			State: amqp.Modified{UndeliverableHere: amqp.Some(true)}}) // deferred
		expect[*amqp.Disposition](s.c)
		numbers := func(text string) amqp.Map {
			return mapOf("sequence-numbers", []int64{int64(s.number[text])}, "receiver-settle-mode", uint32(1))
		}
		ask := func(link, op string, body amqp.Map) (int64, string, amqp.Map) {
			s.link = link
			defer func() { s.link = "" }()
			code, condition, answer, _ := s.askFully("grouped", "com.microsoft:"+op, body)
			return code, condition, answer
		}
		lost := string(amqp.ConditionSessionLockLost)
		for name, c := range map[string]struct {
			link, op  string
			body      amqp.Map
			code      int64
			condition string
		}{
			"no link":                          {"", "receive-by-sequence-number", numbers("in session"), 410, lost},
			"a link that is not there":         {"rx-77", "receive-by-sequence-number", numbers("in session"), 410, lost},
			"a sender":                         {"tx-3", "receive-by-sequence-number", numbers("in session"), 410, lost},
			"the link of another session":      {"rx-6", "receive-by-sequence-number", numbers("in session"), 404, string(amqp.ConditionMessageNotFound)},
			"a session id beside another link": {"rx-6", "set-session-state", mapOf("session-id", "s", "session-state", []byte("kept")), 200, ""},
			"renewal":                          {"rx-5", "renew-session-lock", amqp.Map{}, 200, ""},
			"a session id that is null":        {"rx-5", "renew-session-lock", mapOf("session-id", nil), 200, ""},
			"a session id nobody holds":        {"rx-5", "renew-session-lock", mapOf("session-id", "y"), 410, lost},
		} {
			if code, condition, _ := ask(c.link, c.op, c.body); code != c.code || condition != c.condition {
				t.Errorf("%s: %d %s, want %d %s", name, code, condition, c.code, c.condition)
			}
		}
		if _, _, state := ask("rx-5", "get-session-state", amqp.Map{}); fmt.Sprint(state) != fmt.Sprint(mapOf("session-state", []byte("kept"))) {
			t.Errorf("state %v", state)
		}
		texts := func(answer amqp.Map) (texts []string, tokens []amqp.UUID) {
			list, _ := answer.Get("messages")
			for _, item := range list.(amqp.List) {
				m := item.(amqp.Map)
				raw, _ := m.Get("message")
				parts, err := amqp.ParseMessage(raw.([]byte))
				if err != nil {
					t.Fatal(err)
				}
				data, _ := amqp.SectionValue(parts.Body).Binary()
				texts = append(texts, string(data))
				if token, ok := m.Get("lock-token"); ok {
					tokens = append(tokens, token.(amqp.UUID))
				}
			}
			return texts, tokens
		}
		peek := mapOf("message-count", int32(10))
		for link, want := range map[string]string{"": "[in session second other]", "rx-5": "[in session second]", "rx-6": "[other]"} {
			_, _, answer := ask(link, "peek-message", peek)
			if got, _ := texts(answer); fmt.Sprint(got) != want {
				t.Errorf("peek with link %q: %v, want %s", link, got, want)
			}
		}
		code, _, answer := ask("rx-5", "receive-by-sequence-number", numbers("second"))
		if code != 200 {
			t.Fatalf("receive: %d", code)
		}
		got, tokens := texts(answer)
		if fmt.Sprint(got) != "[second]" || len(tokens) != 1 {
			t.Fatalf("received %v, %d tokens", got, len(tokens))
		}
		done := mapOf("disposition-status", "completed", "lock-tokens", tokens)
		if code, condition, _ := ask("rx-6", "update-disposition", done); code != 410 {
			t.Errorf("settled for another session: %d %s", code, condition)
		}
		if code, condition, _ := ask("rx-5", "update-disposition", done); code != 200 {
			t.Errorf("settle: %d %s", code, condition)
		}
		s.c.send(0, &amqp.Detach{Handle: 5, Closed: true})
		expect[*amqp.Detach](s.c)
		if code, condition, _ := ask("rx-5", "renew-session-lock", amqp.Map{}); code != 410 || condition != lost {
			t.Errorf("renewal for a link that is gone: %d %s", code, condition)
		}
	})
}
