package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/namespaces"
)

// The ways that nodes reach one another.
const (
	overLoopback = "loopback" // no namespaces: the network cannot be broken
	overBridge   = "bridge"   // directly
	overProxies  = "proxies"  // through a proxy before every node
)

// The ports of a node in its own namespace.
const (
	portTLS    = 5671
	portAMQP   = 5672
	portOps    = 5300
	portPeer   = 5301
	portGossip = 5302
)

// bed is the cluster and what it stands on.
type bed struct {
	dir, network string
	sup          *supervisor
	cfg          bedConfig
	nodes        []*node
	all          *cluster.Cluster // the same nodes
	guests       []*node          // that joined later
	proxies      []*proxy         // by node, over proxies only
	terms        *termCount
	world        *world // of the clients, once there are any

	copies    sync.WaitGroup // restores that are still judged
	mu        sync.Mutex
	findings  []string // of faults that judge something themselves
	restored  int      // copies that were judged
	finalized bool     // the upgrade from the earlier program
}

// bedConfig says what to build.
type bedConfig struct {
	dir, binary, network string
	nodes                int
	disks                bool
	extra                []string // flags of every node
	earlier              string   // the program of an earlier commit; "": none is at hand
	// names returns the name that others join a node by; nil: its address.
	names func(number int) string
}

func newBed(ctx context.Context, cfg bedConfig, sup *supervisor) (*bed, error) {
	b := &bed{cfg: cfg, dir: cfg.dir, network: cfg.network, sup: sup, all: &cluster.Cluster{}, terms: newTermCount()}
	for i := range cfg.nodes {
		n, err := b.newNode(cfg, i+1)
		if err != nil {
			return b, err
		}
		b.add(n)
	}
	if cfg.network == overLoopback {
		if err := cluster.OnLoopback(b.all.Nodes, cfg.membership()); err != nil {
			return b, err
		}
	} else {
		b.own(cfg)
	}
	for _, n := range b.nodes {
		if cfg.earlier != "" {
			b.program(n, cfg.earlier)
		}
		if err := n.Start(); err != nil {
			return b, err
		}
	}
	return b, b.awaitReady(ctx)
}

// membership is the part that all nodes have in common.
func (cfg bedConfig) membership() cluster.Membership {
	extra := append([]string{"--allow-plaintext-peers"}, cfg.extra...)
	if cfg.earlier != "" {
		extra = append(extra, "--finalize-upgrades=false")
	}
	return cluster.Membership{Program: []string{cfg.binary}, Size: cfg.nodes, Extra: extra}
}

func (b *bed) add(n *node) {
	b.nodes, b.all.Nodes = append(b.nodes, n), append(b.all.Nodes, n.Node)
}

func (b *bed) newNode(cfg bedConfig, i int) (*node, error) {
	home := filepath.Join(cfg.dir, fmt.Sprintf("n%d", i))
	n := newNode(b.sup, i, "127.0.0.1", filepath.Join(home, "data"), filepath.Join(cfg.dir, fmt.Sprintf("n%d.log", i)))
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	if cfg.network != overLoopback {
		n.ip = nodeNetwork + strconv.Itoa(i)
		if _, err := os.Stat("/run/netns/" + netns(i)); err != nil { // of an earlier cluster of this run
			if err := plug(i, n.ip); err != nil {
				return nil, err
			}
		}
	}
	if cfg.disks {
		d, err := newDisk(b.sup, filepath.Join(cfg.dir, fmt.Sprintf("n%d.ext4", i)), home)
		if err != nil {
			return nil, err
		}
		n.disk = d
	}
	if cfg.network == overProxies {
		p, err := newProxy(fmt.Sprintf("%s%d", proxyPrefix, i), n.ip, portPeer, portGossip, numberOf)
		if err != nil {
			return nil, err
		}
		b.proxies = append(b.proxies, p)
	}
	return n, nil
}

// numberOf tells a node by its address.
func numberOf(a net.Addr) int {
	host, _, _ := net.SplitHostPort(a.String())
	n, _ := strconv.Atoi(strings.TrimPrefix(host, nodeNetwork))
	return n
}

