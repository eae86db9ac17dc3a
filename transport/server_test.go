package transport

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/coder/websocket"

	"github.com/busbar-mq/busbar/transport/auth"
)

// selfSigned makes a certificate for 127.0.0.1.
func selfSigned(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, pool
}

// listenTLS adds a TLS listener to a server.
func listenTLS(t *testing.T, ts *testServer) (addr string, pool *x509.CertPool) {
	t.Helper()
	conf, pool := selfSigned(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- ts.Serve(l, conf) }()
	t.Cleanup(func() {
		if err := ts.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), pool
}

// sendAndReceive proves that a connection works.
func sendAndReceive(t *testing.T, conn *goamqp.Conn, queue string) {
	t.Helper()
	session := newSession(t, conn)
	tx, rx := newSender(t, session, queue), newReceiver(t, session, queue)
	if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
		t.Fatal(err)
	}
	if err := rx.AcceptMessage(testContext(t), receive(t, rx, 1)[0]); err != nil {
		t.Fatal(err)
	}
}

// A12: AMQP, HTTP and WebSocket share a port, with TLS and without.
func TestOnePortSpeaksEverything(t *testing.T) {
	ts := startServer(t, 1)
	ts.http.Handler = ts.withWebSocket(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "tls=%t path=%s", r.TLS != nil, r.URL.Path)
	}))
	ts.broker.queue("orders")
	addr, pool := listenTLS(t, ts)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		at, scheme, amqpScheme := ts.addr, "http", "amqp"
		if secure {
			at, scheme, amqpScheme = addr, "https", "amqps"
		}
		t.Run(name+" http", func(t *testing.T) {
			resp, err := client.Get(scheme + "://" + at + "/$Resources")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if want := fmt.Sprintf("tls=%t path=/$Resources", secure); err != nil || string(body) != want {
				t.Errorf("got %q, %v", body, err)
			}
		})
		t.Run(name+" amqp", func(t *testing.T) {
			conn, err := goamqp.Dial(testContext(t), amqpScheme+"://"+at, &goamqp.ConnOptions{
				SASLType: goamqp.SASLTypePlain(testPolicy, testKey), TLSConfig: &tls.Config{RootCAs: pool},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			sendAndReceive(t, conn, "orders")
		})
		for _, protocol := range subprotocols() { // G21
			for _, slash := range []string{"", "/"} {
				t.Run(name+" websocket "+protocol+slash, func(t *testing.T) {
					ws, _, err := websocket.Dial(testContext(t), scheme+"://"+at+"/$servicebus/websocket"+slash, &websocket.DialOptions{
						Subprotocols: []string{protocol}, HTTPClient: client,
					})
					if err != nil {
						t.Fatal(err)
					}
					if ws.Subprotocol() != protocol {
						t.Errorf("subprotocol %q", ws.Subprotocol())
					}
					stream := websocket.NetConn(context.Background(), ws, websocket.MessageBinary)
					conn, err := goamqp.NewConn(testContext(t), stream, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain(testPolicy, testKey)})
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					sendAndReceive(t, conn, "orders")
				})
			}
		}
	}
	t.Run("a websocket without a known subprotocol is turned away", func(t *testing.T) {
		ws, _, err := websocket.Dial(testContext(t), "http://"+ts.addr+"/$servicebus/websocket", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		if _, _, err := ws.Read(testContext(t)); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("got %v", err)
		}
	})
	t.Run("plain bytes on the TLS port are turned away", func(t *testing.T) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("AMQP\x00\x01\x00\x00")); err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(c); len(b) != 0 {
			t.Errorf("got %q", b)
		}
		if n := ts.stats.Rejected[sitePlainOnTLS].Load(); n != 1 {
			t.Errorf("counted %d", n)
		}
	})
	t.Run("a TLS client on the plain port is turned away", func(t *testing.T) {
		if _, err := tls.Dial("tcp", ts.addr, &tls.Config{RootCAs: pool}); err == nil {
			t.Error("it got through")
		}
		if n := ts.stats.Rejected[siteTLSOnPlain].Load(); n != 1 {
			t.Errorf("counted %d", n)
		}
	})
}

