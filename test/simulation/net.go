package simulation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition"
)

const (
	// silence is how long nothing may arrive from a peer until its link is given up. pingEvery is how often that is
	// looked at, as the mesh does (A17).
	silence   = 1500 * time.Millisecond
	pingEvery = 250 * time.Millisecond
	// redialPause is how long a link stays down at least.
	redialPause = 100 * time.Millisecond
)

// peers is the network between the nodes: calls over one link per pair. Data that is cut off waits, as TCP does,
// until the cut heals or the link is given up; then the calls under way end unknown, and what was waiting may still
// arrive later, as from the socket of a process that was paused.
type peers struct {
	mu    sync.Mutex
	rng   *rand.Rand
	ports map[fsm.NodeID]*port
	ids   []fsm.NodeID
	cut   map[[2]fsm.NodeID]bool
	links map[[2]fsm.NodeID]*link
	// news is closed and replaced whenever something changed.
	news chan struct{}

	// delay is the least time of a message, jitter what may be added: so calls overtake each other.
	delay, jitter time.Duration
	// lateChance is how often a call that was given up is delivered all the same.
	lateChance float64
	// copyChance is how often a raft call is delivered once more, later. The mesh never does that, but
	// raft must not mind; what the front ends propose is only ever repeated by who proposed it.
	copyChance float64

	done chan struct{}
	wg   sync.WaitGroup
	c    *counters

	traced bool
	hops   []Hop
}

// Hop is a request for a partition that one node passed on to another.
type Hop struct{ From, To fsm.NodeID }

func (n *peers) trace(from, to fsm.NodeID, kind uint8) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.traced && from != to && (kind == partition.KindPropose || kind == partition.KindQuery) {
		n.hops = append(n.hops, Hop{from, to})
	}
}

// link is the connection of a pair of nodes.
type link struct {
	up     bool
	lost   chan struct{} // closed when it goes down
	since  time.Time     // of the last change
	silent [2]time.Time  // since when nothing arrives, per direction; zero if something can
}

type handler = func(context.Context, fsm.NodeID, []byte) ([]byte, error)
type streamHandler = func(context.Context, fsm.NodeID, []byte, io.Reader) ([]byte, error)

// port is one life of a node on the network. It implements partition.Caller.
type port struct {
	net     *peers
	id      fsm.NodeID
	calls   map[uint8]handler
	streams map[uint8]streamHandler
	lost    func(fsm.NodeID) // a peer's process is surely gone
	down    chan struct{}    // closed when the process dies
	once    sync.Once
	frozen  bool // the process is paused
}

func newPeers(rng *rand.Rand, c *counters) *peers {
	n := &peers{
		rng: rng, ports: map[fsm.NodeID]*port{}, cut: map[[2]fsm.NodeID]bool{},
		links: map[[2]fsm.NodeID]*link{}, news: make(chan struct{}), done: make(chan struct{}), c: c,
	}
	n.wg.Add(1)
	go n.watch()
	return n
}

func (n *peers) close() {
	close(n.done)
	n.wg.Wait()
}

func pair(a, b fsm.NodeID) [2]fsm.NodeID {
	if b < a {
		a, b = b, a
	}
	return [2]fsm.NodeID{a, b}
}

func (n *peers) port(id fsm.NodeID) *port {
	return &port{net: n, id: id, calls: map[uint8]handler{}, streams: map[uint8]streamHandler{},
		lost: func(fsm.NodeID) {}, down: make(chan struct{})}
}

// attach makes a port reachable: its handlers are registered.
func (n *peers) attach(p *port) {
	n.change(func() {
		n.ports[p.id] = p
		if !slices.Contains(n.ids, p.id) {
			n.ids = append(n.ids, p.id)
			slices.Sort(n.ids)
		}
		for _, o := range n.ids {
			if o != p.id && n.links[pair(p.id, o)] == nil {
				n.links[pair(p.id, o)] = &link{lost: make(chan struct{})}
			}
		}
	})
}

// kill ends a process: its links are reset, and their other ends know at once.
func (p *port) kill() {
	p.once.Do(func() {
		close(p.down)
		n := p.net
		n.change(func() {
			if n.ports[p.id] == p {
				delete(n.ports, p.id)
			}
			for _, o := range n.ids {
				if l := n.links[pair(p.id, o)]; l != nil && o != p.id {
					n.dropLocked(p.id, o, l, true)
				}
			}
		})
	})
}

