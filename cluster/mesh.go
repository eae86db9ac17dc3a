package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// Resolve returns the mesh address, host:port, of a node as it is known now; a node may come back
// under another one. [Gossip.Resolve] is one.
type Resolve func(fsm.NodeID) (string, bool)

// Mesh carries calls between the nodes of a cluster over one connection per pair. Order of use:
// NewMesh, Handle and HandleStream, Start, calls, Close. It is safe for concurrent use.
type Mesh struct {
	cfg            Config
	network        Network
	resolve        Resolve
	log            hclog.Logger
	handlers       [256]Handler
	beginHandlers  [256]BeginHandler
	streamHandlers [256]StreamHandler
	ctx            context.Context // ends with Close
	cancel         context.CancelFunc

	life    sync.Mutex // guards workers.Add against Close; the innermost lock
	ended   bool
	workers sync.WaitGroup

	mu         sync.RWMutex // taken before peer.mu
	started    bool
	closed     bool
	listener   net.Listener
	peers      map[fsm.NodeID]*peer
	links      map[*link]struct{}     // all that live
	handshakes map[*meteredConn]shake // sockets before their hello
	shakes     uint64                 // handshakes that began
	watchers   map[int]func(fsm.NodeID, bool)
	nextWatch  int

	told     sync.Mutex // guards refusals
	refusals map[fsm.NodeID]refusal

	news      sync.Mutex // guards reports; apart from mu, because it is taken under peer.mu
	reports   []report
	newsReady chan struct{} // capacity 1
}

type report struct {
	node fsm.NodeID
	up   bool
}

// maxReports bounds the news that slow watchers have not heard yet; the oldest are dropped.
const maxReports = 4096

// NewMesh checks cfg and opens nothing.
func NewMesh(cfg Config, resolve Resolve, log hclog.Logger) (*Mesh, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cluster config: %w", err)
	}
	m := &Mesh{
		cfg: cfg, network: cfg.Network, resolve: resolve, log: log.Named("mesh"),
		peers: map[fsm.NodeID]*peer{}, links: map[*link]struct{}{},
		handshakes: map[*meteredConn]shake{}, refusals: map[fsm.NodeID]refusal{},
		watchers: map[int]func(fsm.NodeID, bool){}, newsReady: make(chan struct{}, 1),
	}
	if m.network == nil {
		m.network = tcp{}
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Handle registers the handler of a kind. It must be called before Start.
func (m *Mesh) Handle(
	kind uint8, h func(ctx context.Context, from fsm.NodeID, request []byte) ([]byte, error),
) {
	m.mustNotServe()
	m.handlers[kind] = h
}

// HandleStream registers the handler of a kind with a body. It must be called before Start.
func (m *Mesh) HandleStream(
	kind uint8,
	h func(ctx context.Context, from fsm.NodeID, header []byte, body io.Reader) ([]byte, error),
) {
	m.mustNotServe()
	m.streamHandlers[kind] = h
}

// mustNotServe guards the tables of handlers, which are read without a lock later.
func (m *Mesh) mustNotServe() {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.started {
		panic("cluster: a handler was registered after Start")
	}
}

// Start listens and serves. Calls need it, those to this node too.
func (m *Mesh) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started || m.closed {
		return fmt.Errorf("start mesh: %w", fsm.ErrClosed)
	}
	l, err := m.network.Listen(m.ctx, m.cfg.PeerListen)
	if err != nil {
		return fmt.Errorf("listen for peers on %s: %w", m.cfg.PeerListen, err)
	}
	m.started, m.listener = true, l
	m.start(func() { m.accept(l) })
	m.start(m.tell)
	m.log.Info("mesh listens", "address", l.Addr().String(), "tls", m.cfg.TLS != nil)
	return nil
}

// Addr returns where the mesh listens, nil before Start.
func (m *Mesh) Addr() net.Addr {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.listener == nil {
		return nil
	}
	return m.listener.Addr()
}

