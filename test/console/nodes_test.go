package console

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/test/cluster"
)

// The same tasks on three nodes. The node that leads the partition of the first queue is killed when the first tasks are
// done, and comes back before the last ones.
func TestTasksOnThreeNodesWhileALeaderDies(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	d := sit(t, c.Nodes[0])
	d.signIn()
	var victim *cluster.Node
	for _, task := range tasks {
		switch task.name {
		case "dead letters are redriven, edited, deleted and purged":
			d.away(c, "orders") // or the pages would be gone
			victim = d.leader(c, "orders")
			victim.Kill()
		case "the cluster is seen":
			d.do(d.goes("#/cluster"), d.sees("⚠ dead"))
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
			if err := victim.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !t.Run(task.name+" with all its nodes", func(t *testing.T) { seeThreeNodes(&desk{d.Browser, t, d.node}, victim) }) {
				return
			}
			continue
		}
		if !t.Run(task.name, func(t *testing.T) { task.do(&desk{d.Browser, t, d.node}) }) {
			return
		}
	}
}

// leader is the node that leads the partition of a queue.
func (d *desk) leader(c *cluster.Cluster, queue string) *cluster.Node {
	d.t.Helper()
	s, err := d.node.Status(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range s.Entities {
		for _, p := range s.Partitions {
			if e.Name == queue && slices.Contains(e.Shares, p.ID) {
				n, err := c.NodeOf(context.Background(), p.Leader)
				if err != nil {
					d.t.Fatal(err)
				}
				return n
			}
		}
	}
	d.t.Fatalf("nobody leads %s", queue)
	return nil
}

// other is a node that is not the one of this desk.
func (d *desk) other(c *cluster.Cluster) *cluster.Node {
	return c.Nodes[slices.IndexFunc(c.Nodes, func(n *cluster.Node) bool { return n != d.node })]
}

// away transfers the leadership of a queue's partition to another node by the page of the cluster, if this node has it.
func (d *desk) away(c *cluster.Cluster, queue string) {
	d.t.Helper()
	if d.leader(c, queue) != d.node {
		return
	}
	s, err := d.node.Status(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range s.Entities {
		if e.Name == queue {
			d.do(d.goes("#/cluster"), d.press(fmt.Sprintf("Transfer partition %d", e.Shares[0])), d.fill("To node", d.other(c).ID), d.press("Transfer"), d.sees("leads it now"), d.press("Close"))
		}
	}
}

func seeThreeNodes(d *desk, back *cluster.Node) {
	d.do(d.goes("#/cluster"), d.sees("3 nodes"), d.sees("this one"), d.seesNot("⚠ dead"), d.press("drain "+back.ID), d.sees("The node gives its leaderships away"), d.press("Drain"),
		d.sees("The cluster knows it"), d.press("Close"), d.sees("drained"))
	d.do(d.press("undrain "+back.ID), d.press("Undrain"), d.sees("The cluster knows it"), d.press("Close"), d.seesNot("drained"))
}
