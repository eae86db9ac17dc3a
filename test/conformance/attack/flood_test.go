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

	"github.com/busbar-mq/busbar/test/conformance/node"
)

// flood keeps so many sockets open to each node as it lets, and opens another one for each that ends, until ctx ends.
// Half of an HTTP request, the header of AMQP and silence take turns.
func flood(ctx context.Context, c *node.Cluster, sockets int) (opened *atomic.Int64, ended func()) {
	opened = &atomic.Int64{}
	var wg sync.WaitGroup
	for _, n := range c.Nodes {
		for i := range sockets {
			wg.Go(func() {
				for ctx.Err() == nil {
					hold(ctx, n.AMQP, i%3, opened)
				}
			})
		}
	}
	return opened, wg.Wait
}

func hold(ctx context.Context, addr string, kind int, opened *atomic.Int64) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
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
func failures(ctx context.Context, n *node.Node) (count int, err error) {
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
func TestAFloodOfSocketsFailsNoReplica(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			limited(t, 350)
			c, err := node.StartCluster(ctx, t.TempDir(), nodes)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			w := watch(ctx, t, c, 64<<10) // a segment of the log is full after some 250
			over, end := context.WithTimeout(ctx, 15*time.Second)
			defer end()
			opened, ended := flood(over, c, 600)
			if !*long { // shorter, if the witness has got through meanwhile
				time.AfterFunc(6*time.Second, func() {
					for over.Err() == nil && w.count() < 20 {
						time.Sleep(50 * time.Millisecond)
					}
					end()
				})
			}
			<-over.Done()
			ended()
			for _, n := range c.Nodes {
				began := time.Now()
				if err := n.WaitReady(ctx); err != nil {
					t.Errorf("%s: %v", n.ID, err)
				}
				t.Logf("%s was ready %s after the flood", n.ID, time.Since(began).Round(time.Millisecond))
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
			if w.count() < 20 {
				t.Errorf("%d messages were acknowledged", w.count())
			}
			w.judge(ctx)
		})
	}
}

// rejected demands that a node turned sockets away and shows how many it may have.
func rejected(ctx context.Context, t *testing.T, n *node.Node) {
	t.Helper()
	limit, err := n.Metric(ctx, `busbar_limit_max{limit="connections"}`)
	if err != nil || limit < 1 || limit > 200 {
		t.Errorf("%s may have %v sockets, %v", n.ID, limit, err)
	}
	turned := 0.0
	for _, site := range []string{"connections", "handshakes"} {
		count, err := n.Metric(ctx, fmt.Sprintf("busbar_rejections_total{site=%q}", site))
		if err != nil {
			t.Error(err)
		}
		turned += count
	}
	if turned == 0 {
		t.Errorf("%s turned no socket away", n.ID)
	}
	b, err := n.Get(ctx, "/api/cluster")
	if err != nil || !json.Valid(b) {
		t.Errorf("%s: %s, %v", n.ID, b, err)
	}
}
