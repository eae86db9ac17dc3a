package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// peer is another node as the mesh knows it: its links, and the attempts to get one. A peer once
// connected is kept connected for as long as Resolve knows an address, because watchers want to hear
// when it goes (A17).
type peer struct {
	mesh *Mesh
	id   fsm.NodeID

	mu    sync.Mutex
	gone  bool  // taken out of mesh.peers; look it up again
	link  *link // what new calls use; nil while there is none
	links int   // all that live, with those that drain
	// attempt is closed when the first attempt of the dialling under way has ended; nil if nobody
	// dials. failing: that attempt failed and others follow, so calls fail without waiting.
	attempt chan struct{}
	failing bool
	// tried says that attempt is closed. dialler is the number of the goroutine that dials, if one does.
	tried   bool
	dialler uint64
	lastErr error         // why there is no link
	kick    chan struct{} // ends the pause before the next attempt; capacity 1
	// lostAt is when the last link was lost, or the last byte came by it if it was quiet before; zero
	// once the watchers know or a new one came.
	lostAt time.Time
	// hungUp counts the last attempts, without a break, that somebody took and ended without a word.
	hungUp      int
	up          bool // as the watchers were told
	incarnation fsm.Incarnation
}

var (
	errNotConnected = errors.New("not connected")
	errNoAddress    = errors.New("no address is known")
)

// Connect makes sure that there is a link to a node, as a call would. Watchers hear only of nodes to
// which there was one.
func (m *Mesh) Connect(ctx context.Context, to fsm.NodeID) error {
	if to == m.cfg.Node {
		return nil
	}
	_, err := m.linkTo(ctx, to)
	return err
}

// maxLinkTries bounds how often a call dials anew because its link was given up at once. That
// happens when both sides dial at the same moment.
const maxLinkTries = 5

// linkTo returns a link for a new call, dialling if there is none. It waits for one failing attempt at
// most, and not at all for a node that could not be reached a moment ago.
func (m *Mesh) linkTo(ctx context.Context, to fsm.NodeID) (*link, error) {
	for tries := 1; ; tries++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%w: node %s: %w", fsm.ErrUnavailable, to, context.Cause(ctx))
		}
		p, err := m.peer(to)
		if err != nil {
			return nil, fmt.Errorf("%w: node %s: %w", fsm.ErrUnavailable, to, err)
		}
		p.mu.Lock()
		if p.gone {
			p.mu.Unlock()
			continue
		}
		if p.link != nil && p.link.live() {
			l := p.link
			p.mu.Unlock()
			return l, nil
		}
		if p.attempt != nil && p.failing {
			err := p.lastErr
			p.mu.Unlock()
			return nil, fmt.Errorf("%w: node %s: %w", fsm.ErrUnavailable, to, err)
		}
		p.dialLocked()
		attempt := p.attempt
		p.mu.Unlock()
		select {
		case <-attempt:
		case <-ctx.Done():
			continue // told at the top
		}
		p.mu.Lock()
		err = p.lastErr
		failed := tries == maxLinkTries || p.link == nil && (p.failing || isFinal(err))
		p.mu.Unlock()
		if failed {
			return nil, fmt.Errorf("%w: node %s: %w", fsm.ErrUnavailable, to, err)
		}
	}
}

// isFinal reports whether an attempt ended so that no other follows until somebody calls again.
func isFinal(err error) bool {
	return errors.Is(err, errNoAddress) || errors.Is(err, errClosing) || errors.Is(err, errOtherNode)
}

// peer finds or makes the record of a node.
func (m *Mesh) peer(id fsm.NodeID) (*peer, error) {
	m.mu.RLock()
	p := m.peers[id]
	m.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	if err := checkNodeID(id); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[id]; p != nil {
		return p, nil
	}
	if m.closed {
		return nil, errClosing
	}
	if len(m.peers) >= m.cfg.MaxPeers {
		return nil, fmt.Errorf("already %d peers", len(m.peers))
	}
	p = &peer{mesh: m, id: id, lastErr: errNotConnected, kick: make(chan struct{}, 1)}
	m.peers[id] = p
	return p, nil
}

// dialLocked starts dialling unless somebody does.
func (p *peer) dialLocked() {
	if p.attempt != nil {
		return
	}
	p.dialler++
	number := p.dialler
	p.attempt, p.failing, p.tried = make(chan struct{}), false, false
	if !p.mesh.start(func() { p.dial(number) }) {
		p.lastErr = errClosing
		p.triedLocked()
		p.attempt = nil
	}
}

// triedLocked lets the calls go on that wait for the first attempt.
func (p *peer) triedLocked() {
	if p.attempt != nil && !p.tried {
		p.tried = true
		close(p.attempt)
	}
}

