package transport

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

func withSessions(d *fsm.Descriptor) { d.RequiresSession = true }

func partitioned(d *fsm.Descriptor) {
	d.Partitioned = true
	d.Partitions = []fsm.PartitionID{1, 2, 3}
}

func sessionMessage(id, body string) *goamqp.Message {
	m := goamqp.NewMessage([]byte(body))
	m.Properties = &goamqp.MessageProperties{GroupID: &id}
	return m
}

// acceptSession opens a session receiver as the Go SDK does; id nil asks for the next one.
func acceptSession(t testing.TB, session *goamqp.Session, queue string, id any, wait time.Duration) (*goamqp.Receiver, error) {
	t.Helper()
	opts := &goamqp.ReceiverOptions{
		Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
		Filters: []goamqp.LinkFilter{goamqp.NewLinkFilter("com.microsoft:session-filter", 0x000000137000000C, id)},
	}
	if wait > 0 {
		opts.Properties = map[string]any{"com.microsoft:timeout": uint32(wait.Milliseconds())}
	}
	return session.NewReceiver(testContext(t), queue, opts)
}

func mustAccept(t testing.TB, session *goamqp.Session, queue string, id any) *goamqp.Receiver {
	t.Helper()
	rx, err := acceptSession(t, session, queue, id, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return rx
}

// S-36, S-43, S-56, S-60: the holder gets its session's messages, in order, and nobody else's.
func TestASessionGivesItsHolderItsMessagesInOrder(t *testing.T) {
	for name, edit := range map[string]func(*fsm.Descriptor){
		"one share": func(*fsm.Descriptor) {}, "three shares": partitioned,
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, 3)
			ts.broker.queue("orders", withSessions, edit)
			session := newSession(t, dial(t, ts))
			tx := newSender(t, session, "orders")
			for _, body := range []string{"1", "2", "3"} {
				for _, id := range []string{"a", "b"} {
					if err := tx.Send(testContext(t), sessionMessage(id, id+body), nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, id := range []string{"b", "a"} {
				rx := mustAccept(t, session, "orders", id)
				if got := rx.LinkSourceFilterValue("com.microsoft:session-filter"); got != id { // G16
					t.Errorf("session filter of the reply is %v", got)
				}
				if _, ok := rx.Properties()["com.microsoft:locked-until-utc"].(int64); !ok {
					t.Errorf("locked-until-utc is %T", rx.Properties()["com.microsoft:locked-until-utc"])
				}
				for i, m := range receive(t, rx, 3) {
					if got, want := string(m.GetData()), id+string(rune('1'+i)); got != want {
						t.Errorf("got %q, want %q", got, want)
					}
					if err := rx.AcceptMessage(testContext(t), m); err != nil {
						t.Fatal(err)
					}
				}
			}
			if c := ts.broker.counts(t, "orders"); c.Active != 0 {
				t.Errorf("%d messages are left", c.Active)
			}
		})
	}
}

// S-37, S-48, RUL-18
func TestAHeldSessionCannotBeLockedUntilItIsClosed(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", withSessions)
	session := newSession(t, dial(t, ts))
	rx := mustAccept(t, session, "orders", "s1")
	if _, err := acceptSession(t, session, "orders", "s1", time.Second); !isCondition(err, "com.microsoft:session-cannot-be-locked") {
		t.Fatalf("second accept: %v", err)
	}
	if err := rx.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	mustAccept(t, session, "orders", "s1")
}

// S-38, S-40: the next session is waited for, and not longer than asked.
func TestAcceptNextWaitsForASession(t *testing.T) {
	for name, edit := range map[string]func(*fsm.Descriptor){
		"one share": func(*fsm.Descriptor) {}, "three shares": partitioned,
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, 3)
			ts.broker.queue("orders", withSessions, edit)
			session := newSession(t, dial(t, ts))
			if _, err := acceptSession(t, session, "orders", nil, 50*time.Millisecond); !isCondition(err, "com.microsoft:timeout") {
				t.Fatalf("accept of nothing: %v", err)
			}
			got := make(chan *goamqp.Receiver, 1)
			other := newSession(t, dial(t, ts))
			go func() {
				rx, err := acceptSession(t, other, "orders", nil, 10*time.Second)
				if err != nil {
					t.Error(err)
				}
				got <- rx
			}()
			tx := newSender(t, session, "orders")
			if err := tx.Send(testContext(t), sessionMessage("s7", "x"), nil); err != nil {
				t.Fatal(err)
			}
			rx := <-got
			if rx == nil {
				t.FailNow()
			}
			if id := rx.LinkSourceFilterValue("com.microsoft:session-filter"); id != "s7" {
				t.Errorf("accepted %v", id)
			}
		})
	}
}

