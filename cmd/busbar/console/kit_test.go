package console

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/auth"
)

const (
	home    = "busbar.local:5300"
	rootKey = "the key of the root"
)

// desk is a console in front of a port that tells what it was asked.
type desk struct {
	t        *testing.T
	console  *Console
	policies *auth.Policies
	handler  http.Handler

	mu      sync.Mutex
	now     time.Time
	asked   []*http.Request
	claims  []auth.Claim
	answer  func(http.ResponseWriter, *http.Request)
	closing chan struct{}
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	policies, err := auth.New(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	err = policies.ReplaceAll(map[string][]auth.Policy{
		"":       {{Name: "root", Primary: rootKey, Rights: auth.All}, {Name: "reader", Primary: "r", Rights: auth.Listen}},
		"orders": {{Name: "clerk", Primary: "c", Rights: auth.Send}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, policies: policies, now: time.Unix(1_700_000_000, 0), closing: make(chan struct{})}
	d.console, err = New(Deps{Port: http.HandlerFunc(d.port), Policies: policies, Node: "n1", Version: "v", Now: d.clock,
		Own:     func(host string) bool { return strings.HasPrefix(host, "busbar.local") },
		Closing: d.closing, Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	d.console.every = 5 * time.Millisecond
	d.handler = d.console.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	return d
}

func (d *desk) clock() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *desk) later(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(by)
}

// port stands for the operations port: it judges the token as that one does.
func (d *desk) port(w http.ResponseWriter, r *http.Request) {
	claim, err := d.policies.Verify(r.Header.Get("Authorization"), d.clock())
	d.mu.Lock()
	d.asked, d.claims = append(d.asked, r), append(d.claims, claim)
	answer := d.answer
	d.mu.Unlock()
	switch {
	case err != nil:
		w.WriteHeader(http.StatusUnauthorized)
	case answer != nil:
		answer(w, r)
	default:
		_, _ = io.WriteString(w, `{"entities":[]}`)
	}
}

// last is what the port was asked last, nil if nothing since.
func (d *desk) last() (*http.Request, auth.Claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.asked) == 0 {
		return nil, auth.Claim{}
	}
	r, claim := d.asked[len(d.asked)-1], d.claims[len(d.claims)-1]
	d.asked, d.claims = nil, nil
	return r, claim
}

// request is one of a page of this node; headers are pairs, an empty value takes one away.
func request(method, path, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "http://"+home+path, strings.NewReader(body))
	r.Header.Set("Origin", "http://"+home)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			r.Host = headers[i+1]
		case headers[i+1] == "":
			r.Header.Del(headers[i])
		default:
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r
}

func (d *desk) do(r *http.Request) *httptest.ResponseRecorder {
	d.t.Helper()
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w
}

// signIn returns the cookie of a new session.
func (d *desk) signIn(policy, key, entity string) *http.Cookie {
	d.t.Helper()
	body := fmt.Sprintf(`{"policy":%q,"key":%q,"entity":%q}`, policy, key, entity)
	w := d.do(request("POST", sessionPath, body))
	if w.Code != http.StatusOK || len(w.Result().Cookies()) != 1 {
		d.t.Fatalf("sign in as %s: %d %s", policy, w.Code, w.Body)
	}
	return w.Result().Cookies()[0]
}

func with(r *http.Request, cookie *http.Cookie) *http.Request {
	r.AddCookie(cookie)
	return r
}

func secure(r *http.Request) *http.Request {
	r.TLS = &tls.ConnectionState{}
	r.Header.Set("Origin", "https://"+home)
	return r
}

func told(t *testing.T, w *httptest.ResponseRecorder) (v signedIn) {
	t.Helper()
	read(t, w, &v)
	return v
}

func read(t *testing.T, w *httptest.ResponseRecorder, v any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
}
