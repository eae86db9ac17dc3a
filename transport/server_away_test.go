package transport

import (
	"errors"
	"net/http"
	"strings"
	"testing"

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
