package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/busbar-mq/busbar/cluster/tick"
	"github.com/busbar-mq/busbar/fsm"
)

// Timing of the gossip. A node that dies is declared dead after about 5 s; the mesh notices sooner,
// and neither is authority over membership.
const (
	gossipStreamTimeout = 3 * time.Second
	gossipStateInterval = 10 * time.Second
	gossipLeaveTimeout  = 2 * time.Second

	joinRetry    = time.Second      // until somebody answered
	rejoinPeriod = 30 * time.Second // afterwards: heals a cut that outlived memberlist's memory
)

// maxBroadcastBytes is the largest detail that is broadcast; larger ones wait for a state exchange.
// A gossip packet has room for 1,400.
const maxBroadcastBytes = 1000

// MemberState is what gossip believes of a node.
type MemberState uint8

// The states of a member.
const (
	MemberAlive MemberState = iota + 1
	MemberDead              // it stopped answering
	MemberLeft              // it said goodbye
)

// String returns the state as one word.
func (s MemberState) String() string {
	switch s {
	case MemberAlive:
		return "alive"
	case MemberDead:
		return "dead"
	case MemberLeft:
		return "left"
	}
	return fmt.Sprintf("MemberState(%d)", uint8(s))
}

// Member is one node, as of its newest life that gossip knows.
type Member struct {
	ID          fsm.NodeID
	Incarnation fsm.Incarnation
	PeerAddr    string   // of its mesh, host:port
	GossipAddr  string   // host:port
	OpsAddr     string   // empty until heard
	ClientAddrs []string // empty until heard; shared, not to be changed
	State       MemberState
	// ClockSkew is how far the node's wall clock is ahead of ours, accurate to half a round trip;
	// zero with SkewKnown false until it was measured.
	ClockSkew time.Duration
	SkewKnown bool
}

// Gossip finds the nodes of a cluster and spreads the view. Order of use: NewGossip, Start, Close.
// It is safe for concurrent use. Its answers are hints: a wrong one costs a call that is refused.
type Gossip struct {
	cfg    Config
	view   *View
	log    hclog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	loops  sync.WaitGroup
	queue  memberlist.TransmitLimitedQueue // of what this room broadcasts
	news   chan struct{}                   // there is something to tell; capacity 1
	ring   *memberlist.Keyring             // nil: gossip is not encrypted

	// turn serialises Start, Leave and Close, which wait for memberlist. It is taken before mu.
	turn sync.Mutex
	list *memberlist.Memberlist
	left bool

	mu      sync.Mutex
	self    detail
	meta    meta
	lives   map[string]*life // by memberlist name; dead ones only if they are their node's newest
	details map[string]detail
	births  uint64
	changed chan struct{} // closed at the next change of Members
}

// life is one incarnation of a node. Its name in memberlist has the incarnation in it. So a node that
// comes back at once under another address does not contend for a name with its own past.
type life struct {
	meta
	gossipAddr string
	host       string
	state      MemberState
	farewell   bool   // it said that it would leave
	birth      uint64 // order of arrival
	skew       time.Duration
	skewKnown  bool
}

// NewGossip checks cfg and opens nothing. From now on, Gossip spreads the announcements of replicas to view.
func NewGossip(cfg Config, view *View, log hclog.Logger) (*Gossip, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cluster config: %w", err)
	}
	g := &Gossip{
		cfg: cfg, view: view, log: log.Named("gossip"), lives: map[string]*life{},
		details: map[string]detail{}, changed: make(chan struct{}), news: make(chan struct{}, 1),
		self: detail{node: cfg.Node, incarnation: cfg.Incarnation, version: 1,
			opsAddr: cfg.OpsAddr, clientAddrs: cfg.ClientAddrs},
	}
	if len(cfg.GossipKeys) > 0 {
		ring, err := memberlist.NewKeyring(cfg.GossipKeys, cfg.GossipKeys[0])
		if err != nil {
			return nil, fmt.Errorf("gossip keys: %w", err)
		}
		g.ring = ring
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.queue.RetransmitMult = 4
	g.queue.NumNodes = g.alive
	view.spreadWith(g.spreadLeader)
	return g, nil
}

func lifeName(node fsm.NodeID, incarnation fsm.Incarnation) string {
	return string(node) + "." + strconv.FormatUint(uint64(incarnation), 16)
}