// dial tries until there is a link, nobody knows an address, or the mesh closes. p.attempt is closed
// after the first try at the latest.
func (p *peer) dial(number uint64) {
	m := p.mesh
	pause := m.cfg.RedialMin
	for {
		again := p.try()
		p.mu.Lock()
		if p.dialler == number && p.attempt != nil { // else it has made a link, which may be lost again
			p.failing = again
			p.triedLocked()
			if !again {
				p.attempt = nil
			}
		}
		p.mu.Unlock()
		if !again {
			p.forget()
			return
		}
		// The lower id waits longer, so that two nodes do not dial each other in step for ever.
		wait := pause
		if m.cfg.Node < p.id {
			wait += pause / 4
		}
		select {
		case <-time.After(wait):
		case <-p.kick:
		case <-m.ctx.Done():
		}
		pause = min(2*pause, m.cfg.RedialMax)
	}
}

// try makes one attempt and reports whether to make another.
func (p *peer) try() (again bool) {
	m := p.mesh
	if m.ctx.Err() != nil {
		p.failed(errClosing, true)
		return false
	}
	p.mu.Lock()
	connected := p.link != nil && p.link.live() // the peer dialled us meanwhile
	lostAt := p.lostAt
	p.mu.Unlock()
	if connected {
		return false
	}
	addr, ok := m.resolve(p.id)
	if !ok {
		p.failed(errNoAddress, true)
		return false
	}
	limit := m.cfg.DialTimeout + m.cfg.HelloTimeout
	if !lostAt.IsZero() {
		// Watchers must hear of a loss in time, however long connecting may take.
		limit = max(m.cfg.silence()-time.Since(lostAt), m.cfg.RedialMin)
	}
	ctx, cancel := context.WithTimeout(m.ctx, limit)
	defer cancel()
	err := m.connect(ctx, p, addr)
	if err == nil {
		return false
	}
	if errors.Is(err, errOtherNode) {
		p.failed(err, true) // the address is another node's now; this one dials us, or is heard of elsewhere
		return false
	}
	if errors.Is(err, errForeign) || errors.Is(err, errVersions) || errors.Is(err, errRefused) {
		m.tellOnce("a node and this one do not take each other", p.id, err)
	}
	p.failed(err, isRefused(err) || p.hangsUp(err))
	return true
}

// errHungUp says that a connection was made, and ended before a byte came by it.
var errHungUp = errors.New("somebody hung up")

// hangUps is how many attempts to reach a node again must end so for it to be taken for gone. A proxy in
// front of a node takes connections for it when it has gone, and then finds nobody. A node that lives
// answers, if only that it has no place, or dials by itself meanwhile.
const hangUps = 2

// hangsUp reports whether an attempt that ended with err was one too many.
func (p *peer) hangsUp(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !errors.Is(err, errHungUp) {
		p.hungUp = 0
		return false
	}
	p.hungUp++
	return p.hungUp >= hangUps
}

// failed notes why an attempt failed. The watchers hear of the loss of a link when the node has
// surely gone. They also hear of it when the node could not be reached for as long as silence is borne.
func (p *peer) failed(err error, surely bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
	if p.link != nil || p.lostAt.IsZero() {
		return
	}
	if surely || time.Since(p.lostAt) >= p.mesh.cfg.silence() {
		p.downLocked()
	}
}

func (p *peer) downLocked() {
	p.lostAt = time.Time{}
	if p.up {
		p.up = false
		p.mesh.report(p.id, false)
	}
}

// forget drops the record of a node without link and address.
func (p *peer) forget() {
	p.mesh.mu.Lock()
	defer p.mesh.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links == 0 && p.attempt == nil && !p.up {
		p.gone = true
		delete(p.mesh.peers, p.id)
	}
}

// silence is how long a peer may be quiet.
func (c *Config) silence() time.Duration { return time.Duration(c.SilentPings) * c.PingInterval }

// connect dials, greets and registers. A peer that hangs up on the hello is greeted once more as by the build before.
func (m *Mesh) connect(ctx context.Context, p *peer, addr string) error {
	err := m.connectAs(ctx, p, addr, helloVersion)
	if errors.Is(err, errNoHello) {
		err = m.connectAs(ctx, p, addr, helloVersionBefore)
	}
	return err
}

func (m *Mesh) connectAs(ctx context.Context, p *peer, addr string, version uint8) error {
	dialling, cancel := context.WithTimeout(ctx, m.cfg.DialTimeout)
	raw, err := m.network.Dial(dialling, addr)
	cancel()
	if err != nil {
		if isEnd(err) { // made, and reset before it was ours
			err = fmt.Errorf("%w: %w", errHungUp, err)
		}
		return fmt.Errorf("dial %s: %w", addr, err)
	}
	metered := &meteredConn{Conn: raw, writeTimeout: m.cfg.WriteTimeout}
	if _, ok := m.shaking(metered, ""); !ok {
		raw.Close()
		return fmt.Errorf("dial %s: %w", addr, errClosing)
	}
	defer m.shaken(metered)
	conn, id, err := m.greet(ctx, metered, p.id, version)
	if err != nil {
		raw.Close()
		if metered.received.Load() == 0 && isEnd(err) {
			err = fmt.Errorf("%w: %w", errHungUp, err)
		}
		return fmt.Errorf("greet %s: %w", addr, err)
	}
	return m.adopt(conn, metered, id, true)
}

