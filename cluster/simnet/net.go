package simnet

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// backlog is how many connections a listener holds that nobody accepted.
const backlog = 128

// Net is one network. It is safe for concurrent use.
type Net struct {
	mu     sync.Mutex
	hosts  map[string]*Host
	cuts   map[[2]string]bool // from, to
	paused map[string]bool
	delay  time.Duration
	conns  map[*conn]struct{}
	serial int // of ephemeral ports
}

// New returns a network without hosts.
func New() *Net {
	return &Net{
		hosts: map[string]*Host{}, cuts: map[[2]string]bool{}, paused: map[string]bool{}, conns: map[*conn]struct{}{}, serial: 40000,
	}
}

// Host returns the machine with an IP address, made at the first call. One process lives on it at a
// time; after Kill the same address may be used again.
func (n *Net) Host(ip string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[ip]
	if h == nil {
		h = &Host{net: n, ip: ip, listeners: map[uint16]*listener{}, gossips: map[uint16]*Gossip{}}
		n.hosts[ip] = h
	}
	return h
}

// SetDelay makes every byte and packet sent from now on take that long.
func (n *Net) SetDelay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// CutOneWay holds back all that from sends to to. Connecting needs both ways.
func (n *Net) CutOneWay(from, to string) { n.change(func() { n.cuts[[2]string{from, to}] = true }) }

// Cut holds back all between two hosts.
func (n *Net) Cut(a, b string) {
	n.change(func() { n.cuts[[2]string{a, b}], n.cuts[[2]string{b, a}] = true, true })
}

// Reconnect ends every cut between two hosts; bytes of streams that were held back arrive.
func (n *Net) Reconnect(a, b string) {
	n.change(func() {
		delete(n.cuts, [2]string{a, b})
		delete(n.cuts, [2]string{b, a})
	})
}

// Isolate cuts a host from all the others there are now.
func (n *Net) Isolate(ip string) {
	n.change(func() {
		for other := range n.hosts {
			if other != ip {
				n.cuts[[2]string{ip, other}], n.cuts[[2]string{other, ip}] = true, true
			}
		}
	})
}

// Pause stops the process on a host, as SIGSTOP does: its kernel accepts connections and bytes, and nothing
// is read or sent until Resume. The goroutines and timers of the process go on.
func (n *Net) Pause(ip string) { n.change(func() { n.paused[ip] = true }) }

// Resume lets a paused process go on.
func (n *Net) Resume(ip string) { n.change(func() { delete(n.paused, ip) }) }

// Heal ends every cut; bytes of streams that were held back arrive.
func (n *Net) Heal() { n.change(func() { clear(n.cuts) }) }

// Reset breaks every stream between two hosts, as a machine in between does that lost its state.
func (n *Net) Reset(a, b string) {
	for _, c := range n.matching(func(c *conn) bool {
		return c.in.from == a && c.in.to == b || c.in.from == b && c.in.to == a
	}) {
		_ = c.Close()
		c.out.breakOff()
	}
}

// change runs f and wakes all who wait, because what they may do has changed.
func (n *Net) change(f func()) {
	n.mu.Lock()
	f()
	n.mu.Unlock()
	for _, c := range n.matching(func(*conn) bool { return true }) {
		c.in.wake()
		c.out.wake()
	}
}

func (n *Net) matching(want func(*conn) bool) (found []*conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if want(c) {
			found = append(found, c)
		}
	}
	return found
}

func (n *Net) isCut(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[[2]string{from, to}] || n.paused[from] || n.paused[to]
}

// reachable reports whether the kernels of two hosts can connect.
func (n *Net) reachable(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cuts[[2]string{from, to}] && !n.cuts[[2]string{to, from}] && !n.paused[from]
}

func (n *Net) delayOf(from, to string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if from == to {
		return 0
	}
	return n.delay
}

// Host is one machine. It implements the Network of package cluster.
type Host struct {
	net *Net
	ip  string

	mu        sync.Mutex
	dead      bool // killed, and nothing was opened since
	listeners map[uint16]*listener
	gossips   map[uint16]*Gossip
}

