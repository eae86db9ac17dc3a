package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// deleted is the count in the answer to batch-delete-messages.
func (s *scene) deleted(node string, body amqp.Map) int64 {
	s.t.Helper()
	code, answer, text := s.ask(node, "batch-delete-messages", body)
	switch code {
	case codeNoContent:
		return 0
	case codeOK:
		v, _ := answer.Get("message-count")
		n, isInt := v.(int32) // Go casts it
		if !isInt {
			s.t.Errorf("message-count is a %T", v)
		}
		return int64(n)
	}
	s.t.Fatalf("delete: %d %s", code, text)
	return 0
}

// S-263, S-264, S-266, T-220, T-221: deletes take what waits, oldest first, and nothing else.
func TestBatchDelete(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		defer s.c.close()
		orders, spread := b.broker.entities["orders"], b.broker.entities["spread"]
		all := mapOf("message-count", int32(4000))
		if n := s.deleted("orders", mapOf("message-count", int32(10), "enqueued-time-utc", amqp.Timestamp(0))); n != 0 {
			t.Errorf("%d messages are older than the epoch", n)
		}
		time.Sleep(10 * time.Second)
		middle := amqp.Timestamp(time.Now().UnixMilli())
		time.Sleep(10 * time.Second)
		s.enqueue(orders, fsm.Main, "new 1", "new 2", "new 3")
		if n := s.deleted("orders", mapOf("message-count", int32(4000), "enqueued-time-utc", middle)); n != 1 {
			t.Errorf("%d old messages deleted, want the active one", n)
		}
		if c := b.broker.counts(t, "orders"); c.Active != 5 || c.Locked != 1 || c.Deferred != 1 || c.Scheduled != 1 || c.DeadLetter != 2 {
			t.Errorf("left are %+v", c)
		}
		if n := s.deleted("orders", mapOf("message-count", int32(2))); n != 2 {
			t.Errorf("%d deleted of 3, want 2", n)
		}
		if n := s.deleted("orders/$DeadLetterQueue", all); n != 1 { // S-265
			t.Errorf("%d dead letters deleted, want the one that is not locked", n)
		}
		if n := s.deleted("spread", mapOf("message-count", int32(2))); n != 2 { // S-266
			t.Errorf("%d deleted over shares, want 2", n)
		}
		if n := s.deleted("spread", all) + s.deleted("spread", all); n != 1 {
			t.Errorf("%d deleted of the last one", n)
		}
		s.enqueue(spread, fsm.Main, "spread 4", "spread 5", "spread 6")
		b.broker.mu.Lock()
		b.broker.fail = func(c fsm.Command) error {
			if d, ok := c.(*fsm.DeleteMessages); ok && d.Max < 4000 {
				return fsm.ErrUnavailable
			}
			return nil
		}
		b.broker.mu.Unlock()
		if n := s.deleted("spread", all); n != 1 {
			t.Errorf("%d told when a share does not answer, want those that are gone", n)
		}
	})
}

// S-264, T-221: within an accepted session a delete works in that session only.
func TestBatchDeleteInASession(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		defer s.c.close()
		grouped := b.broker.entities["grouped"]
		m, _, _, _ := translateMessage(encoded("other", func(p *amqp.Properties) { p.GroupID = []byte("z") }), grouped, noID)
		s.propose(grouped, fsm.Main, 0, &fsm.Enqueue{Messages: []fsm.Message{m}})
		if n := s.deleted("grouped", mapOf("message-count", int32(10), "session-id", "s")); n != 1 {
			t.Errorf("%d deleted", n)
		}
		if c := b.broker.counts(t, "grouped"); c.Active != 1 {
			t.Errorf("%d are left, want the other session's", c.Active)
		}
	})
}

// A22, S-248, S-258: peeks count as use of the entity, and cost one command in a minute.
func TestPeeksTouchTheirEntityOnceAMinute(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		defer s.c.close()
		peek := func(node string) {
			t.Helper()
			if code, _, text := s.ask(node, "peek-message", mapOf("message-count", int32(1))); code != codeOK {
				t.Fatalf("peek: %d %s", code, text)
			}
		}
		touches := func() int { // the client has its answer, so nothing is under way
			b.broker.mu.Lock()
			defer b.broker.mu.Unlock()
			return b.broker.commands["Touch"]
		}
		for range 10 {
			peek("orders")
			peek("orders/$DeadLetterQueue")
		}
		if n := touches(); n != 1 {
			t.Errorf("%d commands for twenty peeks", n)
		}
		peek("spread")
		if n := touches(); n != 2 {
			t.Errorf("%d commands after a peek at another entity, want 2", n)
		}
		time.Sleep(time.Minute)
		b.broker.mu.Lock()
		b.broker.fail = func(c fsm.Command) error {
			if _, ok := c.(*fsm.Touch); ok {
				return fsm.ErrBusy
			}
			return nil
		}
		b.broker.mu.Unlock()
		peek("orders")
		peek("orders")
		if n := touches(); n != 4 {
			t.Errorf("%d commands, want another attempt after each that failed", n)
		}
	})
}

