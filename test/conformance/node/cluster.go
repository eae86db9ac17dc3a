package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
)

// Cluster is a number of nodes on loopback that share a key and a certificate authority.
type Cluster struct {
	Nodes []*Node
}

// StartCluster starts count nodes with their data below dir and returns when all are ready. extra
// are further flags of every node.
func StartCluster(ctx context.Context, dir string, count int, extra ...string) (*Cluster, error) {
	ports, err := FreePorts(5 * count)
	if err != nil {
		return nil, err
	}
	at := func(node, k int) string {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[5*node+k]))
	}
	ca := filepath.Join(dir, "tls")
	c := &Cluster{}
	for i := range count {
		id := fmt.Sprintf("n%d", i+1)
		n := &Node{
			ID: id, Dir: filepath.Join(dir, id), CA: filepath.Join(ca, "ca.pem"),
			AMQP: at(i, 0), TLS: at(i, 1), Ops: at(i, 2), Peer: at(i, 3), Gossip: at(i, 4),
		}
		n.args = []string{"serve", "--dev", "--dev-ca-dir", ca, "--data-dir", n.Dir, "--node-id", id,
			"--amqp-listen", n.AMQP, "--tls-listen", n.TLS, "--ops-listen", n.Ops,
			"--peer-listen", n.Peer, "--gossip-listen", n.Gossip, "--advertise", "127.0.0.1",
			"--bootstrap-expect", strconv.Itoa(count)}
		for j := range count {
			if j != i {
				n.args = append(n.args, "--join", at(j, 4))
			}
		}
		n.args = append(n.args, extra...)
		c.Nodes = append(c.Nodes, n)
	}
	for _, n := range c.Nodes {
		if err := n.Start(); err != nil {
			c.Close()
			return nil, err
		}
	}
	errs := make(chan error, count)
	for _, n := range c.Nodes {
		go func() { errs <- n.WaitReady(ctx) }()
	}
	for range c.Nodes {
		if err := <-errs; err != nil { // the first, which may have kept the others from being ready
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Close kills every node.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// Pick returns node i, counted round.
func (c *Cluster) Pick(i int) *Node { return c.Nodes[i%len(c.Nodes)] }

// Status is what GET /api/cluster answers.
type Status struct {
	Nodes []struct {
		ID      string `json:"id"`
		State   string `json:"state"`
		Address string `json:"address"`
	} `json:"nodes"`
	Partitions []Partition `json:"partitions"`
	Entities   []Entity    `json:"entities"`
}

// Partition is one raft group as a node sees it.
type Partition struct {
	ID       int      `json:"id"`
	Leader   string   `json:"leader"`
	Term     uint64   `json:"term"`
	Replicas []string `json:"replicas"`
	Applied  uint64   `json:"applied"`
}

// Entity is one queue and the partitions that hold its shares.
type Entity struct {
	Name   string `json:"name"`
	Shares []int  `json:"shares"`
}

// Status asks the first node that answers.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	var errs []error
	for _, n := range c.Nodes {
		if n.Pid() == 0 {
			continue
		}
		var s Status
		b, err := n.Get(ctx, "/api/cluster")
		if err == nil {
			err = json.Unmarshal(b, &s)
		}
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return Status{}, errors.Join(append(errs, errors.New("no node told the cluster's status"))...)
}

// NodeOf returns the node that the cluster knows by that id: its name, or the address of its ports.
func (c *Cluster) NodeOf(ctx context.Context, id string) (*Node, error) {
	for _, n := range c.Nodes {
		if n.ID == id {
			return n, nil
		}
	}
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, known := range s.Nodes {
		if known.ID != id {
			continue
		}
		for _, n := range c.Nodes {
			if n.has(known.Address) {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("no node %q in the cluster", id)
}

// has reports whether one of the node's flags is that address.
func (n *Node) has(addr string) bool {
	for i, a := range n.args {
		if a == addr && i > 0 && n.args[i-1] != "--join" {
			return true
		}
	}
	return false
}
