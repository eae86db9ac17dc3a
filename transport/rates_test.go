package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// S-230: a key that sends more than its rate is refused as a busy service, with what it has used, and another key is not.
// What it sends falls by the rate each second.
func TestAKeyHasARate(t *testing.T) {
	const second = time.Second
	limit := KeyRate{Messages: 10, MessageBurst: 20, Bytes: 1000, ByteBurst: 4000}
	for name, steps := range map[string][]struct {
		after           time.Duration
		key             string
		messages, bytes int
		want            string // in the refusal, "" if it passes
	}{
		"a burst, then the rate": {
			{0, "a", 20, 20, ""}, {0, "a", 1, 1, "the key 'a' is being throttled: it has sent 20 of the 20 messages that it may send to " +
				"this node above its rate of 10 a second. Please wait 1 seconds and try again."},
			{second, "a", 10, 1, ""}, {0, "a", 1, 1, "20 of the 20 messages"}, {99 * second, "a", 20, 20, ""},
		},
		"another key has a rate of its own": {{0, "a", 20, 1, ""}, {0, "b", 20, 1, ""}, {0, "a", 1, 1, "the key 'a'"}, {0, "b", 1, 1, "the key 'b'"}},
		"bytes":                             {{0, "a", 1, 3999, ""}, {0, "a", 1, 2, "3999 of the 4000 bytes"}, {0, "a", 1, 1, ""}, {2 * second, "a", 1, 2000, ""}},
		"more than a burst passes when nothing is owed": {
			{0, "a", 60, 1, ""}, {0, "a", 1, 1, "60 of the 20 messages that it may send to this node above its rate of 10 a second. Please wait 5 seconds"},
			{4 * second, "a", 1, 1, "20 of the 20 messages"}, {second, "a", 10, 1, ""},
		},
		"what is refused costs nothing": {{0, "a", 15, 1, ""}, {0, "a", 6, 1, "15 of the 20"}, {0, "a", 5, 3999, ""}, {4 * second, "a", 5, 1, ""}},
		"a clock that goes back":        {{0, "a", 20, 1, ""}, {-second, "a", 1, 1, "20 of the 20"}, {2 * second, "a", 10, 1, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_000, 0)
			r := newRates(limit, func() time.Time { return now })
			for i, s := range steps {
				now = now.Add(s.after)
				e := r.take(s.key, s.messages, s.bytes)
				if (e == nil) != (s.want == "") || e != nil && (e.Condition != "com.microsoft:server-busy" || !strings.Contains(e.Description, s.want)) {
					t.Errorf("step %d: %v, want %q", i, e, s.want)
				}
			}
		})
	}
	if newRates(KeyRate{MessageBurst: 5, ByteBurst: 5}, time.Now).take("a", 1<<40, 1<<40) != nil {
		t.Error("without a rate something is refused")
	}
}

// A policy, a policy of an entity and the subjects of two issuers are four keys, though their names are equal.
func TestKeysOfOneNameAreApart(t *testing.T) {
	seen := map[string]bool{}
	for _, claim := range []auth.Claim{{Policy: "a"}, {Policy: "a", Scope: "orders"}, {Policy: "a", Issuer: "https://one.test"},
		{Policy: "a", Issuer: "https://two.test"}} {
		if key := keyOf(claim); seen[key] {
			t.Errorf("%+v has the key %q, as another one", claim, key)
		} else {
			seen[key] = true
		}
	}
}

// Keys that owe nothing are forgotten when there are many, those that owe something are not.
func TestKeysThatOweNothingAreForgotten(t *testing.T) {
	now := time.Unix(1_000, 0)
	r := newRates(KeyRate{Messages: 1, MessageBurst: 1_000}, func() time.Time { return now })
	_ = r.take("debtor", 1_000, 1)
	for i := range 100 * firstSweep {
		now = now.Add(time.Millisecond)
		if e := r.take(fmt.Sprint(i), 1, 1); e != nil {
			t.Fatal(e)
		}
	}
	if n := len(r.keys); n > 3*firstSweep {
		t.Errorf("%d keys are remembered, and at most %d owe something", n, 1_001)
	}
	if e := r.take("debtor", 200, 1); e == nil || !strings.Contains(e.Description, "898 of the 1000") {
		t.Errorf("the key that owes most: %v", e)
	}
	if messages, bytes := r.used(); messages != 897 || bytes != 0 {
		t.Errorf("%d messages and %d bytes are used", messages, bytes)
	}
}