// Start opens the gossip port, tells that the mesh listens at peer, and joins in the background.
func (g *Gossip) Start(peer net.Addr) error {
	g.turn.Lock()
	defer g.turn.Unlock()
	if g.list != nil || g.ctx.Err() != nil {
		return fmt.Errorf("start gossip: %w", fsm.ErrClosed)
	}
	peerAddr := g.cfg.PeerAdvertise
	if peerAddr == "" {
		_, port, err := splitHostPort(peer.String())
		if err != nil {
			return fmt.Errorf("start gossip: mesh address: %w", err)
		}
		peerAddr = fmt.Sprintf(":%d", port)
	}
	g.mu.Lock()
	g.meta = meta{g.cfg.Node, g.cfg.Incarnation, peerAddr}
	g.mu.Unlock()
	conf, err := g.listConfig()
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	if len(g.cfg.Join) > 0 {
		// The library's tickers begin when it is created, which takes half a millisecond. They are to wake a quiet node in the
		// moments of its other loops.
		time.Sleep(tick.Until(g.cfg.PingInterval) - time.Millisecond)
	}
	list, err := memberlist.Create(conf)
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	g.list = list
	g.log.Info("gossip listens", "address", list.LocalNode().Address(), "encrypted", g.ring != nil)
	g.loops.Go(func() { g.spread(list) })
	g.spreadDetail()
	if len(g.cfg.Join) > 0 {
		g.loops.Go(func() { g.join(list) })
	}
	return nil
}

func (g *Gossip) listConfig() (*memberlist.Config, error) {
	host, port, err := splitHostPort(g.cfg.GossipListen)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	conf := memberlist.DefaultLANConfig()
	conf.Name = lifeName(g.cfg.Node, g.cfg.Incarnation)
	conf.Label = g.cfg.ClusterName
	conf.Keyring = g.ring
	conf.Transport = g.cfg.GossipTransport
	conf.BindAddr, conf.BindPort = host, int(port)
	conf.AdvertisePort = int(port)
	if g.cfg.GossipAdvertise != "" {
		if conf.AdvertiseAddr, conf.AdvertisePort, err = g.advertised(); err != nil {
			return nil, err
		}
	}
	conf.TCPTimeout = gossipStreamTimeout
	conf.PushPullInterval = gossipStateInterval
	conf.GossipInterval = gossipInterval
	conf.EnableCompression = false // a table of 16 KiB for each packet of 100 bytes
	conf.DeadNodeReclaimTime = time.Nanosecond
	conf.Delegate = delegate{g}
	conf.Events = delegate{g}
	conf.Alive = delegate{g}
	conf.Ping = delegate{g}
	conf.Logger = newGossipLog(g.log)
	return conf, nil
}

// advertised resolves GossipAdvertise; memberlist wants an IP.
func (g *Gossip) advertised() (string, int, error) {
	host, port, err := splitHostPort(g.cfg.GossipAdvertise)
	if err != nil {
		return "", 0, err
	}
	if net.ParseIP(host) != nil {
		return host, int(port), nil
	}
	ctx, cancel := context.WithTimeout(g.ctx, gossipStreamTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err != nil {
		return "", 0, fmt.Errorf("resolve gossip advertise address: %w", err)
	}
	return ips[0].String(), int(port), nil
}

// join keeps asking the seeds, resolving their names anew each time.
func (g *Gossip) join(list *memberlist.Memberlist) {
	for {
		wait := joinRetry
		for _, seed := range g.cfg.Join { // one by one: the library asks all that it is given, whatever Close waits for
			n, err := list.Join([]string{seed})
			if g.ctx.Err() != nil {
				return
			}
			if n > 0 {
				wait = rejoinPeriod
			} else {
				g.log.Debug("join: a seed does not answer", "seed", seed, "error", err)
			}
		}
		select {
		case <-time.After(wait):
		case <-g.ctx.Done():
			return
		}
	}
}

// Addr returns host:port at which this node gossips, empty before Start.
func (g *Gossip) Addr() string {
	g.turn.Lock()
	defer g.turn.Unlock()
	if g.list == nil {
		return ""
	}
	return g.list.LocalNode().Address()
}

// SetAddrs replaces what this node tells about its operations and client addresses, which are known
// only when their listeners are open. At most MaxClientAddrs of at most 253 bytes.
func (g *Gossip) SetAddrs(ops string, clients []string) error {
	cfg := g.cfg
	cfg.OpsAddr, cfg.ClientAddrs = ops, clients
	if err := errors.Join(cfg.validateAddresses()...); err != nil {
		return err
	}
	g.mu.Lock()
	g.self.version++
	g.self.opsAddr, g.self.clientAddrs = ops, append([]string(nil), clients...)
	g.mu.Unlock()
	g.spreadDetail()
	return nil
}

// Leave says goodbye, so that the others need not find out, and stays silent afterwards. It waits for
// the word to go out, 2 s at most.
func (g *Gossip) Leave() error {
	g.turn.Lock()
	defer g.turn.Unlock()
	if g.list == nil || g.left || g.ctx.Err() != nil {
		return nil
	}
	g.left = true
	g.broadcastFarewell(farewell{g.cfg.Node, g.cfg.Incarnation})
	if err := g.depart(); err != nil {
		return fmt.Errorf("leave gossip: %w", err)
	}
	return nil
}

// Close stops gossiping without a word; call Leave first when that is meant.
func (g *Gossip) Close() error {
	g.cancel()
	g.turn.Lock()
	defer g.turn.Unlock()
	g.loops.Wait()
	if g.list == nil {
		return nil
	}
	return g.list.Shutdown()
}