// dropLocked ends a link; gone says that its ends take each other for lost.
func (n *peers) dropLocked(a, b fsm.NodeID, l *link, gone bool) {
	if !l.up {
		return
	}
	l.up, l.since = false, time.Now()
	close(l.lost)
	l.lost = make(chan struct{})
	if !gone {
		return
	}
	for _, e := range [][2]fsm.NodeID{{a, b}, {b, a}} {
		if p := n.ports[e[0]]; p != nil {
			n.wg.Add(1)
			go func() { defer n.wg.Done(); p.lost(e[1]) }()
		}
	}
}

func (n *peers) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.news)
	n.news = make(chan struct{})
}

func (n *peers) setCut(from, to fsm.NodeID, cut bool) {
	n.change(func() { n.cut[[2]fsm.NodeID{from, to}] = cut })
}

// heal ends every cut, delay and pause.
func (n *peers) heal() {
	n.change(func() {
		clear(n.cut)
		for _, p := range n.ports {
			p.frozen = false
		}
	})
}

// reset breaks the connection of two nodes that go on living and can connect again.
func (n *peers) reset(a, b fsm.NodeID) {
	n.change(func() {
		if l := n.links[pair(a, b)]; l != nil {
			n.dropLocked(a, b, l, false)
		}
	})
}

// freeze pauses a process as far as the network can tell.
func (n *peers) freeze(id fsm.NodeID, frozen bool) {
	n.change(func() {
		if p := n.ports[id]; p != nil {
			p.frozen = frozen
		}
	})
}

func (n *peers) passesLocked(from, to fsm.NodeID) bool {
	a, b := n.ports[from], n.ports[to]
	return a != nil && b != nil && !a.frozen && !b.frozen && !n.cut[[2]fsm.NodeID{from, to}]
}

// watch gives up silent links and restores those that can be.
func (n *peers) watch() {
	defer n.wg.Done()
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		n.mu.Lock()
		news := n.news
		n.mu.Unlock()
		select {
		case <-n.done:
			return
		case <-t.C:
		case <-news:
		}
		n.mu.Lock()
		for i, a := range n.ids {
			for _, b := range n.ids[i+1:] {
				n.judgeLocked(a, b, n.links[pair(a, b)])
			}
		}
		n.mu.Unlock()
	}
}

func (n *peers) judgeLocked(a, b fsm.NodeID, l *link) {
	now := time.Now()
	silent := false
	for i, way := range [2][2]fsm.NodeID{{a, b}, {b, a}} {
		switch {
		case n.passesLocked(way[0], way[1]):
			l.silent[i] = time.Time{}
		case l.silent[i].IsZero():
			l.silent[i] = now
		}
		silent = silent || !l.silent[i].IsZero() && now.Sub(l.silent[i]) >= silence
	}
	switch {
	case l.up && silent:
		n.dropLocked(a, b, l, true)
	case !l.up && n.passesLocked(a, b) && n.passesLocked(b, a) && now.Sub(l.since) >= redialPause:
		l.up, l.since = true, now
	}
}

func (n *peers) travel() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.delay
	if n.jitter > 0 {
		d += time.Duration(n.rng.Int64N(int64(n.jitter)))
	}
	return d
}

func (n *peers) chance(p float64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p > 0 && n.rng.Float64() < p
}

// carry waits until a message has gone one way; false means that the link was lost before.
func (n *peers) carry(from, to fsm.NodeID, lost <-chan struct{}, done <-chan struct{}) bool {
	if d := n.travel(); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-lost:
			return false
		case <-done:
			return false
		}
	}
	for {
		n.mu.Lock()
		passes, news := n.passesLocked(from, to), n.news
		n.mu.Unlock()
		if passes {
			return true
		}
		select {
		case <-news:
		case <-lost:
			return false
		case <-done:
			return false
		}
	}
}

// Handle implements partition.Caller.
func (p *port) Handle(kind uint8, h func(context.Context, fsm.NodeID, []byte) ([]byte, error)) {
	p.calls[kind] = h
}

// HandleStream implements partition.Caller.
func (p *port) HandleStream(kind uint8,
	h func(context.Context, fsm.NodeID, []byte, io.Reader) ([]byte, error)) {
	p.streams[kind] = h
}

