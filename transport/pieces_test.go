package transport

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// noise is a body that no mix-up of its pieces leaves as it is.
func noise(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte("noise"))).Read(b)
	return b
}

// storedLarge is the stored form of a message with those sections behind the properties.
func storedLarge(t *testing.T, footer bool) []byte {
	t.Helper()
	b := amqp.AppendHeader(nil, amqp.Header{Durable: true, TTL: amqp.Some[uint32](60_000)})
	b = amqp.AppendProperties(b, &amqp.Properties{MessageID: amqp.AppendString(nil, "m"),
		AbsoluteExpiryTime: amqp.Some(amqp.Timestamp(90_000))})
	w := amqp.BeginMapSection(b, amqp.CodeApplicationProperties)
	w.Int("keep", 1)
	b = amqp.AppendData(amqp.AppendData(w.End(), noise(700<<10)), noise(800<<10))
	if footer {
		f := amqp.BeginMapSection(b, amqp.CodeFooter)
		f.Int("sum", 3)
		b = f.End()
	}
	m, _, _, bad := translateMessage(b, &fsm.Descriptor{Kind: fsm.Queue}, noID)
	if bad != nil {
		t.Fatal(bad)
	}
	return m.Body
}

// S-226: a large message is the same, byte for byte, whether it is copied or sent in pieces; its body is
// not copied.
func TestALargeMessageIsSentInPieces(t *testing.T) {
	none := fsm.Delivery{Seq: 1, EnqueuedAt: 1000}
	locked := fsm.Delivery{Seq: 1, EnqueuedAt: 1000, ExpiresAt: 5000, Token: fsm.LockToken{1}, LockedUntil: 9}
	dead := fsm.Delivery{Seq: 1, EnqueuedAt: 1000, Reason: "why", Description: "because",
		Properties: []fsm.Property{{Key: "own", Value: amqp.AppendString(nil, "new")}}}
	for name, d := range map[string]fsm.Delivery{"untouched": none, "expires": locked, "dead": dead} {
		for _, footer := range []bool{false, true} {
			d.Body = storedLarge(t, footer)
			want, err := appendDelivery(nil, &d, true)
			if err != nil {
				t.Fatal(err)
			}
			p, err := newParcel(nil, &d, true)
			if err != nil {
				t.Fatal(err)
			}
			if p.size() != len(want) || len(p.payload) > 1024 {
				t.Errorf("%s: %d bytes, %d of them copied, want %d", name, p.size(), len(p.payload), len(want))
			}
			for _, frame := range []int{p.size(), 65_408, len(p.payload), 1 << 20} {
				var got []byte
				for off := 0; off < p.size(); off += frame {
					got = append(got, bytes.Join(p.span(off, min(off+frame, p.size())), nil)...)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s, footer %v, frames of %d: other bytes", name, footer, frame)
				}
			}
		}
	}
}

// S-181, S-246: a reply with large messages is the same value whether it is copied or sent in pieces.
func TestALargeReplyIsSentInPieces(t *testing.T) {
	small := []byte("small")
	token := fsm.LockToken{1, 2}
	list := []carried{
		{payload: small, token: token},
		{payload: []byte("head"), tail: noise(3 << 20), token: token},
		{payload: []byte("head 2"), tail: noise(70 << 10)},
		{payload: small},
	}
	var want amqp.List
	for i := range list {
		m := amqp.Map{{Key: "message", Value: append(bytes.Clone(list[i].payload), list[i].tail...)}}
		if list[i].token == token {
			m = append(m, amqp.Pair{Key: "lock-token", Value: amqp.UUID(token)})
		}
		want = append(want, m)
	}
	for _, n := range []int{2, 3, 4} {
		r := (&call{}).messages(list[:n], fsm.SequenceNumber(n%2*7))
		if len(r.body) > 1024 || len(r.tail) < 1 {
			t.Fatalf("%d bytes and %d pieces", len(r.body), len(r.tail))
		}
		got, err := amqp.Raw(append(r.body, bytes.Join(r.tail, nil)...)).Value()
		if err != nil {
			t.Fatal(err)
		}
		answer := amqp.Map{{Key: "messages", Value: want[:n]}}
		if n%2 == 1 {
			answer = append(answer, amqp.Pair{Key: nextNumber, Value: int64(7)})
		}
		if !reflect.DeepEqual(got, answer) {
			t.Errorf("a reply with %d messages is another one", n)
		}
	}
}