// Close ends every link and waits until all handlers have returned; their contexts have ended. Calls
// under way end as if their connections were lost.
func (m *Mesh) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.cancel()
	if m.listener != nil {
		m.listener.Close()
	}
	for c := range m.handshakes {
		c.Close()
	}
	links := make([]*link, 0, len(m.links))
	for l := range m.links {
		links = append(links, l)
	}
	m.mu.Unlock()
	for _, l := range links {
		l.close(errClosing)
	}
	m.life.Lock()
	m.ended = true
	m.life.Unlock()
	m.workers.Wait()
	return nil
}

// start runs work on a goroutine that Close waits for, unless the mesh is closed.
func (m *Mesh) start(work func()) bool {
	m.life.Lock()
	defer m.life.Unlock()
	if m.ended {
		return false
	}
	m.workers.Go(work)
	return true
}

// accept takes connections until the listener closes.
func (m *Mesh) accept(l net.Listener) {
	for {
		raw, err := l.Accept()
		switch {
		case err == nil:
		case m.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // out of file descriptors, most likely: give them time to come back
			m.log.Warn("accept a peer", "error", err)
			select {
			case <-time.After(m.cfg.RedialMin):
			case <-m.ctx.Done():
			}
			continue
		}
		conn := &meteredConn{Conn: raw, writeTimeout: m.cfg.WriteTimeout}
		crowded, ok := m.shaking(conn, hostOf(raw))
		if !ok {
			raw.Close()
			continue
		}
		if crowded != nil {
			turnAway(crowded.Conn)
		}
		if !m.start(func() { m.admit(conn) }) {
			raw.Close()
			m.shaken(conn)
		}
	}
}

// errGaveWay says that a socket gave way to another one while its handshake ended.
var errGaveWay = errors.New("another socket took the place")

// turnAway refuses a connection that there is no place for: too many have not said who they are. It says
// so, because a peer takes a node that hangs up for gone. A new socket has room for the few bytes.
func turnAway(raw net.Conn) {
	if raw.SetWriteDeadline(time.Now().Add(turnAwayTime)) == nil {
		_, _ = raw.Write(appendRefusal(nil, helloVersionBefore, "too many handshakes are under way"))
	}
	raw.Close()
}

// turnAwayTime bounds a write that waits on no network. A busy machine may take its time between the deadline and the write.
const turnAwayTime = time.Second

// admit shakes hands with whoever connected.
func (m *Mesh) admit(raw *meteredConn) {
	conn, id, err := m.welcome(m.ctx, raw, func(id identity) error {
		_, err := m.peer(id.node)
		return err
	})
	// The place is given up before the link is made: a link must not be closed for the sake of a handshake.
	if gaveWay := !m.shaken(raw); err == nil && gaveWay {
		err = errGaveWay
	}
	if err != nil {
		if errors.Is(err, errForeign) || errors.Is(err, errVersions) {
			m.tellOnce("a node was refused", id.node, err)
		}
		m.log.Debug("connection refused", "from", raw.RemoteAddr(), "error", err)
		raw.Close()
		return
	}
	if err := m.adopt(conn, raw, id, false); err != nil {
		m.log.Debug("connection not used", "peer", id.node, "error", err)
	}
}

// shake is a socket that has not said who it is.
type shake struct {
	host  string // that connected; "" if we dialled
	order uint64
}

// shaking notes a socket that Close must close, unless it is too late. host is who connected, "" if we dialled. If
// there are too many who connected, one has to give way: it is returned for the caller to close.
func (m *Mesh) shaking(c *meteredConn, host string) (crowded *meteredConn, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, false
	}
	m.shakes++
	m.handshakes[c] = shake{host, m.shakes}
	return m.crowdedLocked(), true
}