// S-33, S-34
func TestSessionAndPlainReceiversDoNotMix(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("plain")
	ts.broker.queue("grouped", withSessions)
	session := newSession(t, dial(t, ts))
	_, err := session.NewReceiver(testContext(t), "grouped", nil)
	if !isCondition(err, goamqp.ErrCondNotAllowed) {
		t.Errorf("plain receiver: %v", err)
	}
	if _, err = acceptSession(t, session, "plain", "s", 0); !isCondition(err, goamqp.ErrCondNotAllowed) {
		t.Errorf("session receiver: %v", err)
	}
	// S-78: the dead-letter queue has no sessions.
	if _, err := session.NewReceiver(testContext(t), "grouped/$DeadLetterQueue", nil); err != nil {
		t.Errorf("dead-letter receiver: %v", err)
	}
	// S-30
	err = newSender(t, session, "grouped").Send(testContext(t), goamqp.NewMessage([]byte("x")), nil)
	if !isCondition(err, goamqp.ErrCondNotAllowed) {
		t.Errorf("send without a session: %v", err)
	}
}

// S-47, S-53
func TestALostSessionLockDetachesTheReceiver(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", withSessions, func(d *fsm.Descriptor) { d.LockDuration = 300 })
	session := newSession(t, dial(t, ts))
	for name, credit := range map[string]uint32{"with credit": 1, "without credit": 0} {
		t.Run(name, func(t *testing.T) {
			rx := mustAccept(t, session, "orders", "s-"+name)
			if credit > 0 {
				if err := rx.IssueCredit(credit); err != nil {
					t.Fatal(err)
				}
			}
			_, err := rx.Receive(testContext(t), nil)
			if !isCondition(err, "com.microsoft:session-lock-lost") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// S-49, S-52, RUL-2: an orderly close leaves counts alone, a lost connection raises them.
func TestHowAConnectionEndsDecidesTheDeliveryCount(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*testing.T, *testServer, *goamqp.Conn)
		want uint32
	}{
		"close": {func(t *testing.T, _ *testServer, conn *goamqp.Conn) { conn.Close() }, 0},
		"loss": {func(t *testing.T, ts *testServer, _ *goamqp.Conn) {
			ts.mu.Lock()
			defer ts.mu.Unlock()
			for c := range ts.conns {
				c.socket.Close()
			}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, 1, func(c *Config) { c.DisconnectGrace = 0 })
			ts.broker.queue("grouped", withSessions)
			ts.broker.queue("plain")
			conn := dial(t, ts)
			session := newSession(t, conn)
			if err := newSender(t, session, "grouped").Send(testContext(t), sessionMessage("s", "x"), nil); err != nil {
				t.Fatal(err)
			}
			if err := newSender(t, session, "plain").Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
				t.Fatal(err)
			}
			receive(t, mustAccept(t, session, "grouped", "s"), 1)
			receive(t, newReceiver(t, session, "plain"), 1)
			c.end(t, ts, conn)

			session = newSession(t, dial(t, ts))
			rx := waitFor(t, func() (*goamqp.Receiver, error) { return acceptSession(t, session, "grouped", "s", 0) })
			if got := receive(t, rx, 1)[0].Header.DeliveryCount; got != c.want {
				t.Errorf("session message has count %d, want %d", got, c.want)
			}
			if name == "close" { // RUL-2: a plain lock stays
				if n := ts.broker.counts(t, "plain").Locked; n != 1 {
					t.Errorf("%d plain messages are locked, want 1", n)
				}
				return
			}
			if got := receive(t, newReceiver(t, session, "plain"), 1)[0].Header.DeliveryCount; got != c.want {
				t.Errorf("plain message has count %d, want %d", got, c.want)
			}
		})
	}
}

// waitFor repeats an attempt until it succeeds; the broker learns of a lost socket on its own time.
func waitFor[T any](t *testing.T, try func() (T, error)) T {
	t.Helper()
	ctx := testContext(t)
	for {
		v, err := try()
		if err == nil {
			return v
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("gave up: %v", err)
		}
	}
}

// management sends one management request.
func management(t testing.TB, session *goamqp.Session, entity, op string, body map[string]any) (int32, map[string]any) {
	t.Helper()
	node := entity + "/$management"
	resp := ask(t, session, node, node+"$reply-1", &goamqp.Message{
		Value: body, ApplicationProperties: map[string]any{"operation": "com.microsoft:" + op, "server-timeout": uint64(5000)},
	})
	code := resp.ApplicationProperties["statusCode"].(int32)
	if other := resp.ApplicationProperties["status-code"].(int32); other != code { // G14
		t.Errorf("%s: two codes, %d and %d", op, code, other)
	}
	if code >= 300 {
		if _, ok := resp.ApplicationProperties["statusDescription"].(string); !ok {
			t.Errorf("%s: no description for %d", op, code)
		}
	}
	answer, _ := resp.Value.(map[string]any)
	return code, answer
}