// S-153: an abandon may ask for a rest, over the link and over management.
func TestAnAbandonedMessageRestsForItsDelay(t *testing.T) {
	for name, abandon := range map[string]func(t *testing.T, session *goamqp.Session, rx *goamqp.Receiver, m *goamqp.Message){
		"disposition": func(t *testing.T, _ *goamqp.Session, rx *goamqp.Receiver, m *goamqp.Message) {
			if err := rx.ModifyMessage(testContext(t), m, &goamqp.ModifyMessageOptions{
				Annotations: goamqp.Annotations{propDelay: int64(3_600_000), "why": "later"},
			}); err != nil {
				t.Fatal(err)
			}
		},
		"management": func(t *testing.T, session *goamqp.Session, _ *goamqp.Receiver, m *goamqp.Message) {
			token, _ := amqp.TokenFromTag(m.DeliveryTag)
			code, _ := management(t, session, "orders", "update-disposition", map[string]any{
				"disposition-status": "abandoned", "lock-tokens": []goamqp.UUID{goamqp.UUID(token)},
				"properties-to-modify": map[string]any{propDelay: int32(3_600_000), "why": "later"},
			})
			if code != codeOK {
				t.Fatalf("abandon: %d", code)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, 1)
			ts.broker.queue("orders")
			session := newSession(t, dial(t, ts))
			tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
			for _, body := range []string{"first", "second"} {
				if err := tx.Send(testContext(t), goamqp.NewMessage([]byte(body)), nil); err != nil {
					t.Fatal(err)
				}
			}
			abandon(t, session, rx, receive(t, rx, 1)[0])
			if m := receive(t, rx, 1)[0]; string(m.GetData()) != "second" {
				t.Errorf("got %q while the first one rests", m.GetData())
			}
			a, err := ts.broker.Query(testContext(t), waist.ShareKey(ts.broker.entities["orders"], fsm.Main, 0), &fsm.Peek{Max: 1})
			if err != nil || len(a.Messages) != 1 {
				t.Fatalf("%v %+v", err, a)
			}
			m := &a.Messages[0]
			if m.Attempts != 1 || len(m.Properties) != 1 || m.Properties[0].Key != "why" {
				t.Errorf("the message rests with count %d and properties %v, want 1 and why", m.Attempts, m.Properties)
			}
		})
	}
}

// RUL-13: a disposition that asks for the impossible is refused with the reason, and the message stays
// locked.
func TestADispositionWithABadDelayIsRefused(t *testing.T) {
	for name, options := range map[string]*goamqp.ModifyMessageOptions{
		"a text":         {Annotations: goamqp.Annotations{propDelay: "soon"}},
		"eight days":     {Annotations: goamqp.Annotations{propDelay: int64(8 * 24 * 3_600_000)}},
		"with a deferal": {UndeliverableHere: true, Annotations: goamqp.Annotations{propDelay: int64(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, 1)
			ts.broker.queue("orders")
			session := newSession(t, dial(t, ts))
			tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
			if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
				t.Fatal(err)
			}
			m := receive(t, rx, 1)[0]
			if err := rx.ModifyMessage(testContext(t), m, options); !isCondition(err, "com.microsoft:argument-error") {
				t.Errorf("got %v", err)
			}
			if c := ts.broker.counts(t, "orders"); c.Locked != 1 || c.Active != 1 {
				t.Errorf("counts %+v", c)
			}
		})
	}
}

// S-83, S-84, T-145, T-146: sessions in pages, each once, under both spellings of the keys.
func TestSessionsAreListed(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		defer s.c.close()
		set := time.Now() // no virtual time has passed since the scene has set the state of s
		grouped := b.broker.entities["grouped"]
		for i := range 250 {
			m, _, _, _ := translateMessage(encoded("m", func(p *amqp.Properties) { p.GroupID = fmt.Appendf(nil, "x%03d", i) }), grouped, noID)
			s.propose(grouped, fsm.Main, 0, &fsm.Enqueue{Messages: []fsm.Message{m}})
		}
		whenever := amqp.Timestamp(253402300800000) // the Go SDK's
		seen := map[string]int{}
		for skip, pages := int32(0), 0; ; pages++ {
			code, answer, text := s.ask("grouped", "get-message-sessions", mapOf("last-updated-time", whenever, "skip", skip, "top", int32(200)))
			if code == codeNoContent {
				if pages != 3 {
					t.Errorf("%d pages", pages)
				}
				break
			}
			if code != codeOK {
				t.Fatalf("%d %s", code, text)
			}
			wire, _ := answer.Get("sessions-ids")
			plain, _ := answer.Get("session-ids")
			ids, ok := wire.([]string)
			if !ok || len(ids) > 100 || fmt.Sprint(plain) != fmt.Sprint(wire) {
				t.Fatalf("%T and %T, %d ids", wire, plain, len(ids))
			}
			for _, id := range ids {
				seen[id]++
			}
			v, _ := answer.Get("skip")
			skip, _ = v.(int32)
		}
		if len(seen) != 251 {
			t.Errorf("%d sessions", len(seen))
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s is listed %d times", id, n)
			}
		}
		for key, want := range map[string]int64{"last-updated-time": codeOK, "last-updated-time-utc": codeOK} {
			code, answer, _ := s.ask("grouped", "get-message-sessions", mapOf(key, amqp.Timestamp(1), "skip", int32(0), "top", int32(100)))
			ids, _ := answer.Get("sessions-ids")
			if list, _ := ids.([]string); code != want || len(list) != 1 || list[0] != "s" {
				t.Errorf("with state set after the epoch by %s: %d %v", key, code, ids)
			}
			// S-349: the millisecond in which the state was set counts, and the one behind it does not.
			for delta, want := range map[int64]int64{-1: codeOK, 0: codeOK, 1: codeNoContent} {
				at := amqp.Timestamp(set.UnixMilli() + delta)
				if code, _, _ = s.ask("grouped", "get-message-sessions", mapOf(key, at, "skip", int32(0), "top", int32(100))); code != want {
					t.Errorf("%d ms from the moment in which a state was set, by %s: %d, want %d", delta, key, code, want)
				}
			}
			future := amqp.Timestamp(time.Now().Add(time.Hour).UnixMilli())
			if code, _, _ = s.ask("grouped", "get-message-sessions", mapOf(key, future, "skip", int32(0), "top", int32(100))); code != codeNoContent {
				t.Errorf("with state set in the future by %s: %d", key, code)
			}
		}
	})
}

