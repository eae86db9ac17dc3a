package transport

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/transport/auth"
)

// changePolicy gives a policy of the namespace another key or other rights, or removes it.
func changePolicy(t *testing.T, ts *testServer, name string, edit func(*auth.Policy) bool) {
	t.Helper()
	var all []auth.Policy
	for _, p := range namespacePolicies() {
		if p.Name != name || edit(&p) {
			all = append(all, p)
		}
	}
	if err := ts.policies.Replace("", all...); err != nil {
		t.Fatal(err)
	}
}

// A connection that authenticates more audiences than it may keeps the newest ones, and loses the oldest alone.
func TestTheOldestTokenMakesRoom(t *testing.T) {
	const most = 4
	ts := startServer(t, 1, func(c *Config) { c.MaxTokens = most })
	conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range most + 2 {
		name := fmt.Sprint("q", i)
		ts.broker.queue(name)
		if code := putToken(t, conn, "amqp://"+ts.addr+"/"+name, "listener"); code != 202 {
			t.Fatalf("put-token: %d", code)
		}
		if i == 2 { // a token that is renewed is a new one
			putToken(t, conn, "amqp://"+ts.addr+"/q0", "listener")
		}
	}
	session := newSession(t, conn)
	for i, opens := range []bool{true, false, false, true, true, true} {
		_, err := session.NewReceiver(testContext(t), fmt.Sprint("q", i), nil)
		if opens && err != nil || !opens && !isCondition(err, goamqp.ErrCondUnauthorizedAccess) {
			t.Errorf("q%d: %v", i, err)
		}
	}
}

// F8: a policy whose key is changed, whose rights are reduced, or which is removed, ends the links that it opened,
// and no other.
func TestAChangedPolicyEndsItsLinks(t *testing.T) {
	for name, edit := range map[string]func(*auth.Policy) bool{
		"another key":  func(p *auth.Policy) bool { p.Primary = "another"; return true },
		"fewer rights": func(p *auth.Policy) bool { p.Rights = auth.Send; return true },
		"removed":      func(*auth.Policy) bool { return false },
	} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, PLAIN %t", name, plain), func(t *testing.T) {
				ts := startServer(t, 1, func(c *Config) { c.WatchInterval = 20 * time.Millisecond })
				ts.broker.queue("orders")
				how := goamqp.SASLTypeAnonymous()
				if plain {
					how = goamqp.SASLTypePlain("listener", testKey)
				}
				conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: how})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if !plain {
					if code := putToken(t, conn, "amqp://"+ts.addr+"/orders", "listener"); code != 202 {
						t.Fatalf("put-token: %d", code)
					}
				}
				rx := newReceiver(t, newSession(t, conn), "orders")
				other := newSession(t, dial(t, ts))
				stays, tx := newReceiver(t, other, "orders"), newSender(t, other, "orders")
				changePolicy(t, ts, "listener", edit)
				_, err = rx.Receive(testContext(t), nil)
				if !isCondition(err, goamqp.ErrCondUnauthorizedAccess) || !strings.Contains(err.Error(), "access policy") {
					t.Errorf("receiver: %v", err)
				}
				if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
					t.Errorf("the sender of another policy: %v", err)
				}
				if err := stays.IssueCredit(1); err != nil {
					t.Fatal(err)
				}
				receive(t, stays, 1)
				if plain {
					return
				}
				if code := putToken(t, conn, "amqp://"+ts.addr+"/orders", "listener"); (code == 202) != (name == "fewer rights") {
					t.Errorf("put-token after it: %d", code)
				}
			})
		}
	}
}

// F8: a policy that is only written again, or that gets a second key, ends nothing.
func TestAPolicyThatStaysEndsNothing(t *testing.T) {
	ts := startServer(t, 1, func(c *Config) { c.WatchInterval = 5 * time.Millisecond })
	ts.broker.queue("orders")
	session := newSession(t, dial(t, ts))
	rx, tx := newReceiver(t, session, "orders"), newSender(t, session, "orders")
	for i := range 5 {
		changePolicy(t, ts, testPolicy, func(p *auth.Policy) bool {
			p.Secondary = auth.Secret(fmt.Sprint("second ", i))
			return true
		})
		time.Sleep(10 * time.Millisecond)
	}
	if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
		t.Fatal(err)
	}
	if err := rx.IssueCredit(1); err != nil {
		t.Fatal(err)
	}
	receive(t, rx, 1)
}

// F7: the right on a transfer destination holds as long as the link, not only when it is attached.
func TestADestinationIsCheckedAgain(t *testing.T) {
	ts := startServer(t, 1, func(c *Config) { c.WatchInterval = 20 * time.Millisecond })
	ts.broker.queue("via")
	ts.broker.queue("destination")
	conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for entity, policy := range map[string]string{"via": testPolicy, "destination": "sender"} {
		if code := putToken(t, conn, "amqp://"+ts.addr+"/"+entity, policy); code != 202 {
			t.Fatalf("put-token: %d", code)
		}
	}
	tx, err := newSession(t, conn).NewSender(testContext(t), "via",
		&goamqp.SenderOptions{Properties: map[string]any{transferDestination: "destination"}})
	if err != nil {
		t.Fatal(err)
	}
	changePolicy(t, ts, "sender", func(*auth.Policy) bool { return false })
	waitFor(t, func() (struct{}, error) {
		err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil)
		if !isCondition(err, goamqp.ErrCondUnauthorizedAccess) {
			return struct{}{}, fmt.Errorf("send: %v", err)
		}
		return struct{}{}, nil
	})
}

// F7: who puts bad tokens in a loop, with audiences of 60 KB, writes few and short lines to the log.
func TestRefusedTokensDoNotFillTheLog(t *testing.T) {
	text := &keptLog{}
	now := time.Now()
	ts := startAt(t, hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: text}), func() time.Time { return now }, 1)
	conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session := newSession(t, conn)
	for i := range 100 {
		resp := ask(t, session, "$cbs", "reply", &goamqp.Message{
			Value: "no token",
			ApplicationProperties: map[string]any{"operation": "put-token", "type": "jwt",
				"name": fmt.Sprintf("sb://localhost/%d%s", i, strings.Repeat("a\n", 30_000))},
		})
		if code := resp.ApplicationProperties["status-code"]; code != int32(401) {
			t.Fatalf("put-token: %v", code)
		}
	}
	text.mu.Lock()
	defer text.mu.Unlock()
	all := strings.Split(strings.TrimSpace(text.b.String()), "\n")
	refused := 0
	for _, line := range all {
		if len(line) > 4<<10 {
			t.Errorf("a line of %d bytes", len(line))
		}
		if strings.Contains(line, "refused") {
			refused++
		}
	}
	if refused != 50 { // that many at once, and one in each second after them: here none goes by
		t.Errorf("%d lines of refusals, want 50", refused)
	}
}

// F7: a request that is refused holds its socket for seconds only, whatever body it announces.
func TestARefusedBodyIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1)
		defer b.close()
		near, far := net.Pipe()
		if !b.in.offer(far) {
			t.Fatal("server is closed")
		}
		defer near.Close()
		began := time.Now()
		if _, err := io.WriteString(near, "POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(near)
		if err != nil || !bytes.HasPrefix(answer, []byte(fmt.Sprintf("HTTP/1.1 %d ", http.StatusUnauthorized))) {
			t.Errorf("got %q, %v", answer, err)
		}
		if took := time.Since(began); took > 2*httpRefusedBody {
			t.Errorf("the socket was held for %v", took)
		}
	})
}
