package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The key that every development node accepts.
const (
	KeyName = "RootManageSharedAccessKey"
	Key     = "SAS_KEY_VALUE"
)

const (
	// ReadyLimit bounds the wait for a node that starts; a healthy one takes a fraction of it.
	ReadyLimit = 60 * time.Second
	// askLimit bounds a question to the operations port, cutOffLimit one to a node that may be cut off.
	askLimit, cutOffLimit = 10 * time.Second, 3 * time.Second
)

// Doors returns the addresses for clients and for operators.
func (n *Node) Doors() (amqp, ops string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.AMQP, n.Ops
}

// WaitReady returns when /readyz answers 200: a durable send can be acknowledged. Without a deadline it waits for
// ReadyLimit.
func (n *Node) WaitReady(ctx context.Context) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ReadyLimit)
		defer cancel()
	}
	for {
		last := n.ready(ctx)
		if last == nil {
			return nil
		}
		if n.Pid() == 0 {
			return fmt.Errorf("%s ended before it was ready: %s", n.ID, n.Log(2000))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s not ready: %w; it printed: %s", n.ID, last, n.Log(2000))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (n *Node) ready(ctx context.Context) error {
	if err := n.readPorts(); err != nil {
		return err
	}
	_, err := n.Get(ctx, "/readyz")
	return err
}

// readPorts learns the ports that a node with port 0 has chosen.
func (n *Node) readPorts() error {
	if _, ops := n.Doors(); ops != "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(n.Dir, "ports.json"))
	if err != nil {
		return err
	}
	var ports struct {
		AMQP int `json:"amqp"`
		TLS  int `json:"tls"`
		Ops  int `json:"ops"`
	}
	if err := json.Unmarshal(b, &ports); err != nil {
		return err
	}
	if ports.AMQP == 0 || ports.TLS == 0 || ports.Ops == 0 {
		return fmt.Errorf("ports.json lacks a port: %s", b)
	}
	n.Move(loopback(ports.AMQP), loopback(ports.TLS), loopback(ports.Ops), "", "")
	return nil
}

// Get reads a path of the operations port.
func (n *Node) Get(ctx context.Context, path string) ([]byte, error) {
	limit := askLimit
	if n.CutOff {
		limit = cutOffLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, ops := n.Doors()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ops+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = n.CutOff
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return b, fmt.Errorf("GET %s of %s: %s: %s", path, n.ID, res.Status, strings.TrimSpace(string(b)))
	}
	return b, nil
}

// Status is what GET /api/cluster answers.
type Status struct {
	Node       string      `json:"node"` // the one that answered
	Nodes      []NodeRow   `json:"nodes"`
	Moves      []int       `json:"moves"` // partitions whose replicas are not where the catalog wants them
	Partitions []Partition `json:"partitions"`
	Entities   []Entity    `json:"entities"`
	Rehomings  []Rehoming  `json:"rehomings"`
}

// Rehoming is a share that moves to another partition.
type Rehoming struct {
	Entity string `json:"entity"`
	Step   string `json:"step"`
}

// NodeRow is one node as another sees it.
type NodeRow struct {
	ID      string `json:"id"` // its name, if no other node that lives has it
	UUID    string `json:"uuid"`
	State   string `json:"state"`
	Address string `json:"address"`
	Zone    string `json:"zone"`
}

// Partition is one raft group as a node sees it.
type Partition struct {
	ID       int      `json:"id"`
	Leader   string   `json:"leader"`
	Term     uint64   `json:"term"`
	Replicas []string `json:"replicas"`
	Applied  uint64   `json:"applied"`
	Failure  string   `json:"failure"`
	Voters   []string `json:"voters"`
	Differs  []string `json:"differs"`
}

// Entity is one queue and the partitions that hold its shares.
type Entity struct {
	Name   string `json:"name"`
	Shares []int  `json:"shares"`
}

// Status asks the node what it knows of the cluster.
func (n *Node) Status(ctx context.Context) (s Status, err error) {
	b, err := n.Get(ctx, "/api/cluster")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// Plain returns the connection string for the plain port, as the official emulator's look.
func (n *Node) Plain() string {
	amqp, _ := n.Doors()
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;"+
		"UseDevelopmentEmulator=true", localhost(amqp), KeyName, Key)
}

// Secure returns the connection string for the TLS port.
func (n *Node) Secure() string {
	return fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s",
		localhost(n.TLS), KeyName, Key)
}

// localhost gives an address of loopback the name that certificates have.
func localhost(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return addr
	}
	return net.JoinHostPort("localhost", port)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
