package transport

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
)

const sharedFilter = "com.microsoft:non-exclusive-session-filter"

// acceptShared opens a receiver as the .NET SDK does: a session without exclusion, or with a token one that
// is taken over. id nil asks for the next one.
func acceptShared(t testing.TB, session *goamqp.Session, queue string, id, token any) (*goamqp.Receiver, error) {
	t.Helper()
	return session.NewReceiver(testContext(t), queue, &goamqp.ReceiverOptions{
		Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
		Properties: map[string]any{"com.microsoft:timeout": uint32(5000)},
		Filters:    []goamqp.LinkFilter{goamqp.NewLinkFilter(sharedFilter, 0x000000137000000E, []any{id, token})},
	})
}

// mustShare returns the receiver, the id that it got and its session token.
func mustShare(t testing.TB, session *goamqp.Session, queue string, id, token any) (*goamqp.Receiver, string, goamqp.UUID) {
	t.Helper()
	rx, err := acceptShared(t, session, queue, id, token)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := rx.LinkSourceFilterValue(sharedFilter).([]any)
	if len(list) != 2 {
		t.Fatalf("the reply has the filter %v", rx.LinkSourceFilterValue(sharedFilter))
	}
	got, _ := list[1].(goamqp.UUID)
	if got == (goamqp.UUID{}) {
		t.Fatalf("the reply has the session token %v", list[1])
	}
	if _, ok := rx.Properties()[lockedUntilProperty].(int64); !ok {
		t.Errorf("locked-until-utc is %T", rx.Properties()[lockedUntilProperty])
	}
	return rx, list[0].(string), got
}

// settleByToken settles over $management, as the .NET SDK does in a session without exclusion.
func settleByToken(t testing.TB, session *goamqp.Session, queue, id, link, status string, m *goamqp.Message) (int, string) {
	t.Helper()
	var tag goamqp.UUID
	guid := m.DeliveryTag // the layout of .NET: three fields are turned around
	copy(tag[:], []byte{guid[3], guid[2], guid[1], guid[0], guid[5], guid[4], guid[7], guid[6]})
	copy(tag[8:], guid[8:])
	body := map[string]any{"disposition-status": status, "lock-tokens": []goamqp.UUID{tag}, "session-id": id}
	return manageShared(t, session, queue, link, "update-disposition", body)
}

// manageShared makes a request and returns the status and the condition of its answer.
func manageShared(t testing.TB, session *goamqp.Session, queue, link, operation string, body map[string]any) (int, string) {
	t.Helper()
	m := &goamqp.Message{Value: body, ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation}}
	if link != "" {
		m.ApplicationProperties["associated-link-name"] = link
	}
	answer := ask(t, session, queue+"/$management", "r-"+operation, m)
	code, _ := answer.ApplicationProperties["statusCode"].(int32)
	condition, _ := answer.ApplicationProperties["errorCondition"].(goamqp.Symbol)
	if condition == "" {
		text, _ := answer.ApplicationProperties["errorCondition"].(string)
		return int(code), text
	}
	return int(code), string(condition)
}

func bodies(ms []*goamqp.Message) (out []string) {
	for _, m := range ms {
		out = append(out, fmt.Sprintf("%s/%d", m.GetData(), m.Header.DeliveryCount))
	}
	return out
}

func sendSession(t testing.TB, session *goamqp.Session, queue, id string, texts ...string) {
	t.Helper()
	tx := newSender(t, session, queue)
	for _, text := range texts {
		if err := tx.Send(testContext(t), sessionMessage(id, text), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// lostWithin fails unless the receiver's link is detached with session-lock-lost.
func lostWithin(t testing.TB, rx *goamqp.Receiver) {
	t.Helper()
	if _, err := rx.Receive(testContext(t), nil); !isCondition(err, "com.microsoft:session-lock-lost") {
		t.Errorf("the receiver that was taken over: %v", err)
	}
}

// S-326, S-327, S-330, S-332: the sample of the .NET SDK, with both receivers on one connection and on two.
func TestASessionIsTakenOver(t *testing.T) {
	for name, edit := range map[string]func(*fsm.Descriptor){
		"one share": func(*fsm.Descriptor) {}, "three shares": partitioned,
	} {
		for _, connections := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d connections", name, connections), func(t *testing.T) {
				ts := startServer(t, 3)
				ts.broker.queue("orders", withSessions, edit)
				// Each receiver has an AMQP session of its own: go-amqp may attach a link with the handle of one
				// that the broker detached before its own detach is written.
				conn := dial(t, ts)
				a := newSession(t, conn)
				ofA, ofB := newSession(t, conn), conn
				if connections == 2 {
					ofB = dial(t, ts)
				}
				b := newSession(t, ofB)
				sendSession(t, a, "orders", "s1", "work", "more")
				first, id, token := mustShare(t, a, "orders", nil, nil)
				if id != "s1" {
					t.Fatalf("accepted %q", id)
				}
				work := receive(t, first, 1)[0]
				next, _, again := mustShare(t, b, "orders", "s1", token)
				if again != token {
					t.Errorf("the session token is now %v, was %v", again, token)
				}
				// Before its link is told, too, who was taken over holds nothing.
				if connections == 1 {
					code, why := settleByToken(t, ofA, "orders", "s1", first.LinkName(), "completed", work)
					if code != 410 || why != "com.microsoft:session-lock-lost" {
						t.Errorf("settled by who was taken over: %d %s", code, why)
					}
				}
				lostWithin(t, first)
				if code, why := manageShared(t, b, "orders", "", "get-session-state", map[string]any{"session-id": "s1"}); code != 200 {
					t.Errorf("state: %d %s", code, why)
				}
				if code, why := settleByToken(t, b, "orders", "s1", next.LinkName(), "completed", work); code != 200 {
					t.Errorf("complete what was handed over: %d %s", code, why)
				}
				if got := bodies(receive(t, next, 1)); !slices.Equal(got, []string{"more/0"}) {
					t.Errorf("got %v", got)
				}
			})
		}
	}
}

