package conformance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// TestMessagesAsLines: what is exported and imported again is the same message, byte for byte, in every section that its
// sender wrote. The messages are sent and looked at by a client that shares no code with the commands but the codec.
func TestMessagesAsLines(t *testing.T) {
	n, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	bin, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	c, err := raw.Dial(t.Context(), n, raw.Plain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := &linesEnv{shell: &shell{T: t, bin: bin, env: []string{"SERVICEBUS_CONNECTION_STRING=" + n.ConnectionString(false),
		"BUSBAR_OPS=http://" + n.Ops}}, c: c, dir: t.TempDir()}
	l.everyType()
	l.states()
	l.grouped()
	l.stops()
	l.expiry()
	l.large()
	l.do(3, "", "messages", "export", "cli-lines-none")
	l.do(3, "", "messages", "import", "cli-lines-none")
	l.do(2, "", "messages", "export", "a", "b")
	l.do(2, "", "messages", "import", "cli-lines", "--file", filepath.Join(l.dir, "missing"))
}

type linesEnv struct {
	*shell
	c   *raw.Client
	dir string
}

func (l *linesEnv) send(queue string, payloads ...[]byte) {
	l.Helper()
	tx, err := l.c.Sender(queue)
	if err != nil {
		l.Fatal(err)
	}
	for _, p := range payloads {
		if _, err := l.c.Deliver(tx.Handle, nil, p); err != nil {
			l.Fatalf("% x: %v", p[:min(len(p), 100)], err)
		}
	}
}

// peek returns the messages of a queue as the broker shows them.
func (l *linesEnv) peek(queue string) (all []amqp.Sections) {
	l.Helper()
	a, err := l.c.Asker(queue)
	if err != nil {
		l.Fatal(err)
	}
	answer, err := a.Ask("peek-message", nil, amqp.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(100)}})
	if err != nil {
		l.Fatal(err)
	}
	found, _ := answer.Body.Get("messages")
	list, _ := found.(amqp.List)
	for _, entry := range list {
		encoded, _ := entry.(amqp.Map).Get("message")
		s, err := amqp.ParseMessage(bytes.Clone(encoded.([]byte)))
		if err != nil {
			l.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// own are the annotations that the sender wrote.
func (l *linesEnv) own(section []byte) (out amqp.Map) {
	l.Helper()
	all, err := amqp.SectionValue(section).Map()
	if err != nil {
		l.Fatal(err)
	}
	for _, p := range all {
		if key, _ := p.Key.(amqp.Symbol); !strings.HasPrefix(string(key), "x-opt-") || key == "x-opt-partition-key" ||
			key == "x-opt-scheduled-enqueue-time" {
			out = append(out, p)
		}
	}
	return out
}

// sameMessages compares what senders wrote into two queues.
func (l *linesEnv) sameMessages(a, b string, want int) {
	l.Helper()
	x, y := l.peek(a), l.peek(b)
	if len(x) != want || len(y) != want {
		l.Fatalf("%s has %d messages, %s has %d, want %d", a, len(x), b, len(y), want)
	}
	for i := range x {
		if !bytes.Equal(x[i].Bare, y[i].Bare) {
			l.Errorf("message %d of %s\n% x\nof %s\n% x", i, a, x[i].Bare, b, y[i].Bare)
		}
		for _, part := range [][2][]byte{{x[i].MessageAnnotations, y[i].MessageAnnotations}, {x[i].DeliveryAnnotations, y[i].DeliveryAnnotations}} {
			if u, v := fmt.Sprintf("%#v", l.own(part[0])), fmt.Sprintf("%#v", l.own(part[1])); u != v {
				l.Errorf("annotations of message %d of %s\n%s\nof %s\n%s", i, a, u, b, v)
			}
		}
		h, err := x[i].ParseHeader()
		g, err2 := y[i].ParseHeader()
		if h.DeliveryCount = 0; err != nil || err2 != nil || h != g {
			l.Errorf("header %+v of %s, %+v of %s", h, a, g, b)
		}
	}
}

// allTypes is a value of each type, in the only encoding that the codec writes.
var allTypes = amqp.List{
	nil, true, false, uint8(255), uint16(65535), uint32(1 << 31), uint64(1<<64 - 1), int8(-128), int16(-1), int32(-1 << 31),
	int64(-1 << 63), float32(0.1), 1e300, amqp.Decimal32{0x22}, amqp.Decimal64{0x22}, amqp.Decimal128{0x22}, amqp.Char(0x1f600),
	amqp.Timestamp(-1), amqp.UUID{1, 2}, []byte{0, 0xff}, []byte("text"), "ä\u2028<&>", amqp.Symbol("sym"),
	amqp.List{amqp.List{}}, amqp.Map{{Key: int32(1), Value: "a key that is no string"}, {Key: amqp.UUID{9}, Value: nil}},
	amqp.Described{Descriptor: amqp.Symbol("my:type"), Value: amqp.Described{Descriptor: uint64(7), Value: int32(7)}},
	[]int64{1, -1}, []amqp.UUID{{7}}, []amqp.Timestamp{}, amqp.Array{Code: 0x71, Descriptor: uint64(9), Items: []any{int32(5)}},
}

// message encodes one.
func (l *linesEnv) message(id string, annotations amqp.Map, p amqp.Properties, body func([]byte) []byte) []byte {
	l.Helper()
	p.MessageID = amqp.AppendString(nil, id)
	b := amqp.AppendHeader(nil, amqp.Header{Durable: true, Priority: amqp.Some[uint8](7), TTL: amqp.Some[uint32](3_600_000)})
	section := func(code amqp.Code, v any) {
		var err error
		if b, err = amqp.AppendValue(b, amqp.Described{Descriptor: uint64(code), Value: v}); err != nil {
			l.Fatal(err)
		}
	}
	if annotations != nil {
		section(amqp.CodeDeliveryAnnotations, annotations)
		section(amqp.CodeMessageAnnotations, annotations)
	}
	b = amqp.AppendProperties(b, &p)
	if annotations != nil {
		named := amqp.Map{}
		for i, v := range allTypes {
			named = append(named, amqp.Pair{Key: fmt.Sprint("z", 99-i), Value: v})
		}
		section(amqp.CodeApplicationProperties, named)
	}
	b = body(b)
	if annotations != nil {
		section(amqp.CodeFooter, annotations)
	}
	return b
}

func dataOf(s string) func([]byte) []byte {
	return func(b []byte) []byte { return amqp.AppendData(b, []byte(s)) }
}

func (l *linesEnv) everyType() {
	const from, to = "cli-lines", "cli-lines-again"
	l.do(0, "", "queue", "create", from)
	l.do(0, "", "queue", "create", to)
	own := amqp.Map{{Key: uint64(7), Value: "a number for a key"}}
	for i, v := range allTypes {
		own = append(own, amqp.Pair{Key: amqp.Symbol(fmt.Sprint("x-own-", i)), Value: v})
	}
	all := amqp.Properties{UserID: []byte{0xff}, To: []byte("to"), Subject: []byte(""), ReplyTo: []byte("ö"),
		CorrelationID: amqp.AppendUlong(nil, 1<<63), ContentType: []byte("text/plain"), ContentEncoding: []byte("gzip"),
		CreationTime: amqp.Some[amqp.Timestamp](1 << 40), GroupID: []byte("g"), GroupSequence: amqp.Some[uint32](1<<32 - 1),
		ReplyToGroupID: []byte("r")}
	value := func(code amqp.Code, v any) func([]byte) []byte {
		return func(b []byte) []byte {
			out, err := amqp.AppendValue(b, amqp.Described{Descriptor: uint64(code), Value: v})
			if err != nil {
				l.Fatal(err)
			}
			return out
		}
	}
	l.send(from,
		l.message("data", own, all, dataOf("hello")),
		l.message("binary", own, all, dataOf("\xff\x00")),
		l.message("several", own, all, func(b []byte) []byte { return dataOf("")(dataOf("\xfe")(dataOf("one")(b))) }),
		l.message("sequence", own, all, func(b []byte) []byte {
			return value(amqp.CodeAMQPSequence, amqp.List{})(value(amqp.CodeAMQPSequence, allTypes)(b))
		}),
		l.message("value", own, all, value(amqp.CodeAMQPValue, allTypes)),
		l.message("null", nil, amqp.Properties{}, value(amqp.CodeAMQPValue, nil)),
		l.message("no body", nil, amqp.Properties{}, func(b []byte) []byte { return b }),
		l.message("malformed", nil, amqp.Properties{}, func(b []byte) []byte { return append(b, 0x00, 0x53, 0x77, 0xa1, 0x01, 0xff) }),
	)
	exported := l.do(0, "", "messages", "export", from)
	if got := strings.Count(exported, "\n"); got != 8 {
		l.Fatalf("%d lines, want 8:\n%s", got, exported)
	}
	l.do(0, exported, "messages", "import", to, "--dry-run")
	if got := l.peek(to); len(got) != 0 {
		l.Fatalf("a dry run sent %d messages", len(got))
	}
	l.do(0, exported, "messages", "import", to)
	l.sameMessages(from, to, 8)
	if two := l.do(0, "", "messages", "export", from, "--from", "2", "--max", "2"); strings.Join(strings.SplitAfter(exported, "\n")[1:3], "") != two {
		l.Errorf("two lines from number 2 on: %s", two)
	}
}

// states: what is scheduled stays so; deferred and dead messages are active ones again.
func (l *linesEnv) states() {
	const from, to = "cli-lines-states", "cli-lines-states-again"
	l.do(0, "", "queue", "create", from)
	l.do(0, "", "queue", "create", to)
	at := amqp.Timestamp(time.Now().Add(time.Hour).UnixMilli())
	later := amqp.Map{{Key: amqp.Symbol("x-opt-scheduled-enqueue-time"), Value: at}}
	l.send(from, l.message("deferred", nil, amqp.Properties{}, dataOf("a")), l.message("dead", nil, amqp.Properties{}, dataOf("b")),
		l.message("later", later, amqp.Properties{}, dataOf("c")))
	rx, err := l.c.Receiver(from, nil)
	if err != nil {
		l.Fatal(err)
	}
	for _, state := range []amqp.DeliveryState{amqp.Modified{UndeliverableHere: amqp.Some(true)}, amqp.Rejected{}} {
		m, err := l.c.Receive(rx.Handle)
		if err == nil {
			_, err = l.c.Settle(m.ID, state)
		}
		if err != nil {
			l.Fatal(err)
		}
	}
	file := filepath.Join(l.dir, "states.jsonl")
	if said := l.do(0, "", "messages", "export", from, "--file", file); !strings.Contains(said, "exported 2 messages") {
		l.Errorf("export said %s", said)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		l.Fatal(err)
	}
	if !strings.Contains(string(written), `"state":"deferred"`) || !strings.Contains(string(written), `"state":"scheduled"`) {
		l.Errorf("exported %s", written)
	}
	dead := l.do(0, "", "messages", "export", from, "--dlq")
	if strings.Count(dead, "\n") != 1 || !strings.Contains(dead, `"messageId":"dead"`) {
		l.Errorf("exported %s", dead)
	}
	l.do(0, "", "messages", "import", to, "--file", file)
	l.do(0, dead, "messages", "import", to)
	states := map[string]int64{}
	for _, s := range l.peek(to) {
		p, err := s.ParseProperties()
		if err != nil {
			l.Fatal(err)
		}
		id, _ := amqp.IDText(p.MessageID)
		state, _ := s.Annotation("x-opt-message-state")
		states[id], _ = state.Int64()
		when, isSet := s.Annotation("x-opt-scheduled-enqueue-time")
		if got, _ := when.Timestamp(); isSet != (id == "later") || isSet && got != at {
			l.Errorf("%s is scheduled for %v, want %v", id, got, at)
		}
	}
	if len(states) != 3 || states["deferred"] != 0 || states["dead"] != 0 || states["later"] != 2 {
		l.Errorf("imported %v", states)
	}
}

// grouped: sessions and partitions.
func (l *linesEnv) grouped() {
	const from, to = "cli-lines-sessions", "cli-lines-sessions-again"
	l.do(0, "", "queue", "create", from, "--session")
	l.do(0, "", "queue", "create", to, "--session", "--partitioned", "--duplicate-window", "1h")
	for i := range 10 {
		l.do(0, "", "send", from, fmt.Sprint(i), "--session", string(rune('a'+i%3)))
	}
	l.do(0, l.do(0, "", "messages", "export", from), "messages", "import", to)
	for session, want := range map[string]string{"a": "0 3 6 9", "b": "1 4 7", "c": "2 5 8"} {
		l.bodies(want, l.messages("peek", to, "--session", session))
	}
	if one := l.do(0, "", "messages", "export", to, "--session", "b"); strings.Count(one, "\n") != 3 {
		l.Errorf("session b: %s", one)
	}
	// The same ids again are duplicates, so an import that is repeated doubles nothing.
	l.do(0, l.do(0, "", "messages", "export", from), "messages", "import", to)
	if all := l.peek(to); len(all) != 10 {
		l.Errorf("%d messages after a second import, want 10", len(all))
	}
	// A message without a session is refused, and the rest can be sent by itself.
	_, said := l.both(2, `{"format":1,"data":[{"text":"x"}]}`+"\n", "messages", "import", from)
	if !strings.Contains(said, "line 1: ") || !strings.Contains(said, "refused: line 1") || !strings.Contains(said, "--from-line 2") {
		l.Errorf("import said %s", said)
	}
}

// stops: an import stops at a bad line and says how to go on.
func (l *linesEnv) stops() {
	const q = "cli-lines-stops"
	l.do(0, "", "queue", "create", q)
	line := func(body string) string { return `{"format":1,"data":[{"text":"` + body + `"}]}` + "\n" }
	input := line("1") + "\n" + line("2") + `{"format":1,"data":[5]}` + "\n" + line("3") + `{"format":1,`
	_, said := l.both(2, input, "messages", "import", q)
	if !strings.Contains(said, "line 4: section 1 of data") || !strings.Contains(said, "(2 messages were stored; the rest begins with --from-line 4)") {
		l.Errorf("import said %s", said)
	}
	_, said = l.both(2, input, "messages", "import", q, "--from-line", "5")
	if !strings.Contains(said, "line 6: the line is cut off") || !strings.Contains(said, "(1 message was stored") {
		l.Errorf("import said %s", said)
	}
	l.bodies("1 2 3", l.messages("peek", q))
	_, said = l.both(2, input, "messages", "import", q, "--dry-run")
	if !strings.Contains(said, "line 4: section 1 of data") || strings.Contains(said, "stored") {
		l.Errorf("import said %s", said)
	}
}

// expiry: with --keep-expiry a message ends when it would have ended.
func (l *linesEnv) expiry() {
	const q = "cli-lines-expiry"
	l.do(0, "", "queue", "create", q)
	soon := time.Now().Add(10 * time.Minute).UTC().Format(time.RFC3339)
	input := `{"format":1,"expiresAt":"2020-01-01T00:00:00Z","header":{"ttl":3600000},"data":[{"text":"over"}]}` + "\n" +
		`{"format":1,"expiresAt":"` + soon + `","header":{"ttl":3600000},"data":[{"text":"alive"}]}` + "\n"
	if said := l.do(0, input, "messages", "import", q, "--keep-expiry"); !strings.Contains(said, "sent 1 messages; 1 more had expired") {
		l.Errorf("import said %s", said)
	}
	for i, limits := range [][2]uint32{{1, 600_000}, {3_600_000, 3_600_000}, {3_600_000, 3_600_000}} {
		if i == 1 {
			l.do(0, input, "messages", "import", q)
		}
		h, err := l.peek(q)[i].ParseHeader()
		if err != nil || h.TTL.Value < limits[0] || h.TTL.Value > limits[1] {
			l.Errorf("message %d lives %d ms, want %v, %v", i, h.TTL.Value, limits, err)
		}
	}
}

// large: what is larger than a batch may be is sent by itself, or refused with the reason.
func (l *linesEnv) large() {
	const from, to = "cli-lines-large", "cli-lines-large-again"
	l.do(0, "", "queue", "create", from, "--max-message-kb", "4096")
	l.do(0, "", "queue", "create", to, "--max-message-kb", "4096")
	body := strings.Repeat("0123456\x00", 300<<10)
	l.send(from, l.message("large", nil, amqp.Properties{Subject: []byte("s")}, dataOf(body)))
	l.do(0, l.do(0, "", "messages", "export", from), "messages", "import", to)
	x, y := l.peek(from), l.peek(to)
	if len(x) != 1 || len(y) != 1 || !bytes.Equal(x[0].Body, y[0].Body) {
		l.Fatalf("%d and %d messages, or their bodies differ", len(x), len(y))
	}
	p, err := x[0].ParseProperties()
	again, err2 := y[0].ParseProperties()
	if err != nil || err2 != nil || !reflect.DeepEqual(p, again) {
		l.Errorf("properties %+v, want %+v, %v, %v", again, p, err, err2)
	}
	decimal := amqp.Map{{Key: amqp.Symbol("x-own"), Value: amqp.Decimal64{1}}}
	l.send(from, l.message("odd", decimal, amqp.Properties{}, dataOf(body)))
	_, said := l.both(2, l.do(0, "", "messages", "export", from, "--from", "2"), "messages", "import", to)
	if !strings.Contains(said, "line 1: the message has 2") || !strings.Contains(said, "outside of a batch it cannot be sent") {
		l.Errorf("import said %.500s", said)
	}
	if all := l.peek(to); len(all) != 1 {
		l.Errorf("%d messages, want 1", len(all))
	}
}
