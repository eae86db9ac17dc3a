package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
)

// F6: whose name a host or origin can be.
func TestNamesOfStrangers(t *testing.T) {
	g := newHostGuard(Config{NodeName: "N1", Advertise: "a.example.net", AllowedHosts: list{"console.example.net"}})
	for text, own := range map[string]bool{
		"127.0.0.1:5300": true, "[::1]:5300": true, "::1": true, "10.1.2.3": true, "localhost": true, "LOCALHOST:5300": true,
		"busbar": true, "busbar:5672": true, "n1:5300": true, "a.example.net:5300": true, "A.Example.net.": true,
		"console.example.net": true, "busbar-0.busbar.ns.svc": true, "busbar.localhost": true, "node.internal": true,
		"mine.servicebus.windows.net:443": true, "servicebus.windows.net.evil.example": false,
		"rebind.evil.example": false, "rebind.evil.example:5300": false, "example.net": false, "svc.evil.example": false,
		"127.0.0.1.evil.example": false, "b.a.example.net": false, "localhost.evil.example:5300": false,
	} {
		if got := g.own(text); got != own {
			t.Errorf("%s: own %t, want %t", text, got, own)
		}
	}
}

// F6: a page whose name resolves to a development node gets nothing from any of its ports, by no method; nor does the
// page of another site, over WebSocket either. Tools and the pages of the node itself do.
func TestPagesOfStrangersGetNothing(t *testing.T) {
	l := openLive(t, nodeConfig(t, func(c *Config) { c.NodeName = "n1" }))
	const stranger = "rebind.evil.example"
	ask := func(addr, method, path string, header http.Header, host string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header, r.Host = header, host
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	for _, c := range []struct{ method, path string }{
		{"GET", "/api/cluster"}, {"POST", "/api/reset"}, {"POST", client.AuditPath}, {"GET", "/metrics"}, {"GET", "/readyz"},
	} {
		if status, text := ask(l.opsHost(), c.method, c.path, http.Header{}, stranger); status != 403 || !strings.Contains(text, "allowed-hosts") {
			t.Errorf("%s %s as %s: %d %s", c.method, c.path, stranger, status, text)
		}
		if status, text := ask(l.opsHost(), c.method, c.path, http.Header{"Origin": {"https://evil.example"}}, "localhost"); status != 403 {
			t.Errorf("%s %s of another origin: %d %s", c.method, c.path, status, text)
		}
	}
	for _, host := range []string{l.opsHost(), "localhost", "n1"} {
		if status, text := ask(l.opsHost(), "GET", "/api/cluster", http.Header{}, host); status != 200 {
			t.Errorf("as %s: %d %s", host, status, text)
		}
	}
	if status, _ := ask(l.host, "GET", "/$Resources/queues", http.Header{}, stranger); status != 403 {
		t.Errorf("management as %s: %d", stranger, status)
	}
	if status, _ := ask(l.host, "GET", "/$Resources/queues", http.Header{}, l.host); status != 401 {
		t.Errorf("management without a token: %d", status)
	}
	for origin, want := range map[string]bool{"": true, "http://localhost:3000": true, "https://evil.example": false} {
		ws, res, err := websocket.Dial(t.Context(), "ws://"+l.host+"/$servicebus/websocket",
			&websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPHeader: http.Header{"Origin": {origin}}})
		if (err == nil) != want {
			t.Errorf("WebSocket of %q: %v", origin, err)
		}
		if err == nil {
			_ = ws.CloseNow()
		} else if res == nil || res.StatusCode != 403 {
			t.Errorf("WebSocket of %q: %v", origin, res)
		}
	}
}

// F6: a node for others refuses browsers under a stranger's name, and lets monitors use any.
func TestANodeForOthersLetsMonitorsUseAnyName(t *testing.T) {
	g := newHostGuard(Config{NodeName: "n1"})
	for _, c := range []struct {
		header http.Header
		ok     bool
	}{
		{http.Header{"User-Agent": {"Prometheus/3.1"}}, true},
		{http.Header{"User-Agent": {"Mozilla/5.0"}}, false},
		{http.Header{"Origin": {"https://evil.example"}}, false},
		{http.Header{"Sec-Fetch-Site": {"same-origin"}}, false},
	} {
		r := &http.Request{Host: "ops.example.net", Header: c.header}
		if err := g.check(r); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.header, err)
		}
	}
}
