package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// do repeats an act until its answer says that it is at its end, and adds up what it did.
func (i *inspector) do(target, count string) (sum uint64, last map[string]any, calls int) {
	i.t.Helper()
	for next := ""; ; {
		last = nil
		if code := i.ask("POST", target+"&cursor="+url.QueryEscape(next), "", &last); code != http.StatusOK {
			i.t.Fatalf("%s: %d %v", target, code, last)
		}
		calls++
		sum += uint64(last[count].(float64))
		if next = last["next"].(string); next == "" {
			return sum, last, calls
		}
	}
}

// S-265, T-222: a purge takes what waits in every share and leaves the rest.
func TestOperatorsPurge(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", spread)
	i.send(d, "", "1", "2", "3", "4", "5", "6", "7", "8", "later", "later too")
	i.end(d, 1, fsm.Kill, "")
	i.end(d, 1, fsm.Defer, "")
	if n, last, calls := i.do("/api/entities/orders/purge?max=1", "deleted"); n != 4 || calls != 6 || last["before"] == nil {
		t.Errorf("%d deleted in %d calls, %v", n, calls, last)
	}
	if n, _, _ := i.do("/api/entities/orders/$DeadLetterQueue/purge?", "deleted"); n != 2 {
		t.Errorf("%d dead letters deleted", n)
	}
	for share := range 2 {
		a, err := i.Query(t.Context(), fsm.Key{Entity: d.ID, Share: uint16(share)}, &fsm.Counts{})
		if c := a.Counts; err != nil || c.Active != 1 || c.Deferred != 1 || c.Scheduled != 1 || c.DeadLetter != 0 {
			t.Errorf("share %d: %+v, %v", share, c, err)
		}
	}
	i.send(d, "", "new")
	if n, _, _ := i.do("/api/entities/orders/purge?before=2020-01-01T00:00:00Z", "deleted"); n != 0 {
		t.Errorf("%d deleted that are not that old", n)
	}
}

// S-265: a purge takes the dead letters that it chooses.
func TestOperatorsPurgeSomeDeadLetters(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", spread)
	for n := range 10 {
		i.send(d, "", fmt.Sprint(n), fmt.Sprint(n))
	}
	i.end(d, 6, fsm.Kill, "bad")
	i.end(d, 4, fsm.Kill, "worse")
	const at = "/api/entities/orders/$DeadLetterQueue/purge?"
	if n, last, calls := i.do(at+"reason=worse&max=3", "deleted"); n != 8 || calls < 4 || last["before"] == nil {
		t.Errorf("%d of 8 deleted in %d calls, %v", n, calls, last)
	}
	if n, _, _ := i.do(at+"from=2999-01-01T00:00:00Z", "deleted"); n != 0 {
		t.Errorf("%d deleted that are not that new", n)
	}
	if n, _, _ := i.do(at+"from=2000-01-01T00:00:00Z", "deleted"); n != 12 {
		t.Errorf("%d of 12 deleted", n)
	}

	g := i.queue("grouped", grouped)
	i.send(g, "a", "1", "2")
	i.send(g, "b", "3")
	for _, id := range []string{"a", "b"} {
		held := i.must(g, fsm.Main, 0, &fsm.AcceptSession{ID: id}).Session
		for _, m := range i.must(g, fsm.Main, 0, &fsm.Lock{Session: held, Max: 10}).Locked {
			i.must(g, fsm.Main, 0, &fsm.Settle{Session: held, Items: []fsm.SettleItem{{Token: m.Token, Verdict: fsm.Kill}}})
		}
	}
	if n, _, _ := i.do("/api/entities/grouped/$DeadLetterQueue/purge?session=a", "deleted"); n != 2 {
		t.Errorf("%d dead letters of a session deleted", n)
	}
}

