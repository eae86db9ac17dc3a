package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// bodyMessage is a message of a shelf as filters see it: its body is the property body.
type bodyMessage struct{ d *fsm.Delivery }

func (m bodyMessage) Properties() int { return 1 }

func (m bodyMessage) User(name string) (rule.Value, bool) {
	return rule.OfString(string(m.d.Body)), name == "body"
}

func (m bodyMessage) System(p rule.SystemProperty) rule.Value {
	if p == rule.SequenceNumber {
		return rule.OfInt(int64(m.d.Seq))
	}
	return rule.Value{}
}

func (m bodyMessage) NewID() [16]byte { return [16]byte{} }

// numbers lists the messages of a path.
func (i *inspector) numbers(path string) (all []uint64) {
	i.t.Helper()
	texts, _ := i.list("/api/entities/"+path+"/messages?max=100", "messages")
	for _, text := range texts {
		var m struct{ Number uint64 }
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			i.t.Fatal(err)
		}
		all = append(all, m.Number)
	}
	return all
}

// An operator deletes one message by its number, or sends one dead letter again, and no other goes with it.
func TestOperatorsActOnOneMessage(t *testing.T) {
	for name, edit := range map[string]func(*fsm.Descriptor){"one share": func(*fsm.Descriptor) {}, "two shares": spread} {
		t.Run(name, func(t *testing.T) {
			i := newInspector(t)
			d := i.queue("orders", edit)
			i.send(d, "", "1", "2", "3", "4", "5", "6", "later 7", "later 8")
			i.end(d, 2, fsm.Kill, "Poison")
			act := func(target string, code int) string {
				t.Helper()
				var v map[string]any
				if got := i.ask("POST", "/api/entities/orders/"+target, "", &v); got != code {
					t.Errorf("%s: %d, want %d: %v", target, got, code, v)
				}
				return fmt.Sprint(v["error"])
			}
			dead := i.numbers("orders/$DeadLetterQueue")
			waiting := i.numbers("orders")
			var active, later uint64
			for _, n := range waiting {
				texts, _ := i.list(fmt.Sprintf("/api/entities/orders/messages?max=1&from=%d", n), "messages")
				if strings.Contains(texts[0], "later") {
					later = n
				} else if active == 0 {
					active = n
				}
			}
			act(fmt.Sprintf("$DeadLetterQueue/delete?number=%d", dead[1]), 200)
			act(fmt.Sprintf("$DeadLetterQueue/delete?number=%d", dead[1]), 404)
			if got := i.numbers("orders/$DeadLetterQueue"); len(got) != len(dead)-1 || got[0] != dead[0] {
				t.Errorf("dead letters %v of %v", got, dead)
			}
			act(fmt.Sprintf("redrive?number=%d", dead[0]), 200)
			act(fmt.Sprintf("redrive?number=%d", dead[0]), 404)
			if got := i.numbers("orders/$DeadLetterQueue"); len(got) != len(dead)-2 {
				t.Errorf("dead letters %v of %v", got, dead)
			}
			if got := i.numbers("orders"); len(got) != len(waiting)+1 {
				t.Errorf("waiting: %v, before %v", got, waiting)
			}
			act(fmt.Sprintf("delete?number=%d", later), 200)
			act(fmt.Sprintf("delete?number=%d", active), 200)
			act(fmt.Sprintf("delete?number=%d", active), 404)
			share := max(0, d.ShareOf(fsm.SequenceNumber(active).Prefix()))
			for _, m := range i.must(d, fsm.Main, share, &fsm.Lock{Max: 1}).Locked {
				i.must(d, fsm.Main, share, &fsm.Settle{Items: []fsm.SettleItem{{Token: m.Token, Verdict: fsm.Defer}}})
				act(fmt.Sprintf("delete?number=%d", m.Seq), 200)
				act(fmt.Sprintf("delete?number=%d", m.Seq), 404)
			}
			for _, bad := range []string{"delete", "delete?number=0", "delete?number=x", "delete?number=9223372036854775808", "delete?number=1&all=true", "redrive?number=1&reason=Poison"} {
				act(bad, 400)
			}
			if dead = i.numbers("orders/$DeadLetterQueue"); len(dead) > 0 { // one that a receiver holds
				share = max(0, d.ShareOf(fsm.SequenceNumber(dead[0]).Prefix()))
				i.must(d, fsm.DeadLetter, share, &fsm.Lock{Max: 1})
				act(fmt.Sprintf("$DeadLetterQueue/delete?number=%d", dead[0]), 409)
				if got := i.numbers("orders/$DeadLetterQueue"); len(got) != len(dead) {
					t.Errorf("a held dead letter: %v of %v", got, dead)
				}
			}
		})
	}
}

