package rest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// listen serves the handler over TLS on a free port and returns a function that opens connections.
func (h *house) listen(t *testing.T) func(*testing.T) net.Conn {
	t.Helper()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(h.handler, hclog.NewNullLogger())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(tls.NewListener(l, &tls.Config{
			Certificates: certificate.TLS.Certificates, NextProtos: []string{"http/1.1"},
		}))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return func(t *testing.T) net.Conn {
		t.Helper()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// ask writes bytes and reads one answer; 0 if the server closes without one.
func ask(t *testing.T, c net.Conn, bytes string) (int, string) {
	t.Helper()
	go func() { _, _ = io.WriteString(c, bytes) }() // the server may answer before it has read all
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err.Error()
	}
	body, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(body)
}

type hostile struct {
	name   string
	bytes  string
	status int    // 0: the connection is closed
	text   string // in the body
}

// put is a request to create or update the queue with a body as it stands.
func put(path, body string, headers ...string) string {
	return raw("PUT", path, body, append([]string{
		"Authorization: " + token(root, rootKey, "https://h/"),
		"Content-Type: application/atom+xml;type=entry;charset=utf-8",
	}, headers...)...)
}

func raw(method, path, body string, headers ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%s\r\n\r\n%s", method, path,
		len(body), strings.Join(headers, "\r\n"), body)
}