// S-46, S-64 to S-68
func TestSessionStateAndRenewalOverManagement(t *testing.T) {
	ts := startServer(t, 3)
	ts.broker.queue("orders", withSessions, partitioned)
	session := newSession(t, dial(t, ts))
	mustAccept(t, session, "orders", "s1")
	mgmt := func(op string, body map[string]any) (int32, map[string]any) {
		t.Helper()
		body["session-id"] = "s1"
		return management(t, session, "orders", op, body)
	}
	if code, a := mgmt("get-session-state", map[string]any{}); code != 200 || a["session-state"] != nil {
		t.Errorf("state of a new session: %d %v", code, a)
	}
	if code, _ := mgmt("set-session-state", map[string]any{"session-state": []byte{}}); code != 200 {
		t.Errorf("set: %d", code)
	}
	if _, a := mgmt("get-session-state", map[string]any{}); a["session-state"] == nil { // S-67
		t.Error("an empty state reads as none")
	}
	if code, _ := mgmt("set-session-state", map[string]any{"session-state": []byte("checkpoint")}); code != 200 {
		t.Errorf("set: %d", code)
	}
	if _, a := mgmt("get-session-state", map[string]any{}); string(a["session-state"].([]byte)) != "checkpoint" {
		t.Errorf("state is %v", a)
	}
	if code, a := mgmt("renew-session-lock", map[string]any{}); code != 200 || a["expiration"].(time.Time).Before(time.Now()) {
		t.Errorf("renew: %d %v", code, a)
	}
	code, a := management(t, session, "orders", "get-message-sessions", map[string]any{
		"last-updated-time": time.UnixMilli(253402300800000), "skip": int32(0), "top": int32(10),
	})
	if ids, _ := a["sessions-ids"].([]string); code != 200 || len(ids) != 1 || ids[0] != "s1" {
		t.Errorf("sessions: %d %v", code, a)
	}
	for _, op := range []string{"get-session-state", "set-session-state", "renew-session-lock"} { // S-68
		if code, _ := management(t, session, "orders", op, map[string]any{"session-id": "other"}); code != 410 {
			t.Errorf("%s of a session held by nobody: %d", op, code)
		}
	}
}

