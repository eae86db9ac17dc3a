package failover

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/ledger"
)

// stockLanes and stockEach are the series that are in the queue before it moves, and the messages of each.
const (
	stockLanes = 10
	stockEach  = 1000
	partitions = 6 // of a cluster whose operator says nothing
)

// TestQueuesMoveUnderLoadAndAKill (S-315, S-318): a queue of 10,000 messages, and one with sessions, move to other partitions
// while clients send, receive and hold sessions. In the middle of each move the leader of the old home is killed with SIGKILL.
// Nothing is lost or doubled, no session is out of order, and numbers are unique, ascending and without a hole.
func TestQueuesMoveUnderLoadAndAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of real processes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	c, err := cluster.Start(ctx, t.TempDir(), nodes)
	fatal(t, "start", err)
	t.Cleanup(c.Close)
	l := prepare(ctx, t, c, false)
	l.stock(ctx, t)
	l.work(2)
	for _, queue := range []string{plain, ordered} {
		l.moveAndKill(ctx, t, queue)
	}
	l.end(ctx, t, stockLanes*stockEach)
}

// stock puts messages into the plain queue, some hundred at a time.
func (l *load) stock(ctx context.Context, t *testing.T) {
	t.Helper()
	client, err := l.cluster.Nodes[0].Client(false, once)
	fatal(t, "client", err)
	defer client.Close(ctx) //nolint:errcheck // the connection is of no use any more
	s, err := client.NewSender(plain, nil)
	fatal(t, "sender", err)
	for lane := range stockLanes {
		for n := 1; n <= stockEach; {
			batch, err := s.NewMessageBatch(ctx, nil)
			fatal(t, "batch", err)
			first := n
			for ; n <= stockEach && n < first+250; n++ {
				m := ledger.Message{Queue: plain, Series: fmt.Sprintf("stock-%d", lane), Number: n}
				fatal(t, "add", batch.AddMessage(&azservicebus.Message{Body: m.Body()}, nil))
			}
			fatal(t, "send", s.SendMessageBatch(ctx, batch, nil))
			for k := first; k < n; k++ {
				l.ledger.Submitted(ledger.Message{Queue: plain, Series: fmt.Sprintf("stock-%d", lane), Number: k}, ledger.Acknowledged)
			}
		}
	}
}

// moveAndKill moves a queue by the command line, and kills the leader of its partition as soon as the cluster tells of the move.
func (l *load) moveAndKill(ctx context.Context, t *testing.T, queue string) {
	t.Helper()
	sleep(ctx, 2*time.Second) // load before the move
	before := l.shares(ctx, t, queue)
	leader, err := l.cluster.LeaderOf(queue)
	fatal(t, "leader of "+queue, err)
	victim := slices.Index(l.cluster.Nodes, leader)
	survivor := l.cluster.Nodes[(victim+1)%nodes]
	bin, err := cluster.Binary()
	fatal(t, "binary", err)
	_, ops := survivor.Doors()
	began := time.Now()
	to := before[0]%partitions + 1
	moved := make(chan error, 1)
	go func() {
		out, err := exec.CommandContext(ctx, bin, "cluster", "rehome", queue, "--to", strconv.Itoa(to), "--ops", ops).CombinedOutput()
		t.Logf("rehome %s took %s: %s", queue, time.Since(began).Round(time.Millisecond),
			strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "))
		moved <- err
	}()
	step := l.stepOf(ctx, t, survivor, queue, moved)
	l.down[victim].Store(true)
	l.deaths[victim].Add(1)
	leader.Kill()
	t.Logf("%s was killed %s after the beginning, in the step %q", leader.ID, time.Since(began).Round(time.Millisecond), step)
	fatal(t, "rehome "+queue, <-moved)
	if after := l.shares(ctx, t, queue); !slices.Equal(after, []int{to}) {
		t.Errorf("%s is in partition %v, and was to go from %v to %d", queue, after, before, to)
	}
	fatal(t, "start "+leader.ID, leader.Start())
	fatal(t, "ready "+leader.ID, leader.WaitReady(ctx))
	l.down[victim].Store(false)
}

// stepOf returns the step of the move of a queue, as soon as there is one.
func (l *load) stepOf(ctx context.Context, t *testing.T, n *cluster.Node, queue string, over <-chan error) string {
	t.Helper()
	for ctx.Err() == nil {
		if len(over) > 0 {
			t.Fatalf("%s has moved before anybody saw it: %v", queue, <-over)
		}
		s, err := n.Status(ctx)
		fatal(t, "status", err)
		for _, r := range s.Rehomings {
			if r.Entity == queue {
				return r.Step
			}
		}
		sleep(ctx, 5*time.Millisecond)
	}
	t.Fatalf("%s does not move", queue)
	return ""
}