func hostileBodies() []hostile {
	const declared = `<?xml version="1.0" encoding="%s"?>`
	deep := strings.Repeat("<a>", 100_000)
	wide := strings.Repeat("<a/>", 2000)
	return []hostile{
		{"no body", put("/x", ""), 400, "not well-formed"},
		{"no XML", put("/x", "hello"), 400, "outside its root"},
		{"JSON", put("/x", `{"a":1}`), 400, "outside its root"},
		{"half a document", put("/x", queueBody("")[:90]), 400, "not well-formed"},
		{"elements that cross", put("/x", queueBody("<a><b></a></b>")), 400, "not well-formed"},
		{"two roots", put("/x", queueBody("")+"<a/>"), 400, "two roots"},
		{"text after the root", put("/x", queueBody("")+"tail"), 400, "outside its root"},
		{"deep nesting", put("/x", queueBody(deep)), 400, "too many elements, or too deep"},
		{"deep nesting of the root", put("/x", deep), 400, "too many elements, or too deep"},
		{"more elements than any", put("/x", queueBody(wide)), 400, "too many elements"},
		{"a document type", put("/x", "<!DOCTYPE a>"+queueBody("")), 400, "document type"},
		{
			"the billion laughs", put("/x", `<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "`+
				strings.Repeat("&a;", 1000)+`">]>`+queueBody("<UserMetadata>&b;</UserMetadata>")),
			400, "document type",
		},
		{
			"an external entity", put("/x", `<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]>`+
				queueBody("<UserMetadata>&a;</UserMetadata>")), 400, "document type",
		},
		{
			"an entity nobody declared",
			put("/x", queueBody("<UserMetadata>&a;</UserMetadata>")), 400, "not well-formed",
		},
		{
			"bytes that are no UTF-8", put("/x", queueBody("<UserMetadata>\xff\xfe</UserMetadata>")), 400,
			"UTF-8",
		},
		{
			"control characters", put("/x", queueBody("<UserMetadata>\x01</UserMetadata>")), 400,
			"not well-formed",
		},
		{
			"an encoded NUL", put("/x", queueBody("<UserMetadata>&#0;</UserMetadata>")), 400,
			"not well-formed",
		},
		{
			"another encoding", put("/x", fmt.Sprintf(declared, "utf-16")+queueBody("")), 400,
			"not well-formed",
		},
		{"UTF-16", put("/x", "\xff\xfe<\x00e\x00"), 400, "not well-formed"},
		{"a name of 900 KiB", put("/x", queueBody("<"+strings.Repeat("n", 900<<10)+"/>")), 201, ""},
		{"text in a million pieces", put("/y", queueBody("<UserMetadata>"+
			strings.Repeat("a<!---->", 125_000)+"</UserMetadata>")), 400, "125000 characters long"},
		{
			"a body of 1 MiB and more", put("/x", queueBody(strings.Repeat(" ", 1<<20))), 413,
			"1048576 bytes",
		},
		{
			"a gigabyte announced", "PUT /x HTTP/1.1\r\nHost: h\r\nAuthorization: " +
				token(root, rootKey, "h") + "\r\nContent-Length: 1073741824\r\n\r\n" +
				strings.Repeat(" ", 1<<20+1), 413, "1048576 bytes",
		},
		{"chunks without end", "PUT /x HTTP/1.1\r\nHost: h\r\nAuthorization: " +
			token(root, rootKey, "h") + "\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("10000\r\n"+strings.Repeat(" ", 1<<16)+"\r\n", 20), 413, "1048576 bytes"},
		{
			"another entry", put("/x", strings.ReplaceAll(queueBody(""), atomSpace, "urn:x")), 400,
			"not an Atom entry",
		},
		{
			"another description", put("/x", strings.ReplaceAll(queueBody(""), connectSpace, "urn:x")),
			400, "not a known description",
		},
		{
			"a rule as a queue", put("/x", strings.ReplaceAll(queueBody(""), "QueueD", "RuleD")), 400,
			"of a queue or topic",
		},
		{"no content", put("/x", `<entry xmlns="`+atomSpace+`"/>`), 400, "not one description"},
		{"a feed", put("/x", `<feed xmlns="`+atomSpace+`"/>`), 400, "not an Atom entry"},
		{"compressed", put("/x", queueBody(""), "Content-Encoding: gzip"), 415, ""},
	}
}

func hostileRequests() []hostile {
	signed := "Authorization: " + token(root, rootKey, "https://h/")
	get := func(path string, headers ...string) string {
		return raw("GET", path, "", append([]string{signed}, headers...)...)
	}
	bodied := func(contentType string) string {
		return raw("PUT", "/x", queueBody(""), signed, "Content-Type: "+contentType)
	}
	return []hostile{
		{"JSON by type", bodied("application/json"), 415, ""},
		{"a type that is none", bodied(";;;"), 415, ""},
		{"another charset", bodied("application/atom+xml;charset=utf-16"), 415, ""},
		{"two types", put("/x", queueBody(""), "Content-Type: text/xml"), 400, "more than once"},
		{"two tokens", get("/q", signed), 400, "more than once"},
		{"two conditions", put("/q", queueBody(""), "If-Match: *", "If-Match: *"), 400, "more than once"},
		{"two supplementary tokens", put("/x", queueBody("<ForwardTo>q</ForwardTo>"),
			"ServiceBusSupplementaryAuthorization: a", "ServiceBusSupplementaryAuthorization: b"),
			400, "more than once"},
		{"an entity tag", put("/q", queueBody(""), `If-Match: "639"`), 412, "asterisk"},
		{"two hosts", get("/q", "Host: evil"), 400, ""},
		{"a host that is markup", strings.Replace(get("/q"), "Host: h", `Host: "><x>`, 1), 400, ""},
		{"a host that is a path", strings.Replace(get("/q"), "Host: h", "Host: h/a", 1), 400, ""},
		{
			"a host without end",
			strings.Replace(get("/q"), "Host: h", "Host: "+strings.Repeat("h", 400), 1), 400, "too long",
		},
		{"no host", strings.Replace(get("/q"), "Host: h\r\n", "", 1), 400, ""},
		{"a path up", get("/../../etc/passwd"), 200, "Publicly Listed"},
		{"a path up, encoded", get("/%2e%2e/%2e%2e/etc/passwd"), 200, "Publicly Listed"},
		{"a path of slashes", get("//////"), 200, "Publicly Listed"},
		{"a path with NUL", get("/q%00"), 200, "Publicly Listed"},
		{"a path with a line end", get("/q%0d%0aX:%20y"), 200, "Publicly Listed"},
		{"a path with markup", put("/%3Cscript%3E", queueBody("")), 400, "&lt;script&gt;"},
		{"a path to update above", put("/a/../q", queueBody(""), "If-Match: *"), 400, "not allowed"},
		{"a bad escape", get("/%zz"), 400, ""},
		{"a path that is an asterisk", raw("OPTIONS", "*", "", signed), 200, ""},
		{"a path without end", get("/" + strings.Repeat("a", 200_000)), 431, ""},
		{
			"a query without end", get("/q?api-version=" + strings.Repeat("9", 60_000)), 200,
			"<id>https://h/q</id>",
		},
		{
			"a query of markup", get("/q?api-version=%22%3E%3Cx/%3E"), 200,
			"https://h/q?api-version=%22%3E%3Cx%2F%3E<",
		},
		{"a header without end", get("/q", "X: "+strings.Repeat("x", 200_000)), 431, ""},
		{"more headers than any", get("/q", strings.Repeat("X: y\r\n", 50_000)+"Z: z"), 431, ""},
		{"a token without end", raw("GET", "/q", "", "Authorization: SharedAccessSignature "+
			strings.Repeat("sr=x&", 8000)), 401, "MalformedToken"},
		{
			"a token with every parameter twice", raw("GET", "/q", "", signed+"&sr=h"), 401,
			"MalformedToken",
		},
		{"a token for a path up", raw("GET", "/q", "",
			"Authorization: "+token(root, rootKey, "https://h/x/../q")), 401, "Manage,EntityRead"},
		{"a token for a prefix", raw("GET", "/q", "",
			"Authorization: "+token(root, rootKey, "https://h/Q/x")), 401, "Manage,EntityRead"},
		{"a method nobody knows", raw("BREW", "/q", "", signed), 405, ""},
		{"a method in small letters", raw("get", "/q", "", signed), 405, ""},
		{"PATCH", raw("PATCH", "/q", queueBody(""), signed), 405, ""},
		{"CONNECT", raw("CONNECT", "h:443", "", signed), 405, ""},
		{"deleting the root", raw("DELETE", "/", "", signed), 405, ""},
		{"writing the list", put("/$Resources/Queues", queueBody("")), 405, ""},
		{"deleting the namespace", raw("DELETE", "/$namespaceinfo", "", signed), 405, ""},
		{"two lengths", raw("PUT", "/x", "abc", signed, "Content-Length: 4"), 400, ""},
		{"a negative length", strings.Replace(get("/q"), "Length: 0", "Length: -1", 1), 400, ""},
		{"garbage", "\x00\x01\x02\x03\r\n\r\n", 400, ""},
		{"AMQP", "AMQP\x00\x01\x00\x00\r\n\r\n", 400, ""},
		{"HTTP 9", "GET / HTTP/9.9\r\nHost: h\r\n\r\n", 505, ""},
	}
}

// Every case is answered as told, and another connection is served after it.
func TestHostileRequests(t *testing.T) {
	h := newHouse(t)
	h.create(t, "q", "")
	dial := h.listen(t)
	bystander := dial(t)
	reader := bufio.NewReader(bystander)
	for _, tc := range append(hostileBodies(), hostileRequests()...) {
		t.Run(tc.name, func(t *testing.T) {
			status, text := ask(t, dial(t), tc.bytes)
			if status != tc.status || !strings.Contains(text, tc.text) {
				t.Errorf("got %d %.600s", status, text)
			}
			if strings.Contains(text, rootKey) || strings.Contains(text, "goroutine") {
				t.Errorf("the answer tells too much: %.600s", text)
			}
			_, err := io.WriteString(bystander, raw("GET", "/q", "",
				"Authorization: "+token(root, rootKey, "h")))
			if err != nil {
				t.Fatal(err)
			}
			r, err := http.ReadResponse(reader, nil)
			if err != nil || r.StatusCode != http.StatusOK {
				t.Fatalf("another connection gets %v, %v", r, err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
		})
	}
	if h.entities["q"] == nil || h.entities["q"].Version != 1 {
		t.Error("a hostile request changed the queue")
	}
}

// A mark at the head of UTF-8 and comments are no attack.
func TestStrangeButHarmlessDocuments(t *testing.T) {
	h := newHouse(t)
	for i, body := range []string{
		"\xef\xbb\xbf" + queueBody(""),
		"<!-- a -->\n" + queueBody("<!-- b --><?pi x?>") + "\n<!-- c -->\n",
		queueBody("<UserMetadata><![CDATA[<b>]]></UserMetadata>"),
		strings.ReplaceAll(queueBody(""), "></QueueDescription>", "/>"),
	} {
		if status, text := h.do(t, "PUT", fmt.Sprint("/q", i), body); status != http.StatusCreated {
			t.Errorf("%q: %d %s", body, status, text)
		}
	}
	if got := h.entities["q2"].UserMetadata; got != "<b>" {
		t.Errorf("got %q", got)
	}
}

// Requests beyond the bound are turned away at once, and one that waits too long ends.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *Config) { c.MaxRequests = 2 })
		h.block, h.entered = make(chan struct{}), make(chan struct{})
		answers := make(chan int, 2)
		for range 2 {
			go func() {
				status, _ := h.do(t, "GET", "/q", "")
				answers <- status
			}()
			<-h.entered
		}
		if status, text := h.do(t, "GET", "/q", ""); status != 503 ||
			!strings.Contains(text, "SubCode=50004.") {
			t.Errorf("got %d %s", status, text)
		}
		time.Sleep(h.api.cfg.RequestTimeout) // of the bubble's clock
		for range 2 {
			if status := <-answers; status != 503 {
				t.Errorf("got %d", status)
			}
		}
		close(h.block)
		go func() { <-h.entered }()
		if status, _ := h.do(t, "GET", "/q", ""); status != 200 {
			t.Errorf("the bound is not given back: %d", status)
		}
	})
}