// S-21, S-107, S-115, S-156, S-181, S-246, T-57
func TestManagementOperationsOnAQueue(t *testing.T) {
	for name, edit := range map[string]func(*fsm.Descriptor){
		"one share": func(*fsm.Descriptor) {}, "three shares": partitioned,
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, 3)
			ts.broker.queue("orders", edit)
			session := newSession(t, dial(t, ts))
			tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
			ctx := testContext(t)

			later := goamqp.NewMessage([]byte("later"))
			later.Annotations = goamqp.Annotations{"x-opt-scheduled-enqueue-time": time.Now().Add(time.Hour)}
			encoded, err := later.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			code, a := management(t, session, "orders", "schedule-message", map[string]any{
				"messages": []any{map[string]any{"message-id": "1", "message": encoded}},
			})
			numbers, ok := a["sequence-numbers"].([]int64)
			if code != 200 || !ok || len(numbers) != 1 {
				t.Fatalf("schedule: %d %v", code, a)
			}
			code, a = management(t, session, "orders", "peek-message", map[string]any{
				"from-sequence-number": int64(0), "message-count": int32(10),
			})
			if list, _ := a["messages"].([]any); code != 200 || len(list) != 1 {
				t.Fatalf("peek: %d %v", code, a)
			} else {
				var m goamqp.Message
				if err := m.UnmarshalBinary(list[0].(map[string]any)["message"].([]byte)); err != nil {
					t.Fatal(err)
				}
				if m.Annotations["x-opt-message-state"] != int32(2) || string(m.GetData()) != "later" {
					t.Errorf("peeked %v %q", m.Annotations, m.GetData())
				}
			}
			if code, _ = management(t, session, "orders", "cancel-scheduled-message", map[string]any{"sequence-numbers": numbers}); code != 200 {
				t.Errorf("cancel: %d", code)
			}
			if code, _ = management(t, session, "orders", "cancel-scheduled-message", map[string]any{"sequence-numbers": numbers}); code != 404 {
				t.Errorf("second cancel: %d", code)
			}
			if code, _ = management(t, session, "orders", "peek-message", map[string]any{
				"from-sequence-number": int64(0), "message-count": int32(10),
			}); code != 204 {
				t.Errorf("peek of nothing: %d", code)
			}

			if err := tx.Send(ctx, goamqp.NewMessage([]byte("deferred")), nil); err != nil {
				t.Fatal(err)
			}
			m := receive(t, rx, 1)[0]
			token, _ := amqp.TokenFromTag(m.DeliveryTag)
			code, a = management(t, session, "orders", "renew-lock", map[string]any{"lock-tokens": []goamqp.UUID{goamqp.UUID(token)}})
			if times, ok := a["expirations"].([]time.Time); code != 200 || !ok || len(times) != 1 {
				t.Errorf("renew: %d %v", code, a)
			}
			if code, _ = management(t, session, "orders", "renew-lock", map[string]any{"lock-tokens": []goamqp.UUID{{0, 1, 2}}}); code != 410 {
				t.Errorf("renew of a made-up token: %d", code)
			}
			if code, _ = management(t, session, "orders", "update-disposition", map[string]any{
				"disposition-status": "defered", "lock-tokens": []goamqp.UUID{goamqp.UUID(token)},
				"properties-to-modify": map[string]any{"seen": int32(1)},
			}); code != 200 {
				t.Errorf("defer: %d", code)
			}
			number := m.Annotations["x-opt-sequence-number"].(int64)
			code, a = management(t, session, "orders", "receive-by-sequence-number", map[string]any{
				"sequence-numbers": []int64{number}, "receiver-settle-mode": uint32(1),
			})
			list, _ := a["messages"].([]any)
			if code != 200 || len(list) != 1 {
				t.Fatalf("receive deferred: %d %v", code, a)
			}
			got := list[0].(map[string]any)
			var dm goamqp.Message
			if err := dm.UnmarshalBinary(got["message"].([]byte)); err != nil {
				t.Fatal(err)
			}
			lockToken, _ := got["lock-token"].(goamqp.UUID)
			if inside, _ := dm.DeliveryAnnotations["x-opt-lock-token"].(goamqp.UUID); inside != lockToken || dm.ApplicationProperties["seen"] != int32(1) {
				t.Errorf("token %v inside, %v outside, properties %v", inside, lockToken, dm.ApplicationProperties)
			}
			if code, _ = management(t, session, "orders", "receive-by-sequence-number", map[string]any{
				"sequence-numbers": []int64{number}, "receiver-settle-mode": uint32(1),
			}); code != 404 {
				t.Errorf("receive of a locked one: %d", code)
			}
			if code, _ = management(t, session, "orders", "update-disposition", map[string]any{
				"disposition-status": "completed", "lock-tokens": []goamqp.UUID{lockToken},
			}); code != 200 {
				t.Errorf("complete: %d", code)
			}
			if code, _ = management(t, session, "orders", "update-disposition", map[string]any{
				"disposition-status": "completed", "lock-tokens": []goamqp.UUID{lockToken},
			}); code != 410 {
				t.Errorf("second complete: %d", code)
			}
			if code, _ = management(t, session, "orders", "no-such-thing", map[string]any{}); code != 501 {
				t.Errorf("unknown operation: %d", code)
			}
		})
	}
}

// S-252, S-254, S-259
func TestLinksOfDeletedAndDisabledEntitiesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*singleBroker)
		want   goamqp.ErrCond
	}{
		"deleted":  {func(b *singleBroker) { b.remove("orders") }, goamqp.ErrCondNotFound},
		"disabled": {func(b *singleBroker) { b.update("orders", func(d *fsm.Descriptor) { d.Status = fsm.Disabled }) }, "com.microsoft:entity-disabled"},
	} {
		for _, credit := range []uint32{0, 1} {
			t.Run(name, func(t *testing.T) {
				ts := startServer(t, 1, func(c *Config) { c.WatchInterval = 20 * time.Millisecond })
				ts.broker.queue("orders")
				session := newSession(t, dial(t, ts))
				rx, tx := newReceiver(t, session, "orders"), newSender(t, session, "orders")
				if credit > 0 {
					if err := rx.IssueCredit(credit); err != nil {
						t.Fatal(err)
					}
				}
				c.change(ts.broker)
				if _, err := rx.Receive(testContext(t), nil); !isCondition(err, c.want) {
					t.Errorf("receiver: %v", err)
				}
				if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); !isCondition(err, c.want) {
					t.Errorf("sender: %v", err)
				}
			})
		}
	}
}