// advertised is the address that other nodes use.
func (b *bed) advertised(n *node) string {
	if b.network == overProxies {
		return fmt.Sprintf("%s%d", proxyPrefix, n.number)
	}
	return n.ip
}

// own gives every node the usual ports in its namespace.
func (b *bed) own(cfg bedConfig) {
	for _, n := range b.nodes {
		b.address(cfg, n)
	}
}

// address gives a node the usual ports in its namespace.
func (b *bed) address(cfg bedConfig, n *node) {
	n.Move(at(n.ip, portAMQP), at(n.ip, portTLS), at(n.ip, portOps), at(n.ip, portPeer), at(n.ip, portGossip))
	m := cfg.membership()
	m.Program = []string{"nsenter", "--net=/run/netns/" + netns(n.number), cfg.binary}
	m.Advertise = b.advertised(n)
	for _, other := range b.nodes {
		if other == n {
			continue
		}
		host := b.advertised(other)
		if cfg.names != nil {
			host = cfg.names(other.number)
		}
		m.Join = append(m.Join, at(host, portGossip))
	}
	n.Member(m)
}

// rename gives a node that does not run another address in its namespace.
func (b *bed) rename(cfg bedConfig, n *node, ip string) error {
	ns := netns(n.number)
	// In this order: with the first address of a network go all others.
	if err := namespaces.RunAll("ip -n "+ns+" addr del "+n.ip+"/16 dev eth0",
		"ip -n "+ns+" addr add "+ip+"/16 dev eth0"); err != nil {
		return err
	}
	n.ip = ip
	b.address(cfg, n)
	return nil
}

// readyLimit bounds the wait for a whole cluster without faults.
const readyLimit = cluster.ReadyLimit

func (b *bed) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for _, n := range b.nodes {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close ends every node and takes everything down.
func (b *bed) close() error {
	var errs []error
	for _, n := range slices.Concat(b.nodes, b.guests) {
		errs = append(errs, n.end(9, 10*time.Second))
		if n.disk != nil {
			errs = append(errs, n.disk.forget())
		}
	}
	for _, p := range b.proxies {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

// leaders asks the first node that answers who leads which partition.
func (b *bed) leaders(ctx context.Context) (map[int]string, error) {
	s, err := b.all.Status(ctx)
	if err != nil {
		return nil, err
	}
	out := map[int]string{}
	for _, p := range s.Partitions {
		out[p.ID] = p.Leader
	}
	return out, nil
}

// busiest returns the node that leads most partitions, the first one if nobody knows.
func (b *bed) busiest(ctx context.Context) *node {
	leaders, _ := b.leaders(ctx)
	best, most := b.nodes[0], 0
	for _, n := range b.nodes {
		count := 0
		for _, l := range leaders {
			if l == n.ID {
				count++
			}
		}
		if count > most {
			best, most = n, count
		}
	}
	return best
}

// transfer asks the node that leads a partition to hand it to another one.
func (b *bed) transfer(ctx context.Context, partition int, leader string, to *node) error {
	i := slices.IndexFunc(b.nodes, func(n *node) bool { return n.ID == leader })
	if i < 0 {
		return fmt.Errorf("partition %d is led by %q", partition, leader)
	}
	return b.command(ctx, b.nodes[i], "transfer-leader", url.Values{"partition": {strconv.Itoa(partition)}, "to": {to.ID}})
}

// termCount counts elections: the highest term that anybody told of each partition.
type termCount struct {
	mu          sync.Mutex
	first, last map[int]uint64
}

func newTermCount() *termCount {
	return &termCount{first: map[int]uint64{}, last: map[int]uint64{}}
}

func (c *termCount) saw(s cluster.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range s.Partitions {
		if _, ok := c.first[p.ID]; !ok {
			c.first[p.ID] = p.Term
		}
		c.last[p.ID] = max(c.last[p.ID], p.Term)
	}
}

// elections is the number of terms that began since the first look.
func (c *termCount) elections() (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, last := range c.last {
		n += last - c.first[p]
	}
	return n
}

// watch looks at the terms until ctx ends.
func (b *bed) watch(ctx context.Context) {
	for {
		for _, n := range b.nodes {
			if s, err := n.Status(ctx); err == nil {
				b.terms.saw(s)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}
