package transport

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// A node that leaves the cluster gives the sessions of its clients back and tells them to go elsewhere, by a close that
// their SDKs answer with a new connection. Who comes all the same is told so, too, until the node stays. S-295.
func TestANodeThatLeavesSendsItsClientsAway(t *testing.T) {
	ts := startServer(t, 1)
	d := ts.broker.queue("orders", withSessions)
	ts.broker.queue("plain")
	held := mustAccept(t, newSession(t, dial(t, ts)), "orders", "s1")
	waits := make(chan *http.Response, 1)
	go func() { waits <- ts.curl(t, "DELETE", "/plain/messages/head", "") }()
	ts.broker.await(t, "Lock", 1)

	if err := ts.SendAway(testContext(t)); err != nil {
		t.Fatal(err)
	}
	want(t, <-waits, 204)
	if _, err := held.Receive(testContext(t), nil); !isForced(err) {
		t.Errorf("the holder of a session was told %v", err)
	}
	if conns := ts.Stats().Connections.Load(); conns != 0 {
		t.Errorf("%d connections are left", conns)
	}
	out, err := ts.broker.Propose(testContext(t), fsm.RequestID{Node: 9, Pump: 1, Counter: 1},
		waist.ShareKey(d, fsm.Main, 0), &fsm.AcceptSession{ID: "s1"})
	if err != nil || out.Refusal != fsm.None {
		t.Errorf("somebody else asks for the session: %v %v", out.Refusal, err)
	}

	late, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
	if err == nil { // the close came behind the open
		select {
		case <-late.Done():
			err = late.Err()
		case <-testContext(t).Done():
		}
	}
	if !isForced(err) {
		t.Errorf("a client that comes all the same was told %v", err)
	}
	res := want(t, ts.curl(t, "POST", "/plain/messages", "x"), 503)
	if text := textBody(t, res); !strings.Contains(text, "This node leaves the cluster. Send the request to another node.") {
		t.Errorf("a request over HTTP was told %s", text)
	}
	if !res.Close {
		t.Error("the connection of the request stays open")
	}

	ts.TakeBack()
	want(t, ts.curl(t, "POST", "/plain/messages", "x"), 201)
	want(t, ts.curl(t, "DELETE", "/plain/messages/head", ""), 200)
	mustAccept(t, newSession(t, dial(t, ts)), "orders", "s2")
}

func isForced(err error) bool {
	var conn *goamqp.ConnError
	var told *goamqp.Error
	if errors.As(err, &conn) {
		told = conn.RemoteErr
	}
	return (told != nil || errors.As(err, &told)) && told.Condition == goamqp.ErrCondConnectionForced
}

// The clients of a node that leaves end one after the other. They are not without a connection all at once, and do not
// come to the other nodes all at once.
func TestClientsAreSentAwayOneAfterTheOther(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		over   time.Duration // of LeaveOver
		bound  time.Duration // of the context, 0 for none
		conns  int
		gone   int // of them, that have ended by themselves
		pause  time.Duration
		cancel time.Duration // after which the context ends, 0 for never
		last   time.Duration // when the last one is asked to end
	}{
		"at once":             {conns: 40},
		"one":                 {over: 10 * time.Second, conns: 1},
		"few":                 {over: 10 * time.Second, conns: 5, pause: leavePause, last: 4 * leavePause},
		"many":                {over: 10 * time.Second, conns: 101, pause: 100 * ms, last: 10 * time.Second},
		"many with a bound":   {over: 10 * time.Second, bound: 4 * time.Second, conns: 101, pause: 20 * ms, last: 2 * time.Second},
		"some gone":           {over: 10 * time.Second, conns: 5, gone: 2, pause: leavePause, last: 2 * leavePause},
		"the time is up":      {over: 10 * time.Second, conns: 101, pause: 100 * ms, cancel: 50 * ms, last: 50 * ms},
		"the bound is passed": {over: 10 * time.Second, bound: -time.Second, conns: 101},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{ctx: t.Context()}
				if tc.over > 0 {
					s.cfg.LeaveOver = func() time.Duration { return tc.over }
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.bound != 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.bound)
					defer cancel()
				}
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				began := time.Now()
				var conns []*conn
				ends := make(chan time.Duration, tc.conns)
				for i := range tc.conns {
					c := &conn{stop: make(chan struct{}), done: make(chan struct{}), mail: mailbox{taken: true}}
					if conns = append(conns, c); i < tc.gone {
						close(c.done)
						continue
					}
					go func() {
						<-c.stop
						ends <- time.Since(began)
					}()
				}
				s.spreadEnds(ctx, conns)
				for i := range tc.conns - tc.gone {
					want := time.Duration(i) * tc.pause
					if tc.cancel > 0 {
						want = min(want, tc.cancel)
					}
					if got := <-ends; got != want {
						t.Errorf("connection %d was asked to end after %v, want %v", i, got, want)
					}
				}
				if got := time.Since(began); got != tc.last {
					t.Errorf("all were asked after %v, want %v", got, tc.last)
				}
			})
		})
	}
}