// S-264: a purge of a session queue leaves the sessions that receivers hold, and says how many.
func TestOperatorsPurgeSessions(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", grouped)
	for n := range 60 {
		i.send(d, fmt.Sprintf("s%02d", n), "1", "2", "3")
	}
	held := i.must(d, fsm.Main, 0, &fsm.AcceptSession{ID: "s07"}).Session
	var one map[string]any
	if code := i.ask("POST", "/api/entities/orders/purge?session=s08&max=2", "", &one); code != 200 || one["deleted"] != 3. {
		t.Errorf("one session: %d %v", code, one)
	}
	if code := i.ask("POST", "/api/entities/orders/purge?session=s07", "", &one); code != http.StatusConflict {
		t.Errorf("a session that is held: %d %v", code, one)
	}
	if n, _, calls := i.do("/api/entities/orders/purge?", "deleted"); n != 58*3 || calls != 3 {
		t.Errorf("%d deleted in %d calls", n, calls)
	}
	got := i.must(d, fsm.Main, 0, &fsm.Lock{Session: held, Max: 10}).Locked
	if len(got) != 3 || got[0].Attempts != 0 {
		t.Errorf("the holder gets %d messages", len(got))
	}
	i.must(d, fsm.Main, 0, &fsm.AcceptSession{ID: "s09"}) // nobody holds what was purged
}

// S-178: a redrive sends what the filter lets through, goes on where it stopped, and ends although
// messages die again meanwhile.
func TestOperatorsRedrive(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", spread)
	for n := range 10 {
		i.send(d, "", fmt.Sprint(n), fmt.Sprint(n))
	}
	i.end(d, 6, fsm.Kill, "bad")
	i.end(d, 4, fsm.Kill, "worse")
	if n, _, calls := i.do("/api/entities/orders/redrive?reason=worse&max=3", "moved"); n != 8 || calls < 4 {
		t.Errorf("%d of 8 sent again in %d calls", n, calls)
	}
	calls := 0
	i.fail = func(c any) error {
		if _, ok := c.(*fsm.Redrive); ok {
			if calls++; calls == 2 {
				return fsm.ErrUnavailable
			}
		}
		return nil
	}
	var first, second map[string]any
	if code := i.ask("POST", "/api/entities/orders/$DeadLetterQueue/redrive?max=4", "", &first); code != 200 || first["moved"] != 4. {
		t.Fatalf("%d %v", code, first)
	}
	target := "/api/entities/orders/redrive?until=" + first["until"].(string) + "&cursor=" + first["next"].(string)
	if code := i.ask("POST", target, "", &second); code != http.StatusServiceUnavailable {
		t.Fatalf("%d %v", code, second)
	}
	second = nil
	if code := i.ask("POST", target, "", &second); code != 200 || second["moved"] != 2. {
		t.Fatalf("the rest of the share: %d %v", code, second)
	}
	target = "/api/entities/orders/redrive?cursor=" + second["next"].(string)
	if code := i.ask("POST", target, "", &second); code != 200 || second["moved"] != 6. || second["next"] != "" {
		t.Errorf("the other share: %d %v", code, second)
	}
	if n, _, _ := i.do("/api/entities/orders/redrive?session=none", "moved"); n != 0 {
		t.Errorf("%d sent again", n)
	}
}

// S-212, S-237: a move takes what the filter lets through out of its queue into the transfer queue, in
// steps that go on where the last one stopped.
func TestOperatorsMove(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", spread)
	i.queue("archive")
	i.send(d, "", "1", "2", "3", "4", "5", "6", "later")
	i.must(d, fsm.Main, 0, &fsm.Lock{Max: 1})
	i.end(d, 1, fsm.Kill, "bad")
	if n, _, calls := i.do("/api/entities/orders/move?to=Archive&max=2", "moved"); n != 3 || calls < 2 {
		t.Errorf("%d moved in %d calls", n, calls)
	}
	var one map[string]any
	if code := i.ask("POST", "/api/entities/orders/redrive?to=archive&reason=bad", "", &one); code != 200 || one["moved"] != 1. {
		t.Errorf("a dead letter: %d %v", code, one)
	}
	if code := i.ask("POST", "/api/entities/orders/redrive?to=orders&reason=bad&cursor=1.", "", &one); code != 200 || one["moved"] != 1. {
		t.Errorf("to its own queue: %d %v", code, one)
	}
	var sum fsm.EntityCounts
	for share := range 2 {
		a, err := i.Query(t.Context(), fsm.Key{Entity: d.ID, Share: uint16(share)}, &fsm.Counts{})
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(a.Counts)
	}
	if sum.Transfer != 4 || sum.Active != 2 || sum.Locked != 1 || sum.Scheduled != 1 || sum.DeadLetter != 0 {
		t.Errorf("%+v", sum)
	}
}

