package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/ledger"
)

// restoredLanes and restoredEach are the series of the backup, and the messages of each. A restore of so many takes seconds.
const (
	restoredLanes = 20
	restoredEach  = 400
)

// TestARestoreOutlivesAKilledLeader (S-361, S-364): while a backup is restored into three nodes, a leader is killed with SIGKILL. The
// restore comes to its end. Then the node that coordinates a restore is killed. The command says what is left, and once that
// is deleted the restore begins anew. Each time clients receive each message once, in the order of its session, with its number.
func TestARestoreOutlivesAKilledLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of real processes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*testLimit)
	defer cancel()
	at, l := backedUp(ctx, t)
	c, err := cluster.Start(ctx, t.TempDir(), nodes, "--partitions", "8")
	fatal(t, "start", err)
	t.Cleanup(c.Close)
	t.Run("the coordinator", func(t *testing.T) {
		// It goes first, because nothing of it is left behind.
		said, err := restoring(ctx, t, c, at, func() *cluster.Node { return c.Nodes[0] })
		if err == nil || !strings.Contains(said, "delete") {
			t.Fatalf("the restore whose node died ended with %v: %s", err, said)
		}
		fatal(t, "start again", c.Nodes[0].Start())
		fatal(t, "ready", c.Nodes[0].WaitReady(ctx))
		if _, err := busbar(ctx, c.Nodes[1], "backup", "restore", at); err == nil {
			t.Fatal("a restore goes into what is left of another one")
		}
		for _, name := range []string{ordered, plain} {
			for _, verb := range [][]string{{"queue", "resume", name}, {"queue", "delete", name, "--yes"}} {
				said, err := busbar(ctx, c.Nodes[1], verb...)
				fatal(t, strings.Join(verb, " ")+said, err)
			}
		}
	})
	t.Run("a leader", func(t *testing.T) {
		said, err := restoring(ctx, t, c, at, func() *cluster.Node {
			for _, name := range []string{ordered, plain} {
				if n, err := c.LeaderOf(name); err == nil && n != c.Nodes[0] {
					return n
				}
			}
			return c.Nodes[1]
		})
		fatal(t, "restore: "+said, err)
	})
	receiveAll(ctx, t, c, l)
	for _, fault := range l.Judge(map[string]bool{ordered: true}) {
		t.Error(fault)
	}
	if sent, _, completed := l.Tally(); sent != 2*restoredLanes*restoredEach || completed != sent {
		t.Errorf("%d messages were sent and %d came back", sent, completed)
	}
}

// backedUp fills a cluster, takes a backup of it and ends it. The ledger knows what was sent.
func backedUp(ctx context.Context, t *testing.T) (at string, l *ledger.Ledger) {
	t.Helper()
	c, err := cluster.Start(ctx, t.TempDir(), nodes, "--partitions", "6")
	fatal(t, "start", err)
	defer c.Close()
	createQueue(ctx, t, c.Nodes[0], ordered, true, true)
	createQueue(ctx, t, c.Nodes[0], plain, false, false)
	l = ledger.New()
	client, err := c.Nodes[0].Client(false, once)
	fatal(t, "client", err)
	defer func() { _ = client.Close(ctx) }()
	for _, queue := range []string{ordered, plain} {
		s, err := client.NewSender(queue, nil)
		fatal(t, "sender", err)
		for lane := range restoredLanes {
			series := fmt.Sprintf("lane-%02d", lane)
			b, err := s.NewMessageBatch(ctx, nil)
			fatal(t, "batch", err)
			for n := range restoredEach {
				m := ledger.Message{Queue: queue, Series: series, Number: n + 1}
				out := &azservicebus.Message{Body: m.Body()}
				if queue == ordered {
					out.SessionID = &series
				}
				fatal(t, "add", b.AddMessage(out, nil))
				l.Submitted(m, ledger.Acknowledged)
			}
			fatal(t, "send", s.SendMessageBatch(ctx, b, nil))
		}
	}
	said, err := busbar(ctx, c.Nodes[0], "backup", "create", filepath.Join(t.TempDir(), "backups"), "-o", "json")
	fatal(t, "create: "+said, err)
	var made struct{ Backup string }
	fatal(t, "read "+said, json.Unmarshal([]byte(said), &made))
	return made.Backup, l
}

// command is busbar as a client of a node.
func command(ctx context.Context, n *cluster.Node, args ...string) (*exec.Cmd, error) {
	bin, err := cluster.Binary()
	if err != nil {
		return nil, err
	}
	_, ops := n.Doors()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING="+n.ConnectionString(false), "BUSBAR_OPS=http://"+ops)
	return cmd, nil
}

// busbar returns what a command printed; with an error also what it said of it.
func busbar(ctx context.Context, n *cluster.Node, args ...string) (string, error) {
	cmd, err := command(ctx, n, args...)
	if err != nil {
		return "", err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out) + said.String(), err
	}
	return string(out), nil
}

// restoring restores a backup through the first node, and kills a node when the entities are there and the restore is under way. A
// node other than the first is started again meanwhile.
func restoring(ctx context.Context, t *testing.T, c *cluster.Cluster, at string, victim func() *cluster.Node) (string, error) {
	t.Helper()
	cmd, err := command(ctx, c.Nodes[0], "backup", "restore", at)
	fatal(t, "command", err)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	fatal(t, "start the command", cmd.Start())
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	a, err := c.Nodes[1].Admin(false)
	fatal(t, "admin", err)
	for there := 0; there < 2; {
		select {
		case err := <-over:
			t.Fatalf("the restore ended before a node was killed: %v: %s", err, &said)
		default:
		}
		there = 0
		for _, name := range []string{ordered, plain} {
			if q, err := a.GetQueue(ctx, name, nil); err == nil && q != nil {
				there++
			}
		}
	}
	n := victim()
	began := time.Now()
	n.Kill()
	if n != c.Nodes[0] {
		fatal(t, "start "+n.ID, n.Start())
	}
	err = <-over
	t.Logf("%s was killed, and the restore ended %s later: %v %s", n.ID, time.Since(began).Round(time.Millisecond), err,
		strings.TrimSpace(said.String()))
	return said.String(), err
}

// receiveAll receives and completes what was restored.
func receiveAll(ctx context.Context, t *testing.T, c *cluster.Cluster, l *ledger.Ledger) {
	t.Helper()
	client, err := c.Nodes[2].Client(false, azservicebus.RetryOptions{})
	fatal(t, "client", err)
	defer func() { _ = client.Close(ctx) }()
	take := func(queue string, r receiver) {
		for left := restoredEach; left > 0; {
			got, err := r.ReceiveMessages(ctx, left, nil)
			fatal(t, "receive", err)
			for _, g := range got {
				m, err := ledger.Parse(queue, g.Body)
				fatal(t, "read", err)
				l.Received(m, *g.SequenceNumber)
				fatal(t, "complete", r.CompleteMessage(ctx, g, nil))
				l.Done(m)
				left--
			}
		}
	}
	for lane := range restoredLanes {
		s, err := client.AcceptSessionForQueue(ctx, ordered, fmt.Sprintf("lane-%02d", lane), nil)
		fatal(t, "accept", err)
		take(ordered, s)
		fatal(t, "close", s.Close(ctx))
	}
	r, err := client.NewReceiverForQueue(plain, nil)
	fatal(t, "receiver", err)
	for range restoredLanes {
		take(plain, r)
	}
	// Nothing is there twice.
	quiet, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if got, err := r.ReceiveMessages(quiet, 1, nil); len(got) > 0 || err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d more messages came: %v", len(got), err)
	}
}
