package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/cluster"
)

// maxIdleRSS is what a node may occupy that does nothing.
const maxIdleRSS = 80 << 20

// TestIdleNode reports how soon a node is ready and how much it holds.
func TestIdleNode(t *testing.T) {
	began := time.Now()
	n, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	t.Logf("ready %s after the start", time.Since(began).Round(time.Millisecond))
	time.Sleep(3 * time.Second) // what the start allocated is given back, or not
	rss, err := n.RSS()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("resident when idle: %.1f MiB", float64(rss)/(1<<20))
	if rss > maxIdleRSS {
		t.Errorf("an idle node holds %d bytes, want less than %d", rss, maxIdleRSS)
	}
}

// TestConnectionsLeaveNothing opens and closes a thousand connections, in good order and by tearing
// the socket, and waits until the broker has as many goroutines as before.
func TestConnectionsLeaveNothing(t *testing.T) {
	n, err := cluster.StartSingle(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	e := newEnv(t, &cluster.Cluster{Nodes: []*cluster.Node{n}}, false, 0)
	q := e.queue(nil)
	comeAndGo(e, n, q, 20) // warm: what is made once stays
	before := settledGoroutines(e, n, -1)
	comeAndGo(e, n, q, 1000)
	after := settledGoroutines(e, n, before+5)
	t.Logf("goroutines: %d before, %d after 1,000 connections", before, after)
	if after > before+5 {
		t.Errorf("%d goroutines stayed behind", after-before)
	}
}

// comeAndGo opens count connections, 25 at a time, each with a sender and a receiver with credit.
func comeAndGo(e *env, n *cluster.Node, queue string, count int) {
	e.Helper()
	const atOnce = 25
	failed := make(chan error, count)
	slots := make(chan struct{}, atOnce)
	for i := range count {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			failed <- visit(e.ctx, n, queue, i)
		}()
	}
	for range count {
		e.must("visit", <-failed)
	}
}

func visit(ctx context.Context, n *cluster.Node, queue string, i int) error {
	conn, err := amqp.Dial(ctx, "amqp://"+n.AMQP, &amqp.ConnOptions{
		SASLType: amqp.SASLTypePlain(cluster.KeyName, cluster.Key)})
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	s, err := conn.NewSession(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	out, err := s.NewSender(ctx, queue, nil)
	if err != nil {
		return fmt.Errorf("attach sender: %w", err)
	}
	in, err := s.NewReceiver(ctx, queue, &amqp.ReceiverOptions{Credit: 10})
	if err != nil {
		return fmt.Errorf("attach receiver: %w", err)
	}
	if i%2 == 0 {
		return nil // the connection goes without a word about its links
	}
	if err := out.Close(ctx); err != nil {
		return fmt.Errorf("detach sender: %w", err)
	}
	if err := in.Close(ctx); err != nil {
		return fmt.Errorf("detach receiver: %w", err)
	}
	return s.Close(ctx)
}

// settledGoroutines polls until the number is at most limit, or, with a negative limit, until it has
// not changed for a second; it gives up after a while and returns the last number.
func settledGoroutines(e *env, n *cluster.Node, limit int) int {
	e.Helper()
	last, same := -1, 0
	for range 150 {
		v, err := n.Metric(e.ctx, "go_goroutines")
		e.must("metric", err)
		now := int(v)
		if limit >= 0 && now <= limit {
			return now
		}
		if same++; now != last {
			last, same = now, 0
		}
		if limit < 0 && same >= 5 {
			return now
		}
		time.Sleep(200 * time.Millisecond)
	}
	return last
}