// S-264: a move leaves the sessions that receivers hold.
func TestOperatorsMoveSessions(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", grouped)
	i.queue("archive")
	for n := range 4 {
		i.send(d, fmt.Sprint("s", n), "1", "2")
	}
	held := i.must(d, fsm.Main, 0, &fsm.AcceptSession{ID: "s1"}).Session
	if n, _, _ := i.do("/api/entities/orders/move?to=archive&session=s0", "moved"); n != 2 {
		t.Errorf("one session: %d moved", n)
	}
	if n, _, _ := i.do("/api/entities/orders/move?to=archive&max=3", "moved"); n != 4 {
		t.Errorf("%d moved", n)
	}
	if got := i.must(d, fsm.Main, 0, &fsm.Lock{Session: held, Max: 10}).Locked; len(got) != 2 {
		t.Errorf("the holder gets %d messages", len(got))
	}
}

// S-274, S-275: options are changed one by one and shown.
func TestOperatorsSetOptions(t *testing.T) {
	i := newInspector(t)
	i.queue("orders")
	var v OptionsView
	code := i.ask("PATCH", "/api/entities/orders/options",
		`{"processedHistory":true,"historyCount":7,"retryBackoff":{"minMillis":1000,"maxMillis":60000,"multiplierPercent":200}}`, &v)
	if code != 200 || !*v.ProcessedHistory || *v.HistoryCount != 7 || v.RetryBackoff.MaxMillis != 60_000 {
		t.Errorf("%d %+v", code, v)
	}
	if code = i.ask("PATCH", "/api/entities/orders/options", `{"acceptedHistory":true}`, &v); code != 200 || !*v.AcceptedHistory ||
		!*v.ProcessedHistory || v.RetryBackoff.MinMillis != 1000 {
		t.Errorf("what is not named stays: %d %+v", code, v)
	}
	if d := i.world.entities["orders"]; !d.AcceptedHistory || d.RetryBackoff.Multiplier != 200 {
		t.Errorf("the catalog has %+v", d)
	}
}

// S-169: whether there is a dead-letter queue is an option, too, and what is dropped is told by reason.
func TestOperatorsSeeWhatIsDropped(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders")
	var v OptionsView
	if code := i.ask("PATCH", "/api/entities/orders/options", `{"noDeadLetter":true}`, &v); code != 200 || !*v.NoDeadLetter {
		t.Errorf("%d %+v", code, v)
	}
	if !i.world.entities["orders"].NoDeadLetter {
		t.Error("the catalog does not have it")
	}
	i.send(d, "", "1", "2", "3")
	i.must(d, fsm.Main, 0, &fsm.DeleteMessages{Max: 2})
	var shown struct {
		Dropped map[string]uint64
		Options OptionsView
	}
	if code := i.ask("GET", "/api/entities/orders/description", "", &shown); code != 200 ||
		len(shown.Dropped) != 1 || shown.Dropped["purged"] != 2 || !*shown.Options.NoDeadLetter {
		t.Errorf("%d %+v", code, shown)
	}
	if code := i.ask("PATCH", "/api/entities/orders/options", `{"noDeadLetter":false}`, &v); code != 200 || *v.NoDeadLetter {
		t.Errorf("%d %+v", code, v)
	}
}

