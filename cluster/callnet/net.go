package callnet

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Config says how a network behaves. The zero value breaks a link at each cut and leaves nothing to chance.
type Config struct {
	// Silence is how long nothing may arrive from a peer until their link is given up, as by the mesh (A17). Data that is
	// cut off waits until then, as with TCP. With 0 a cut ends the calls under way, and calls that begin fail.
	Silence time.Duration
	// Check is how often silence is looked for, and Redial how long a link stays down at least. Both count with Silence.
	Check, Redial time.Duration
	// Rand draws times and what becomes of calls; nil without chance.
	Rand *rand.Rand
	// Repeats says which kinds of calls may arrive twice; nil for none.
	Repeats func(kind uint8) bool
	// Observe is told each call before it begins, and Note what chance did to one; nil for neither. They must not block.
	Observe func(from, to fsm.NodeID, kind uint8)
	Note    func(what string)
}

// Net is the network between the nodes: calls over one link per pair. It is safe for concurrent use.
type Net struct {
	cfg Config

	mu      sync.Mutex
	ports   map[fsm.NodeID]*Port // the present life of each node
	ids     []fsm.NodeID         // all nodes that ever were, in order
	cut     map[[2]fsm.NodeID]bool
	links   map[[2]fsm.NodeID]*link
	news    chan struct{} // closed and replaced whenever something changed
	calls   map[uint8]int
	swallow func(from, to fsm.NodeID, kind uint8, b []byte) bool

	delay, jitter    time.Duration
	lateChance       float64
	copyChance       float64
	done             chan struct{}
	wg               sync.WaitGroup
	closedFromBefore chan struct{} // closed: the loss of a link that cannot bring an answer
}

// link is the connection of a pair of nodes.
type link struct {
	up     bool
	lost   chan struct{} // closed when it goes down
	since  time.Time     // of the last change
	silent [2]time.Time  // since when nothing arrives, per direction; zero if something can
}

// New returns a network without nodes.
func New(cfg Config) *Net {
	n := &Net{
		cfg: cfg, ports: map[fsm.NodeID]*Port{}, cut: map[[2]fsm.NodeID]bool{}, links: map[[2]fsm.NodeID]*link{},
		news: make(chan struct{}), calls: map[uint8]int{}, done: make(chan struct{}), closedFromBefore: make(chan struct{}),
	}
	close(n.closedFromBefore)
	if cfg.Silence > 0 {
		n.wg.Add(1)
		go n.watch()
	}
	return n
}

// Close waits for all calls under way. Handlers must have ended, or end by themselves.
func (n *Net) Close() {
	close(n.done)
	n.wg.Wait()
}

func pair(a, b fsm.NodeID) [2]fsm.NodeID {
	if b < a {
		a, b = b, a
	}
	return [2]fsm.NodeID{a, b}
}

// Attach makes a port reachable: its handlers are registered. It takes the place of an earlier life of its node.
func (n *Net) Attach(p *Port) {
	n.change(func() {
		n.ports[p.id] = p
		if !slices.Contains(n.ids, p.id) {
			n.ids = append(n.ids, p.id)
			slices.Sort(n.ids)
		}
		for _, o := range n.ids {
			if o != p.id {
				n.linkLocked(p.id, o)
			}
		}
	})
}

// linkLocked returns the link of two nodes. Without silence a link is up from its beginning on.
func (n *Net) linkLocked(a, b fsm.NodeID) *link {
	l := n.links[pair(a, b)]
	if l == nil {
		l = &link{lost: make(chan struct{}), up: n.cfg.Silence == 0}
		n.links[pair(a, b)] = l
	}
	return l
}

// dropLocked ends a link; gone says that its ends take each other for lost.
func (n *Net) dropLocked(a, b fsm.NodeID, l *link, gone bool) {
	if !l.up {
		return
	}
	l.up, l.since = n.cfg.Silence == 0, time.Now()
	close(l.lost)
	l.lost = make(chan struct{})
	if !gone {
		return
	}
	for _, e := range [][2]fsm.NodeID{{a, b}, {b, a}} {
		if p := n.ports[e[0]]; p != nil && p.lost != nil {
			n.wg.Add(1)
			go func() { defer n.wg.Done(); p.lost(e[1]) }()
		}
	}
}

func (n *Net) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.news)
	n.news = make(chan struct{})
}

