package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/transport/auth"
)

// These tests run the real AMQP client of the Go SDK against the server over real sockets.

// patience is for what comes, on a machine that is busy with other things.
const patience = time.Minute

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// dial connects and puts a token for the whole namespace.
func dial(t testing.TB, ts *testServer) *goamqp.Conn {
	t.Helper()
	conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if code := putToken(t, conn, "amqp://"+ts.addr+"/", testPolicy); code != 202 {
		t.Fatalf("put-token: %d", code)
	}
	return conn
}

// putToken negotiates as the Go SDK does, with a session of its own (Q1).
func putToken(t testing.TB, conn *goamqp.Conn, audience, policy string) int32 {
	t.Helper()
	ctx := testContext(t)
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(ctx)
	node := "$cbs"
	replyTo := "$cbs$$cbs-reply-to-1"
	resp := ask(t, session, node, replyTo, &goamqp.Message{
		Value: auth.NewToken(audience, policy, testKey, time.Now().Add(time.Hour)),
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience, "expiration": "0",
		},
	})
	return resp.ApplicationProperties["status-code"].(int32)
}

// ask sends one request over links of its own and returns the response.
func ask(t testing.TB, session *goamqp.Session, node, replyTo string, m *goamqp.Message) *goamqp.Message {
	t.Helper()
	ctx := testContext(t)
	rx, err := session.NewReceiver(ctx, node, &goamqp.ReceiverOptions{
		TargetAddress: replyTo, Credit: 10, RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr(),
		SettlementMode: goamqp.ReceiverSettleModeFirst.Ptr(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close(ctx)
	tx, err := session.NewSender(ctx, node, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close(ctx)
	m.Properties = &goamqp.MessageProperties{MessageID: "request-1", ReplyTo: &replyTo}
	if err := tx.Send(ctx, m, nil); err != nil {
		t.Fatal(err)
	}
	resp, err := rx.Receive(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Properties.CorrelationID != "request-1" {
		t.Fatalf("correlation id %v", resp.Properties.CorrelationID)
	}
	return resp
}

func newSession(t testing.TB, conn *goamqp.Conn) *goamqp.Session {
	t.Helper()
	session, err := conn.NewSession(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func newSender(t testing.TB, session *goamqp.Session, queue string) *goamqp.Sender {
	t.Helper()
	tx, err := session.NewSender(testContext(t), queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func newReceiver(t testing.TB, session *goamqp.Session, queue string) *goamqp.Receiver {
	t.Helper()
	rx, err := session.NewReceiver(testContext(t), queue, &goamqp.ReceiverOptions{
		Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return rx
}

func receive(t testing.TB, rx *goamqp.Receiver, count int) []*goamqp.Message {
	t.Helper()
	if err := rx.IssueCredit(uint32(count)); err != nil {
		t.Fatal(err)
	}
	var out []*goamqp.Message
	for range count {
		m, err := rx.Receive(testContext(t), nil)
		if err != nil {
			t.Fatalf("receive %d of %d: %v", len(out)+1, count, err)
		}
		out = append(out, m)
	}
	return out
}

// S-131, S-143, S-150
func TestMessagesAreSentReceivedAndCompleted(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	session := newSession(t, dial(t, ts))
	tx := newSender(t, session, "orders")
	for i := range 5 {
		if err := tx.Send(testContext(t), goamqp.NewMessage(fmt.Appendf(nil, "m%d", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	rx := newReceiver(t, session, "orders")
	for i, m := range receive(t, rx, 5) {
		if got, want := string(m.GetData()), fmt.Sprintf("m%d", i); got != want {
			t.Errorf("message %d is %q, want %q", i, got, want)
		}
		if m.Header == nil || m.Header.DeliveryCount != 0 {
			t.Errorf("message %d: header %+v", i, m.Header)
		}
		if n := m.Annotations["x-opt-sequence-number"]; n != int64(i+1) {
			t.Errorf("message %d has number %v", i, n)
		}
		if len(m.DeliveryTag) != 16 {
			t.Errorf("message %d has a tag of %d bytes", i, len(m.DeliveryTag))
		}
		if err := rx.AcceptMessage(testContext(t), m); err != nil {
			t.Fatal(err)
		}
	}
	if c := ts.broker.counts(t, "orders"); c.Active != 0 {
		t.Errorf("%d messages are left", c.Active)
	}
}

// T-6, S-153, S-155, S-184: each way to settle does what it says.
func TestEverySettlementHasItsEffect(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	session := newSession(t, dial(t, ts))
	tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
	ctx := testContext(t)
	send := func(body string) {
		t.Helper()
		if err := tx.Send(ctx, goamqp.NewMessage([]byte(body)), nil); err != nil {
			t.Fatal(err)
		}
	}
	send("abandoned")
	m := receive(t, rx, 1)[0]
	if err := rx.ModifyMessage(ctx, m, &goamqp.ModifyMessageOptions{Annotations: goamqp.Annotations{"why": "later"}}); err != nil {
		t.Fatal(err)
	}
	m = receive(t, rx, 1)[0]
	if m.Header.DeliveryCount != 1 || m.ApplicationProperties["why"] != "later" {
		t.Errorf("after abandon: count %d, properties %v", m.Header.DeliveryCount, m.ApplicationProperties)
	}
	if err := rx.ReleaseMessage(ctx, m); err != nil {
		t.Fatal(err)
	}
	m = receive(t, rx, 1)[0]
	if m.Header.DeliveryCount != 1 { // RUL-15
		t.Errorf("after release: count %d", m.Header.DeliveryCount)
	}
	if err := rx.RejectMessage(ctx, m, &goamqp.Error{
		Condition: "com.microsoft:dead-letter",
		Info:      map[string]any{"DeadLetterReason": "bad", "DeadLetterErrorDescription": "very bad", "extra": "x"},
	}); err != nil {
		t.Fatal(err)
	}
	dead := newReceiver(t, session, "orders/$DeadLetterQueue")
	m = receive(t, dead, 1)[0]
	p := m.ApplicationProperties
	if p["DeadLetterReason"] != "bad" || p["DeadLetterErrorDescription"] != "very bad" || p["extra"] != "x" {
		t.Errorf("dead-lettered with %v", p)
	}
	if err := dead.AcceptMessage(ctx, m); err != nil {
		t.Fatal(err)
	}
	send("deferred")
	m = receive(t, rx, 1)[0]
	if err := rx.ModifyMessage(ctx, m, &goamqp.ModifyMessageOptions{UndeliverableHere: true}); err != nil {
		t.Fatal(err)
	}
	if c := ts.broker.counts(t, "orders"); c.Deferred != 1 || c.DeadLetter != 0 {
		t.Errorf("counts %+v", c)
	}
}

// S-10, G11, G19: deliveries of many frames, both ways, whole and in order.
func TestLargeMessagesTravelInManyFrames(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	ctx := testContext(t)
	conn, err := goamqp.Dial(ctx, "amqp://"+ts.addr, &goamqp.ConnOptions{
		SASLType: goamqp.SASLTypeAnonymous(), MaxFrameSize: 1024,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	putToken(t, conn, "amqp://"+ts.addr+"/", testPolicy)
	session := newSession(t, conn)
	tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
	bodies := [][]byte{bytes.Repeat([]byte("a"), 700_000), []byte("small"), bytes.Repeat([]byte("b"), 300_000)}
	for _, b := range bodies {
		if err := tx.Send(ctx, goamqp.NewMessage(b), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range receive(t, rx, len(bodies)) {
		if !bytes.Equal(m.GetData(), bodies[i]) {
			t.Errorf("body %d came back with %d bytes", i, len(m.GetData()))
		}
		if err := rx.AcceptMessage(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
}

func isCondition(err error, condition goamqp.ErrCond) bool {
	var amqpErr *goamqp.Error
	var linkErr *goamqp.LinkError
	if errors.As(err, &linkErr) && linkErr.RemoteErr != nil {
		return linkErr.RemoteErr.Condition == condition
	}
	return errors.As(err, &amqpErr) && amqpErr.Condition == condition
}

func TestAttachToAMissingEntityIsNotFound(t *testing.T) {
	ts := startServer(t, 1)
	conn := dial(t, ts)
	session := newSession(t, conn)
	_, err := session.NewSender(testContext(t), "nowhere", nil)
	if !isCondition(err, goamqp.ErrCondNotFound) {
		t.Errorf("got %v", err)
	}
	_, err = session.NewReceiver(testContext(t), "nowhere/$management", nil)
	if !isCondition(err, goamqp.ErrCondNotFound) { // Q20
		t.Errorf("got %v", err)
	}
	if code := putToken(t, conn, "amqp://"+ts.addr+"/nowhere", testPolicy); code != 404 {
		t.Errorf("put-token for a missing entity: %d", code)
	}
}