// A body that never comes ends with the request's time, whatever the server allows.
func TestASlowBodyEnds(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.RequestTimeout = time.Second })
	dial := h.listen(t)
	status, text := ask(t, dial(t), strings.Replace(
		put("/q", queueBody("")), "Content-Length: ", "Content-Length: 9", 1))
	if status != http.StatusRequestTimeout || !strings.Contains(text, "did not arrive in time") {
		t.Errorf("got %d %s", status, text)
	}
	if len(h.entities) != 0 {
		t.Error("half a body created a queue")
	}
	// The slot is free again, and a new connection has time of its own.
	if status, text := ask(t, dial(t), put("/q", queueBody(""))); status != http.StatusCreated {
		t.Errorf("got %d %s", status, text)
	}
}

func TestAClientThatGoesAwayEndsItsRequest(t *testing.T) {
	h := newHouse(t)
	h.block, h.entered = make(chan struct{}), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequest("GET", "/q", nil).WithContext(ctx)
	r.Header.Set("Authorization", token(root, rootKey, "h"))
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.handler.ServeHTTP(w, r)
	}()
	<-h.entered
	cancel()
	<-done
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d", w.Code)
	}
}

// The front end hears of a token as soon as it is accepted: what follows may wait for the cluster. It hears of no other.
func TestAnAcceptedTokenIsToldBeforeTheClusterIsAsked(t *testing.T) {
	h := newHouse(t)
	told := make(chan *http.Request, 1)
	h.api.deps.Accepted = func(r *http.Request) { told <- r }
	for name, refused := range map[string]string{
		"without a token": "", "a wrong key": token(root, "other", "h"), "no token at all": "Bearer x"} {
		if status, text := h.do(t, "GET", "/q", "", "Authorization", refused); status != http.StatusUnauthorized || len(told) > 0 {
			t.Errorf("%s: %d %s, told %d times", name, status, text, len(told))
		}
	}
	if status, _ := h.do(t, "GET", "/", "", "Authorization", ""); status != http.StatusOK || len(told) > 0 {
		t.Errorf("the public's view of the namespace: %d, told %d times", status, len(told))
	}
	h.block, h.entered = make(chan struct{}), make(chan struct{})
	r := httptest.NewRequest("GET", "/q", nil)
	r.Header.Set("Authorization", token(root, rootKey, "h"))
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		h.handler.ServeHTTP(w, r)
	}()
	<-h.entered
	if len(told) != 1 || <-told != r {
		t.Error("the request waits for the cluster, and its accepted token was not told")
	}
	close(h.block)
	<-done
	if w.Code != http.StatusOK {
		t.Errorf("got %d", w.Code)
	}
}

