package transport

import (
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// withRules makes a subscription take what the sources select, and change it as they say.
func withRules(sources ...rule.Source) func(*fsm.Descriptor) {
	return func(d *fsm.Descriptor) {
		d.Rules = nil
		for i, s := range sources {
			d.Rules = append(d.Rules, fsm.Rule{Name: string(rune('a' + i)), Source: s})
		}
	}
}

// S-101, S-214, S-216, S-220: every subscription gets its copy of what it selects, changed as its rule says;
// each copy is settled by itself.
func TestPublishOverTheWire(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.subscription("news", "all")
	changed := ts.broker.subscription("news", "urgent")
	ts.broker.update(changed.Name, withRules(rule.Source{Kind: rule.SQLFilter, Expression: "level > 5",
		Action: "SET sys.Label = 'urgent'; SET seen = TRUE; REMOVE secret"}))
	session := newSession(t, dial(t, ts))
	ctx := testContext(t)
	tx := newSender(t, session, "news")
	for level := range int32(10) {
		m := goamqp.NewMessage([]byte{byte('0' + level)})
		m.Properties = &goamqp.MessageProperties{MessageID: "m", Subject: ptr("note")}
		m.ApplicationProperties = map[string]any{"level": level, "secret": "x"}
		if err := tx.Send(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
	}
	all := newReceiver(t, session, "news/Subscriptions/all")
	for i, m := range receive(t, all, 10) {
		if string(m.GetData()) != string(rune('0'+i)) || *m.Properties.Subject != "note" || m.ApplicationProperties["secret"] != "x" {
			t.Errorf("copy %d: %q %+v", i, m.GetData(), m.ApplicationProperties)
		}
		if err := all.AcceptMessage(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	urgent := newReceiver(t, session, "NEWS/subscriptions/Urgent")
	for i, m := range receive(t, urgent, 4) {
		p := m.ApplicationProperties
		if string(m.GetData()) != string(rune('6'+i)) || *m.Properties.Subject != "urgent" || p["seen"] != true || p["secret"] != nil {
			t.Errorf("urgent copy %d: %q %q %v", i, m.GetData(), *m.Properties.Subject, p)
		}
		if n := m.Annotations["x-opt-enqueue-sequence-number"]; n != int64(7+i) {
			t.Errorf("urgent copy %d was number %v of the topic", i, n)
		}
		if n := m.Annotations["x-opt-sequence-number"]; n != int64(1+i) { // S-101
			t.Errorf("urgent copy %d has number %v of the subscription", i, n)
		}
		if err := urgent.RejectMessage(ctx, m, &goamqp.Error{Condition: "com.microsoft:dead-letter",
			Info: map[string]any{"DeadLetterReason": "bad"}}); err != nil {
			t.Fatal(err)
		}
	}
	dead := newReceiver(t, session, "news/Subscriptions/urgent/$DeadLetterQueue")
	for _, m := range receive(t, dead, 4) {
		if m.ApplicationProperties["DeadLetterReason"] != "bad" || *m.Properties.Subject != "urgent" {
			t.Errorf("dead letter %+v", m.ApplicationProperties)
		}
	}
}

// S-223: a topic is sent to and a subscription received from, not the other way about.
func TestTopicsAndSubscriptionsHaveOneDirection(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.subscription("news", "all")
	conn := dial(t, ts)
	for name, attach := range map[string]func(*goamqp.Session) error{
		"receive from a topic": func(s *goamqp.Session) error {
			_, err := s.NewReceiver(testContext(t), "news", nil)
			return err
		},
		"send to a subscription": func(s *goamqp.Session) error {
			_, err := s.NewSender(testContext(t), "news/Subscriptions/all", nil)
			return err
		},
		"send to a subscription's DLQ": func(s *goamqp.Session) error {
			_, err := s.NewSender(testContext(t), "news/Subscriptions/all/$DeadLetterQueue", nil)
			return err
		},
		"accept a session without sessions": func(s *goamqp.Session) error {
			_, err := acceptSession(t, s, "news/Subscriptions/all", "s", 0)
			return err
		},
	} {
		if err := attach(newSession(t, conn)); !isCondition(err, goamqp.ErrCondNotAllowed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	session := newSession(t, conn)
	for name, address := range map[string]string{"a missing subscription": "news/Subscriptions/none", "a topic's DLQ": "news/$DeadLetterQueue"} {
		if _, err := session.NewReceiver(testContext(t), address, nil); !isCondition(err, goamqp.ErrCondNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for op, body := range map[string]map[string]any{
		"receive-by-sequence-number": {"sequence-numbers": []int64{1}, "receiver-settle-mode": uint32(1)},
		"renew-lock":                 {"lock-tokens": []goamqp.UUID{{1}}},
	} {
		if code, _ := management(t, session, "news", op, body); code != 400 && code != 410 {
			t.Errorf("%s on a topic: %d", op, code)
		}
	}
}

// S-111, S-121: a topic schedules and cancels; copies are made when the time has come.
func TestATopicSchedules(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.subscription("news", "all")
	session := newSession(t, dial(t, ts))
	schedule := func(body string, at time.Time) int64 {
		t.Helper()
		m := goamqp.NewMessage([]byte(body))
		m.Annotations = goamqp.Annotations{"x-opt-scheduled-enqueue-time": at}
		encoded, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		code, a := management(t, session, "news", "schedule-message", map[string]any{
			"messages": []any{map[string]any{"message-id": body, "message": encoded}}})
		numbers, _ := a["sequence-numbers"].([]int64)
		if code != 200 || len(numbers) != 1 {
			t.Fatalf("schedule: %d %v", code, a)
		}
		return numbers[0]
	}
	never, late := schedule("never", time.Now().Add(time.Hour)), schedule("late", time.Now().Add(time.Hour))
	if c := ts.broker.counts(t, "news"); c.Scheduled != 2 || c.Active != 0 {
		t.Errorf("counts %+v", c)
	}
	if code, _ := management(t, session, "news", "cancel-scheduled-message", map[string]any{"sequence-numbers": []int64{never, late}}); code != 200 {
		t.Errorf("cancel: %d", code)
	}
	schedule("soon", time.Now().Add(300*time.Millisecond))
	if m := receive(t, newReceiver(t, session, "news/Subscriptions/all"), 1)[0]; string(m.GetData()) != "soon" {
		t.Errorf("got %q", m.GetData())
	}
}

// S-30, S-31: a session subscription hands its copies out session by session; a copy without one dies.
func TestASessionSubscription(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.subscription("news", "grouped", withSessions)
	session := newSession(t, dial(t, ts))
	ctx := testContext(t)
	tx := newSender(t, session, "news")
	for _, m := range []*goamqp.Message{sessionMessage("a", "1"), sessionMessage("b", "2"), sessionMessage("a", "3"), goamqp.NewMessage([]byte("4"))} {
		if err := tx.Send(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
	}
	rx := mustAccept(t, session, "news/Subscriptions/grouped", "a")
	for i, m := range receive(t, rx, 2) {
		if want := []string{"1", "3"}[i]; string(m.GetData()) != want {
			t.Errorf("got %q, want %s", m.GetData(), want)
		}
	}
	m := receive(t, newReceiver(t, session, "news/Subscriptions/grouped/$DeadLetterQueue"), 1)[0]
	if m.ApplicationProperties["DeadLetterReason"] != "Session ID is null." || string(m.GetData()) != "4" {
		t.Errorf("%q died because of %v", m.GetData(), m.ApplicationProperties)
	}
}
