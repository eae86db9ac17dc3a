package transport

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// webClient speaks HTTP over a pipe to a server in a bubble.
type webClient struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (b *bubble) web() *webClient {
	b.t.Helper()
	near, far := net.Pipe()
	if !b.in.offer(far) {
		b.t.Fatal("server is closed")
	}
	b.t.Cleanup(func() { near.Close() })
	return &webClient{t: b.t, conn: near, r: bufio.NewReader(near)}
}

// ask sends a request without a body and returns the status, 0 if the server has closed the socket.
func (w *webClient) ask(method, path, token string) int {
	w.t.Helper()
	status := w.answer(method, path, token)
	synctest.Wait() // the server takes the socket for idle now
	return status
}

// answer is ask for a goroutine beside the test's.
func (w *webClient) answer(method, path, token string) int {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n", method, path)
	if token != "" {
		head += "Authorization: " + token + "\r\n"
	}
	if _, err := io.WriteString(w.conn, head+"\r\n"); err != nil {
		return 0
	}
	res, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		w.t.Error(err)
	}
	return res.StatusCode
}

// ended waits for the server to close the socket and returns how long that took.
func (w *webClient) ended() time.Duration {
	w.t.Helper()
	began := time.Now()
	if b, err := io.ReadAll(w.r); err != nil && len(b) > 0 {
		w.t.Fatalf("got %q, %v", b, err)
	}
	return time.Since(began)
}

// F1: a socket that speaks HTTP counts as long as it is open. Without a valid token it is closed soon, whether it is
// silent, asks for nothing it may have, or asks again and again; with one it stays.
func TestHTTPSocketsCountAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1)
		defer b.close()
		b.broker.queue("orders")
		used := func(total, strangers int) {
			t.Helper()
			synctest.Wait()
			if n, s := b.server.sockets.Used(); n != total || s != strangers {
				t.Errorf("%d sockets, %d strangers, want %d and %d", n, s, total, strangers)
			}
		}
		half := b.web()
		if _, err := io.WriteString(half.conn, "GET / HT"); err != nil {
			t.Fatal(err)
		}
		used(1, 1)
		refused := b.web()
		if status := refused.ask("DELETE", "/orders/messages/head", ""); status != 401 {
			t.Fatalf("without a token: %d", status)
		}
		used(2, 2)
		client := b.web()
		token := httpToken(testPolicy, "http://localhost/")
		if status := client.ask("POST", "/orders/messages", token); status != 201 {
			t.Fatalf("with a token: %d", status)
		}
		used(3, 2)
		if took := half.ended(); took > b.server.cfg.AuthTimeout {
			t.Errorf("half a request was waited for %v", took)
		}
		if took := refused.ended(); took > b.server.cfg.AuthTimeout {
			t.Errorf("a refused client stayed %v", took)
		}
		used(1, 0)
		time.Sleep(time.Minute)
		if status := client.ask("POST", "/orders/messages", token); status != 201 {
			t.Errorf("a minute later: %d", status)
		}
		if took := client.ended(); took != httpIdleTimeout {
			t.Errorf("an idle client stayed %v", took)
		}
		used(0, 0)
	})
}

// management-api.md section 6: a receive over HTTP waits as long as it asked for, and gives what arrives meanwhile. A send
// may take as long, behind a body that has arrived.
func TestAReceiveOverHTTPWaitsAsLongAsItAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1)
		defer b.close()
		b.broker.queue("orders")
		token := httpToken(testPolicy, "http://localhost/")
		for _, c := range []struct {
			query  string
			wait   time.Duration // that the request may take
			send   time.Duration // when a message comes, 0 for none
			status int
		}{
			{"", httpWait, 0, 204}, {"?timeout=100", 100 * time.Second, 0, 204}, {"?timeout=599.5", 599500 * time.Millisecond, 0, 204},
			{"?timeout=9999", httpMaxWait, 0, 204}, {"?timeout=300", 4 * time.Minute, 4 * time.Minute, 200},
		} {
			for _, method := range []string{"DELETE", "POST"} {
				w := b.web()
				began := time.Now()
				if c.send > 0 {
					time.AfterFunc(c.send, func() {
						if got := b.web().answer("POST", "/orders/messages", token); got != 201 {
							t.Errorf("a send meanwhile: %d", got)
						}
					})
				}
				want := c.status
				if want == 200 && method == "POST" {
					want = 201
				}
				if got := w.ask(method, "/orders/messages/head"+c.query, token); got != want || time.Since(began) != c.wait {
					t.Errorf("%s%s: %d after %v, want %d after %v", method, c.query, got, time.Since(began), want, c.wait)
				}
			}
		}
	})
}

