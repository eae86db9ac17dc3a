package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
)

// browser is a client that behaves as a page of the console does.
type browser struct {
	t      *testing.T
	client *http.Client
	home   string
}

func newBrowser(t *testing.T, l *liveNode) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, client: &http.Client{Jar: jar}, home: "http://" + l.opsHost()}
}

func (b *browser) ask(method, path, body string, headers ...string) (int, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.home+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Origin", b.home)
	r.Header.Set("User-Agent", "Mozilla/5.0")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A development node signs its own host in by a click; the pages then do what the key may, and programs see nothing of it.
func TestTheConsoleOfALiveNode(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) { c.Console = true }))
	b := newBrowser(t, l)
	if code, text := b.ask("GET", "/", "", "Accept", "text/html"); code != 200 || !strings.Contains(text, "<bb-app>") {
		t.Errorf("the page: %d %.100s", code, text)
	}
	if code, text := b.ask("GET", "/", ""); code != 200 || !strings.HasPrefix(text, "<feed") {
		t.Errorf("for a program: %d %.100s", code, text)
	}
	const json1 = "application/json"
	if code, text := b.ask("GET", "/$console/port/api/entities", ""); code != 401 {
		t.Errorf("before the sign-in: %d %s", code, text)
	}
	code, text := b.ask("POST", "/$console/session", `{"development":true}`, "Content-Type", json1)
	if code != 200 || !strings.Contains(text, `"Manage"`) {
		t.Fatalf("a click: %d %s", code, text)
	}
	queue := `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription ` +
		`xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>`
	if code, text = b.ask("PUT", "/$console/port/orders", queue, "Content-Type", "application/atom+xml"); code != 201 {
		t.Fatalf("a queue: %d %s", code, text)
	}
	messages := `[{"Body":"a","UserProperties":{"n":1}},{"Body":"b","UserProperties":{"n":2}}]`
	if code, text = b.ask("POST", "/$console/port/orders/messages", messages, "Content-Type", "application/vnd.microsoft.servicebus.json"); code != 201 {
		t.Fatalf("messages: %d %s", code, text)
	}
	code, text = b.ask("GET", "/$console/port/api/entities/orders/messages?filter="+url.QueryEscape("n > 1"), "")
	var got struct {
		Messages []struct {
			Body       string
			Properties map[string]any
		}
	}
	if code != 200 || json.Unmarshal([]byte(text), &got) != nil || len(got.Messages) != 1 || got.Messages[0].Body != "b" || len(got.Messages[0].Properties) != 1 {
		t.Errorf("the page got something from the browser into a message, or the filter fails: %d %s", code, text)
	}
	if code, text = b.ask("GET", "/$console/port/api/entities", ""); code != 200 || !strings.Contains(text, `"active":2`) {
		t.Errorf("the list: %d %s", code, text)
	}
	if code, text = b.ask("POST", "/$console/port/api/cluster/drain?node=nobody", ""); code != 404 {
		t.Errorf("a command: %d %s", code, text)
	}
	if code, text = b.ask("POST", "/$console/session", `{"development":true}`, "Content-Type", json1, "X-Forwarded-For", "10.0.0.1"); code != 403 {
		t.Errorf("a click from behind a proxy: %d %s", code, text)
	}
}

// Without --console the port is as it was.
func TestTheConsoleCanBeOff(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) { c.Console = false }))
	b := newBrowser(t, l)
	if code, text := b.ask("GET", "/", "", "Accept", "text/html"); code != 200 || !strings.HasPrefix(text, "<feed") {
		t.Errorf("/: %d %.100s", code, text)
	}
	if code, _ := b.ask("POST", "/$console/session", `{"development":true}`, "Content-Type", "application/json"); code == 200 {
		t.Errorf("sign in: %d", code)
	}
}

// A node with a key of its own gives that key to nobody for a click.
func TestAClickOpensNoKeyOfItsOwn(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) {
		c.Console, c.Policies = true, []policy{{Name: "root", Primary: "a key of its own", Rights: list{"Manage"}}}
	}))
	b := newBrowser(t, l)
	if code, text := b.ask("POST", "/$console/session", `{"development":true}`, "Content-Type", "application/json"); code != 403 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := b.ask("POST", "/$console/session", `{"policy":"root","key":"a key of its own"}`, "Content-Type", "application/json"); code != 200 {
		t.Errorf("with the key: %d %s", code, text)
	}
}