// Rights are checked for every link and every operation.
func TestRights(t *testing.T) {
	listens := map[string]bool{ // by operation: true if it needs Listen, false if it needs Send
		"peek-message": true, "renew-lock": true, "renew-session-lock": true, "receive-by-sequence-number": true,
		"update-disposition": true, "set-session-state": true, "get-session-state": true,
		"get-message-sessions": true, "schedule-message": false, "cancel-scheduled-message": false,
		"batch-delete-messages": true,
		// The rule managers of the official clients are for those who may not manage.
		"add-rule": true, "remove-rule": true, "enumerate-rules": true,
	}
	page, err := os.ReadFile("../docs/spec/amqp-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range operations {
		op := strings.TrimPrefix(name, "com.microsoft:")
		if _, told := listens[op]; !told {
			t.Errorf("%s: this test does not say which right it needs", op)
		}
		if !strings.Contains(string(page), "\n| `"+op+"`") {
			t.Errorf("%s: docs/spec/amqp-protocol.md has no row of it in 7.4", op)
		}
	}
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	for _, policy := range []string{"listener", "sender"} {
		t.Run(policy, func(t *testing.T) {
			conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			session := newSession(t, conn)
			if _, err := session.NewSender(testContext(t), "orders", nil); !isCondition(err, goamqp.ErrCondUnauthorizedAccess) {
				t.Errorf("sender without a token: %v", err)
			}
			if code := putToken(t, conn, "amqp://"+ts.addr+"/orders", policy); code != 202 {
				t.Fatalf("put-token: %d", code)
			}
			_, sendErr := session.NewSender(testContext(t), "orders", nil)
			_, receiveErr := session.NewReceiver(testContext(t), "orders", nil)
			sends, receives := policy == "sender", policy == "listener"
			if sends != (sendErr == nil) || !sends && !isCondition(sendErr, goamqp.ErrCondUnauthorizedAccess) {
				t.Errorf("sender: %v", sendErr)
			}
			if receives != (receiveErr == nil) || !receives && !isCondition(receiveErr, goamqp.ErrCondUnauthorizedAccess) {
				t.Errorf("receiver: %v", receiveErr)
			}
			for op, needsListen := range listens {
				code, _ := management(t, session, "orders", op, map[string]any{})
				if got := code != 401; got != (needsListen == receives) {
					t.Errorf("%s: %d", op, code)
				}
			}
		})
	}
	if code := putToken(t, dial(t, ts), "amqp://"+ts.addr+"/orders", "nobody"); code != 401 {
		t.Errorf("put-token of an unknown policy: %d", code)
	}
}

// The JavaScript SDK asks for a token of the request node before it opens it, and for none of the
// entity: that token opens the request node and nothing else.
func TestATokenOfTheRequestNodeOpensIt(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	for _, node := range []string{"orders", "orders/$DeadLetterQueue"} {
		conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr,
			&goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if code := putToken(t, conn, "sb://"+ts.addr+"/"+node+"/$management", "listener"); code != 202 {
			t.Fatalf("put-token: %d", code)
		}
		session := newSession(t, conn)
		code, _ := management(t, session, node, "peek-message",
			map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)})
		if code != 204 {
			t.Errorf("peek of %s: %d, want 204", node, code)
		}
		code, _ = management(t, session, node, "cancel-scheduled-message",
			map[string]any{"sequence-numbers": []int64{1}})
		if code != 401 {
			t.Errorf("cancel at %s without the right to send: %d, want 401", node, code)
		}
		_, err = session.NewReceiver(testContext(t), node, nil)
		if !isCondition(err, goamqp.ErrCondUnauthorizedAccess) {
			t.Errorf("receiver at %s: %v", node, err)
		}
	}
}

// A server that closes gives sessions back and tells its clients to come again.
func TestCloseReleasesSessionsAndForcesClientsAway(t *testing.T) {
	ts := startServer(t, 1)
	d := ts.broker.queue("orders", withSessions)
	conn := dial(t, ts)
	rx := mustAccept(t, newSession(t, conn), "orders", "s1")
	if err := ts.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	_, err := rx.Receive(testContext(t), nil)
	var connErr *goamqp.ConnError
	if !errors.As(err, &connErr) || connErr.RemoteErr == nil || connErr.RemoteErr.Condition != goamqp.ErrCondConnectionForced {
		t.Errorf("the client saw %v", err)
	}
	out, err := ts.broker.Propose(testContext(t), fsm.RequestID{Node: 9, Pump: 1, Counter: 1},
		waist.ShareKey(d, fsm.Main, 0), &fsm.AcceptSession{ID: "s1"})
	if err != nil || out.Refusal != fsm.None {
		t.Errorf("accept after close: %v %v", out.Refusal, err)
	}
}