// A thousand clients of all kinds come and go, some in mid-sentence; nothing stays behind.
func TestNothingStaysBehindAThousandConnections(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("clients", func(t *testing.T) {
		ts := startServer(t, 1)
		ts.broker.queue("orders")
		ts.broker.queue("grouped", withSessions)
		var wg sync.WaitGroup
		for worker := range 10 {
			wg.Go(func() {
				for i := range 100 {
					if err := comeAndGo(t, ts, worker*100+i); err != nil {
						t.Errorf("client %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		waitFor(t, func() (bool, error) {
			ts.mu.Lock()
			conns := len(ts.conns)
			ts.mu.Unlock()
			sockets, strangers := ts.sockets.Used()
			ts.watcher.mu.Lock()
			watched := len(ts.watcher.entities)
			ts.watcher.mu.Unlock()
			if links := ts.stats.Links.Load(); conns+sockets+strangers+watched != 0 || links != 0 {
				return false, fmt.Errorf("%d connections, %d sockets, %d strangers, %d entities, %d links are left",
					conns, sockets, strangers, watched, links)
			}
			return true, nil
		})
		if n := ts.stats.Rejected[sitePanic].Load(); n != 0 {
			t.Errorf("%d panics", n)
		}
	})
	waitFor(t, func() (bool, error) {
		if now := runtime.NumGoroutine(); now > before {
			buf := make([]byte, 1<<16)
			return false, fmt.Errorf("%d goroutines, %d before\n%s", now, before, buf[:runtime.Stack(buf, true)])
		}
		return true, nil
	})
}

// comeAndGo is the life of one client; n decides how far it gets and how it leaves.
func comeAndGo(t *testing.T, ts *testServer, n int) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var d net.Dialer
	socket, err := d.DialContext(ctx, "tcp", ts.addr)
	if err != nil {
		return err
	}
	defer socket.Close()
	if n%5 == 0 { // leaves in the handshake
		_, err := io.WriteString(socket, "AMQP\x03\x01\x00\x00"[:n/5%8+1])
		return err
	}
	conn, err := goamqp.NewConn(ctx, socket, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain(testPolicy, testKey)})
	if err != nil {
		return err
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	if n%5 >= 2 {
		tx, err := session.NewSender(ctx, "orders", nil)
		if err != nil {
			return err
		}
		if err := tx.Send(ctx, goamqp.NewMessage([]byte("x")), nil); err != nil {
			return err
		}
	}
	if n%5 >= 3 {
		rx, err := session.NewReceiver(ctx, "orders", &goamqp.ReceiverOptions{Credit: -1})
		if err != nil {
			return err
		}
		if err := rx.IssueCredit(2); err != nil {
			return err
		}
		if _, err := rx.Receive(ctx, nil); err != nil {
			return err
		}
		if _, err := session.NewReceiver(ctx, "grouped", &goamqp.ReceiverOptions{
			Filters: []goamqp.LinkFilter{goamqp.NewLinkFilter("com.microsoft:session-filter", 0x137000000C, fmt.Sprint(n))},
		}); err != nil {
			return err
		}
	}
	if n%5 == 4 {
		return nil // the socket just goes
	}
	return conn.Close()
}

// Limits on strangers hold, and free places are given again.
func TestStrangersAreLimited(t *testing.T) {
	ts := startServer(t, 1, func(c *Config) { c.MaxHandshakesPerHost = 3 })
	var held []net.Conn
	dialRaw := func() net.Conn {
		c, err := net.Dial("tcp", ts.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "AMQP\x03\x01\x00\x00"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range 3 {
		c := dialRaw()
		if _, err := bufio.NewReader(c).ReadByte(); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	if b, err := io.ReadAll(dialRaw()); len(b) != 0 {
		t.Errorf("a fourth got %q, %v", b, err)
	}
	held[0].Close()
	waitFor(t, func() (byte, error) { return bufio.NewReader(dialRaw()).ReadByte() })
}

// The names under which clients know an entity are one entity.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]address{
		"orders":                               {entity: "orders"},
		"/orders":                              {entity: "orders"},
		"amqps://ns.example:5671/a/b%2Fc/":     {entity: "a/b/c"},
		"orders/$management":                   {entity: "orders", management: true},
		"sb://ns/orders/$Management":           {entity: "orders", management: true},
		"orders/$deadletterqueue":              {entity: "orders", sub: 1},
		"/t/Subscriptions/s/$DeadLetterQueue":  {entity: "t/Subscriptions/s", sub: 1},
		"q/$Transfer/$DeadLetterQueue":         {entity: "q", sub: 2},
		"q/$DeadLetterQueue/$management":       {entity: "q", sub: 1, management: true},
		"$cbs":                                 {cbs: true},
		"amqp://localhost":                     {},
		"amqp://localhost/orders?timeout=5":    {entity: "orders"},
		"q/$Transfer":                          {entity: "q/$Transfer"},
		"$management":                          {management: true},
		strings.Repeat("/", 5):                 {},
		"amqps://ns/%E4%BD%A0":                 {entity: "你"},
		"sb://ns/orders/$DeadLetterQueue/more": {entity: "orders/$DeadLetterQueue/more"},
	} {
		if got := parseAddress(text); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
}

// S-1: nobody's key shows up in what a client or the log hears.
func TestABadTokenIsNotRepeated(t *testing.T) {
	ts := startServer(t, 1)
	conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bad := auth.NewToken("amqp://"+ts.addr+"/orders", testPolicy, "another key", time.Now().Add(time.Hour))
	resp := ask(t, newSession(t, conn), "$cbs", "reply", &goamqp.Message{
		Value: bad, ApplicationProperties: map[string]any{"operation": "put-token", "type": "jwt", "name": "amqp://" + ts.addr + "/orders"},
	})
	if code := resp.ApplicationProperties["status-code"]; code != int32(401) {
		t.Errorf("code %v", code)
	}
	if text, _ := resp.ApplicationProperties["status-description"].(string); strings.Contains(text, "sig=") || !strings.Contains(text, "TrackingId:") {
		t.Errorf("text %q", text)
	}
}
