package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// flood keeps so many sockets of one host open to each node as it lets, and opens another one for each that ends, until
// ctx ends. Half of an HTTP request, the header of AMQP and silence take turns.
func flood(ctx context.Context, c *cluster.Cluster, host string, sockets int) (opened *atomic.Int64, ended func()) {
	opened = &atomic.Int64{}
	var wg sync.WaitGroup
	for _, n := range c.Nodes {
		for i := range sockets {
			wg.Go(func() {
				for ctx.Err() == nil {
					hold(ctx, host, n.AMQP, i%3, opened)
				}
			})
		}
	}
	return opened, wg.Wait
}

func hold(ctx context.Context, host, addr string, kind int, opened *atomic.Int64) {
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}).DialContext(ctx, "tcp", addr)
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	opened.Add(1)
	switch kind {
	case 0:
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
	case 1:
		_, _ = io.WriteString(c, "AMQP\x03\x01\x00\x00")
	}
	_, _ = io.Copy(io.Discard, c) // until either side ends it
	time.Sleep(20 * time.Millisecond)
}

// failures counts the replicas that a node has lost.
func failures(ctx context.Context, n *cluster.Node) (count int, err error) {
	b, err := n.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(line, "busbar_partition_failed{") && strings.HasSuffix(line, " 1") {
			count++
		}
	}
	return count, nil
}

// F1: nodes that may open few files are flooded with sockets of strangers while a client sends. No replica fails, the
// nodes are ready when the flood ends, and all that was acknowledged is there.
//
// A client that is connected when its own host begins the flood meets no failure. Neither does one that connects amid
// the flood of another host.
func TestAFloodOfSocketsFailsNoReplica(t *testing.T) {
	for _, c := range []struct {
		nodes int
		host  string
		long  bool // not in the short mode
	}{{1, ofTheClient, false}, {3, ofAnother, false}, {1, ofAnother, true}, {3, ofTheClient, true}} {
		if c.long && !*long {
			continue
		}
		t.Run(fmt.Sprint(c.nodes, " nodes, ", c.host), func(t *testing.T) { flooded(t, c.nodes, c.host) })
	}
}

// Where a flood comes from: the host of the client, or another one.
const (
	ofTheClient = "127.0.0.1"
	ofAnother   = "127.0.0.2"
)

func flooded(t *testing.T, nodes int, host string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	limited(t, 350)
	c, err := cluster.Start(ctx, t.TempDir(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	const bytes = 64 << 10 // a segment of the log is full after some 250
	began := time.Now()
	over, end := context.WithCancel(ctx)
	defer end()
	var w *witness
	if host == ofTheClient {
		w = watch(ctx, t, c, bytes)
		w.connected(ctx)
	}
	opened, ended := flood(over, c, host, 600)
	if host != ofTheClient {
		for _, n := range c.Nodes {
			crowded(over, t, n)
		}
		w = watch(ctx, t, c, bytes)
		w.connected(over)
	}
	// The flood goes on until enough is acknowledged: on a busy machine that takes longer.
	for time.Since(began) < time.Duration(size(6, 15))*time.Second || w.count() < 20 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%d messages were acknowledged amid the flood, want 20", w.count())
		}
	}
	for id, err := range w.doubts() {
		t.Errorf("%s was not acknowledged amid the flood: %v", id, err)
	}
	end()
	ended()
	for _, n := range c.Nodes {
		flooded := time.Now()
		if err := n.WaitReady(ctx); err != nil {
			t.Errorf("%s: %v", n.ID, err)
		}
		t.Logf("%s was ready %s after the flood", n.ID, time.Since(flooded).Round(time.Millisecond))
		if count, err := failures(ctx, n); err != nil || count > 0 {
			t.Errorf("%s: %d replicas have failed, %v", n.ID, count, err)
		}
		if log := n.Log(64 << 10); strings.Contains(log, "replica failed") || strings.Contains(log, "rotate error") {
			t.Errorf("%s: a replica failed meanwhile:\n%s", n.ID, n.Log(4000))
		}
		rejected(ctx, t, n)
	}
	if n := opened.Load(); n < 600 {
		t.Errorf("%d sockets were opened: that was no flood", n)
	}
	w.judge(ctx)
}

// crowded waits until a node turns sockets away.
func crowded(ctx context.Context, t *testing.T, n *cluster.Node) {
	t.Helper()
	for turnedAway(ctx, t, n) == 0 {
		select {
		case <-ctx.Done():
			t.Fatalf("%s turned no socket away: that was no flood", n.ID)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// turnedAway counts the sockets of clients that found no room.
func turnedAway(ctx context.Context, t *testing.T, n *cluster.Node) float64 {
	t.Helper()
	turned := 0.0
	for _, site := range []string{"connections", "handshakes"} {
		count, err := n.Metric(ctx, fmt.Sprintf("busbar_rejections_total{site=%q}", site))
		if err != nil {
			t.Error(err)
		}
		turned += count
	}
	return turned
}

// rejected demands that a node turned sockets away and shows how many it may have.
func rejected(ctx context.Context, t *testing.T, n *cluster.Node) {
	t.Helper()
	limit, err := n.Metric(ctx, `busbar_limit_max{limit="connections"}`)
	if err != nil || limit < 1 || limit > 200 {
		t.Errorf("%s may have %v sockets, %v", n.ID, limit, err)
	}
	if turnedAway(ctx, t, n) == 0 {
		t.Errorf("%s turned no socket away", n.ID)
	}
	b, err := n.Get(ctx, "/api/cluster")
	if err != nil || !json.Valid(b) {
		t.Errorf("%s: %s, %v", n.ID, b, err)
	}
}