func FuzzDescription(f *testing.F) {
	f.Add([]byte(queueBody("<LockDuration>PT1M</LockDuration>")))
	f.Add([]byte(queueBody("<AuthorizationRules><AuthorizationRule/></AuthorizationRules>")))
	f.Add([]byte(queueBody(`<Options xmlns="` + optionSpace + `"><RetryMin>PT1S</RetryMin></Options>`)))
	f.Add([]byte(entryBody("TopicDescription", "<SupportOrdering>false</SupportOrdering>")))
	f.Add([]byte(entryBody("SubscriptionDescription", "<LockDuration>PT1M</LockDuration>")))
	f.Add([]byte("<!DOCTYPE a>"))
	h := newHouse(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		element, p, err := parseDescription(bytes.NewReader(body))
		if err != nil {
			return
		}
		for kind := fsm.Queue; kind <= fsm.Subscription; kind++ {
			if descriptionElement(kind) != element {
				continue
			}
			d, err := h.api.describe(kind, "q", p, nil)
			if err != nil {
				continue
			}
			// What is accepted can be written, read and accepted as an update of itself.
			d.UpdatedAt = 1
			q := &request{host: "h"}
			written := h.api.entry(q, 200, &shown{d: &d}).body
			_, again, err := parseDescription(bytes.NewReader(written))
			if err != nil {
				t.Fatalf("%v in %s", err, written)
			}
			if _, err := h.api.describe(kind, "q", again, &d); err != nil {
				t.Fatalf("%v in %s", err, written)
			}
		}
	})
}

// What is accepted as a rule is written so that it reads as the same rule.
func FuzzRule(f *testing.F) {
	for _, filter := range ruleCases() {
		f.Add([]byte(filter.given))
	}
	f.Fuzz(func(t *testing.T, inner []byte) {
		e, err := parseContent(strings.NewReader(entryBody("RuleDescription", string(inner))))
		if err != nil {
			return
		}
		r, err := parseRule(e)
		if err != nil {
			return
		}
		p := new(page)
		p.raw(`<entry xmlns="` + atomSpace + `"><content>`)
		writeRule(p, &r)
		p.raw("</content></entry>")
		again, err := parseContent(strings.NewReader(p.String()))
		if err != nil {
			t.Fatalf("%v in %s", err, p.String())
		}
		second, err := parseRule(again)
		if err != nil {
			t.Fatalf("%v in %s", err, p.String())
		}
		if a, b := r.Source.Append(nil), second.Source.Append(nil); !bytes.Equal(a, b) &&
			!bytes.ContainsAny(a, "\r\ufffd") {
			t.Fatalf("%s\nreads as %q, not %q", p.String(), b, a)
		}
	})
}