// beside is the scene as a second client has it, which gives its links the names that the first one's
// have: the libraries count theirs from one on every connection.
func (s *scene) beside() *scene {
	s.t.Helper()
	two := &scene{t: s.t, b: s.b, c: s.b.client(), nodes: s.nodes, locked: s.locked, number: s.number, last: 100}
	two.c.authenticate()
	two.c.attach(0, senderTo(2, "orders"))
	expect[*amqp.Flow](two.c)
	for node, handle := range s.nodes {
		two.c.attachPair(0, handle, node+"/$management", node+"-reply")
		two.c.send(0, credit(handle+1, 0, 10_000, false))
	}
	return two
}

// peeked is the first message of an answer to peek-message, encoded.
func peeked(answer amqp.Map) []byte {
	all, _ := answer.Get("messages")
	list, _ := all.(amqp.List)
	if len(list) == 0 {
		return nil
	}
	first, _ := list[0].(amqp.Map)
	encoded, _ := first.Get("message")
	b, _ := encoded.([]byte)
	return b
}

// A link's name means something on its own connection only. Each client gets the answers to
// its own requests and only the sessions that it holds, and none loses a link to another's.
func TestOneLinkNameOnManyConnections(t *testing.T) {
	inBubble(t, func(b *bubble) {
		first := newScene(t, b)
		defer first.c.close()
		second := first.beside()
		peek := func(s *scene, from fsm.SequenceNumber, want string) {
			t.Helper()
			code, answer, text := s.ask("orders", "peek-message", mapOf("from-sequence-number", int64(from), "message-count", int32(1)))
			if code != codeOK || !bytes.Contains(peeked(answer), []byte(want)) {
				t.Errorf("peek from %d: %d %s %v, want %q", from, code, text, answer, want)
			}
		}
		for range 3 {
			peek(first, first.number["active"], "active")
			peek(second, first.number["scheduled"], "scheduled")
		}
		state := mapOf("session-id", "s")
		if code, answer, text := first.ask("grouped", "get-session-state", state); code != codeOK {
			t.Errorf("the holder reads the state: %d %s %v", code, text, answer)
		}
		if code, _, text := second.ask("grouped", "get-session-state", state); code != 410 {
			t.Errorf("who does not hold the session reads its state: %d %s", code, text)
		}
		for _, s := range []*scene{first, second} {
			s.c.send(0, transferOf(2, s.last+1), encoded("sent"))
			if d, _ := expect[*amqp.Disposition](s.c); d.State != (amqp.Accepted{}) {
				t.Errorf("a send gives %v", d.State)
			}
			s.last++
		}
		second.c.close()
		peek(first, first.number["active"], "active")
		third := first.beside()
		defer third.c.close()
		peek(third, first.number["active"], "active")
	})
}

// An operation that there is not is answered on the request node of every kind of entity, and the
// node goes on.
func TestUnknownOperationsAreAnsweredEverywhere(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		defer s.c.close()
		for node := range s.nodes {
			for _, op := range []string{"", "com.microsoft:", "com.microsoft:peek", "peek-message", "com.example:peek-message",
				"com.microsoft:read-the-mind"} {
				code, condition, _, text := s.askFully(node, op, mapOf("message-count", int32(1)))
				if code < 400 || condition == "" || !strings.Contains(text, "TrackingId:") {
					t.Errorf("%q at %s: %d %s %q", op, node, code, condition, text)
				}
			}
			if code, _, text := s.ask(node, "peek-message", mapOf("from-sequence-number", int64(1), "message-count", int32(1))); code != codeOK && code != codeNoContent {
				t.Errorf("%s does not go on: %d %s", node, code, text)
			}
		}
	})
}
