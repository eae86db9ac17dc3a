package cluster

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Members returns every node that gossip knows, this one included, in order of their ids.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	newest := map[fsm.NodeID]*life{}
	for _, l := range g.lives {
		if newer(l, newest[l.node]) {
			newest[l.node] = l
		}
	}
	members := make([]Member, 0, len(newest))
	for _, l := range newest {
		m := Member{
			ID: l.node, Incarnation: l.incarnation, PeerAddr: l.address(), GossipAddr: l.gossipAddr,
			State: l.state, ClockSkew: l.skew, SkewKnown: l.skewKnown,
		}
		d, ok := g.details[lifeName(l.node, l.incarnation)]
		if l.node == g.cfg.Node {
			d, ok = g.self, true
		}
		if ok {
			m.OpsAddr, m.ClientAddrs = d.opsAddr, d.clientAddrs
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b Member) int {
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return members
}

// newer says which of two lives of a node speaks for it: one that is alive, else the later arrival.
func newer(a, b *life) bool {
	switch {
	case b == nil:
		return true
	case (a.state == MemberAlive) != (b.state == MemberAlive):
		return a.state == MemberAlive
	}
	return a.birth > b.birth
}

// Changed returns a channel that is closed at the next change of what Members returns, clocks and
// addresses aside. Take it before asking Members, then nothing is missed.
func (g *Gossip) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// Resolve returns the mesh address of a node. A node that died keeps its last one, because gossip may
// be wrong about it. A node that left has none, and neither has one whose address another node has now.
func (g *Gossip) Resolve(id fsm.NodeID) (string, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var best *life
	for _, l := range g.lives {
		if l.node == id && newer(l, best) {
			best = l
		}
	}
	if best == nil || best.state == MemberLeft {
		return "", false
	}
	addr := best.address()
	for _, l := range g.lives {
		if best.state != MemberAlive && l.state == MemberAlive && l.node != id && l.address() == addr {
			return "", false
		}
	}
	return addr, true
}

// Left reports whether the newest life of a node that gossip knows said goodbye.
func (g *Gossip) Left(id fsm.NodeID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var best *life
	for _, l := range g.lives {
		if l.node == id && newer(l, best) {
			best = l
		}
	}
	return best != nil && best.state == MemberLeft
}

// address fills in the host of a peer address that has none.
func (l *life) address() string {
	host, port, err := net.SplitHostPort(l.peerAddr)
	if err != nil || host != "" {
		return l.peerAddr
	}
	return net.JoinHostPort(l.host, port)
}

// alive counts the nodes that answer.
func (g *Gossip) alive() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, l := range g.lives {
		if l.state == MemberAlive {
			n++
		}
	}
	return max(n, 1)
}

func (g *Gossip) changedLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// maxLives bounds the incarnations remembered: a few restarts of every node at once.
func (g *Gossip) maxLives() int { return 4 * g.cfg.MaxPeers }

// admissible checks a life that gossip offers before memberlist believes in it.
func (g *Gossip) admissible(name string, b []byte) error {
	m, err := parseMeta(b)
	if err != nil {
		return err
	}
	if want := lifeName(m.node, m.incarnation); name != want {
		return fmt.Errorf("%w: named %q, want %q", errGossip, name, want)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lives[name] == nil && len(g.lives) >= g.maxLives() && !g.forgetOneLocked() {
		return fmt.Errorf("%w: already %d nodes", errGossip, len(g.lives))
	}
	return nil
}

// forgetOneLocked drops the life that died first.
func (g *Gossip) forgetOneLocked() bool {
	oldest := ""
	for name, l := range g.lives {
		if l.state != MemberAlive && (oldest == "" || l.birth < g.lives[oldest].birth) {
			oldest = name
		}
	}
	delete(g.lives, oldest)
	delete(g.details, oldest)
	return oldest != ""
}

// arrived notes that a life began or changed its address.
func (g *Gossip) arrived(name, host, gossipAddr string, b []byte) {
	m, err := parseMeta(b)
	if err != nil {
		return // refused by admissible
	}
	g.mu.Lock()
	l := g.lives[name]
	if l == nil {
		g.births++
		l = &life{birth: g.births}
		g.lives[name] = l
	}
	l.meta, l.host, l.gossipAddr, l.state = m, host, gossipAddr, MemberAlive
	for other, o := range g.lives {
		if o.node == m.node && o.state != MemberAlive {
			delete(g.lives, other)
			delete(g.details, other)
		}
	}
	g.changedLocked()
	addr := l.address()
	g.mu.Unlock()
	g.log.Info("node found", "peer", m.node, "incarnation", fmt.Sprintf("%x", uint64(m.incarnation)),
		"address", addr)
}

// departed notes that a life ended.
func (g *Gossip) departed(name string) {
	g.mu.Lock()
	l := g.lives[name]
	if l == nil {
		g.mu.Unlock()
		return
	}
	l.state = MemberDead
	if l.farewell {
		l.state = MemberLeft
	}
	for _, o := range g.lives {
		if o != l && o.node == l.node && newer(o, l) {
			delete(g.lives, name)
			delete(g.details, name)
			break
		}
	}
	g.changedLocked()
	node, state := l.node, l.state
	g.mu.Unlock()
	g.log.Info("node gone", "peer", node, "state", state)
}

// heardFarewell notes that a life ends on purpose, and reports whether it was news. It stays alive
// until memberlist says otherwise.
func (g *Gossip) heardFarewell(f farewell) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lives[lifeName(f.node, f.incarnation)]
	if l == nil || l.farewell || f.node == g.cfg.Node {
		return false
	}
	l.farewell = true
	if l.state == MemberDead {
		l.state = MemberLeft
		g.changedLocked()
	}
	return true
}

// heardDetail keeps a node's newest word about itself, and reports whether it was news.
func (g *Gossip) heardDetail(d detail) bool {
	name := lifeName(d.node, d.incarnation)
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.node == g.cfg.Node {
		return false
	}
	old, known := g.details[name]
	if known && d.version <= old.version {
		return false
	}
	if !known && len(g.details) >= g.maxLives() {
		// Words of nodes that were never met make room for those of one that was, and for no others.
		if g.lives[name] == nil || !g.forgetStrangerLocked() {
			return false
		}
	}
	g.details[name] = d
	g.changedLocked()
	return true
}

func (g *Gossip) forgetStrangerLocked() bool {
	for name := range g.details {
		if g.lives[name] == nil {
			delete(g.details, name)
			return true
		}
	}
	return false
}

// measured notes a node's clock: wall is what it read when it answered, half of rtt ago.
func (g *Gossip) measured(name string, wall fsm.Wall, rtt time.Duration) {
	ours := time.Now().Add(-rtt / 2).UnixMilli()
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.lives[name]; l != nil {
		// The difference of two hostile numbers must not overflow into a small one.
		ahead := min(max(int64(wall)-ours, -maxSkewMillis), maxSkewMillis)
		if wall < 0 {
			ahead = -maxSkewMillis
		}
		l.skew, l.skewKnown = time.Duration(ahead)*time.Millisecond, true
	}
}

// maxSkewMillis caps a measured skew: 100 years.
const maxSkewMillis = 100 * 366 * 24 * 3600 * 1000
