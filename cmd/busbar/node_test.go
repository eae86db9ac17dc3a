package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/transport/auth"
)

// logBook collects what a node logs.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// liveNode is one node in this process, with its listeners on free ports of loopback.
type liveNode struct {
	*node
	host string // of clients, host:port
	log  *logBook
}

// nodeConfig is that of a development node on free ports; change may set more.
func nodeConfig(t testing.TB, change func(*Config)) Config {
	t.Helper()
	given := map[string][]string{"dev": {"true"}, "data-dir": {t.TempDir()}, "partitions": {"2"},
		"amqp-listen": {"127.0.0.1:0"}, "tls-listen": {"127.0.0.1:0"}, "ops-listen": {"127.0.0.1:0"},
		"node-id": {"n1"}, "log-level": {"trace"}}
	cfg, err := load("", given, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cfg)
		if err := cfg.resolve(); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// openLive starts a node that ends with the test.
func openLive(t testing.TB, cfg Config) *liveNode {
	t.Helper()
	l := &liveNode{log: new(logBook)}
	n, err := openNode(t.Context(), cfg, hclog.New(&hclog.LoggerOptions{
		Output: l.log, Level: hclog.Trace}))
	if err != nil {
		t.Fatal(err)
	}
	l.node, l.host = n, n.doors.clients[0].listener.Addr().String()
	t.Cleanup(func() {
		if err := l.node.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	// A node serves before its cluster has partitions. Nothing says when, so it is asked again.
	for n.directory.View() == nil || len(n.directory.View().Groups()) < cfg.Partitions ||
		n.host.Ready(t.Context()) != nil {
		select {
		case <-t.Context().Done():
			t.Fatal("the node does not get ready")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return l
}

// target is a client of the node with a key of a policy.
func (l *liveNode) target(name, key string) *dial.Target {
	return &dial.Target{Host: l.host, Plain: true, KeyName: name, Key: key}
}

// request sends one HTTP request; token "" is that of the namespace's key.
func (l *liveNode) request(t testing.TB, method, path, body, token string, headers ...string) (
	*http.Response, string) {
	t.Helper()
	return l.requestTo(t, l.host, method, path, body, token, headers...)
}

func (l *liveNode) requestTo(t testing.TB, host, method, path, body, token string, headers ...string) (
	*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token == "" {
		token = auth.NewToken("http://"+host+"/", devKeyName, devKey, time.Now().Add(time.Hour))
	}
	r.Header.Set("Authorization", token)
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = []string{headers[i+1]}
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// put creates an entity, or updates it with an If-Match header.
func (l *liveNode) put(t testing.TB, path, element, elements string, headers ...string) string {
	t.Helper()
	res, text := l.request(t, http.MethodPut, path, atomOf(element, elements), "",
		append(headers, "Content-Type", dial.AtomEntryType)...)
	if res.StatusCode >= 300 {
		t.Fatalf("put %s: %d %s", path, res.StatusCode, text)
	}
	return text
}

// atomOf is an Atom entry around the elements of a description.
func atomOf(element, elements string) string {
	return fmt.Sprintf(`<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">`+
		`<%s xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" `+
		`xmlns:i="http://www.w3.org/2001/XMLSchema-instance">%s</%s></content></entry>`,
		element, elements, element)
}

// opsHost is the address of the operations port.
func (l *liveNode) opsHost() string { return l.doors.ops.Addr().(*net.TCPAddr).String() }

// L9, F8: a developer is given the connection string of a key that manages, wherever it stands, and told
// loudly if there is none. The key itself is shown only if it is the one that everybody knows.
func TestDevelopersAreGivenAKeyThatManages(t *testing.T) {
	sends := policy{Name: "app", Primary: "appkey", Rights: list{"Send"}}
	manages := policy{Name: "boss", Primary: "bosskey", Rights: list{"send", "listen", "manage"}}
	for name, tc := range map[string]struct {
		policies []policy
		root     secret
		want     string
		warned   bool
	}{
		"root-key behind a policy that sends": {[]policy{sends}, "rootkey",
			"SharedAccessKeyName=" + devKeyName + ";SharedAccessKey=<the key of " + devKeyName + ">;", false},
		"root-key behind one that manages": {[]policy{manages}, "rootkey",
			"SharedAccessKeyName=" + devKeyName + ";SharedAccessKey=<the key of " + devKeyName + ">;", false},
		"the second manages": {[]policy{sends, manages}, "",
			"SharedAccessKeyName=boss;SharedAccessKey=<the key of boss>;", false},
		"the well-known key": {nil, "", "SharedAccessKeyName=" + devKeyName + ";SharedAccessKey=" + devKey + ";", false},
		"none manages":       {[]policy{sends}, "", "SharedAccessKeyName=app;SharedAccessKey=<the key of app>;", true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Dev: true, RootKey: tc.root, Policies: tc.policies}
			_ = cfg.resolve() // of what else is missing; the policies are there
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			n := &node{cfg: cfg, doors: &doors{ops: listener, clients: []door{{listener: listener}}}}
			out := strings.Join(n.greeting(time.Second), "\n")
			if !strings.Contains(out, tc.want) {
				t.Errorf("got %s\nwant %s", out, tc.want)
			}
			if warned := strings.Contains(out, "\nWARNING: no access key manages this node."); warned != tc.warned {
				t.Errorf("got %s", out)
			}
		})
	}
}
