package transport

import (
	"fmt"
	"strings"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A filter looks at all that a message is now: what its sender wrote, what settlements changed, and what the broker knows.
func TestAFilterSeesAMessageAsItIs(t *testing.T) {
	ts := startServer(t, 1)
	d := ts.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxDelivery = 2 })
	session := newSession(t, dial(t, ts))
	tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
	for i := range 3 {
		m := goamqp.NewMessage([]byte(strings.Repeat("x", i)))
		subject, to := fmt.Sprint("s", i), "there"
		m.Properties = &goamqp.MessageProperties{MessageID: fmt.Sprint("m", i), Subject: &subject, To: &to}
		m.Header = &goamqp.MessageHeader{TTL: 3600e9}
		m.ApplicationProperties = map[string]any{"region": "eu", "n": int64(i)}
		if err := tx.Send(testContext(t), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	got := receive(t, rx, 3)
	if err := rx.ModifyMessage(testContext(t), got[0], &goamqp.ModifyMessageOptions{DeliveryFailed: true,
		Annotations: goamqp.Annotations{"region": "us"}}); err != nil {
		t.Fatal(err)
	}
	if err := rx.RejectMessage(testContext(t), got[1], &goamqp.Error{Condition: "com.microsoft:dead-letter",
		Info: map[string]any{"DeadLetterReason": "broken", "DeadLetterErrorDescription": "it is"}}); err != nil {
		t.Fatal(err)
	}
	if err := rx.ModifyMessage(testContext(t), got[2], &goamqp.ModifyMessageOptions{UndeliverableHere: true}); err != nil {
		t.Fatal(err) // deferred
	}
	for filter, want := range map[string]string{
		"region = 'us'":          "s0",
		"region = 'eu'":          "s2",
		"N >= 1":                 "s2",
		"sys.DeliveryCount = 1":  "s0 s2",
		"sys.State = 'Deferred'": "s2",
		"sys.State = 'Active'":   "s0",
		"sys.To = 'there'":       "s0 s2",
		"sys.MessageId LIKE 'm%' AND sys.Label <> 's0'":    "s2",
		"sys.SequenceNumber = 3":                           "s2",
		"sys.Size > 0 AND sys.EnqueuedTimeUtc IS NOT NULL": "s0 s2",
		"sys.ExpiresAtUtc > sys.EnqueuedTimeUtc":           "s0 s2",
		"sys.ScheduledEnqueueTimeUtc IS NULL":              "s0 s2",
		"missing = 1":                                      "",
		"DeadLetterReason = 'broken'":                      "",
		"region + 1 = 2":                                   "",
	} {
		if found := chosenOf(t, ts, d, fsm.Main, filter); found != want {
			t.Errorf("%s: %q, want %q", filter, found, want)
		}
	}
	for filter, want := range map[string]string{
		"DeadLetterReason = 'broken' AND deadLetterErrorDescription LIKE 'it%'": "s1",
		"DeadLetterReason = 'other'": "",
	} {
		if found := chosenOf(t, ts, d, fsm.DeadLetter, filter); found != want {
			t.Errorf("dead letters with %s: %q, want %q", filter, found, want)
		}
	}
	if _, err := newChooser("a = = 1"); err == nil || !strings.Contains(err.Error(), "character 5") {
		t.Errorf("a filter that is none: %v", err)
	}
}

// chosenOf returns the subjects of the messages of a subqueue that a filter selects.
func chosenOf(t *testing.T, ts *testServer, d *fsm.Descriptor, sub fsm.SubQueue, filter string) string {
	t.Helper()
	c, err := newChooser(filter)
	if err != nil {
		t.Fatalf("%s: %v", filter, err)
	}
	a, err := ts.broker.Query(t.Context(), fsm.Key{Entity: d.ID, Sub: sub}, &fsm.Peek{Max: 100, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for i := range a.Messages {
		if c.chooses(&a.Messages[i]) {
			shown, err := Show(&a.Messages[i])
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, shown.Subject)
		}
	}
	return strings.Join(found, " ")
}

// A peek with a filter looks at a bounded number of messages, says where to go on, and finds each one once, share by share.
func TestAPeekWithAFilterGoesOn(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		defer s.c.close()
		d, err := b.broker.Entity(t.Context(), "spread")
		if err != nil {
			t.Fatal(err)
		}
		const all = 2*maxFiltered + 40
		body := goamqp.NewMessage([]byte("x"))
		for share := range 2 {
			for n := 0; n < all/2; n += 1000 {
				var batch []fsm.Message
				for i := n; i < min(n+1000, all/2); i++ {
					body.ApplicationProperties = map[string]any{"n": int64(i)}
					payload, err := body.MarshalBinary()
					if err != nil {
						t.Fatal(err)
					}
					m, _, _, refused := translateMessage(payload, d, func() string { return fmt.Sprint(share, i) })
					if refused != nil {
						t.Fatal(refused)
					}
					batch = append(batch, m)
				}
				s.propose(d, fsm.Main, share, &fsm.Enqueue{Messages: batch})
			}
		}
		for filter, want := range map[string]int{"n >= 5000": 2 * 20, "n = 4999": 2, "n = -1": 0, "n < 150": 300} {
			found, calls := map[int64]bool{}, 0
			for from := int64(0); ; calls++ {
				code, answer, text := s.ask("spread", "peek-message", mapOf("from-sequence-number", from, "message-count", int32(100), "sql-filter", filter))
				if code != codeOK && code != codeNoContent {
					t.Fatalf("%s: %d %s", filter, code, text)
				}
				list, _ := answer.Get("messages")
				for _, entry := range asList(list) {
					m := &goamqp.Message{}
					payload, _ := entry.(amqp.Map).Get("message")
					if err := m.UnmarshalBinary(payload.([]byte)); err != nil {
						t.Fatal(err)
					}
					n := m.Annotations["x-opt-sequence-number"].(int64)
					if found[n] {
						t.Errorf("%s: number %d twice", filter, n)
					}
					found[n] = true
				}
				next, more := answer.Get(nextNumber)
				if !more {
					break
				}
				if next.(int64) <= from {
					t.Fatalf("%s: goes on at %d behind %d", filter, next, from)
				}
				from = next.(int64)
			}
			if len(found) != want || calls < 4 || calls > 10 {
				t.Errorf("%s: %d messages in %d calls, want %d", filter, len(found), calls, want)
			}
		}
	})
}

func asList(v any) amqp.List {
	list, _ := v.(amqp.List)
	return list
}
