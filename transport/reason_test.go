package transport

import (
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// S-53, RUL-31: a token that is gone means MessageLockLost while the caller holds the session, so that
// applications keep a session that they have.
func TestATokenThatIsGoneDoesNotLoseTheSession(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b) // link rx-5 holds the session "s" of grouped
		defer s.c.close()
		s.c.send(0, credit(5, 0, 1, false))
		tr, _ := expect[*amqp.Transfer](s.c)
		token, ok := amqp.TokenFromTag(tr.DeliveryTag)
		if !ok {
			t.Fatalf("tag %x", tr.DeliveryTag)
		}
		complete := func(session string, token amqp.UUID) (int64, string) {
			t.Helper()
			code, condition, _, _ := s.askFully("grouped", "com.microsoft:update-disposition", mapOf(
				"disposition-status", "completed", "lock-tokens", []amqp.UUID{token}, "session-id", session))
			return code, condition
		}
		never := token
		never[15] ^= 1
		for _, c := range []struct {
			name, session string
			token         amqp.UUID
			want          string
		}{
			{"a session of nobody", "other", token, "410 com.microsoft:session-lock-lost"},
			{"the first time", "s", token, "200 "},
			{"settled already", "s", token, "410 com.microsoft:message-lock-lost"},
			{"a token that never was", "s", never, "410 com.microsoft:message-lock-lost"},
		} {
			code, condition := complete(c.session, c.token)
			if got := fmt.Sprintf("%d %s", code, condition); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
		s.want(codeOK, "grouped", "get-session-state", mapOf("session-id", "s"))
		// The same over the link: .NET takes message-lock-lost for the message alone.
		s.c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value, State: amqp.Accepted{}})
		d, _ := expect[*amqp.Disposition](s.c)
		if r, ok := d.State.(amqp.Rejected); !ok || r.Error.Condition != amqp.ConditionMessageLockLost || !d.Settled {
			t.Errorf("settled over the link: %+v", d)
		}
		// When the session's lock is lost, so is the session.
		time.Sleep(90 * time.Second)
		for {
			p, _ := s.c.next()
			if det, ok := p.(*amqp.Detach); ok && det.Handle == 5 {
				break
			}
		}
		if code, condition := complete("s", token); code != 410 || condition != string(amqp.ConditionSessionLockLost) {
			t.Errorf("after the session: %d %s", code, condition)
		}
	})
}

// S-167, RUL-35: a reason or description of a dead letter that is not text is kept with its type as an application
// property, over the link and over $management.
func TestAReasonThatIsNotTextIsKept(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	session := newSession(t, dial(t, ts))
	tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
	dlq := newReceiver(t, session, "orders/$DeadLetterQueue")
	for i, c := range []struct {
		condition           goamqp.ErrCond
		reason, description any
		want                [2]any
	}{
		{"com.microsoft:dead-letter", int32(5), true, [2]any{int32(5), true}},
		{"com.microsoft:dead-letter", "text", 1.5, [2]any{"text", 1.5}},
		{"com.microsoft:dead-letter", nil, nil, [2]any{nil, "said otherwise"}},
		{"com.example:broken", uint64(7), nil, [2]any{uint64(7), "said otherwise"}},
		{"com.example:broken", nil, []byte{1}, [2]any{"com.example:broken", []byte{1}}},
	} {
		if err := tx.Send(testContext(t), goamqp.NewMessage(fmt.Append(nil, i)), nil); err != nil {
			t.Fatal(err)
		}
		m := receive(t, rx, 1)[0]
		if err := rx.RejectMessage(testContext(t), m, &goamqp.Error{Condition: c.condition, Description: "said otherwise",
			Info: map[string]any{propReason: c.reason, propDescription: c.description}}); err != nil {
			t.Fatal(err)
		}
		dead := receive(t, dlq, 1)[0]
		p := dead.ApplicationProperties
		if got := [2]any{p[propReason], p[propDescription]}; fmt.Sprintf("%T%v", got, got) != fmt.Sprintf("%T%v", c.want, c.want) ||
			fmt.Sprintf("%T %T", got[0], got[1]) != fmt.Sprintf("%T %T", c.want[0], c.want[1]) {
			t.Errorf("case %d: %#v, want %#v", i, got, c.want)
		}
		if err := dlq.AcceptMessage(testContext(t), dead); err != nil {
			t.Fatal(err)
		}
	}
}

// RUL-35 over $management.
func TestAReasonThatIsNotTextIsKeptOverManagement(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := newScene(t, b)
		defer s.c.close()
		s.want(codeOK, "orders", "update-disposition", mapOf("disposition-status", "suspended",
			"lock-tokens", []amqp.UUID{s.token("locked")}, "deadletter-reason", int32(5), "deadletter-description", "text"))
		answer := s.want(codeOK, "orders/$DeadLetterQueue", "peek-message",
			mapOf("from-sequence-number", int64(s.number["locked"]), "message-count", int32(1)))
		m, err := amqp.ParseMessage(peeked(answer))
		if err != nil {
			t.Fatal(err)
		}
		reason, _ := m.ApplicationProperty(propReason)
		description, _ := m.ApplicationProperty(propDescription)
		if string(reason) != string(amqp.AppendInt(nil, 5)) || string(description) != string(amqp.AppendString(nil, "text")) {
			t.Errorf("reason %x, description %x", []byte(reason), []byte(description))
		}
		if b.broker.counts(t, "orders").DeadLetter != 3 {
			t.Error("it is not in the dead-letter queue")
		}
	})
}