// Dead letters are counted by reason, page by page.
func TestOperatorsCountReasons(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", spread)
	for _, reason := range []string{"Poison", "Late", "Poison", ""} {
		i.send(d, "", "1", "2")
		i.end(d, 1, fsm.Kill, reason)
	}
	texts, pages := i.list("/api/entities/orders/reasons?max=3", "reasons")
	sums := map[string]uint64{}
	for _, text := range texts {
		var v ReasonView
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if v.Oldest == nil || v.Newest == nil {
			t.Errorf("%+v", v)
		}
		sums[v.Reason] += v.Count
	}
	if want := map[string]uint64{"Poison": 4, "Late": 2, "": 2}; fmt.Sprint(sums) != fmt.Sprint(want) || pages < 4 {
		t.Errorf("%v on %d pages, want %v", sums, pages, want)
	}
	if code := i.ask("GET", "/api/entities/orders/reasons?reason=x", "", nil); code != 400 {
		t.Errorf("an unknown parameter: %d", code)
	}
}

// An operator sees, sets and removes the state of a session that nobody holds.
func TestOperatorsSeeStatesOfSessions(t *testing.T) {
	i := newInspector(t)
	d := i.queue("grouped", grouped)
	i.queue("plain")
	i.send(d, "a", "1")
	ask := func(method, target, body string, code int) (v StateView) {
		t.Helper()
		var raw json.RawMessage
		if got := i.ask(method, "/api/entities/"+target, body, &raw); got != code {
			t.Errorf("%s %s: %d, want %d: %s", method, target, got, code, raw)
		}
		_ = json.Unmarshal(raw, &v)
		return v
	}
	const state = "grouped/session-state?session=a"
	if v := ask("GET", state, "", 200); v.Set || v.Session != "a" {
		t.Errorf("before: %+v", v)
	}
	if v := ask("PUT", state, "step 3", 200); !v.Set || v.State != "step 3" || v.Bytes != 6 {
		t.Errorf("set: %+v", v)
	}
	if v := ask("GET", state, "", 200); v.State != "step 3" {
		t.Errorf("after: %+v", v)
	}
	if v := ask("PUT", state, "\xff\x00", 200); v.Encoding != "base64" || v.State != "/wA=" {
		t.Errorf("bytes: %+v", v)
	}
	if v := ask("PUT", state, "", 200); !v.Set || v.Bytes != 0 {
		t.Errorf("an empty state is one: %+v", v)
	}
	if v := ask("DELETE", state, "", 200); v.Set {
		t.Errorf("removed: %+v", v)
	}
	held := i.must(d, fsm.Main, fsm.KeyShare("a", len(d.Partitions)), &fsm.AcceptSession{ID: "a"}).Session
	ask("GET", state, "", 409)
	ask("PUT", state, "x", 409)
	i.must(d, fsm.Main, fsm.KeyShare("a", len(d.Partitions)), &fsm.ReleaseSession{Session: held, Orderly: true})
	ask("GET", "grouped/session-state", "", 400)
	ask("GET", "grouped/session-state?session=a&x=1", "", 400)
	ask("GET", "plain/session-state?session=a", "", 400)
	ask("POST", state, "", 405)
	ask("PUT", state, strings.Repeat("x", 1<<20+1), 413)
}