// adopt makes a greeted connection a link, and serves it on a goroutine of its own.
func (m *Mesh) adopt(conn net.Conn, raw *meteredConn, id identity, dialled bool) error {
	l := newLink(m, conn, raw, id, dialled)
	p, err := m.enrol(l)
	if err == nil {
		// Preferred before it is served, so that its end cannot come before its beginning.
		p.prefer(l)
		served := m.start(func() {
			l.run()
			p.ended(l)
		})
		if served {
			return nil
		}
		l.close(errClosing)
		p.ended(l)
		return errClosing
	}
	l.close(errClosing)
	return err
}

// enrol finds the peer of a link and counts the link among those that Close must close.
func (m *Mesh) enrol(l *link) (*peer, error) {
	for {
		p, err := m.peer(l.peer)
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		p.mu.Lock()
		gone := p.gone
		if !gone && !m.closed {
			p.links++
			l.owner = p
			m.links[l] = struct{}{}
		}
		p.mu.Unlock()
		closed := m.closed
		m.mu.Unlock()
		switch {
		case closed:
			return nil, errClosing
		case !gone:
			return p, nil
		}
	}
}

// prefer decides between the link there is, if any, and a new one. Both nodes apply the same rule to
// the same links, so they agree.
func (p *peer) prefer(l *link) {
	p.mu.Lock()
	old := p.link
	loser, reason := (*link)(nil), error(nil)
	switch {
	case old == nil || !old.live():
		p.link = l
	case old.incarnation != l.incarnation, old.dialled == l.dialled:
		// A node does not dial while it has a link. So the process behind the old link is gone, or its dialler has
		// lost the link and this node has not heard of it.
		p.link, loser, reason = l, old, errReplaced
	case time.Since(old.since) > p.mesh.cfg.DialTimeout+p.mesh.cfg.HelloTimeout:
		// Too far apart to be a coincidence: the peer has lost the old link.
		p.link, loser, reason = l, old, errReplaced
	case l.dialled == (p.mesh.cfg.Node < p.id):
		// Both dialled at once: the one that the lower id dialled stays.
		p.link, loser = l, old
	default:
		loser = l
	}
	if p.up && p.incarnation != l.incarnation {
		p.downLocked()
	}
	p.incarnation = l.incarnation
	if l.dialled { // this attempt has ended: if the link is given up at once, calls wait for the next one
		p.triedLocked()
		p.attempt = nil
	}
	p.lostAt, p.failing, p.lastErr, p.hungUp = time.Time{}, false, errNotConnected, 0
	if !p.up {
		p.up = true
		p.mesh.report(p.id, true)
	}
	p.mu.Unlock()
	switch {
	case loser == nil:
	case reason != nil:
		loser.close(reason)
	default:
		loser.drain()
	}
}

// lose notes the end of a link before the calls under way hear of it. A call that is made again at once
// finds out here that the peer cannot be reached. Handlers of the peer's requests may still run.
func (p *peer) lose(l *link, reason error) {
	p.mu.Lock()
	if p.link != l {
		p.mu.Unlock()
		return
	}
	p.link = nil
	p.lastErr = reason
	p.lostAt, p.hungUp = time.Now().Add(-l.quiet()), 0
	closing, silent := errors.Is(reason, errClosing), errors.Is(reason, errSilent)
	if closing || silent {
		p.downLocked()
	}
	if !closing {
		if p.attempt != nil && p.tried { // the other node had dialled meanwhile: calls wait for what is under way here
			p.attempt, p.tried = make(chan struct{}), false
		}
		p.dialLocked()
		if silent {
			// A peer that fell silent is not expected to greet. The kernel of a paused process even accepts
			// connections. No call waits for the greeting while another node already leads.
			p.failing = true
			p.triedLocked()
		}
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
	p.mu.Unlock()
	p.mesh.log.Info("link lost", "peer", p.id, "reason", reason)
}

// ended is called once per link, when none of its goroutines is left.
func (p *peer) ended(l *link) {
	p.lose(l, l.err) // a link that ended before it was preferred
	p.mesh.mu.Lock()
	delete(p.mesh.links, l)
	p.mesh.mu.Unlock()
	p.mu.Lock()
	p.links--
	p.mu.Unlock()
	p.forget()
}