// S-328, S-329
func TestWhoMayAcceptASharedSession(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", withSessions)
	session := newSession(t, dial(t, ts))
	rx, _, token := mustShare(t, session, "orders", "s", nil)
	const locked = "com.microsoft:session-cannot-be-locked"
	refused := func(what string, err error, condition goamqp.ErrCond) {
		t.Helper()
		if !isCondition(err, condition) {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && strings.Contains(err.Error(), token.String()) { // S-335
			t.Errorf("%s: the session token is in %q", what, err)
		}
	}
	_, err := acceptSession(t, session, "orders", "s", 0)
	refused("exclusively", err, locked)
	_, err = acceptShared(t, session, "orders", "s", nil)
	refused("without a token", err, locked)
	_, err = acceptShared(t, session, "orders", "s", goamqp.UUID{1})
	refused("with a wrong token", err, locked)
	_, err = acceptShared(t, session, "orders", nil, token)
	refused("a token for the next session", err, "amqp:invalid-field")
	if err := rx.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	_, err = acceptShared(t, session, "orders", "s", token)
	refused("with the token of a lock that has ended", err, locked)
	mustAccept(t, session, "orders", "s")
	_, err = acceptShared(t, session, "orders", "s", token)
	refused("one that is held exclusively", err, locked)
	_, _, other := mustShare(t, session, "orders", "t", nil)
	if other == token {
		t.Error("two locks have one session token")
	}
}

// S-332, S-58: abandoned by the new holder, it is its next message, though the link has credit for others.
func TestWhatIsHandedOverAndAbandonedIsNext(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", withSessions)
	a, b := newSession(t, dial(t, ts)), newSession(t, dial(t, ts))
	sendSession(t, a, "orders", "s", "1", "2", "3", "4")
	first, _, token := mustShare(t, a, "orders", "s", nil)
	had := receive(t, first, 2)
	next, _, _ := mustShare(t, b, "orders", "s", token)
	lostWithin(t, first)
	if code, why := settleByToken(t, b, "orders", "s", next.LinkName(), "abandoned", had[0]); code != 200 {
		t.Fatalf("abandon: %d %s", code, why)
	}
	if got := bodies(receive(t, next, 3)); !slices.Equal(got, []string{"1/1", "3/0", "4/0"}) {
		t.Errorf("got %v", got)
	}
	if code, why := settleByToken(t, b, "orders", "s", next.LinkName(), "completed", had[0]); code != 410 {
		t.Errorf("its old lock: %d %s", code, why)
	}
}

// S-333: what a link has locked and cannot write is given back before the new holder gets a message.
func TestWhatWasNotSentGoesBackFirst(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", withSessions)
	a, b := newSession(t, dial(t, ts)), newSession(t, dial(t, ts))
	var want, texts []string
	for i := range 20 {
		texts = append(texts, fmt.Sprint(i))
		want = append(want, fmt.Sprintf("%d/0", i))
	}
	sendSession(t, a, "orders", "s", texts...)
	first, _, token := mustShare(t, a, "orders", "s", nil)
	held := ts.broker.holdNextLock() // until the session is another receiver's
	if err := first.IssueCredit(8); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() (int, error) {
		if n := ts.broker.counts(t, "orders").Locked; n != 8 {
			return 0, fmt.Errorf("%d messages are locked", n)
		}
		return 8, nil
	})
	next, _, _ := mustShare(t, b, "orders", "s", token)
	lostWithin(t, first)
	asked := ts.broker.asked("Lock")
	if err := next.IssueCredit(20); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() (int, error) { // the new holder asks, and is given nothing yet
		if n := ts.broker.asked("Lock"); n == asked {
			return 0, errors.New("nothing is asked for")
		}
		return 1, nil
	})
	close(held)
	var got []*goamqp.Message
	for range want {
		m, err := next.Receive(testContext(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if got := bodies(got); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// holdNextLock keeps back the answer to the next Lock that locks messages, until the channel is closed.
func (b *singleBroker) holdNextLock() chan struct{} {
	held := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	once := false
	b.after = func(c fsm.Command, out fsm.Outcome) chan struct{} {
		if _, ok := c.(*fsm.Lock); !ok || len(out.Locked) == 0 || once {
			return nil
		}
		once = true
		return held
	}
	return held
}

// asked is how many commands of that name were proposed.
func (b *singleBroker) asked(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commands[name]
}

// S-58, RUL-28: what is given back by token is the next one, before what a receive under way brings.
func TestWhatIsGivenBackByTokenOvertakesAReceive(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", withSessions)
	a, b := newSession(t, dial(t, ts)), newSession(t, dial(t, ts))
	sendSession(t, a, "orders", "s", "1", "2", "3")
	rx, _, _ := mustShare(t, b, "orders", "s", nil)
	had := receive(t, rx, 1)[0]
	held := ts.broker.holdNextLock()
	if err := rx.IssueCredit(3); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() (int, error) {
		if n := ts.broker.counts(t, "orders").Locked; n != 3 {
			return 0, fmt.Errorf("%d messages are locked", n)
		}
		return 3, nil
	})
	if code, why := settleByToken(t, b, "orders", "s", rx.LinkName(), "abandoned", had); code != 200 {
		t.Fatalf("abandon: %d %s", code, why)
	}
	close(held)
	var got []*goamqp.Message
	for range 3 {
		m, err := rx.Receive(testContext(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if got := bodies(got); !slices.Equal(got, []string{"1/1", "2/0", "3/0"}) {
		t.Errorf("got %v", got)
	}
}

// A link forgets what is settled by token, so that its account of unsettled deliveries does not fill up.
func TestSettledByTokenIsOffTheLink(t *testing.T) {
	ts := startServer(t, 1, func(c *Config) { c.MaxUnsettled = 2 })
	ts.broker.queue("orders", withSessions)
	session := newSession(t, dial(t, ts))
	sendSession(t, session, "orders", "s", "1", "2", "3", "4", "5")
	rx, _, _ := mustShare(t, session, "orders", "s", nil)
	if err := rx.IssueCredit(5); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		m, err := rx.Receive(testContext(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(m.GetData()); got != fmt.Sprint(i+1) {
			t.Errorf("got %s", got)
		}
		if code, why := settleByToken(t, session, "orders", "s", rx.LinkName(), "completed", m); code != 200 {
			t.Fatalf("complete: %d %s", code, why)
		}
	}
}

// amqp-protocol.md 6.1
func TestSharedFiltersThatMakeNoSense(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", withSessions)
	ts.broker.queue("plain")
	session := newSession(t, dial(t, ts))
	filter := func(v any) goamqp.LinkFilter { return goamqp.NewLinkFilter(sharedFilter, 0x000000137000000E, v) }
	for name, c := range map[string]struct {
		queue   string
		filters []goamqp.LinkFilter
		want    goamqp.ErrCond
	}{
		"a string":       {"orders", []goamqp.LinkFilter{filter("s")}, "amqp:invalid-field"},
		"three fields":   {"orders", []goamqp.LinkFilter{filter([]any{"s", nil, nil})}, "amqp:invalid-field"},
		"a token's text": {"orders", []goamqp.LinkFilter{filter([]any{"s", "x"})}, "amqp:invalid-field"},
		"another list": {"orders", []goamqp.LinkFilter{
			goamqp.NewLinkFilter(sharedFilter, 0x000000137000000C, []any{"s", nil}),
		}, "amqp:invalid-field"},
		"both": {"orders", []goamqp.LinkFilter{
			filter([]any{"s", nil}), goamqp.NewLinkFilter("com.microsoft:session-filter", 0x000000137000000C, "s"),
		}, "amqp:invalid-field"},
		"no sessions": {"plain", []goamqp.LinkFilter{filter([]any{"s", nil})}, "amqp:not-allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := session.NewReceiver(testContext(t), c.queue, &goamqp.ReceiverOptions{Filters: c.filters})
			if !isCondition(err, c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
