package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/transport/sockets"
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
	flood(l.opsHost(), "", 10*places) // a socket with half a body may be closed when its request is answered
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

// A client of AMQP at the operations port is told so at once, and its socket is closed.
func TestTheOperationsPortTellsAClientOfAMQP(t *testing.T) {
	l := openLive(t, nodeConfig(t, nil))
	for _, header := range []string{"AMQP\x00\x01\x00\x00", "AMQP\x03\x01\x00\x00"} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.opsHost())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, header); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c) // ends when the node closes the socket
		if text := string(got); err != nil || !strings.HasPrefix(text, "HTTP/1.1 400 ") || !strings.Contains(text, "amqp-listen") {
			t.Errorf("%q: %q, %v", header, text, err)
		}
	}
}

// F1: a socket whose request is under way does not give way, with TLS as without, and one that is closed gives its place
// back.
func TestARequestUnderWayKeepsItsPlaceOnTheOperationsPort(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			register := sockets.New(sockets.Limits{Total: 1, PerHost: 1, Strangers: 1, StrangersPerHost: 1, Operations: 2})
			begun, end := make(chan struct{}), make(chan struct{})
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(begun)
					<-end
				}
			}))
			s.Listener = &opsListener{s.Listener, register}
			seatRequests(s.Config)
			if secure {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			get := func(path string) error {
				r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, s.URL+path, nil)
				if err != nil {
					return err
				}
				r.Close = true
				res, err := s.Client().Do(r)
				if err != nil {
					return err
				}
				return res.Body.Close()
			}
			slow := make(chan error, 1)
			go func() { slow <- get("/slow") }()
			<-begun
			for range 10 {
				c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
			}
			if err := get("/quick"); err != nil {
				t.Errorf("a request beside a flood: %v", err)
			}
			close(end)
			if err := <-slow; err != nil {
				t.Errorf("the request that was under way: %v", err)
			}
			s.CloseClientConnections()
			for range 60_000 {
				if register.UsedOperations() == 0 {
					return
				}
				time.Sleep(time.Millisecond)
			}
			t.Errorf("%d places are taken by sockets that are closed", register.UsedOperations())
		})
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