// Call implements partition.Caller.
func (p *port) Call(ctx context.Context, to fsm.NodeID, kind uint8, b []byte) ([]byte, error) {
	b = bytes.Clone(b)
	return p.do(ctx, to, kind, func(ctx context.Context, o *port) ([]byte, error) {
		h := o.calls[kind]
		if h == nil {
			return nil, fmt.Errorf("no handler of kind %d", kind)
		}
		return h(ctx, p.id, bytes.Clone(b))
	})
}

// CallStream implements partition.Caller.
func (p *port) CallStream(ctx context.Context, to fsm.NodeID, kind uint8, head []byte,
	body io.Reader) ([]byte, error) {
	p.net.c.add("snapshot streams", 1)
	// The stream is read as it is sent; a lost link must end it in the middle.
	r := &stream{r: body, lost: make(chan struct{})}
	defer r.end()
	return p.once1(ctx, to, func(ctx context.Context, o *port) ([]byte, error) {
		stop := context.AfterFunc(ctx, r.end)
		defer stop()
		return o.streams[kind](ctx, p.id, bytes.Clone(head), r)
	})
}

// stream is a body under way; it breaks off when the link is lost.
type stream struct {
	r    io.Reader
	mu   sync.Mutex
	lost chan struct{}
	over bool
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		close(s.lost)
	}
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, io.ErrUnexpectedEOF
	}
	return s.r.Read(b[:min(len(b), 16<<10)])
}

type callFunc = func(context.Context, *port) ([]byte, error)

// do is one call; it may also arrive late, or once more.
func (p *port) do(ctx context.Context, to fsm.NodeID, kind uint8, f callFunc) ([]byte, error) {
	n := p.net
	n.trace(p.id, to, kind)
	return p.once1(ctx, to, func(ctx context.Context, o *port) ([]byte, error) {
		if kind == partition.KindRaft && to != p.id && n.chance(n.copyChance) {
			n.c.add("calls copied", 1)
			n.later(p, to, f)
		}
		return f(ctx, o)
	})
}

// later delivers a call to whoever lives there then; nobody waits for the answer, and the handler is
// told so soon.
func (n *peers) later(p *port, to fsm.NodeID, f callFunc) {
	n.mu.Lock()
	wait := time.Duration(n.rng.Int64N(int64(10 * time.Second)))
	patience := time.Duration(n.rng.Int64N(int64(50 * time.Millisecond)))
	o := n.ports[to]
	n.mu.Unlock()
	if o == nil {
		return
	}
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-o.down: // bytes in a socket die with their process
			return
		case <-n.done:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, _ = f(ctx, o) // nobody listens
	}()
}

// once1 carries one call there and its answer back.
func (p *port) once1(ctx context.Context, to fsm.NodeID, f callFunc) ([]byte, error) {
	n := p.net
	n.mu.Lock()
	o := n.ports[to]
	l := n.links[pair(p.id, to)]
	var lost chan struct{}
	up := to == p.id
	if l != nil {
		lost, up = l.lost, l.up
	}
	n.mu.Unlock()
	if o == nil || !up {
		return nil, fmt.Errorf("no link from %s to %s: %w", p.id, to, fsm.ErrUnavailable)
	}
	inner, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel)
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		defer cancel()
		defer stop()
		if to == p.id {
			b, err := f(inner, o)
			done <- result{b, err}
			return
		}
		if !n.carry(p.id, to, lost, inner.Done()) {
			if n.chance(n.lateChance) {
				n.c.add("calls delivered late", 1)
				n.later(p, to, f)
			}
			done <- result{nil, fmt.Errorf("link to %s lost: %w", to, fsm.ErrUnknown)}
			return
		}
		b, err := f(inner, o)
		if !n.carry(to, p.id, lost, inner.Done()) {
			err = fmt.Errorf("link to %s lost: %w", to, fsm.ErrUnknown)
		}
		done <- result{b, err}
	}()
	if to == p.id {
		lost = nil
	}
	select {
	case r := <-done:
		return bytes.Clone(r.b), r.err
	case <-lost:
		cancel()
		return nil, fmt.Errorf("link to %s lost: %w", to, fsm.ErrUnknown)
	case <-p.down:
		cancel()
		return nil, fmt.Errorf("%s is down: %w", p.id, fsm.ErrUnknown)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