// IP returns the host's address.
func (h *Host) IP() string { return h.ip }

// Kill ends the process on the host: its listeners and gossip close, its streams end, and what is left
// of it connects to nobody. Peers that are not cut off hear it at once. The next Listen or Gossip is
// that of a new process; stop the old one before.
func (h *Host) Kill() {
	h.mu.Lock()
	h.dead = true
	listeners, gossips := h.listeners, h.gossips
	h.listeners, h.gossips = map[uint16]*listener{}, map[uint16]*Gossip{}
	h.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	for _, g := range gossips {
		_ = g.Shutdown()
	}
	for _, c := range h.net.matching(func(c *conn) bool { return c.in.to == h.ip }) {
		_ = c.Close()
	}
}

// Listen opens a port; the host part of addr is ignored, port 0 picks one.
func (h *Host) Listen(_ context.Context, addr string) (net.Listener, error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = uint64(h.net.ephemeral())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners[uint16(port)] != nil {
		return nil, fmt.Errorf("listen on %s:%d: %w", h.ip, port, syscall.EADDRINUSE)
	}
	l := &listener{
		host: h, port: uint16(port), conns: make(chan net.Conn, backlog), done: make(chan struct{}),
	}
	h.listeners[l.port], h.dead = l, false
	return l, nil
}

func (n *Net) ephemeral() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.serial++
	return n.serial
}

// Dial connects to ip:port. Towards a cut it waits for ctx, towards a closed port it is refused; a paused
// process accepts.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	ip, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	if h.isDead() {
		return nil, fmt.Errorf("dial %s: %w", addr, syscall.ENETDOWN)
	}
	if !h.net.reachable(h.ip, ip) {
		<-ctx.Done()
		return nil, fmt.Errorf("dial %s: %w", addr, ctx.Err())
	}
	if d := 2 * h.net.delayOf(h.ip, ip); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s: %w", addr, ctx.Err())
		}
	}
	refused := fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
	target := h.net.Host(ip)
	target.mu.Lock()
	l, g := target.listeners[uint16(port)], target.gossips[uint16(port)]
	target.mu.Unlock()
	ours, theirs := h.connect(target, uint16(port))
	ok := false
	switch {
	case l != nil:
		ok = l.offer(theirs)
	case g != nil:
		ok = g.offer(theirs)
	}
	if !ok {
		_ = ours.Close()
		_ = theirs.Close()
		return nil, refused
	}
	return ours, nil
}

func (h *Host) isDead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

func (h *Host) connect(target *Host, port uint16) (ours, theirs *conn) {
	here := &net.TCPAddr{IP: net.ParseIP(h.ip), Port: h.net.ephemeral()}
	there := &net.TCPAddr{IP: net.ParseIP(target.ip), Port: int(port)}
	out, in := newPipe(h.net, h.ip, target.ip), newPipe(h.net, target.ip, h.ip)
	ours = &conn{in: in, out: out, local: here, remote: there, over: make(chan struct{})}
	theirs = &conn{in: out, out: in, local: there, remote: here, over: make(chan struct{}), other: ours}
	ours.other = theirs
	for _, c := range []*conn{ours, theirs} {
		c.closed = func() {
			h.net.mu.Lock()
			defer h.net.mu.Unlock()
			delete(h.net.conns, c)
		}
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.net.conns[ours], h.net.conns[theirs] = struct{}{}, struct{}{}
	return ours, theirs
}

type listener struct {
	host  *Host
	port  uint16
	conns chan net.Conn

	mu     sync.Mutex
	closed bool
	done   chan struct{}
}

func (l *listener) offer(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	select {
	case l.conns <- c:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections that nobody accepted are closed.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.done)
	for {
		select {
		case c := <-l.conns:
			_ = c.Close()
			continue
		default:
		}
		break
	}
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	if l.host.listeners[l.port] == l {
		delete(l.host.listeners, l.port)
	}
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(l.host.ip), Port: int(l.port)}
}
