package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cluster/simnet"
	"github.com/busbar-mq/busbar/fsm"
)

// simNode is a whole node of the room on a simulated host.
type simNode struct {
	*node
	host   *simnet.Host
	gossip *Gossip
	view   *View
	events chan string // what the watcher was told, as "b up"
}

// simNet starts nodes n1, n2, … on 10.0.0.1, 10.0.0.2, …, all of which join n1.
type simNet struct {
	t   *testing.T
	net *simnet.Net
	// between is what the streams of a node go through, nil for nothing.
	between func(*simnet.Host) Network
	// log makes the log of a node, nil for none.
	log func(ip string) hclog.Logger
}

func simIP(i int) string { return fmt.Sprintf("10.0.0.%d", i) }

func (s *simNet) config(i int, incarnation fsm.Incarnation) Config {
	cfg := testConfig(fsm.NodeID(fmt.Sprintf("n%d", i)))
	cfg.Incarnation = incarnation
	cfg.PeerListen, cfg.GossipListen = ":5301", ":5302"
	cfg.Join = []string{simIP(1) + ":5302"}
	cfg.GossipKeys = [][]byte{[]byte("0123456789abcdef0123456789abcdef")}
	return cfg
}

func (s *simNet) start(cfg Config, ip string) *simNode {
	s.t.Helper()
	n := s.build(cfg, ip)
	n.open(s.t)
	return n
}

// pair starts two nodes that see each other.
func (s *simNet) pair() (n1, n2 *simNode) {
	s.t.Helper()
	n1, n2 = s.start(s.config(1, 1), simIP(1)), s.start(s.config(2, 2), simIP(2))
	for _, n := range []*simNode{n1, n2} {
		n.wantStates(s.t, "n1=alive n2=alive ", 20*time.Second)
	}
	return n1, n2
}

func (s *simNet) build(cfg Config, ip string) *simNode {
	s.t.Helper()
	host := s.net.Host(ip)
	transport, err := host.Gossip(5302)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.Network, cfg.GossipTransport = host, transport
	if s.between != nil {
		cfg.Network = s.between(host)
	}
	log := hclog.NewNullLogger()
	if s.log != nil {
		log = s.log(ip)
	}
	n := &simNode{host: host, view: NewView(), events: make(chan string, 1000)}
	if n.gossip, err = NewGossip(cfg, n.view, hclog.NewNullLogger()); err != nil {
		s.t.Fatal(err)
	}
	m, err := NewMesh(cfg, n.gossip.Resolve, log)
	if err != nil {
		s.t.Fatal(err)
	}
	n.node = &node{Mesh: m, parked: make(chan struct{}, 1024), unparked: make(chan struct{}, 1024), gate: make(chan struct{})}
	n.serveTestKinds()
	m.Watch(func(id fsm.NodeID, up bool) {
		if up {
			n.events <- string(id) + " up"
		} else {
			n.events <- string(id) + " down"
		}
	})
	return n
}

func (n *simNode) open(t *testing.T) {
	t.Helper()
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := n.gossip.Start(n.Addr()); err != nil {
		t.Fatal(err)
	}
}

// kill ends the node as kill -9 does: the network notices first.
func (n *simNode) kill() {
	n.host.Kill()
	n.stop()
}

func (n *simNode) stop() {
	n.gossip.Close()
	n.Close()
}

// states describes Members in one line.
func (n *simNode) states() string {
	s := ""
	for _, m := range n.gossip.Members() {
		s += fmt.Sprintf("%s=%v ", m.ID, m.State)
	}
	return s
}

func (n *simNode) wantStates(t *testing.T, want string, within time.Duration) {
	t.Helper()
	limit := time.Now().Add(within)
	for {
		changed := n.gossip.Changed()
		got := n.states()
		if got == want {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Until(limit)):
			t.Fatalf("%s sees %q after %v, want %q", n.cfg.Node, got, within, want)
		}
	}
}