// T-57: each bad request gets its status and a text that says what is wrong.
func TestOperatorsBadRequests(t *testing.T) {
	const at = "/api/entities/"
	for target, want := range map[string]string{
		"GET " + at:                                                                           "404 must end in",
		"GET " + at + "orders":                                                                "404 must end in",
		"GET " + at + "orders/lock":                                                           "404 must end in",
		"GET " + at + "locks":                                                                 "404 must end in",
		"GET " + at + "nothing/locks":                                                         `404 no entity "nothing"`,
		"POST " + at + "orders/locks":                                                         "405 locks takes GET",
		"GET " + at + "orders/purge":                                                          "405 purge takes POST",
		"GET " + at + "orders/options":                                                        "405 options takes PATCH",
		"GET " + at + "orders/locks?max=0":                                                    "400 max must be a number from 1 to 1000",
		"GET " + at + "orders/locks?max=1001":                                                 "400 max must be a number",
		"GET " + at + "orders/locks?max=x":                                                    "400 max must be a number",
		"GET " + at + "orders/locks?cursor=x":                                                 "400 cursor 'x'",
		"GET " + at + "orders/locks?cursor=1.1":                                               "400 cursor '1.1'",
		"GET " + at + "orders/locks?cursor=-1.1":                                              "400 cursor '-1.1'",
		"GET " + at + "orders/locks?cursor=0.x":                                               "400 cursor '0.x'",
		"GET " + at + "orders/locks?cursor=0.1&cursor=0.2":                                    "400 more than once",
		"GET " + at + "orders/locks?limit=5":                                                  "400 no parameter 'limit'",
		"GET " + at + "orders/locks?%zz":                                                      "400 cannot be decoded",
		"GET " + at + "orders/history?kind=sent":                                              "400 processed, accepted or releases, not 'sent'",
		"GET " + at + "orders/sessions":                                                       "400 has no sessions",
		"GET " + at + "grouped/$DeadLetterQueue/sessions":                                     "400 has no sessions",
		"GET " + at + "grouped/sessions?updatedAfter=noon":                                    "400 updatedAfter must be a time",
		"GET " + at + "orders/messages?state=locked":                                          "400 active, deferred and scheduled, not 'locked'",
		"GET " + at + "orders/messages?state=":                                                "200 ",
		"GET " + at + "orders/messages?from=-1":                                               "400 from must be a number",
		"GET " + at + "orders/messages?session=a":                                             "400 has no sessions",
		"POST " + at + "orders/purge?max=4001":                                                "400 from 1 to 4000",
		"POST " + at + "orders/purge?before=yesterday":                                        "400 before must be a time",
		"POST " + at + "orders/purge?session=a":                                               "400 has no sessions",
		"POST " + at + "orders/purge?reason=a":                                                "400 Only dead letters",
		"POST " + at + "orders/$DeadLetterQueue/purge?session=a":                              "400 has no sessions",
		"POST " + at + "orders/$DeadLetterQueue/purge?from=noon":                              "400 from must be a time",
		"POST " + at + "orders/$DeadLetterQueue/purge?reason=a&to=b":                          "400 no parameter 'to'",
		"POST " + at + "orders/purge?sesion=a":                                                "400 no parameter 'sesion'",
		"POST " + at + "orders/redrive?max=1001":                                              "400 from 1 to 1000",
		"POST " + at + "orders/redrive?from=0":                                                "400 from must be a time",
		"GET " + at + "orders/move":                                                           "405 move takes POST",
		"POST " + at + "orders/move":                                                          "400 to must name",
		"POST " + at + "orders/move?to=":                                                      "404 to move to",
		"POST " + at + "orders/move?to=orders":                                                "400 are in orders already",
		"POST " + at + "orders/move?to=nothing":                                               `404 no entity "nothing" to move to`,
		"POST " + at + "orders/move?to=t/Subscriptions/s":                                     "400 to a subscription",
		"POST " + at + "orders/move?to=closed":                                                "409 does not take messages",
		"POST " + at + "orders/move?to=grouped&reason=x":                                      "400 Only dead letters",
		"POST " + at + "orders/move?to=grouped&max=1001":                                      "400 from 1 to 1000",
		"POST " + at + "orders/redrive?to=nothing":                                            `404 no entity "nothing" to move to`,
		"POST " + at + "orders/transactions":                                                  "405 transactions takes GET",
		"GET " + at + "orders/transactions?ended=yes":                                         "400 true or false, not 'yes'",
		"GET " + at + "orders/transactions?ended=true":                                        "200 ",
		"PATCH " + at + "orders/options":                                                      "400 JSON object of options",
		"PATCH " + at + "orders/options {\"x\":1}":                                            `400 unknown field "x"`,
		"PATCH " + at + "orders/options {\"retryBackoff\":{\"minMillis\":604800001}}":         "400 minMillis is 604800001, the limit is 604800000",
		"PATCH " + at + "orders/options {\"retryBackoff\":{\"minMillis\":9,\"maxMillis\":5}}": "400 less than minMillis",
		"PATCH " + at + "orders/options {\"retryBackoff\":{\"jitterPercent\":101}}":           "400 jitterPercent is 101",
		"PATCH " + at + "orders/options {\"historyCount\":4000000}":                           "400 historyCount is 4000000",
		"PATCH " + at + "orders/options {\"historyMaxBytes\":99999999999}":                    "400 historyMaxBytes",
		"PATCH " + at + "orders/options {\"historyCount\":-1}":                                "400 JSON object of options",
		"PATCH " + at + "orders/options " + strings.Repeat(" ", maxBodyBytes+1):               "413 larger than",
		"GET " + at + "a%2F..%2Forders/locks":                                                 `404 no entity "a/../orders"`,
		"GET " + at + strings.Repeat("x", 3000) + "/locks":                                    "404 no entity",
		"GET " + at + "orders/%24Transfer/%24DeadLetterQueue/locks?max=1":                     "200 ",
		"GET " + at + "orders/messages?cursor=0.18446744073709551616":                         "400 cursor",
		"GET " + at + "orders/messages?cursor=0.18446744073709551615":                         "200 ",
	} {
		t.Run(clip(target), func(t *testing.T) {
			i := newInspector(t)
			d := i.queue("orders")
			i.send(i.queue("grouped", grouped), "s", "1")
			i.queue("closed", func(d *fsm.Descriptor) { d.Status = fsm.SendDisabled })
			i.queue("t", func(d *fsm.Descriptor) { d.Kind = fsm.Topic })
			i.queue("t/Subscriptions/s", func(d *fsm.Descriptor) { d.Kind = fsm.Subscription })
			i.send(d, "", "1", "2")
			before := i.states[0].Digest()
			parts := strings.SplitN(target, " ", 3)
			var answer map[string]any
			code := i.ask(parts[0], parts[1], strings.Join(parts[2:], " "), &answer)
			status, text, _ := strings.Cut(want, " ")
			said, _ := answer["error"].(string)
			if fmt.Sprint(code) != status || !strings.Contains(said, text) || code != 200 && answer["trackingId"] == nil {
				t.Errorf("got %d %v, want %s", code, answer, want)
			}
			if i.states[0].Digest() != before {
				t.Error("it changed something")
			}
		})
	}
}

