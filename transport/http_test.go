package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
)

// curl sends one HTTP request to the messaging port; headers are pairs.
func (ts *testServer) curl(t testing.TB, method, path, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+ts.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Authorization"] = []string{httpToken(testPolicy, "http://"+ts.addr+"/")}
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append([]string(nil), strings.Split(headers[i+1], "\x00")...)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func httpToken(policy, audience string) string {
	return auth.NewToken(audience, policy, testKey, time.Now().Add(time.Hour))
}

func textBody(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// brokerOf reads the broker's properties of an answer.
func brokerOf(t testing.TB, res *http.Response) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(res.Header.Get(brokerHeader)), &m); err != nil {
		t.Fatalf("%v in %q", err, res.Header.Get(brokerHeader))
	}
	return m
}

// want fails the test unless the answer has that status.
func want(t testing.TB, res *http.Response, status int) *http.Response {
	t.Helper()
	if res.StatusCode != status {
		t.Fatalf("%s %s: %d %s", res.Request.Method, res.Request.URL.Path, res.StatusCode, textBody(t, res))
	}
	return res
}

func TestHTTPMessageArrivesAsItWasSent(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("a/b")
	when := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	want(t, ts.curl(t, "POST", "/A/b/messages", "body \x00\xff", "Content-Type", "text/plain; charset=x",
		brokerHeader, `{"MessageId":"m","Label":"é","CorrelationId":"c","ReplyTo":"r","To":"t","SessionId":"s",`+
			`"PartitionKey":"s","ReplyToSessionId":"rs","TimeToLive":90.5,"ForcePersistence":true,"Nobody":{},`+
			`"SequenceNumber":77}`,
		"Priority", `"High"`, "Count", "5", "Ratio", "2.5", "Flag", "True", "At", `"`+when.Format(http.TimeFormat)+`"`,
		"Quote", `"a \"b\" \u00e9"`, "Bare", "words", "Empty", `""`, "User-Agent", "curl"), 201)

	res := want(t, ts.curl(t, "POST", "/a/b/messages/head?timeout=5", ""), 201)
	if got := textBody(t, res); got != "body \x00\xff" {
		t.Errorf("body %q", got)
	}
	for name, value := range map[string]string{
		"Content-Type": "text/plain; charset=x", "Priority": `"High"`, "Count": "5", "Ratio": "2.5",
		"Flag": "true", "At": `"` + when.Format(http.TimeFormat) + `"`, "Quote": `"a \"b\" \u00e9"`,
		"Bare": `"words"`, "Empty": `""`, "User-Agent": "",
	} {
		if got := res.Header.Get(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	p := brokerOf(t, res)
	for name, value := range map[string]any{
		"MessageId": "m", "Label": "é", "CorrelationId": "c", "ReplyTo": "r", "To": "t", "SessionId": "s",
		"PartitionKey": "s", "ReplyToSessionId": "rs", "TimeToLive": 90.5, "SequenceNumber": 1.0,
		"EnqueuedSequenceNumber": 1.0, "DeliveryCount": 1.0, "State": "Active",
	} {
		if p[name] != value {
			t.Errorf("%s is %v, want %v", name, p[name], value)
		}
	}
	for _, name := range []string{"EnqueuedTimeUtc", "LockedUntilUtc"} {
		if _, err := http.ParseTime(p[name].(string)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if res.Header.Get("Date") != p["EnqueuedTimeUtc"] {
		t.Errorf("Date is %q", res.Header.Get("Date"))
	}
	location := "http://" + ts.addr + "/a/b/messages/1/" + p["LockToken"].(string)
	if got := res.Header.Get("Location"); !strings.EqualFold(got, location) {
		t.Errorf("Location is %q, want %q", got, location)
	}
}

// The whole life of a lock, by the URL of Location, and each status of the table.
func TestHTTPLocks(t *testing.T) {
	ts := startServer(t, 3)
	ts.broker.queue("q")
	ts.broker.queue("p", func(d *fsm.Descriptor) {
		d.Partitioned, d.Partitions = true, []fsm.PartitionID{1, 2, 3}
	})
	for _, queue := range []string{"q", "p"} {
		for range 3 {
			want(t, ts.curl(t, "POST", "/"+queue+"/messages", "x"), 201)
		}
		lock := func() string {
			t.Helper()
			res := want(t, ts.curl(t, "POST", "/"+queue+"/messages/head?timeout=5", ""), 201)
			return strings.TrimPrefix(res.Header.Get("Location"), "http://"+ts.addr)
		}
		at := lock()
		renewed := want(t, ts.curl(t, "POST", at, ""), 200)
		if p := brokerOf(t, renewed); p["LockedUntilUtc"] == nil || !strings.HasSuffix(at, p["LockToken"].(string)) {
			t.Errorf("renewed: %v", p)
		}
		want(t, ts.curl(t, "PUT", at, ""), 200)
		want(t, ts.curl(t, "PUT", at, ""), 404)
		at = lock()
		want(t, ts.curl(t, "DELETE", at, ""), 200)
		for _, method := range []string{"DELETE", "PUT", "POST"} {
			if text := textBody(t, want(t, ts.curl(t, method, at, ""), 404)); !strings.Contains(text,
				"<Code>404</Code><Detail>The lock supplied is invalid.") {
				t.Errorf("%s: %s", method, text)
			}
		}
		for range 2 {
			res := want(t, ts.curl(t, "DELETE", "/"+queue+"/messages/head?timeout=5", ""), 200)
			if res.Header.Get("Location") != "" || brokerOf(t, res)["LockToken"] != nil {
				t.Errorf("what was removed has a lock: %v", res.Header)
			}
		}
		for _, method := range []string{"DELETE", "POST"} {
			want(t, ts.curl(t, method, "/"+queue+"/messages/head?timeout=0", ""), 204)
		}
	}
	// Abandoned once: the count of the dead-letter queue's message shows it.
	if got := ts.broker.counts(t, "q").Active; got != 0 {
		t.Errorf("%d messages are left", got)
	}
}

func TestHTTPDeadLetterQueue(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("q", func(d *fsm.Descriptor) { d.MaxDelivery = 1 })
	want(t, ts.curl(t, "POST", "/q/messages", "x"), 201)
	at := want(t, ts.curl(t, "POST", "/q/messages/head", ""), 201).Header.Get("Location")
	want(t, ts.curl(t, "PUT", strings.TrimPrefix(at, "http://"+ts.addr), ""), 200)
	res := want(t, ts.curl(t, "POST", "/q/$DeadLetterQueue/messages/head", ""), 201)
	if got := res.Header.Get("DeadLetterReason"); got != `"MaxDeliveryCountExceeded"` {
		t.Errorf("reason %q", got)
	}
	at = strings.TrimPrefix(res.Header.Get("Location"), "http://"+ts.addr)
	if !strings.HasPrefix(at, "/q/$DeadLetterQueue/messages/1/") {
		t.Errorf("Location %q", at)
	}
	want(t, ts.curl(t, "DELETE", at, ""), 200)
	want(t, ts.curl(t, "POST", "/q/$DeadLetterQueue/messages", "x"), 400)
}

func TestHTTPBatch(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("q")
	want(t, ts.curl(t, "POST", "/q/messages", `[{"Body":"one","BrokerProperties":{"Label":"l","TimeToLiveTimeSpan":
		"0.00:00:40"},"UserProperties":{"lower":"x","n":5,"f":1.5,"b":true,"z":null}},{"Body":"two"}]`,
		"Content-Type", batchType, "Priority", `"High"`), 201)
	res := want(t, ts.curl(t, "DELETE", "/q/messages/head", ""), 200)
	if got := textBody(t, res); got != "one" {
		t.Errorf("body %q", got)
	}
	p := brokerOf(t, res)
	if p["TimeToLive"] != 40.0 || p["Label"] != "l" || res.Header.Get("Priority") != "" ||
		res.Header.Get("Lower") != `"x"` || res.Header.Get("N") != "5" || res.Header.Get("F") != "1.5" ||
		res.Header.Get("B") != "true" || res.Header.Get("Z") != "null" {
		t.Errorf("%v %v", p, res.Header)
	}
	if got := textBody(t, want(t, ts.curl(t, "DELETE", "/q/messages/head", ""), 200)); got != "two" {
		t.Errorf("body %q", got)
	}
	// A batch of ours says what its bodies are.
	want(t, ts.curl(t, "POST", "/q/messages", `[{"Body":"//4=","BodyEncoding":"base64","ContentType":"image/x"}]`, "Content-Type", batchType), 201)
	if res = want(t, ts.curl(t, "DELETE", "/q/messages/head", ""), 200); res.Header.Get("Content-Type") != "image/x" {
		t.Errorf("the body is %q", res.Header.Get("Content-Type"))
	}
	if got := textBody(t, res); got != "\xff\xfe" {
		t.Errorf("body %q", got)
	}
	// S-342: the number has no limit.
	many := "[" + strings.Repeat(`{"Body":"x"},`, 5_999) + `{"Body":"x"}]`
	ts.broker.queue("many")
	want(t, ts.curl(t, "POST", "/many/messages", many, "Content-Type", batchType), 201)
	if got := ts.broker.counts(t, "many").Active; got != 6_000 {
		t.Errorf("%d messages of a batch of 6,000", got)
	}
	// With a charset it is one message.
	want(t, ts.curl(t, "POST", "/q/messages", `[]`, "Content-Type", batchType+"; charset=utf-8"), 201)
	if got := textBody(t, want(t, ts.curl(t, "DELETE", "/q/messages/head", ""), 200)); got != "[]" {
		t.Errorf("body %q", got)
	}
	for name, body := range map[string]string{
		"no array": `{}`, "nothing in it": `[]`, "half": `[{"Body":"x"}`, "more behind": `[{}] []`,
		"a list as a property":       `[{"UserProperties":{"a":[1]}}]`,
		"an encoding unknown":        `[{"Body":"x","BodyEncoding":"hex"}]`,
		"no base64":                  `[{"Body":"x","BodyEncoding":"base64"}]`,
		"a type that is no ASCII":    `[{"Body":"x","ContentType":"é"}]`,
		"a life of nothing":          `[{"BrokerProperties":{"TimeToLive":0}}]`,
		"a life that is no span":     `[{"BrokerProperties":{"TimeToLiveTimeSpan":"40"}}]`,
		"one bad message of several": `[{},{"BrokerProperties":{"SessionId":"` + strings.Repeat("s", 129) + `"}}]`,
	} {
		res := ts.curl(t, "POST", "/q/messages", body, "Content-Type", batchType)
		if res.StatusCode != 400 {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	if got := ts.broker.counts(t, "q").Active; got != 0 {
		t.Errorf("%d messages of bad batches were stored", got)
	}
}

// The error rows of section 6.
func TestHTTPErrors(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("q", func(d *fsm.Descriptor) { d.MaxMessageBytes = 1000 })
	ts.broker.queue("small", func(d *fsm.Descriptor) { d.MaxSizeBytes = 10 })
	ts.broker.queue("off", func(d *fsm.Descriptor) { d.Status = fsm.Disabled })
	ts.broker.queue("sessions", func(d *fsm.Descriptor) { d.RequiresSession = true })
	ts.broker.queue("t", func(d *fsm.Descriptor) { d.Kind = fsm.Topic })
	ts.broker.queue("spread", func(d *fsm.Descriptor) { d.Partitioned = true })
	id := "/00112233-4455-6677-8899-aabbccddeeff"
	sender := []string{"Authorization", httpToken("sender", "http://x/")}
	listener := []string{"Authorization", httpToken("listener", "http://x/")}
	for name, tc := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		text               string
	}{
		"no token":        {"POST", "/q/messages", "", []string{"Authorization", ""}, 401, "MissingToken"},
		"a bad token":     {"POST", "/q/messages", "", []string{"Authorization", "x"}, 401, "MalformedToken"},
		"two tokens":      {"POST", "/q/messages", "", []string{"Authorization", "a\x00b"}, 400, "more than once"},
		"another's token": {"POST", "/q/messages", "", []string{"Authorization", httpToken(testPolicy, "http://x/p")}, 401, "SubCode=40100. Unauthorized access"},
		"a listener sends": {
			"POST", "/q/messages", "", listener, 401, "&#39;Send&#39; claim(s) are required",
		},
		"a sender receives": {"POST", "/q/messages/head", "", sender, 401, "&#39;Listen&#39; claim(s)"},
		"a sender removes":  {"DELETE", "/q/messages/head", "", sender, 401, "&#39;Listen&#39; claim(s)"},
		"a sender settles":  {"DELETE", "/q/messages/1" + id, "", sender, 401, "&#39;Listen&#39; claim(s)"},
		"no entity, sent":   {"POST", "/none/messages", "", nil, 410, "could not be found"},
		"no entity, taken":  {"POST", "/none/messages/head", "", nil, 410, "could not be found"},
		"no such lock":      {"DELETE", "/q/messages/1" + id, "", nil, 404, "lock supplied is invalid"},
		"a session's lock":  {"DELETE", "/sessions/messages/1" + id, "", nil, 404, "session lock"},
		"too large":         {"POST", "/q/messages", strings.Repeat("x", 1001), nil, 403, "size exceeds"},
		"too large with its properties": {
			"POST", "/q/messages", strings.Repeat("x", 999), nil, 403, "size exceeds",
		},
		"a batch too large": {
			"POST", "/q/messages", `[{"Body":"` + strings.Repeat("x", 2000) + `"}]`,
			[]string{"Content-Type", batchType}, 403, "size exceeds",
		},
		"full":               {"POST", "/small/messages", "0123456789a", nil, 403, "maximum entity size"},
		"disabled, sent":     {"POST", "/off/messages", "", nil, 403, "disabled"},
		"disabled, taken":    {"POST", "/off/messages/head", "", nil, 403, "disabled"},
		"no session":         {"POST", "/sessions/messages", "", nil, 400, "SessionId was not set"},
		"sessions are taken": {"POST", "/sessions/messages/head?timeout=0", "", nil, 400, "session"},
		"a topic's messages": {"POST", "/t/messages/head", "", nil, 400, "from its subscriptions"},
		"no JSON":            {"POST", "/q/messages", "", []string{brokerHeader, "{"}, 400, "cannot be read"},
		"properties twice":   {"POST", "/q/messages", "", []string{brokerHeader, "{}\x00{}"}, 400, "more than once"},
		"a number as text":   {"POST", "/q/messages", "", []string{brokerHeader, `{"Label":5}`}, 400, "cannot be read"},
		"no time":            {"POST", "/q/messages", "", []string{brokerHeader, `{"ScheduledEnqueueTimeUtc":"soon"}`}, 400, "no time"},
		"a life of nothing":  {"POST", "/q/messages", "", []string{brokerHeader, `{"TimeToLive":0}`}, 400, "must be positive"},
		"key is not session": {"POST", "/spread/messages", "", []string{brokerHeader, `{"SessionId":"a","PartitionKey":"b"}`}, 400, "PartitionKey must be the SessionId"},
		"a bad timeout":      {"POST", "/q/messages/head?timeout=-1", "", nil, 400, "number of seconds"},
		"another method":     {"PATCH", "/q/messages", "", nil, 404, ""},
		"the path of no lock": {
			"DELETE", "/q/messages/1/not-a-token", "", nil, 404, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			res := ts.curl(t, tc.method, tc.path, tc.body, tc.headers...)
			if text := textBody(t, res); res.StatusCode != tc.status || !strings.Contains(text, tc.text) {
				t.Errorf("got %d %s", res.StatusCode, text)
			}
			if tc.status == 401 && res.Header.Get("WWW-Authenticate") == "" {
				t.Error("no challenge")
			}
		})
	}
}

// Momentary failures are 503 and say that it may be tried again; others are 500 and tell nothing.
func TestHTTPFailures(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("q")
	for _, tc := range []struct {
		err    error
		status int
		text   string
	}{
		{fsm.ErrBusy, 503, "retry"}, {fsm.ErrUnavailable, 503, "retry"},
		{fsm.ErrUnknown, 503, "may or may not"}, {context.DeadlineExceeded, 503, "may or may not"},
		{errors.New("secret detail"), 500, "unable to process"},
	} {
		ts.broker.mu.Lock()
		ts.broker.fail = func(c fsm.Command) error {
			if _, ok := c.(*fsm.Enqueue); ok {
				return tc.err
			}
			return nil
		}
		ts.broker.mu.Unlock()
		res := ts.curl(t, "POST", "/q/messages", "x")
		text := textBody(t, res)
		if res.StatusCode != tc.status || !strings.Contains(text, tc.text) || strings.Contains(text, "secret") {
			t.Errorf("%v: %d %s", tc.err, res.StatusCode, text)
		}
		if (res.Header.Get("Retry-After") != "") != (tc.status == 503) {
			t.Errorf("%v: Retry-After %q", tc.err, res.Header.Get("Retry-After"))
		}
	}
}

// A receive waits for a message; AMQP and HTTP clients meet in one queue.
func TestHTTPAndAMQPMeet(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("q")
	got := make(chan *http.Response, 1)
	go func() { got <- ts.curl(t, "DELETE", "/q/messages/head", "") }()
	c, err := dial(t, ts).NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sender, err := c.NewSender(t.Context(), "q", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &goamqp.Message{Value: "text", ApplicationProperties: map[string]any{"camelCase": int64(1) << 60,
		"bad name": "x", "Connection": "close", "é": "x"},
		Properties: &goamqp.MessageProperties{MessageID: uint64(7), CorrelationID: "c"}}
	if err := sender.Send(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	res := want(t, <-got, 200)
	if body := textBody(t, res); body != "text" {
		t.Errorf("body %q", body)
	}
	if v := res.Header["Camelcase"]; len(v) != 1 || v[0] != "1152921504606846976" {
		t.Errorf("headers %v", res.Header)
	}
	if p := brokerOf(t, res); p["MessageId"] != "7" || p["CorrelationId"] != "c" {
		t.Errorf("properties %v", p)
	}
	want(t, ts.curl(t, "POST", "/q/messages", "from curl", "Content-Type", "text/plain",
		brokerHeader, `{"MessageId":"id","SessionId":""}`, "Region", `"eu"`), 201)
	receiver, err := c.NewReceiver(t.Context(), "q", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := receiver.Receive(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.GetData()) != "from curl" || r.ApplicationProperties["Region"] != "eu" ||
		*r.Properties.ContentType != "text/plain" || r.Properties.MessageID != "id" {
		t.Errorf("got %+v %+v", r, r.Properties)
	}
}

// A client that goes away leaves no lock behind, and a server that closes lets nobody wait.
func TestHTTPReceiversThatGoAway(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("q")
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+ts.addr+"/q/messages/head", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", httpToken(testPolicy, "http://x/"))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := http.DefaultTransport.RoundTrip(r); err == nil {
			_ = res.Body.Close()
			t.Error("it got something")
		}
	}()
	ts.broker.await(t, "Lock", 1)
	cancel()
	<-gone
	// Before it knows, it may write a message into a socket that nobody reads, and the lock lasts.
	eventually(t, "the node knows that the client has gone", func() bool { return ts.places.used() == 0 })
	want(t, ts.curl(t, "POST", "/q/messages", "x"), 201)
	res := want(t, ts.curl(t, "POST", "/q/messages/head", ""), 201)
	if n := brokerOf(t, res)["DeliveryCount"]; n != 1.0 {
		t.Errorf("delivery %v", n)
	}
	waiting := make(chan *http.Response, 1)
	before := ts.broker.count("Lock")
	go func() { waiting <- ts.curl(t, "POST", "/q/messages/head", "") }()
	ts.broker.await(t, "Lock", before+1)
	closing, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := ts.Close(closing); err != nil {
		t.Error(err)
	}
	want(t, <-waiting, 204)
}

// count is how often a command was proposed.
func (b *singleBroker) count(command string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commands[command]
}

// await returns when a command was proposed n times. Nothing says when, so it looks again and again.
func (b *singleBroker) await(t testing.TB, command string, n int) {
	t.Helper()
	for b.count(command) < n {
		select {
		case <-t.Context().Done():
			t.Fatal("never proposed")
		case <-time.After(time.Millisecond):
		}
	}
}

// AMQP 1.0 §1.6.20: texts are UTF-8. What JSON cannot carry exactly is refused, so that two session ids never become one.
func TestHTTPTextIsStoredAsItWasSentOrRefused(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("q")
	for name, tc := range map[string]struct {
		id   string // as it stands in JSON
		want string // that is stored, "" if it is refused
		text string // in the refusal
	}{
		"a letter":                       {"\u00e9", "\u00e9", ""},
		"an escaped letter":              {`\u00e9`, "\u00e9", ""},
		"a pair of escapes":              {`\ud83d\ude00`, "\U0001f600", ""},
		"the replacement character":      {"\ufffd", "\ufffd", ""},
		"its escape":                     {`\ufffd`, "\ufffd", ""},
		"a backslash before a u":         {`\\ud800`, `\ud800`, ""},
		"bytes that are no UTF-8":        {"a\xff", "", "no UTF-8"},
		"half a pair":                    {`a\ud800`, "", "half a character"},
		"half a pair and a letter":       {`\ud800\u0041`, "", "half a character"},
		"the second half before a first": {`\ude00\ud83d`, "", "half a character"},
	} {
		t.Run(name, func(t *testing.T) {
			properties := `{"MessageId":"` + tc.id + `"}`
			for _, res := range []*http.Response{
				ts.curl(t, "POST", "/q/messages", "x", brokerHeader, properties),
				ts.curl(t, "POST", "/q/messages", `[{"Body":"x","BrokerProperties":`+properties+`}]`, "Content-Type", batchType),
			} {
				if tc.want == "" {
					if text := textBody(t, want(t, res, 400)); !strings.Contains(text, tc.text) {
						t.Errorf("got %s, want %s", text, tc.text)
					}
					continue
				}
				want(t, res, 201)
				if got := brokerOf(t, want(t, ts.curl(t, "DELETE", "/q/messages/head", ""), 200))["MessageId"]; got != tc.want {
					t.Errorf("stored as %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// AMQP 1.0 §1.6.20, §1.6.21: what stands in a header is stored as it was sent or refused, too.
func TestHTTPHeadersAreStoredAsTheyWereSentOrRefused(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("q")
	for name, tc := range map[string]struct {
		header, value string
		want          string // that comes back, "" if it is refused
		text          string // in the refusal
	}{
		"a property of letters":                 {"Prop", "\u00e9", `"\u00e9"`, ""},
		"a property in quotes":                  {"Prop", "\"\u00e9\"", `"\u00e9"`, ""},
		"a property with a pair of escapes":     {"Prop", `"\ud83d\ude00"`, `"\ud83d\ude00"`, ""},
		"a property that is no UTF-8":           {"Prop", "a\xff", "", "The header Prop cannot be read: it is no UTF-8."},
		"a property in quotes that is no UTF-8": {"Prop", "\"a\xff\"", "", "The header Prop cannot be read: it is no UTF-8."},
		"a property with half a pair":           {"Prop", `"a\ud800"`, "", "half a character"},
		"a property in quotes that is no JSON":  {"Prop", `"\x"`, `"\\x"`, ""},
		"a content type":                        {"Content-Type", "text/plain; a=b", "text/plain; a=b", ""},
		"a content type that is no ASCII":       {"Content-Type", "text/\u00e9", "", "Content-Type holds characters that are no ASCII"},
	} {
		t.Run(name, func(t *testing.T) {
			res := ts.curl(t, "POST", "/q/messages", "x", tc.header, tc.value)
			if tc.want == "" {
				if text := textBody(t, want(t, res, 400)); !strings.Contains(text, tc.text) {
					t.Errorf("got %s, want %s", text, tc.text)
				}
				return
			}
			want(t, res, 201)
			if got := want(t, ts.curl(t, "DELETE", "/q/messages/head", ""), 200).Header.Get(tc.header); got != tc.want {
				t.Errorf("came back as %q, want %q", got, tc.want)
			}
		})
	}
}

// begin sends the headers of a send over HTTP and the first bytes of its body, and nothing more.
func (ts *testServer) begin(t *testing.T, entity string, length, first int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", ts.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprintf(c, "POST /%s/messages HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n%s",
		entity, ts.addr, httpToken(testPolicy, "http://"+ts.addr+"/"), length, strings.Repeat("x", first))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits for what the server does on its own.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 60_000 {
		if is() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("never: " + what)
}

// F2, F8: the bytes of bodies count for the node; when it holds as many as it may, the largest body is refused, and
// small sends go on.
func TestTheLargestBodyIsRefused(t *testing.T) {
	const limit = 600_000
	ts := startServer(t, 1, func(c *Config) { c.MaxClientBytes = limit })
	ts.broker.queue("q")
	held := func() int { n, _ := ts.Held(); return n }
	first := ts.begin(t, "q", 900_000, 500_000)
	eventually(t, "the first body is counted", func() bool { return held() > 400_000 })
	large := strings.Repeat("x", 900_000)
	res := want(t, ts.curl(t, "POST", "/q/messages", large), 503)
	if text := textBody(t, res); !strings.Contains(text, "SubCode=50004") || !strings.Contains(text, "holds 600000 bytes") {
		t.Errorf("got %s", text)
	}
	want(t, ts.curl(t, "POST", "/q/messages", strings.Repeat("x", 100_000)), 201)
	_ = first.Close()
	eventually(t, "the bytes of both are given back", func() bool { return held() == 0 })
	want(t, ts.curl(t, "POST", "/q/messages", large[:500_000]), 201)
}

func TestHTTPIsBounded(t *testing.T) {
	ts := startServer(t, 1, func(c *Config) { c.MaxHTTPRequests = 2 })
	ts.broker.queue("q")
	got := make(chan *http.Response, 1)
	go func() { got <- ts.curl(t, "DELETE", "/q/messages/head", "") }()
	ts.broker.await(t, "Lock", 1)
	res := want(t, ts.curl(t, "POST", "/q/messages", "x"), 503)
	if text := textBody(t, res); !strings.Contains(text, "SubCode=50004. The server is busy, retry the operation: 1 requests that "+
		"send or receive over HTTP are under way of the 2 that this node serves at a time, and the key "+
		"&#39;RootManageSharedAccessKey&#39; has 1 of them.") {
		t.Errorf("got %s", text)
	}
	ts.stopWaits()
	want(t, <-got, 204)
}