// A filter in the language of rules chooses from the messages that are there, over all pages and shares.
func TestOperatorsFilterMessages(t *testing.T) {
	i := newInspector(t)
	d := i.queue("orders", spread)
	for n := range 600 { // more than a step looks at
		i.send(d, "", fmt.Sprintf("%c%d", 'a'+n%3, n), fmt.Sprintf("%c%d", 'a'+n%3, n+1000))
	}
	filter := func(text string) string { return "/api/entities/orders/messages?max=7&filter=" + text }
	texts, pages := i.list(filter("body+LIKE+'b%25'"), "messages")
	seen := map[string]bool{}
	for _, text := range texts {
		seen[text] = strings.Contains(text, `"body":"b`)
	}
	if len(texts) != 400 || len(seen) != 400 || pages < 58 {
		t.Errorf("%d messages, %d different, on %d pages", len(texts), len(seen), pages)
	}
	for text, ok := range seen {
		if !ok {
			t.Errorf("selected %s", text)
		}
	}
	if texts, _ = i.list(filter("body+LIKE+'z%25'"), "messages"); len(texts) != 0 {
		t.Errorf("selected %v", texts)
	}
	var page struct {
		Messages []any
		Failed   uint64
		Fault    string
	}
	if code := i.ask("GET", filter("body+%2B+1+%3D+2"), "", &page); code != 200 || len(page.Messages) > 0 || page.Failed == 0 || page.Fault == "" {
		t.Errorf("a filter that fails on every message: %d %+v", code, page)
	}
	var problem map[string]any
	if code := i.ask("GET", filter("body+LIKE"), "", &problem); code != 400 || !strings.Contains(fmt.Sprint(problem["error"]), "filter") {
		t.Errorf("a filter that is none: %d %v", code, problem)
	}
}

// Rules are tried on a message that somebody describes, without one being sent.
func TestOperatorsTryRules(t *testing.T) {
	i := newInspector(t)
	i.queue("orders")
	if _, err := i.Create(t.Context(), fsm.Descriptor{Kind: fsm.Topic, Name: "trade"}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Create(t.Context(), fsm.Descriptor{Kind: fsm.Subscription, Name: "trade/Subscriptions/eu", Rules: []fsm.Rule{
		{Name: "region", Source: rule.Source{Kind: rule.SQLFilter, Expression: "region = 'eu'", Action: "SET routed = TRUE; REMOVE region"}},
		{Name: "label", Source: rule.Source{Kind: rule.SQLFilter, Expression: "sys.Label = 'x' AND n > 3"}},
	}}); err != nil {
		t.Fatal(err)
	}
	try := func(entity, body string) (int, string) {
		var raw json.RawMessage
		code := i.ask("POST", "/api/entities/"+entity+"/test-rules", body, &raw)
		return code, string(raw)
	}
	message := `"message":{"system":{"Label":"x"},"properties":[{"name":"region","type":"string","value":"eu"},{"name":"n","type":"int","value":"3"}]}`
	for name, c := range map[string]struct {
		entity, body string
		code         int
		want         string
	}{
		"the rules":              {"trade/Subscriptions/eu", "{" + message + "}", 200, `{"verdicts":[{"rule":"label","selected":false},{"rule":"region","selected":true,"changes":["SET routed = true","REMOVE region"]}]}`},
		"an expression":          {"orders", `{"sql":"n = 3",` + message + "}", 200, `{"verdicts":[{"rule":"","selected":true}]}`},
		"an action":              {"orders", `{"action":"SET sys.Label = 'y'",` + message + "}", 200, `SET sys.Label = 'y'`},
		"an evaluation fails":    {"orders", `{"sql":"region > 3 AND region + 1 = 2",` + message + "}", 200, `"selected":false`},
		"no rule":                {"orders", "{" + message + "}", 400, "no subscription"},
		"a fault":                {"orders", `{"sql":"n = ",` + message + "}", 400, "not valid"},
		"a property of no type":  {"orders", `{"sql":"n = 3","message":{"properties":[{"name":"n","type":"int","value":"x"}]}}`, 400, "not of the type int"},
		"a property of no name":  {"orders", `{"sql":"n = 3","message":{"properties":[{"name":"","value":"x"}]}}`, 400, "no name"},
		"a system property none": {"orders", `{"sql":"n = 3","message":{"system":{"Colour":"x"}}}`, 400, "Colour"},
		"no JSON":                {"orders", `sql`, 400, "JSON"},
		"an unknown member":      {"orders", `{"rule":"x"}`, 400, "JSON"},
		"something behind it":    {"orders", `{"sql":"n = 3"} {}`, 400, "followed"},
	} {
		if code, text := try(c.entity, c.body); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if code := i.ask("GET", "/api/entities/orders/test-rules", "", nil); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", code)
	}
}