// S-272: what an operator may, nobody may without the Manage right.
func TestOperatorsNeedManage(t *testing.T) {
	url := "https://host.test/"
	for name, header := range map[string]string{
		"nobody": "", "a listener": token("listener", "k", url), "a wrong key": token(root, "x", url),
		"a token for another entity": token(root, rootKey, url+"other"),
		"an expired token":           "SharedAccessSignature sr=x&sig=x&se=1&skn=" + root,
	} {
		for _, target := range []string{"GET locks", "GET history", "GET sessions", "GET messages", "GET description",
			"GET transactions", "GET reasons", "GET session-state?session=s", "PUT session-state?session=s", "POST delete?number=1",
			"POST redrive?number=1", "POST test-rules", "POST purge", "POST redrive", "POST move?to=orders", "PATCH options"} {
			i := newInspector(t)
			i.send(i.queue("orders"), "", "1")
			before := i.states[0].Digest()
			method, view, _ := strings.Cut(target, " ")
			for _, entity := range []string{"orders", "missing"} { // nor may they learn what exists
				var answer map[string]any
				if code := i.ask(method, "/api/entities/"+entity+"/"+view, "{}", &answer, "Authorization", header); code != 401 {
					t.Errorf("%s, %s of %s: %d %v", name, target, entity, code, answer)
				}
			}
			if i.states[0].Digest() != before {
				t.Errorf("%s, %s: it changed something", name, target)
			}
		}
	}
	i := newInspector(t)
	i.queue("orders")
	if code := i.ask("GET", "/api/entities/orders/locks", "", nil, "Authorization", token(root, rootKey, url+"orders")); code != 200 {
		t.Errorf("the entity's own token: %d", code)
	}
	i.queue("archive") // which that token does not open
	var answer map[string]any
	if code := i.ask("POST", "/api/entities/orders/move?to=archive", "", &answer, "Authorization", token(root, rootKey, url+"orders")); code != 401 {
		t.Errorf("a move to where the token does not reach: %d %v", code, answer)
	}
	if code := i.ask("POST", "/api/entities/orders/purge", "", nil, "Sec-Fetch-Site", "cross-site"); code != 403 {
		t.Errorf("a page of another site: %d", code)
	}
}

// More operators than slots are turned away, not queued.
func TestOperatorsAreBounded(t *testing.T) {
	i := newInspector(t)
	i.queue("orders")
	i.world.block, i.world.entered = make(chan struct{}), make(chan struct{}, operatorSlots)
	done := make(chan int, operatorSlots)
	for range operatorSlots {
		go func() { done <- i.ask("GET", "/api/entities/orders/locks", "", nil) }()
	}
	for range operatorSlots {
		<-i.world.entered
	}
	var answer map[string]any
	if code := i.ask("GET", "/api/entities/orders/locks", "", &answer); code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d %v", code, answer)
	}
	close(i.world.block)
	for range operatorSlots {
		if code := <-done; code != 200 {
			t.Errorf("got %d", code)
		}
	}
}
