package failover

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
)

// TestEventsOfACluster: a stream of events at one node tells that a partition is led by another node now, and that a node
// has gone.
func TestEventsOfACluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), healthLimit)
	defer cancel()
	c, err := cluster.Start(ctx, t.TempDir(), nodes)
	fatal(t, "start", err)
	t.Cleanup(c.Close)
	bin, err := cluster.Binary()
	fatal(t, "binary", err)
	_, ops := c.Nodes[0].Doors()
	command := func(args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, bin, append(args, "--ops", ops, "--connection-string", c.Nodes[0].Plain())...)
	}
	for known := 0; known < nodes; time.Sleep(20 * time.Millisecond) { // a node has its name when the catalog knows it
		s, err := c.Nodes[0].Status(ctx)
		fatal(t, "names of nodes", err)
		known = 0
		for _, n := range s.Nodes {
			if strings.HasPrefix(n.ID, "n") {
				known++
			}
		}
	}
	events := command("events", "--kind", "leader,node", "-o", "json")
	printed, err := events.StdoutPipe()
	fatal(t, "output", err)
	said, err := events.StderrPipe()
	fatal(t, "messages", err)
	fatal(t, "events", events.Start())
	t.Cleanup(func() { _ = events.Process.Kill(); _ = events.Wait() })
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.HasPrefix(line, "the events are those that node n1 sees") {
		t.Fatalf("%q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	lines := bufio.NewScanner(printed)
	await := func(what string, is func(kind, change, node string, partition int) bool) {
		t.Helper()
		for lines.Scan() {
			var e struct {
				Kind, Change, Node string
				Partition          int
			}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%v in %s", err, lines.Text())
			}
			if is(e.Kind, e.Change, e.Node, e.Partition) {
				return
			}
		}
		t.Fatalf("the stream ends without %s: %v", what, lines.Err())
	}
	status, err := c.Nodes[0].Status(ctx)
	fatal(t, "status", err)
	to := "n2"
	for _, p := range status.Partitions {
		if p.ID == 1 && p.Leader == to {
			to = "n3"
		}
	}
	if out, err := command("cluster", "transfer-leader", "1", to).CombinedOutput(); err != nil {
		t.Fatalf("transfer: %v %s", err, out)
	}
	await("another leader", func(kind, change, node string, partition int) bool {
		return kind == "leader" && change == "elected" && node == to && partition == 1
	})
	c.Nodes[2].Kill()
	await("the end of a node", func(kind, change, node string, _ int) bool {
		return kind == "node" && change == "dead" && node == "n3"
	})
}