func inBubble(t *testing.T, f func(t *testing.T, s *simNet)) {
	simnet.Test(t, func(t *testing.T) { f(t, &simNet{t: t, net: simnet.New()}) })
}

func TestThreeNodesFindEachOtherAndOneDies(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		var nodes []*simNode
		for i := 1; i <= 3; i++ {
			n := s.start(s.config(i, fsm.Incarnation(i)), simIP(i))
			defer n.stop()
			nodes = append(nodes, n)
		}
		for _, n := range nodes {
			n.wantStates(t, "n1=alive n2=alive n3=alive ", 5*time.Second)
		}
		for _, n := range nodes {
			for _, to := range nodes {
				mustCall(t, n.node, to.cfg.Node, "resolved by gossip")
			}
		}
		nodes[2].kill()
		for _, n := range nodes[:2] {
			n.wantStates(t, "n1=alive n2=alive n3=dead ", 20*time.Second)
			if _, ok := n.gossip.Resolve("n3"); !ok {
				t.Error("a dead node has no address, want its last one: gossip may be wrong")
			}
		}
		if err := nodes[1].gossip.Leave(); err != nil {
			t.Error(err)
		}
		nodes[0].wantStates(t, "n1=alive n2=left n3=dead ", 20*time.Second)
		if _, ok := nodes[0].gossip.Resolve("n2"); ok {
			t.Error("a node that left has an address, want none")
		}
	})
}

func TestANodeComesBackUnderAnotherAddress(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n1.node, "n2", "first life")
		n2.kill()
		again := s.start(s.config(2, 3), simIP(77))
		defer again.stop()
		limit := time.Now().Add(5 * time.Second)
		for {
			changed := n1.gossip.Changed()
			if addr, _ := n1.gossip.Resolve("n2"); addr == simIP(77)+":5301" {
				break
			}
			select {
			case <-changed:
			case <-time.After(time.Until(limit)):
				t.Fatal("the new address was not heard within 5 s")
			}
		}
		time.Sleep(2 * n1.cfg.RedialMax) // virtual: the pause of the redial
		mustCall(t, n1.node, "n2", "second life")
		if m := n1.gossip.Members()[1]; m.Incarnation != 3 || m.State != MemberAlive {
			t.Errorf("n2 is %+v, want incarnation 3, alive", m)
		}
	})
}

// awaitByte waits until something comes from another node.
func (n *simNode) awaitByte() {
	received := func() (all uint64) {
		for _, p := range n.Peers() {
			all += p.Received
		}
		return all
	}
	for before := received(); received() == before; {
		time.Sleep(time.Millisecond)
	}
}

func TestSilenceIsNoticedAfterOneAndAHalfSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n1.node, "n2", "connect")
		wantEvent(t, n1, "n2 up")
		time.Sleep(time.Minute) // pings keep an idle link alive
		synctest.Wait()
		if len(n1.events) != 0 {
			t.Fatalf("an idle link was reported: %s", <-n1.events)
		}
		n1.awaitByte() // silence counts from the last one
		parked := make(chan error, 1)
		go func() {
			_, err := n1.Call(testContext(t), "n2", kindPark, nil)
			parked <- err
		}()
		<-n2.parked
		s.net.Cut(simIP(1), simIP(2))
		cut := time.Now()
		wantEvent(t, n1, "n2 down")
		if took := time.Since(cut); took < 1250*time.Millisecond || took > 1750*time.Millisecond {
			t.Errorf("silence noticed after %v, want 1.5 s give or take a ping", took)
		}
		if err := <-parked; !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("the call under way ended %v, want ErrUnknown", err)
		}
		<-n2.unparked // n2 has noticed, too, and ended the handler
		asked := time.Now()
		_, err := n1.Call(testContext(t), "n2", kindEcho, nil)
		if took := time.Since(asked); !errors.Is(err, fsm.ErrUnavailable) || took > 10*time.Millisecond {
			t.Errorf("a call during the cut ended %v after %v, want ErrUnavailable at once", err, took)
		}
		s.net.Heal()
		wantEvent(t, n1, "n2 up")
		mustCall(t, n1.node, "n2", "healed")
	})
}

func TestAKilledProcessIsReportedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n1.node, "n2", "connect")
		wantEvent(t, n1, "n2 up")
		killed := time.Now()
		n2.host.Kill()
		wantEvent(t, n1, "n2 down")
		if took := time.Since(killed); took > 10*time.Millisecond {
			t.Errorf("reported after %v, want at once: the redial is refused", took)
		}
	})
}

// proxied dials as through a proxy on the way: it takes every connection, and ends it if it cannot reach
// the other side. busy is how many it ends although it could.
type proxied struct {
	*simnet.Host
	busy   atomic.Int32
	silent bool // it keeps them instead of ending them
}

func (p *proxied) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := p.Host.Dial(ctx, addr)
	if err == nil && p.busy.Add(-1) < 0 {
		return c, nil
	}
	if err == nil {
		c.Close()
	}
	here, there := net.Pipe()
	go func() {
		_, _ = there.Read(make([]byte, 1<<10))
		if p.silent {
			_, _ = there.Read(make([]byte, 1)) // until the other end gives up
		}
		there.Close()
	}()
	return here, nil
}

func TestAKilledProcessBehindAProxyIsReportedSoon(t *testing.T) {
	for name, silent := range map[string]bool{"it hangs up": false, "it keeps silent": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *simNet) {
				s.between = func(h *simnet.Host) Network { return &proxied{Host: h, silent: silent} }
				n1, n2 := s.pair()
				defer n1.stop()
				defer n2.stop()
				mustCall(t, n1.node, "n2", "connect")
				wantEvent(t, n1, "n2 up")
				killed := time.Now()
				n2.host.Kill()
				wantEvent(t, n1, "n2 down")
				limit := 100 * time.Millisecond
				if silent { // as a process that is paused
					limit = 1750 * time.Millisecond
				}
				if took := time.Since(killed); took > limit {
					t.Errorf("reported after %v, want %v at most", took, limit)
				}
			})
		})
	}
}

// A proxy that hangs up once, or a node that has no place for a moment, is no reason.
func TestOneHangUpIsNotReported(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		var proxies []*proxied
		s.between = func(h *simnet.Host) Network {
			proxies = append(proxies, &proxied{Host: h})
			return proxies[len(proxies)-1]
		}
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n1.node, "n2", "connect")
		wantEvent(t, n1, "n2 up")
		for range 20 {
			for _, p := range proxies {
				p.busy.Store(hangUps - 1)
			}
			s.net.Reset(simIP(1), simIP(2))
			time.Sleep(10 * time.Second)
			mustCall(t, n1.node, "n2", "again")
		}
		synctest.Wait()
		if len(n1.events) != 0 {
			t.Errorf("watchers heard %s, want nothing", <-n1.events)
		}
	})
}

func TestAResetThatCanBeRedialledIsNotReported(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n1.node, "n2", "connect")
		wantEvent(t, n1, "n2 up")
		for range 20 {
			s.net.Reset(simIP(1), simIP(2))
			time.Sleep(10 * time.Second)
			mustCall(t, n1.node, "n2", "again")
			mustCall(t, n2.node, "n1", "and back")
		}
		synctest.Wait()
		if len(n1.events) != 0 {
			t.Errorf("watchers heard %s, want nothing", <-n1.events)
		}
	})
}

func wantEvent(t *testing.T, n *simNode, want string) {
	t.Helper()
	select {
	case got := <-n.events:
		if got != want {
			t.Fatalf("%s heard %q, want %q", n.cfg.Node, got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s heard nothing, want %q", n.cfg.Node, want)
	}
}