// S-230: every way of sending counts for the key: a link, a transaction, a schedule. What is refused is not stored, and may be
// sent again later.
func TestAKeyThatSendsTooMuchIsBusy(t *testing.T) {
	const busy = "com.microsoft:server-busy The request was terminated because the key 'RootManageSharedAccessKey' is being throttled: " +
		"it has sent 2 of the 2 messages"
	limited := func(c *Config) { c.KeyRate = KeyRate{Messages: 1, MessageBurst: 2} }
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := newDeal(t, b)
		d.sender(3, "a")
		for i := range 2 {
			if got := stateText(d.transfer(3, nil, encoded("x"))); got != "Accepted" {
				t.Fatalf("message %d: %s", i, got)
			}
		}
		id := d.declare()
		if got := d.send(3, id, encoded("t")); !strings.HasPrefix(got, busy) {
			t.Errorf("in a transaction: %s", got)
		}
		_ = d.discharge(id, true)
		if got := stateText(d.transfer(3, nil, encoded("y"))); !strings.HasPrefix(got, busy) {
			t.Errorf("over a link: %s", got)
		}
		a := d.c.asker("a", 30, 10)
		schedule := requestOf(t, "a", "schedule-message", mapOf("messages", amqp.List{oneMessage(encoded("z"))}))
		a.ask(schedule)
		synctest.Wait()
		a.takeAll()
		if a.codes[503] != 1 || a.codes[200] != 0 {
			t.Errorf("a schedule is answered %v, want 503", a.codes)
		}
		if got := b.broker.counts(t, "a").Active; got != 2 {
			t.Errorf("%d messages are stored, want 2", got)
		}
		time.Sleep(2 * time.Second)
		a.ask(schedule)
		synctest.Wait()
		a.takeAll()
		if a.codes[200] != 1 {
			t.Errorf("a schedule after a pause is answered %v, want 200", a.codes)
		}
		if got := stateText(d.transfer(3, nil, encoded("y"))); got != "Accepted" {
			t.Errorf("after a pause: %s", got)
		}
		if messages, _ := b.server.KeyUse(); messages != 2 {
			t.Errorf("%d messages are used, want 2", messages)
		}
		if got := b.server.Stats().Rejected[siteKeyRate].Load(); got != 3 {
			t.Errorf("%d refusals are counted, want 3", got)
		}
		d.c.close()
	}, limited)
}

// S-230: every way of sending costs the key each message and each byte, and a batch of three costs three.
func TestEveryWayOfSendingIsCharged(t *testing.T) {
	const bytesEach = 1000
	limited := func(c *Config) {
		c.KeyRate = KeyRate{Messages: 1, MessageBurst: 1000, Bytes: 1, ByteBurst: 1 << 20}
	}
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := newDeal(t, b)
		d.sender(3, "a")
		id := d.declare()
		a := d.c.asker("a", 30, 10)
		body := strings.Repeat("x", bytesEach)
		large := amqp.AppendData(nil, []byte(body))
		overHTTP := func(body, contentType string) string {
			w := b.web()
			defer w.conn.Close()
			if _, err := fmt.Fprintf(w.conn, "POST /a/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\nContent-Type: %s\r\n"+
				"Content-Length: %d\r\n\r\n%s", httpToken(testPolicy, "http://localhost/"), contentType, len(body), body); err != nil {
				t.Fatal(err)
			}
			status, _ := w.answered()
			return fmt.Sprint(status)
		}
		for _, way := range []struct {
			name     string
			send     func() string
			want     string
			messages int
		}{
			{"a link", func() string { return stateText(d.transfer(3, nil, large)) }, "Accepted", 1},
			{"a transaction", func() string { return d.send(3, id, large) }, "(Accepted)", 1},
			{"a schedule", func() string {
				a.ask(requestOf(t, "a", "schedule-message", mapOf("messages", amqp.List{oneMessage(large), oneMessage(encoded("z"))})))
				synctest.Wait()
				a.takeAll()
				return fmt.Sprint(a.codes)
			}, "map[200:1]", 2},
			{"HTTP", func() string { return overHTTP(body, "text/plain") }, "201", 1},
			{"a batch over HTTP", func() string { return overHTTP(`[{"Body":"`+body+`"},{"Body":"y"},{"Body":"z"}]`, batchType) }, "201", 3},
		} {
			messages, bytes := b.server.KeyUse()
			if got := way.send(); got != way.want {
				t.Fatalf("%s: %s, want %s", way.name, got, way.want)
			}
			nowMessages, nowBytes := b.server.KeyUse()
			if n := nowMessages - messages; n != way.messages {
				t.Errorf("%s costs %d messages, want %d", way.name, n, way.messages)
			}
			if n := nowBytes - bytes; n < bytesEach || n > 3*bytesEach {
				t.Errorf("%s costs %d bytes, want about %d", way.name, n, bytesEach)
			}
		}
		d.c.close()
	}, limited)
}

