package main

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands before one node's ports for other nodes. Connections through it are told apart by who called, so every
// direction between two nodes can be disturbed by itself.
type proxy struct {
	target  string // the node's own address
	who     func(remote net.Addr) int
	closers []io.Closer
	wg      sync.WaitGroup

	mu    sync.Mutex
	paths map[int]*path // by the caller's number
}

// path is everything from one node to another. Bytes toward the callee are forward, answers are back.
type path struct {
	mu     sync.Mutex
	rules  rules
	change chan struct{} // closed when the rules change
	conns  map[*net.TCPConn]bool
	// affected counts what the rules held back, refused or reset.
	affected atomic.Int64
}

// rules say what happens on a path.
type rules struct {
	Delay         time.Duration // of every chunk, in both directions
	HoldForward   bool          // nothing gets through to the callee; connections stay open
	HoldBack      bool          // no answer gets through
	RefuseNew     bool          // new connections are reset
	DropDatagrams bool          // gossip over UDP
}

const (
	chunkBytes   = 32 << 10
	datagramSize = 64 << 10
	proxyDial    = 3 * time.Second
)

// newProxy listens at own and leads to target, both IPs, on the given ports; gossip also takes UDP.
func newProxy(own, target string, peer, gossip int, who func(net.Addr) int) (*proxy, error) {
	p := &proxy{target: target, who: who, paths: map[int]*path{}}
	for _, port := range []int{peer, gossip} {
		l, err := net.Listen("tcp", at(own, port))
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.closers = append(p.closers, l)
		p.wg.Go(func() { p.accept(l, port) })
	}
	u, err := net.ListenPacket("udp", at(own, gossip))
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	out, err := net.Dial("udp", at(target, gossip))
	if err != nil {
		return nil, errors.Join(err, u.Close(), p.close())
	}
	p.closers = append(p.closers, u, out)
	p.wg.Go(func() { p.datagrams(u, out) })
	return p, nil
}

func (p *proxy) close() error {
	var errs []error
	for _, c := range p.closers {
		errs = append(errs, c.Close())
	}
	p.mu.Lock()
	for _, w := range p.paths {
		w.set(rules{RefuseNew: true}) // nothing is held any more
		w.reset()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return errors.Join(errs...)
}

// from returns the path of one caller.
func (p *proxy) from(caller int) *path {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.paths[caller]
	if w == nil {
		w = &path{change: make(chan struct{}), conns: map[*net.TCPConn]bool{}}
		p.paths[caller] = w
	}
	return w
}

func (w *path) set(r rules) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = r
	close(w.change)
	w.change = make(chan struct{})
}

func (w *path) current() (rules, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rules, w.change
}

// reset breaks every connection of the path as a crashed process does.
func (w *path) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
		w.affected.Add(1)
	}
}

func (w *path) track(c *net.TCPConn, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if on {
		w.conns[c] = true
	} else {
		delete(w.conns, c)
	}
}

func (p *proxy) accept(l net.Listener, port int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w := p.from(p.who(c.RemoteAddr()))
		if r, _ := w.current(); r.RefuseNew {
			w.affected.Add(1)
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			continue
		}
		p.wg.Go(func() { p.carry(c.(*net.TCPConn), port, w) })
	}
}

func (p *proxy) carry(in *net.TCPConn, port int, w *path) {
	defer func() { _ = in.Close() }()
	c, err := net.DialTimeout("tcp", at(p.target, port), proxyDial)
	if err != nil {
		_ = in.SetLinger(0)
		return
	}
	out := c.(*net.TCPConn)
	w.track(in, true)
	w.track(out, true)
	defer w.track(in, false)
	defer w.track(out, false)
	var both sync.WaitGroup
	both.Go(func() { w.copy(out, in, func(r rules) bool { return r.HoldForward }) })
	both.Go(func() { w.copy(in, out, func(r rules) bool { return r.HoldBack }) })
	both.Wait()
	_ = out.Close()
}

// copy carries bytes one way and ends both sockets when one does: half-closed connections are not
// what nodes speak over.
func (w *path) copy(to, from *net.TCPConn, held func(rules) bool) {
	defer func() {
		// A reset is passed on as one: the other side must see what happened.
		_ = to.SetLinger(0)
		_ = to.Close()
		_ = from.Close()
	}()
	buf := make([]byte, chunkBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			w.wait(held)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait holds a chunk for as long as the rules say.
func (w *path) wait(held func(rules) bool) {
	r, change := w.current()
	if r.Delay > 0 {
		w.affected.Add(1)
		time.Sleep(r.Delay)
	}
	for held(r) {
		w.affected.Add(1)
		<-change
		r, change = w.current()
	}
}

func (p *proxy) datagrams(in net.PacketConn, out net.Conn) {
	buf := make([]byte, datagramSize)
	for {
		n, from, err := in.ReadFrom(buf)
		if err != nil {
			return
		}
		w := p.from(p.who(from))
		r, _ := w.current()
		if r.DropDatagrams {
			w.affected.Add(1)
			continue
		}
		_, _ = out.Write(buf[:n]) // a node that is down: gossip bears losses
	}
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