// crowdedLocked returns nil while there is room. Otherwise it forgets and returns the oldest socket of the host that has
// most of them. So silent sockets keep nobody out, because a node shows its identity within milliseconds.
func (m *Mesh) crowdedLocked() (oldest *meteredConn) {
	count, all := map[string]int{}, 0
	for _, s := range m.handshakes {
		if s.host != "" {
			all++
			count[s.host]++
		}
	}
	if all <= m.cfg.MaxHandshakes {
		return nil
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	for c, s := range m.handshakes {
		if s.host != "" && count[s.host] == most && (oldest == nil || s.order < m.handshakes[oldest].order) {
			oldest = c
		}
	}
	delete(m.handshakes, oldest)
	return oldest
}

// ipv6HostBits is how many bits of an IPv6 address are a host's: who has one address has all of its network.
const ipv6HostBits = 64

// hostOf is the address that a socket comes from, without its port; for IPv6 that of its network of 64 bits.
func hostOf(c net.Conn) string {
	text := c.RemoteAddr().String()
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return text
	}
	ip := at.Addr().Unmap()
	if ip.Is6() {
		if network, err := ip.Prefix(ipv6HostBits); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

// shaken notes that the handshake of a socket has ended, and reports whether it had not given way to another.
func (m *Mesh) shaken(c *meteredConn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := m.handshakes[c]
	delete(m.handshakes, c)
	return held
}

// Watch calls f for every node that is lost or found from now on, in order, from one goroutine; f
// must be quick. A node is found with its first link. It is lost when it was silent for
// PingInterval x SilentPings. It is also lost when its connection broke and its address takes no connection any more.
// An address that hangs up on two attempts counts as that: the proxy of a dead process does so. A
// connection that could be made again at once is not reported to f (A17). A node that restarted is lost and
// found. stop ends the calls.
func (m *Mesh) Watch(f func(node fsm.NodeID, up bool)) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.nextWatch
	m.nextWatch++
	m.watchers[id] = f
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, id)
	}
}

// report queues news for the watchers; it never blocks.
func (m *Mesh) report(node fsm.NodeID, up bool) {
	m.news.Lock()
	defer m.news.Unlock()
	if len(m.reports) >= maxReports {
		m.reports = m.reports[1:]
	}
	m.reports = append(m.reports, report{node, up})
	select {
	case m.newsReady <- struct{}{}:
	default:
	}
}

// tell is the goroutine of the watchers.
func (m *Mesh) tell() {
	for {
		select {
		case <-m.newsReady:
		case <-m.ctx.Done():
			return
		}
		m.news.Lock()
		reports := m.reports
		m.reports = nil
		m.news.Unlock()
		for _, r := range reports {
			m.log.Info("peer changed", "peer", r.node, "up", r.up)
			m.mu.RLock()
			ids := make([]int, 0, len(m.watchers))
			for id := range m.watchers {
				ids = append(ids, id)
			}
			m.mu.RUnlock()
			slices.Sort(ids)
			for _, id := range ids {
				m.mu.RLock()
				f := m.watchers[id]
				m.mu.RUnlock()
				if f != nil {
					f(r.node, r.up)
				}
			}
		}
	}
}

// PeerState is what the mesh knows of one node.
type PeerState struct {
	Node        fsm.NodeID
	Incarnation fsm.Incarnation // of the last link
	Up          bool            // as told to the watchers
	Since       time.Time       // when the link was made; zero without one
	Address     string          // the other end of the link; empty without one
	Received    uint64          // bytes by this link
	Sent        uint64          // bytes by this link
	Waiting     int             // calls that wait for an answer
	Serving     int             // calls of the peer being served
}

// Peers returns every node that the mesh has, had or wants a link to, in order of their ids.
func (m *Mesh) Peers() []PeerState {
	m.mu.RLock()
	peers := make([]*peer, 0, len(m.peers))
	for _, p := range m.peers {
		peers = append(peers, p)
	}
	m.mu.RUnlock()
	states := make([]PeerState, 0, len(peers))
	for _, p := range peers {
		states = append(states, p.state())
	}
	slices.SortFunc(states, func(a, b PeerState) int {
		return strings.Compare(string(a.Node), string(b.Node))
	})
	return states
}

func (p *peer) state() PeerState {
	p.mu.Lock()
	s := PeerState{Node: p.id, Incarnation: p.incarnation, Up: p.up}
	l := p.link
	p.mu.Unlock()
	if l == nil {
		return s
	}
	s.Since, s.Address = l.since, l.conn.RemoteAddr().String()
	s.Received, s.Sent = l.conn.received.Load(), l.conn.sent.Load()
	l.mu.Lock()
	s.Waiting, s.Serving = len(l.pending), len(l.active)
	l.mu.Unlock()
	return s
}