// A client with several tokens pays by the key that is first by name of those that let it send now.
func TestTheFirstKeyThatMaySendPays(t *testing.T) {
	later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	c := &conn{s: &Server{rates: newRates(KeyRate{Messages: 1, MessageBurst: 1}, time.Now)}, tables: tables{claims: map[string]heldClaim{
		"1": {Claim: auth.Claim{Policy: "a", Rights: auth.Send, Until: before}}, "2": {Claim: auth.Claim{Policy: "b", Rights: auth.Listen, Until: later}},
		"3": {Claim: auth.Claim{Policy: "c", Rights: auth.Send, Scope: "other", Until: later}},
		"4": {Claim: auth.Claim{Policy: "d", Rights: auth.Send, Until: later}}, "5": {Claim: auth.Claim{Policy: "e", Rights: auth.Send}},
	}}}
	for range 10 { // the claims are in a map
		if got := c.sender("orders"); got != "d" {
			t.Fatalf("%q pays, want d", got)
		}
	}
	if got := c.sender("other"); got != "d" {
		t.Errorf("%q pays for the other queue, want d", got)
	}
	c.s.rates = nil
	if got := c.sender("orders"); got != "" {
		t.Errorf("%q pays, and there are no rates", got)
	}
}

// S-230: over HTTP the answer is 503, and another policy is served meanwhile.
func TestAKeyThatSendsTooMuchOverHTTPIsBusy(t *testing.T) {
	ts := startServer(t, 1, func(c *Config) { c.KeyRate = KeyRate{Bytes: 1, ByteBurst: 1000} })
	ts.broker.queue("q", func(e *fsm.Descriptor) { e.MaxMessageBytes = 64 << 10 })
	body := string(bytes.Repeat([]byte("x"), 1000))
	want(t, ts.curl(t, "POST", "/q/messages", body), 201)
	res := want(t, ts.curl(t, "POST", "/q/messages", body), 503)
	if text := textBody(t, res); !strings.Contains(text, "SubCode=50004. The request was terminated because the key "+
		"&#39;RootManageSharedAccessKey&#39; is being throttled") || !strings.Contains(text, "of the 1000 bytes") ||
		res.Header.Get("Retry-After") == "" {
		t.Errorf("got %s, %v", text, res.Header)
	}
	if got := ts.Stats().Rejected[siteKeyRate].Load(); got != 1 {
		t.Errorf("%d refusals are counted, want 1", got)
	}
	want(t, ts.curl(t, "POST", "/q/messages", body, "Authorization", httpToken("sender", "http://x/")), 201)
	if got := ts.broker.counts(t, "q").Active; got != 2 {
		t.Errorf("%d messages are stored, want 2", got)
	}
}

// S-230: a rate that is set, changed or taken away while the server runs counts at once, and what a key owes stays.
func TestARateChangesWhileTheServerRuns(t *testing.T) {
	now := time.Unix(0, 0)
	r := newRates(KeyRate{}, func() time.Time { return now })
	refused := func() bool { return r.take("a", 6, 1) != nil }
	for range 3 {
		if refused() {
			t.Fatal("refused without a rate")
		}
	}
	r.set(KeyRate{Messages: 1, MessageBurst: 10})
	if first, second := refused(), refused(); first || !second {
		t.Error("the burst of 10 does not hold 6 messages and refuse 12")
	}
	if r.take("", 1_000, 1) != nil {
		t.Error("work that began before there was a rate is refused")
	}
	r.set(KeyRate{Messages: 1, MessageBurst: 20})
	if refused() {
		t.Error("the burst of 20 refuses 12 messages")
	}
	r.set(KeyRate{})
	if first, second := refused(), refused(); first || second {
		t.Error("refused without a rate")
	}
}
