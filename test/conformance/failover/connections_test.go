package failover

import (
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/cluster"
)

// TestConnectionsOfAllNodes: whichever node is asked tells of the clients of all nodes, and closes connections at any. A
// node that does not answer is named, and the others are listed all the same.
func TestConnectionsOfAllNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), healthLimit)
	defer cancel()
	c, err := cluster.Start(ctx, t.TempDir(), nodes)
	fatal(t, "start", err)
	t.Cleanup(c.Close)
	bin, err := cluster.Binary()
	fatal(t, "binary", err)
	_, ops := c.Nodes[0].Doors()
	run := func(args ...string) (out string, err error) {
		t.Helper()
		text, err := exec.CommandContext(ctx, bin, append(args, "--connection-string", c.Nodes[0].Plain())...).CombinedOutput()
		return string(text), err
	}
	if out, err := run("queue", "create", "orders"); err != nil {
		t.Fatalf("create: %v %s", err, out)
	}
	for i, n := range c.Nodes {
		client, err := n.Client(i == 1, cluster.Retry)
		fatal(t, "client", err)
		defer client.Close(ctx)
		s, err := client.NewSender("orders", nil)
		fatal(t, "sender", err)
		fatal(t, "send", s.SendMessage(ctx, &azservicebus.Message{Body: []byte("x")}, nil))
	}
	type listed struct {
		Connections []struct {
			ID, Node, Protocol string
			MessagesIn         int
		}
		Problems []struct{ Node string }
	}
	list := func() (v listed, failed bool) {
		t.Helper()
		cmd := exec.CommandContext(ctx, bin, "connections", "list", "--entity", "orders", "-o", "json", "--ops", ops,
			"--connection-string", c.Nodes[0].Plain())
		out, err := cmd.Output()
		if len(out) == 0 {
			t.Fatalf("list: %v", err)
		}
		if err := json.Unmarshal(out, &v); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return v, err != nil
	}
	all, failed := list()
	if failed || len(all.Connections) != nodes {
		t.Fatalf("listed %+v, failed: %v", all, failed)
	}
	ids := map[string]string{}
	for _, x := range all.Connections {
		ids[x.Node] = x.ID
		if want := map[bool]string{true: "amqps", false: "amqp"}[x.Node == "n2"]; x.Protocol != want || x.MessagesIn != 1 {
			t.Errorf("connection %+v, want protocol %s and one message", x, want)
		}
	}
	if len(ids) != nodes {
		t.Fatalf("connections of the nodes %v", ids)
	}
	if out, err := run("connections", "close", ids["n3"], "--ops", ops); err != nil || out != "closed 1 connection\n" {
		t.Errorf("close at n3: %v %s", err, out)
	}
	for len(all.Connections) != nodes-1 { // the idle client of n3 does not come back before it sends
		sleep(ctx, 50*time.Millisecond)
		if all, _ = list(); ctx.Err() != nil {
			t.Fatalf("the connection stays: %+v", all)
		}
	}
	fatal(t, "freeze", c.Nodes[2].Freeze())
	all, failed = list()
	if !failed || len(all.Problems) != 1 || all.Problems[0].Node != "n3" || len(all.Connections) != 2 {
		t.Errorf("with a node that stands still: %+v, failed: %v", all, failed)
	}
	fatal(t, "thaw", c.Nodes[2].Thaw())
}
