package console

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

// The cookie is for the server alone: no script reads it, no other site sends it, and under TLS no plain request has it.
func TestTheCookieIsForTheServerAlone(t *testing.T) {
	d := newDesk(t)
	body := `{"policy":"root","key":"` + rootKey + `"}`
	plain := d.do(request("POST", sessionPath, body)).Result().Cookies()[0]
	tls := d.do(secure(request("POST", sessionPath, body))).Result().Cookies()[0]
	for name, c := range map[string]*http.Cookie{"plain": plain, "TLS": tls} {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != int(sessionLife.Seconds()) || len(c.Value) < 40 {
			t.Errorf("%s: %v", name, c)
		}
		if c.Secure != (name == "TLS") || strings.HasPrefix(c.Name, "__Host-") != (name == "TLS") {
			t.Errorf("%s: %v", name, c)
		}
	}
	if plain.Value == tls.Value {
		t.Error("two sessions have one secret")
	}
}

// What a page is told of a session is who it is and what it may; never the key or the token.
func TestRightsAreThoseOfTheKey(t *testing.T) {
	d := newDesk(t)
	for _, c := range []struct {
		policy, key, entity, scope string
		rights                     []string
	}{
		{"root", rootKey, "", "", []string{"Listen", "Send", "Manage"}},
		{"reader", "r", "", "", []string{"Listen"}},
		{"clerk", "c", "orders", "orders", []string{"Send"}},
		{"clerk", "c", "", "orders", []string{"Send"}}, // the one entity that has the policy
		{"reader", "r", "orders", "orders", []string{"Listen"}},
		{" root ", " " + rootKey + "\n", "", "", []string{"Listen", "Send", "Manage"}}, // as it was pasted
	} {
		cookie := d.signIn(c.policy, c.key, c.entity)
		w := d.do(with(request("GET", sessionPath, ""), cookie))
		got := told(t, w)
		if !got.SignedIn || got.Policy != strings.TrimSpace(c.policy) || got.Scope != c.scope || !reflect.DeepEqual(got.Rights, c.rights) {
			t.Errorf("%s: %+v", c.policy, got)
		}
		if text := w.Body.String(); strings.Contains(text, rootKey) || strings.Contains(text, "SharedAccessSignature") {
			t.Errorf("%s: the page is told %s", c.policy, text)
		}
		d.do(with(request("GET", portPrefix+"/api/entities", ""), cookie))
		if _, claim := d.last(); claim.Scope+claim.Audience != map[string]string{"clerk": "orders" + "orders"}[claim.Policy]+map[bool]string{true: "orders"}[c.policy == "reader" && c.entity != ""] {
			t.Errorf("%s: the token is for %q of %q", c.policy, claim.Audience, claim.Scope)
		}
	}
}

// A request to sign in that is wrong gets a sentence, and no session.
func TestBadSignIns(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		body, kind string
		want       int
		says       string
	}{
		"a wrong key":            {`{"policy":"root","key":"x"}`, "", 401, "No policy"},
		"a policy that is none":  {`{"policy":"nobody","key":"x"}`, "", 401, "No policy"},
		"another entity":         {`{"policy":"clerk","key":"c","entity":"bills"}`, "", 401, "No policy"},
		"no policy":              {`{"policy":" ","key":"x"}`, "", 400, "Name a policy"},
		"no key":                 {`{"policy":"root"}`, "", 400, "Give the key"},
		"a long name":            {`{"policy":"` + long + `","key":"x"}`, "", 400, "too long"},
		"a long key":             {`{"policy":"root","key":"` + long + `"}`, "", 400, "too long"},
		"an entity with a query": {`{"policy":"root","key":"x","entity":"a?b"}`, "", 400, "no path"},
		"an entity that is long": {`{"policy":"root","key":"x","entity":"` + strings.Repeat(long, 4) + `"}`, "", 400, "no path"},
		"a body without end":     {`{"policy":"root","key":"` + strings.Repeat(long, 100) + `"}`, "", 400, "no request"},
		"no JSON":                {`policy=root&key=x`, "", 400, "no request"},
		"a form":                 {`policy=root&key=x`, "application/x-www-form-urlencoded", 400, "application/json"},
		"text":                   {`{"policy":"root","key":"` + rootKey + `"}`, "text/plain", 400, "application/json"},
		"two requests":           {`{"policy":"root","key":"x"}{}`, "", 400, "follows"},
		"an unknown member":      {`{"policy":"root","key":"x","admin":true}`, "", 400, "no request"},
		"a number for a name":    {`{"policy":7,"key":"x"}`, "", 400, "no request"},
		"nothing":                {``, "", 400, "no request"},
		"a click elsewhere":      {`{"development":true}`, "", 403, "development node"},
	} {
		d := newDesk(t)
		headers := []string{"Content-Type", c.kind}
		if c.kind == "" {
			headers = nil
		}
		w := d.do(request("POST", sessionPath, c.body, headers...))
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) || len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if len(d.console.sessions.all) > 0 {
			t.Errorf("%s: there is a session", name)
		}
	}
}