// S-64, S-181, S-226, S-247: bodies and states above 1 MiB pass the wire whole, by every way out.
func TestLargeBodiesPassEveryWayOut(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxMessageBytes = 8 << 20 })
	ctx := testContext(t)
	conn := dial(t, ts)
	session := newSession(t, conn)
	tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
	bodies := [][]byte{noise(3 << 20), noise(2<<20 + 1), []byte("small")}
	for _, b := range bodies {
		if err := tx.Send(ctx, goamqp.NewMessage(b), nil); err != nil {
			t.Fatal(err)
		}
	}
	code, answer := management(t, session, "orders", "peek-message",
		map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)})
	if code != codeOK || !bytes.Equal(dataOf(t, answer, 0), bodies[0]) {
		t.Errorf("peek: %d", code)
	}
	for i, m := range receive(t, rx, len(bodies)) {
		if !bytes.Equal(m.GetData(), bodies[i]) {
			t.Errorf("body %d came back with %d bytes", i, len(m.GetData()))
		}
		number := m.Annotations[annSequenceNumber].(int64)
		if err := rx.ModifyMessage(ctx, m, &goamqp.ModifyMessageOptions{UndeliverableHere: true}); err != nil { // defer
			t.Fatal(err)
		}
		code, answer = management(t, session, "orders", "receive-by-sequence-number",
			map[string]any{"sequence-numbers": []int64{number}, "receiver-settle-mode": uint32(1)})
		if code != codeOK || !bytes.Equal(dataOf(t, answer, 0), bodies[i]) {
			t.Errorf("receive message %d by number: %d", i, code)
		}
	}

	ts.broker.queue("inSessions", withSessions, func(d *fsm.Descriptor) { d.MaxMessageBytes = 8 << 20 })
	mustAccept(t, session, "inSessions", "s")
	set := map[string]any{"session-id": "s", "session-state": bodies[0]}
	if code, _ = management(t, session, "inSessions", "set-session-state", set); code != codeOK {
		t.Errorf("set state: %d", code)
	}
	code, answer = management(t, session, "inSessions", "get-session-state", map[string]any{"session-id": "s"})
	if state, _ := answer["session-state"].([]byte); code != codeOK || !bytes.Equal(state, bodies[0]) {
		t.Errorf("get state: %d, %d bytes", code, len(state))
	}
}

// S-226: over HTTP, too.
func TestLargeBodiesPassHTTP(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders", func(d *fsm.Descriptor) { d.MaxMessageBytes = 4 << 20 })
	sent := string(noise(3 << 20))
	if res := ts.curl(t, http.MethodPost, "/orders/messages", sent, "P", "v"); res.StatusCode != http.StatusCreated {
		t.Fatalf("send: %d %s", res.StatusCode, textBody(t, res))
	}
	res := ts.curl(t, http.MethodPost, "/orders/messages/head", "")
	if got := textBody(t, res); res.StatusCode != http.StatusCreated || got != sent || res.Header["P"][0] != `"v"` {
		t.Errorf("received %d, %d bytes, property %q", res.StatusCode, len(got), res.Header["P"])
	}
	path, _ := url.Parse(res.Header.Get("Location"))
	if res := ts.curl(t, http.MethodPut, path.Path, ""); res.StatusCode != http.StatusOK {
		t.Fatalf("unlock: %d", res.StatusCode)
	}
	res = ts.curl(t, http.MethodDelete, "/orders/messages/head", "")
	if got := textBody(t, res); res.StatusCode != http.StatusOK || got != sent {
		t.Errorf("removed %d, %d bytes", res.StatusCode, len(got))
	}
	res = ts.curl(t, http.MethodPost, "/orders/messages", sent+sent)
	if text := textBody(t, res); res.StatusCode != http.StatusForbidden || !strings.Contains(text, "The size exceeds the limit of the entity.") {
		t.Errorf("too large: %d %s", res.StatusCode, text)
	}
}

// dataOf is the body of a message in an answer.
func dataOf(t *testing.T, answer map[string]any, i int) []byte {
	t.Helper()
	list, _ := answer["messages"].([]any)
	if i >= len(list) {
		t.Fatalf("%d messages, want more than %d", len(list), i)
	}
	raw, _ := list[i].(map[string]any)["message"].([]byte)
	m := &goamqp.Message{}
	if err := m.UnmarshalBinary(raw); err != nil {
		t.Fatal(err)
	}
	return m.GetData()
}
