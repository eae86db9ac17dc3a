package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// F1: who floods the operations port with sockets that send nothing, half a request or half a body keeps no probe and
// no operator out, and takes no place of clients; nor do clients take one of the port.
func TestFloodsKeepNobodyFromTheOperationsPort(t *testing.T) {
	const places, clients = 4, 6
	l := openLive(t, nodeConfig(t, func(c *Config) {
		c.Limits.Operations, c.Limits.Connections, c.Limits.ConnectionsPerHost = places, clients, clients
		c.Limits.Unauthenticated, c.Limits.UnauthenticatedPerHost = clients, clients
	}))
	flood := func(host, send string, n int) {
		for range n {
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			_, _ = io.WriteString(c, send)
		}
	}
	flood(l.host, "", 10*clients)
	for name, send := range map[string]string{
		"silent sockets": "", "half a request": "GET /livez HTTP/1.1\r\nHost: localhost\r\n",
		"half a body": "POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
	} {
		flood(l.opsHost(), send, 10*places)
		if status, _ := l.probe(t, "/livez"); status != http.StatusOK {
			t.Errorf("%s: a probe is answered %d", name, status)
		}
	}
	_, metrics := l.probe(t, "/metrics")
	if strings.Contains(metrics, "busbar_rejections_total{site=\"operations\"} 0\n") || !strings.Contains(metrics, "busbar_rejections_total{site=\"operations\"} ") {
		t.Error("the metrics count no socket of the operations port that was turned away")
	}
	for _, want := range []string{fmt.Sprintf(`busbar_limit_max{limit="operations"} %d`, places),
		fmt.Sprintf(`busbar_limit_used{limit="operations"} %d`, places),
		fmt.Sprintf(`busbar_limit_used{limit="connections"} %d`, clients)} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics do not say %s", want)
		}
	}
}

// probe asks the operations port over a connection of its own, as a probe of Kubernetes does.
func (l *liveNode) probe(t *testing.T, path string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://"+l.opsHost()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