// SetCut cuts the way from one node to another, or restores it.
func (n *Net) SetCut(from, to fsm.NodeID, cut bool) {
	n.change(func() {
		n.cut[[2]fsm.NodeID{from, to}] = cut
		if l := n.links[pair(from, to)]; cut && l != nil && n.cfg.Silence == 0 {
			n.dropLocked(from, to, l, false)
		}
	})
}

// Isolate cuts all ways to and from a node, or restores them.
func (n *Net) Isolate(id fsm.NodeID, cut bool) {
	n.mu.Lock()
	ids := slices.Clone(n.ids)
	n.mu.Unlock()
	for _, o := range ids {
		if o != id {
			n.SetCut(id, o, cut)
			n.SetCut(o, id, cut)
		}
	}
}

// Heal ends every cut and pause.
func (n *Net) Heal() {
	n.change(func() {
		clear(n.cut)
		for _, p := range n.ports {
			p.frozen = false
		}
	})
}

// Reset breaks the connection of two nodes that go on living and can connect again.
func (n *Net) Reset(a, b fsm.NodeID) {
	n.change(func() {
		if l := n.links[pair(a, b)]; l != nil {
			n.dropLocked(a, b, l, false)
		}
	})
}

// Freeze pauses a process as far as the network can tell: what goes to it or comes from it waits.
func (n *Net) Freeze(id fsm.NodeID, frozen bool) {
	n.change(func() {
		if p := n.ports[id]; p != nil {
			p.frozen = frozen
		}
	})
}

// SetDelay sets the least time that a call or an answer takes, and what may be added by chance: so calls overtake each
// other.
func (n *Net) SetDelay(least, jitter time.Duration) {
	n.change(func() { n.delay, n.jitter = least, jitter })
}

// Delay is the least time that a call or an answer takes.
func (n *Net) Delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delay
}

// SetChances sets how often a call that was given up arrives all the same, and how often a call that Config.Repeats
// names arrives once more. The mesh never does the latter, but raft must not mind.
func (n *Net) SetChances(late, again float64) {
	n.change(func() { n.lateChance, n.copyChance = late, again })
}

// Swallow has the calls that f takes never arrive, and never be answered; nil for none.
func (n *Net) Swallow(f func(from, to fsm.NodeID, kind uint8, b []byte) bool) {
	n.change(func() { n.swallow = f })
}

// Calls is how many calls of a kind there were.
func (n *Net) Calls(kind uint8) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[kind]
}

// passesLocked reports whether a message gets from one node to another now. A port that is not attached can call all
// the same if there is no silence to be found.
func (n *Net) passesLocked(from, to fsm.NodeID) bool {
	a, b := n.ports[from], n.ports[to]
	if n.cfg.Silence > 0 && (a == nil || b == nil) || a != nil && a.frozen || b != nil && b.frozen {
		return false
	}
	return !n.cut[[2]fsm.NodeID{from, to}]
}

// Passes reports whether a message gets from one node to another now.
func (n *Net) Passes(from, to fsm.NodeID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.passesLocked(from, to)
}

// watch gives up silent links and restores those that can be.
func (n *Net) watch() {
	defer n.wg.Done()
	t := time.NewTicker(n.cfg.Check)
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

func (n *Net) judgeLocked(a, b fsm.NodeID, l *link) {
	now := time.Now()
	silent := false
	for i, way := range [2][2]fsm.NodeID{{a, b}, {b, a}} {
		switch {
		case n.passesLocked(way[0], way[1]):
			l.silent[i] = time.Time{}
		case l.silent[i].IsZero():
			l.silent[i] = now
		}
		silent = silent || !l.silent[i].IsZero() && now.Sub(l.silent[i]) >= n.cfg.Silence
	}
	switch {
	case l.up && silent:
		n.dropLocked(a, b, l, true)
	case !l.up && n.passesLocked(a, b) && n.passesLocked(b, a) && now.Sub(l.since) >= n.cfg.Redial:
		l.up, l.since = true, now
	}
}

// travel draws the time that a message takes.
func (n *Net) travel() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.delay
	if n.jitter > 0 {
		d += time.Duration(n.cfg.Rand.Int64N(int64(n.jitter)))
	}
	return d
}

func (n *Net) chance(p func(*Net) float64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p(n) > 0 && n.cfg.Rand.Float64() < p(n)
}

func late(n *Net) float64  { return n.lateChance }
func again(n *Net) float64 { return n.copyChance }

func (n *Net) note(what string) {
	if n.cfg.Note != nil {
		n.cfg.Note(what)
	}
}