// A socket is no stranger's from the moment when its token is accepted: an answer may wait for the cluster. A success for
// which no token was asked, like the list of a namespace that the public sees, keeps no socket open.
func TestAnAcceptedTokenGivesTheTimeOfAnAnswer(t *testing.T) {
	for _, c := range []struct {
		name     string
		accepted bool
		pause    time.Duration // of the handler
		answered bool
	}{
		{"a slow answer behind an accepted token comes", true, 50 * time.Second, true},
		{"a slow answer without an accepted token does not", false, 50 * time.Second, false},
		{"a success without an accepted token keeps no socket open", false, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, 1)
				defer b.close()
				b.server.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.accepted {
						Known(r)
					}
					time.Sleep(c.pause)
					w.WriteHeader(http.StatusNoContent)
				})
				client := b.web()
				if got := client.ask("GET", "/$Resources/Queues", ""); (got == 204) != c.answered {
					t.Errorf("answered %d, 0 is a closed socket", got)
				}
				if _, strangers := b.server.sockets.Used(); (strangers == 1) == c.accepted {
					t.Errorf("%d strangers", strangers)
				}
				want := httpIdleTimeout
				if !c.accepted {
					want = max(0, b.server.cfg.AuthTimeout-c.pause)
				}
				if took := client.ended(); took != want {
					t.Errorf("the socket stayed %v, want %v", took, want)
				}
				time.Sleep(c.pause) // the handler ends
			})
		})
	}
}

// F1: sockets that speak HTTP have the same limits as others: strangers cannot take the places of clients, and idle
// clients make room.
func TestHTTPSocketsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1, func(c *Config) {
			c.MaxConnections, c.MaxConnectionsPerHost, c.MaxHandshakes, c.MaxHandshakesPerHost = 6, 6, 3, 3
		})
		defer b.close()
		b.broker.queue("orders")
		for i := range 50 {
			w := b.web()
			if _, err := io.WriteString(w.conn, "GET "); i >= 3 && err == nil {
				t.Errorf("stranger %d got in", i)
			}
		}
		synctest.Wait()
		if n, s := b.server.sockets.Used(); n != 3 || s != 3 {
			t.Fatalf("%d sockets, %d strangers", n, s)
		}
		time.Sleep(b.server.cfg.AuthTimeout + b.server.cfg.HandshakeTimeout)
		token := httpToken(testPolicy, "http://localhost/")
		var clients []*webClient
		for range 10 {
			w := b.web()
			if status := w.ask("POST", "/orders/messages", token); status != 201 {
				t.Fatalf("client %d: %d", len(clients), status)
			}
			clients = append(clients, w)
		}
		synctest.Wait()
		if n, s := b.server.sockets.Used(); n != 6 || s != 0 {
			t.Errorf("%d sockets, %d strangers", n, s)
		}
		for i, w := range clients {
			if status := w.ask("POST", "/orders/messages", token); (status == 201) != (i >= 4) {
				t.Errorf("client %d afterwards: %d", i, status)
			}
		}
		c := b.client() // the socket that has been idle longest makes room for AMQP
		c.open("ANONYMOUS")
		if status := clients[4].ask("POST", "/orders/messages", token); status != 0 {
			t.Errorf("the client that was idle longest: %d", status)
		}
		c.close()
	})
}

// F1: a WebSocket is one socket, not two.
func TestAWebSocketIsOneSocket(t *testing.T) {
	ts := startServer(t, 1)
	c, err := net.Dial("tcp", ts.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET "+websocketPath+" HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, "101") {
		t.Fatalf("got %q, %v", line, err)
	}
	if n, s := ts.sockets.Used(); n != 1 || s != 1 {
		t.Errorf("%d sockets, %d strangers", n, s)
	}
	c.Close()
	waitFor(t, func() (struct{}, error) {
		if n, s := ts.sockets.Used(); n != 0 || s != 0 {
			return struct{}{}, fmt.Errorf("%d sockets, %d strangers are left", n, s)
		}
		return struct{}{}, nil
	})
}

// A connection ends behind a request with chunks, as net/http hides whether it had a length too (RFC 9112 section 6.1).
// Behind one with a length it stays.
func TestAConnectionEndsBehindChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1)
		defer b.close()
		b.broker.queue("orders")
		token := httpToken(testPolicy, "http://localhost/orders")
		for name, tc := range map[string]struct {
			framing string
			ends    bool
		}{
			"a length":            {"Content-Length: 0\r\n\r\n", false},
			"chunks":              {"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true},
			"a length and chunks": {"Content-Length: 400\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true},
		} {
			w := b.web()
			_, err := io.WriteString(w.conn, "POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: "+token+"\r\n"+tc.framing)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(w.r, nil)
			if err != nil || res.StatusCode != http.StatusCreated || res.Close != tc.ends {
				t.Fatalf("%s: %+v, %v; want 201, close %t", name, res, err, tc.ends)
			}
			res.Body.Close()
			if got := w.ask("DELETE", "/orders/messages/head", token); got != 0 && tc.ends || got != http.StatusOK && !tc.ends {
				t.Errorf("%s: a request behind it is answered %d", name, got)
			}
		}
	})
}