// One click signs in where the node says so.
func TestADevelopmentNodeSignsItsOwnHostIn(t *testing.T) {
	d := newDesk(t)
	d.console.deps.Developer = func(r *http.Request) (string, string, bool) { return "root", rootKey, r.RemoteAddr == "127.0.0.1:9" }
	click := func(remote string) (int, signedIn) {
		r := request("POST", sessionPath, `{"development":true}`)
		r.RemoteAddr = remote
		w := d.do(r)
		return w.Code, told(t, w)
	}
	if code, got := click("127.0.0.1:9"); code != 200 || !got.SignedIn || !got.Development {
		t.Errorf("%d %+v", code, got)
	}
	if code, got := click("10.0.0.9:9"); code != 403 || got.SignedIn {
		t.Errorf("from another host: %d %+v", code, got)
	}
}

// A session ends when its page is silent, when it is old, when it is ended, and when its key is taken away.
func TestSessionsEnd(t *testing.T) {
	for name, end := range map[string]func(*desk, *http.Cookie){
		"after an hour of rest": func(d *desk, _ *http.Cookie) { d.later(sessionRest) },
		"after its life": func(d *desk, c *http.Cookie) {
			for range 12 {
				d.later(55 * time.Minute)
				d.do(with(request("GET", sessionPath, ""), c))
			}
			d.later(time.Second)
		},
		"by its user": func(d *desk, c *http.Cookie) {
			w := d.do(with(request("DELETE", sessionPath, ""), c))
			if cookies := w.Result().Cookies(); len(cookies) != 1 || cookies[0].MaxAge >= 0 {
				d.t.Errorf("the browser keeps the cookie: %v", cookies)
			}
		},
		"with another key": func(d *desk, _ *http.Cookie) {
			if err := d.policies.Replace("", auth.Policy{Name: "root", Primary: "new", Rights: auth.All}); err != nil {
				d.t.Fatal(err)
			}
		},
	} {
		d := newDesk(t)
		cookie := d.signIn("root", rootKey, "")
		d.later(sessionRest - time.Second)
		if w := d.do(with(request("GET", portPrefix+"/api/cluster", ""), cookie)); w.Code != 200 {
			t.Errorf("%s: before: %d %s", name, w.Code, w.Body)
		}
		end(d, cookie)
		w := d.do(with(request("GET", portPrefix+"/api/cluster", ""), cookie))
		if w.Code != 401 || w.Header().Get("Busbar-Console") != "signed-out" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if got := told(t, d.do(with(request("GET", sessionPath, ""), cookie))); got.SignedIn {
			t.Errorf("%s: still signed in", name)
		}
		if len(d.console.sessions.all) > 0 {
			t.Errorf("%s: the session is kept", name)
		}
	}
}

// Who signs in again leaves the session before; a stranger's cookie opens nothing.
func TestASecondSignInEndsTheFirst(t *testing.T) {
	d := newDesk(t)
	first := d.signIn("root", rootKey, "")
	w := d.do(with(request("POST", sessionPath, `{"policy":"reader","key":"r"}`), first))
	second := w.Result().Cookies()[0]
	if w.Code != 200 || second.Value == first.Value || len(d.console.sessions.all) != 1 {
		t.Fatalf("%d, %d sessions", w.Code, len(d.console.sessions.all))
	}
	for name, c := range map[string]*http.Cookie{"the first": first, "a guess": {Name: first.Name, Value: "x"}, "another node's": {Name: "busbar-console-n2", Value: second.Value}} {
		if w := d.do(with(request("GET", portPrefix+"/api/cluster", ""), c)); w.Code != 401 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// One session more than there is room for takes the place of the one that was used longest ago.
func TestSessionsAreBounded(t *testing.T) {
	d := newDesk(t)
	oldest := d.signIn("root", rootKey, "")
	d.later(time.Second)
	used := d.signIn("root", rootKey, "")
	for range maxSessions - 2 {
		d.later(time.Millisecond)
		d.signIn("root", rootKey, "")
	}
	d.do(with(request("GET", sessionPath, ""), used))
	d.signIn("root", rootKey, "")
	if n := len(d.console.sessions.all); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
	for cookie, want := range map[*http.Cookie]bool{oldest: false, used: true} {
		if got := told(t, d.do(with(request("GET", sessionPath, ""), cookie))); got.SignedIn != want {
			t.Errorf("%+v", got)
		}
	}
}

// Attempts that fail are paced, and those that succeed are not.
func TestAttemptsArePaced(t *testing.T) {
	d := newDesk(t)
	attempt := func(key string) int {
		return d.do(request("POST", sessionPath, fmt.Sprintf(`{"policy":"root","key":%q}`, key))).Code
	}
	for range 2 * paceAtOnce {
		d.signIn("root", rootKey, "")
	}
	for i := range paceAtOnce {
		if code := attempt("x"); code != 401 {
			t.Fatalf("attempt %d: %d", i, code)
		}
	}
	if code := attempt(rootKey); code != http.StatusTooManyRequests {
		t.Errorf("one more: %d", code)
	}
	d.later(time.Second)
	if code := attempt("x"); code != 401 {
		t.Errorf("a second later: %d", code)
	}
}
