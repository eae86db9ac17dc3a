package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// Cluster is a number of nodes that share a key.
type Cluster struct {
	Nodes []*Node
}

// Start starts count nodes on loopback with their data below dir, and returns when all are ready. They share a
// certificate authority. extra are further flags of every node.
func Start(ctx context.Context, dir string, count int, extra ...string) (*Cluster, error) {
	return StartAs(ctx, dir, count, Membership{Extra: extra})
}

// StartAs is Start with the program and the flags of a membership.
func StartAs(ctx context.Context, dir string, count int, m Membership) (*Cluster, error) {
	c := &Cluster{}
	for i := range count {
		id := fmt.Sprintf("n%d", i+1)
		c.Nodes = append(c.Nodes, &Node{ID: id, Dir: filepath.Join(dir, id), CA: filepath.Join(dir, "tls", "ca.pem")})
	}
	if err := OnLoopback(c.Nodes, m); err != nil {
		return nil, err
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

// StartSingle starts one development node on ports of its own choice, with its data below dir.
func StartSingle(ctx context.Context, dir string, extra ...string) (*Node, error) {
	n := &Node{ID: "n1", Dir: filepath.Join(dir, "n1")}
	n.CA = filepath.Join(n.Dir, "tls", "ca.pem")
	n.Command(nil, append([]string{"serve", "--dev", "--data-dir", n.Dir, "--amqp-listen", "127.0.0.1:0",
		"--tls-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, extra...)...)
	if err := n.Start(); err != nil {
		return nil, err
	}
	if err := n.WaitReady(ctx); err != nil {
		n.Kill()
		return nil, err
	}
	return n, nil
}

// Membership says how a node takes part in a cluster.
type Membership struct {
	Program   []string // what runs; nil: Binary
	Size      int      // of the nodes that begin together
	Advertise string   // the host that other nodes use
	Join      []string // the gossip ports of other nodes
	Extra     []string // further flags
}

// Member gives a node the command line that its addresses and its membership ask for.
func (n *Node) Member(m Membership) {
	args := []string{"serve", "--dev", "--data-dir", n.Dir, "--node-id", n.ID,
		"--amqp-listen", n.AMQP, "--tls-listen", n.TLS, "--ops-listen", n.Ops,
		"--peer-listen", n.Peer, "--gossip-listen", n.Gossip, "--advertise", m.Advertise,
		"--bootstrap-expect", strconv.Itoa(m.Size)}
	if n.CA != "" {
		args = append(args, "--dev-ca-dir", filepath.Dir(n.CA))
	}
	for _, other := range m.Join {
		args = append(args, "--join", other)
	}
	n.Command(m.Program, append(args, m.Extra...)...)
}

// Move gives a node other addresses, which count from its next start.
func (n *Node) Move(amqp, tls, ops, peer, gossip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.AMQP, n.TLS, n.Ops, n.Peer, n.Gossip = amqp, tls, ops, peer, gossip
}

// OnLoopback makes nodes a cluster on free ports of loopback. Of the membership it wants program and flags alone.
func OnLoopback(nodes []*Node, m Membership) error {
	const each = 5
	ports, err := FreePorts(each * len(nodes))
	if err != nil {
		return err
	}
	for i, n := range nodes {
		p := ports[each*i : each*(i+1)]
		n.Move(loopback(p[0]), loopback(p[1]), loopback(p[2]), loopback(p[3]), loopback(p[4]))
	}
	m.Size, m.Advertise = len(nodes), "127.0.0.1"
	for _, n := range nodes {
		m.Join = nil
		for _, other := range nodes {
			if other != n {
				m.Join = append(m.Join, other.Gossip)
			}
		}
		n.Member(m)
	}
	return nil
}

// Close kills every node.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// Pick returns node i, counted round.
func (c *Cluster) Pick(i int) *Node { return c.Nodes[i%len(c.Nodes)] }

// Status asks the first node that answers.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	var errs []error
	for _, n := range c.Nodes {
		if n.Pid() == 0 {
			continue
		}
		s, err := n.Status(ctx)
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
			if known.Address != "" && slices.Contains([]string{n.AMQP, n.TLS, n.Ops, n.Peer, n.Gossip}, known.Address) {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("no node %q in the cluster", id)
}
