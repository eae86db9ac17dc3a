package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/auth"
)

// listen opens a stream of events at a real server and returns its lines.
func listen(t *testing.T, d *desk, cookie *http.Cookie, query string) (lines <-chan string, code int, end func()) {
	t.Helper()
	s := httptest.NewServer(d.handler)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+eventsPath+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = home
	r.AddCookie(cookie)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 1000)
	go func() {
		defer close(out)
		for in := bufio.NewScanner(response.Body); in.Scan(); {
			if text := in.Text(); text != "" && text != ": " {
				out <- text
			}
		}
	}()
	end = func() { cancel(); _ = response.Body.Close(); s.Close() }
	t.Cleanup(end)
	return out, response.StatusCode, end
}

func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case text, ok := <-lines:
		if !ok {
			return "the end"
		}
		return text
	case <-time.After(time.Minute):
		t.Fatal("no line within a minute")
		return ""
	}
}

// A stream tells what changes, once, and asks with the token of the session for what its page shows.
func TestAStreamTellsWhatChanges(t *testing.T) {
	d := newDesk(t)
	cookie := d.signIn("root", rootKey, "")
	var n, asks atomic.Int64
	d.answer = func(w http.ResponseWriter, r *http.Request) {
		asks.Add(1)
		fmt.Fprintf(w, "{\"n\":%d,\n\"path\":%q}", n.Load(), r.URL.Query()["path"])
	}
	lines, code, _ := listen(t, d, cookie, "?path=a&path=b/c")
	if code != 200 || next(t, lines) != "event: entities" || next(t, lines) != `data: {"n":0, "path":["a" "b/c"]}` {
		t.Fatalf("the first event: %d", code)
	}
	for asks.Load() < 5 { // nothing new is not told
		time.Sleep(time.Millisecond)
	}
	n.Store(1)
	if next(t, lines) != "event: entities" || next(t, lines) != `data: {"n":1, "path":["a" "b/c"]}` {
		t.Error("the second event")
	}
	if r, claim := d.last(); r.URL.Path != "/api/entities" || claim.Policy != "root" {
		t.Errorf("the port was asked %s by %q", r.URL, claim.Policy)
	}
	d.mu.Lock()
	d.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); _, _ = io.WriteString(w, "no") }
	d.mu.Unlock()
	if next(t, lines) != "event: refused" || next(t, lines) != "data: no" {
		t.Error("a refusal")
	}
}

// A stream ends with its session, and with the node. It does not keep a session from resting.
func TestAStreamEndsWithItsSession(t *testing.T) {
	for name, end := range map[string]func(*desk, *http.Cookie){
		"it is ended": func(d *desk, c *http.Cookie) { d.do(with(request("DELETE", sessionPath, ""), c)) },
		"it rests":    func(d *desk, _ *http.Cookie) { d.later(sessionRest) },
		"the key is gone": func(d *desk, _ *http.Cookie) {
			_ = d.policies.Replace("", auth.Policy{Name: "x", Primary: "x", Rights: 1})
		},
		"the node closes": func(d *desk, _ *http.Cookie) { close(d.closing) },
		"it signs in anew": func(d *desk, c *http.Cookie) {
			d.do(with(request("POST", sessionPath, `{"policy":"reader","key":"r"}`), c))
		},
	} {
		d := newDesk(t)
		cookie := d.signIn("root", rootKey, "")
		lines, _, stop := listen(t, d, cookie, "?cluster=true")
		if got := next(t, lines); got != "event: cluster" {
			t.Fatalf("%s: %s", name, got)
		}
		end(d, cookie)
		for text := next(t, lines); text != "the end"; text = next(t, lines) {
			if text == "event: end" && name == "the node closes" {
				t.Errorf("%s: the page signs out", name)
			}
		}
		stop()
		if d.console.sessions.mu.Lock(); len(d.console.streams) != 0 {
			t.Errorf("%s: a place is kept", name)
		}
		d.console.sessions.mu.Unlock()
	}
}

// Streams are bounded for a session and for the node, and a wrong request for one gets a sentence.
func TestStreamsAreBounded(t *testing.T) {
	d := newDesk(t)
	cookie := d.signIn("root", rootKey, "")
	var ends []func()
	for range maxSessionStreams {
		lines, code, end := listen(t, d, cookie, "?path=a")
		if ends = append(ends, end); code != 200 || next(t, lines) != "event: entities" {
			t.Fatal("a stream")
		}
	}
	if _, code, _ := listen(t, d, cookie, "?path=a"); code != http.StatusServiceUnavailable {
		t.Errorf("one more of the session: %d", code)
	}
	for _, end := range ends {
		end()
	}
	for len(d.console.streams) < maxStreams {
		d.console.streams <- struct{}{}
	}
	other := d.signIn("reader", "r", "")
	if w := d.do(with(request("GET", eventsPath, ""), other)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one more of the node: %d", w.Code)
	}
	for name, r := range map[string]*http.Request{
		"too many entities": request("GET", eventsPath+"?"+strings.Repeat("path=a&", maxWatched+1), ""), "a POST": request("POST", eventsPath, ""),
	} {
		if w := d.do(with(r, other)); w.Code != map[bool]int{true: 405, false: 400}[name == "a POST"] {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if w := d.do(request("GET", eventsPath, "")); w.Code != 401 {
		t.Errorf("without a session: %d", w.Code)
	}
}
