package transport

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
)

// named connects a client that says what it is.
func named(t *testing.T, ts *testServer, container, product string) *goamqp.Conn {
	t.Helper()
	conn, err := goamqp.Dial(testContext(t), "amqp://"+ts.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous(),
		ContainerID: container, Properties: map[string]any{"product": product, "version": "1.2.3"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if code := putToken(t, conn, "amqp://"+ts.addr+"/", testPolicy); code != 202 {
		t.Fatalf("put-token: %d", code)
	}
	return conn
}

// Operators see who is connected, what for, and how much has passed.
func TestOperatorsSeeConnections(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	ts.broker.queue("grouped", withSessions)
	conn := named(t, ts, "shop-1", "shop")
	session := newSession(t, conn)
	tx, rx := newSender(t, session, "orders"), newReceiver(t, session, "orders")
	for range 3 {
		if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
			t.Fatal(err)
		}
	}
	got := receive(t, rx, 2)
	if err := rx.IssueCredit(5); err != nil { // one message is left
		t.Fatal(err)
	}
	if m, err := rx.Receive(testContext(t), nil); err != nil || rx.AcceptMessage(testContext(t), m) != nil {
		t.Fatal(err)
	}
	other := named(t, ts, "office", "Office")
	mustAccept(t, newSession(t, other), "grouped", "s1")

	all := ts.Connections(t.Context(), ConnectionFilter{})
	if len(all) != 2 || all[0].ID == all[1].ID {
		t.Fatalf("got %+v", all)
	}
	shop := all[0]
	if shop.Container != "shop-1" || shop.Product != "shop" || shop.Version != "1.2.3" || shop.Protocol != "amqp" || shop.State != "open" ||
		!strings.HasPrefix(shop.Remote, "127.0.0.1:") || len(shop.Policies) != 1 || shop.Policies[0] != testPolicy ||
		time.Since(shop.Since) > time.Minute {
		t.Errorf("the connection: %+v", shop)
	}
	if shop.MessagesIn != 3 || shop.MessagesOut != 3 || shop.BytesIn == 0 || shop.BytesOut == 0 || shop.Unsettled != len(got) || shop.OpenLinks != 2 {
		t.Errorf("what passed: %+v", shop)
	}
	want := []LinkView{
		{Role: "receiver", Entity: "orders", Mode: "peekLock", Credit: 4, Unsettled: 2, Messages: 3},
		{Role: "sender", Entity: "orders", Messages: 3},
	}
	for i, l := range shop.Links {
		if l.Name == "" || l.Role == "sender" && l.Credit == 0 {
			t.Errorf("a link: %+v", l)
		}
		if l.Name = ""; l.Role == "sender" {
			l.Credit = 0
		}
		if l != want[i] {
			t.Errorf("link %d: %+v, want %+v", i, l, want[i])
		}
	}
	if links := all[1].Links; len(links) != 1 || links[0].Session != "s1" || links[0].Entity != "grouped" {
		t.Errorf("a session: %+v", links)
	}
	for name, c := range map[string]struct {
		f    ConnectionFilter
		want int
	}{
		"by id":                  {ConnectionFilter{ID: shop.ID}, 1},
		"by another id":          {ConnectionFilter{ID: shop.ID + "0"}, 0},
		"by entity in any case":  {ConnectionFilter{Entity: "ORDERS"}, 1},
		"by half of an entity":   {ConnectionFilter{Entity: "order"}, 0},
		"by product in any case": {ConnectionFilter{Client: "OFF"}, 1},
		"by container":           {ConnectionFilter{Client: "shop-"}, 1},
		"by address":             {ConnectionFilter{Client: "127.0.0"}, 2},
		"by two that differ":     {ConnectionFilter{Client: "shop", Entity: "grouped"}, 0},
	} {
		if got := ts.Connections(t.Context(), c.f); len(got) != c.want {
			t.Errorf("%s: %d connections, want %d", name, len(got), c.want)
		}
	}
}

// Operators close a connection; its client is told why, and others stay.
func TestOperatorsCloseConnections(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	ts.broker.queue("archive")
	mine, other := named(t, ts, "a", "shop"), named(t, ts, "b", "shop")
	rx := newReceiver(t, newSession(t, mine), "orders")
	tx := newSender(t, newSession(t, other), "archive")
	if ids := ts.CloseConnections(t.Context(), ConnectionFilter{Entity: "orders"}); len(ids) != 1 {
		t.Fatalf("closed %v", ids)
	}
	_, err := rx.Receive(testContext(t), nil)
	var gone *goamqp.ConnError
	if !errors.As(err, &gone) || gone.RemoteErr == nil || gone.RemoteErr.Condition != goamqp.ErrCondConnectionForced ||
		!strings.HasPrefix(gone.RemoteErr.Description, dismissal) {
		t.Errorf("the client reads %v", err)
	}
	if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
		t.Errorf("the other client: %v", err)
	}
	eventually(t, "the connection goes", func() bool { return len(ts.Connections(t.Context(), ConnectionFilter{})) == 1 })
}

// A socket that is in its handshake has no loop yet. It is listed without delay for the others, and can be closed.
func TestASilentConnectionIsListed(t *testing.T) {
	ts := startServer(t, 1, func(c *Config) { c.HandshakeTimeout = time.Minute })
	socket, err := net.Dial("tcp", ts.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if _, err := socket.Write([]byte("AMQP\x03\x01\x00\x00")); err != nil {
		t.Fatal(err)
	}
	var all []ConnectionView
	eventually(t, "the socket is listed", func() bool {
		all = ts.Connections(t.Context(), ConnectionFilter{})
		return len(all) > 0
	})
	if all[0].State != stateSilent || all[0].Remote != socket.LocalAddr().String() {
		t.Errorf("got %+v", all[0])
	}
	if ids := ts.CloseConnections(t.Context(), ConnectionFilter{ID: all[0].ID}); len(ids) != 1 {
		t.Fatalf("closed %v", ids)
	}
	if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 64); err == nil; {
		_, err = socket.Read(b)
	}
	if errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the socket stays open: %v", err)
	}
}
