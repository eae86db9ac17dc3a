package cluster

import (
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

func startGossip(t *testing.T, id fsm.NodeID, key string, join ...string) (*Gossip, *View) {
	t.Helper()
	cfg := testConfig(id)
	cfg.Join = join
	if key != "" {
		cfg.GossipKeys = [][]byte{[]byte(key)}
	}
	view := NewView()
	g, err := NewGossip(cfg, view, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5301}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g, view
}

func alive(g *Gossip) []fsm.NodeID {
	ids, _ := g.living()
	return ids
}

const testKey = "0123456789abcdef0123456789abcdef"

// What anybody may send to the gossip port neither stops the node nor makes members.
func TestGarbageOnTheGossipPort(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, key := range []string{"", testKey} {
		a, _ := startGossip(t, "a", key)
		label := []byte("\xf4\x04test") // so that it is looked at
		rng := rand.New(rand.NewPCG(3, 3))
		udp, err := net.Dial("udp", a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
		for i := range 3000 {
			b := make([]byte, rng.IntN(200))
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
			if i%2 == 0 {
				// A message type that there is, so that decoders are reached.
				b = append(append(slices.Clone(label), byte(i/2%13)), b...)
			}
			udp.Write(b)
			if i%30 == 0 {
				tcp, err := net.Dial("tcp", a.Addr())
				if err != nil {
					t.Fatal(err)
				}
				tcp.Write(b)
				tcp.Close()
			}
		}
		b, _ := startGossip(t, "b", key, a.Addr())
		waitFor(t, func() bool { return slices.Equal(alive(a), []fsm.NodeID{"a", "b"}) })
		a.Close()
		b.Close()
	}
	settleGoroutines(t, before)
}

func TestGossipWithAnotherKeyOrClusterIsNotHeard(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1 := s.start(s.config(1, 1), simIP(1))
		defer n1.stop()
		wrongKey, wrongName := s.config(2, 2), s.config(3, 3)
		wrongKey.GossipKeys = [][]byte{[]byte("ffffffffffffffffffffffffffffffff")}
		wrongName.ClusterName = "other"
		noKey := s.config(4, 4)
		noKey.GossipKeys = nil
		for i, cfg := range []Config{wrongKey, wrongName, noKey} {
			n := s.start(cfg, simIP(i+2))
			defer n.stop()
		}
		time.Sleep(2 * time.Minute)
		if got := n1.states(); got != "n1=alive " {
			t.Errorf("n1 sees %s, want itself", got)
		}
	})
}

// S-296, T-246: what nodes tell of leaders, of themselves and of their clocks gets around.
func TestWordsGetAround(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		var nodes []*simNode
		for i := 1; i <= 5; i++ {
			n := s.start(s.config(i, fsm.Incarnation(i)), simIP(i))
			defer n.stop()
			nodes = append(nodes, n)
		}
		// A word that a broadcast did not bring comes with the exchange of states with one node or another.
		const around = 6 * gossipStateInterval
		for _, n := range nodes {
			n.wantStates(t, "n1=alive n2=alive n3=alive n4=alive n5=alive ", around)
		}
		nodes[4].view.Announce(7, "n5", 3)
		nodes[1].view.Announce(7, "n2", 2) // late, and out of date
		if err := nodes[4].gossip.SetAddrs("10.0.0.5:5300", []string{"10.0.0.5:5671"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(around)
		for _, n := range nodes {
			if got, _ := n.view.Leader(7); got != "n5" {
				t.Errorf("%s believes that %q leads, want n5", n.cfg.Node, got)
			}
			m := n.gossip.Members()[4]
			if m.OpsAddr != "10.0.0.5:5300" || !slices.Equal(m.ClientAddrs, []string{"10.0.0.5:5671"}) {
				t.Errorf("%s knows %+v", n.cfg.Node, m)
			}
			if n != nodes[4] && (!m.SkewKnown || m.ClockSkew.Abs() > time.Second) {
				t.Errorf("%s: clock of n5 is %v ahead (known %v), want about 0", n.cfg.Node, m.ClockSkew, m.SkewKnown)
			}
		}
		late := s.start(s.config(6, 6), simIP(6))
		defer late.stop()
		late.wantStates(t, "n1=alive n2=alive n3=alive n4=alive n5=alive n6=alive ", 10*time.Second)
		synctest.Wait() // members come first in a state exchange, our words after them
		if got, _ := late.view.Leader(7); got != "n5" {
			t.Errorf("who joins later believes that %q leads, want n5", got)
		}
		if got := late.gossip.SetAddrs("", make([]string, MaxClientAddrs+1)); got == nil {
			t.Error("too many client addresses are accepted")
		}
	})
}

func TestLivesAreBounded(t *testing.T) {
	cfg := testConfig("a")
	cfg.MaxPeers = 2 // 8 lives
	g, err := NewGossip(cfg, NewView(), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	come := func(incarnation fsm.Incarnation) error {
		name, b := lifeName("b", incarnation), appendMeta(nil, meta{"b", incarnation, ":5301"})
		if err := g.admissible(name, b); err != nil {
			return err
		}
		g.arrived(name, "10.0.0.2", "10.0.0.2:5302", b)
		return nil
	}
	for i := range fsm.Incarnation(8) {
		if err := come(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := come(8); !errors.Is(err, errGossip) {
		t.Errorf("the ninth that is alive: %v, want a refusal", err)
	}
	g.departed(lifeName("b", 3))
	if err := come(8); err != nil {
		t.Errorf("after one has died: %v", err)
	}
	for i := range uint32(100) {
		g.heardDetail(detail{node: "stranger", incarnation: fsm.Incarnation(i), version: 1})
	}
	if got := len(g.details); got > 8 {
		t.Errorf("%d details are kept, want at most 8", got)
	}
	if !g.heardDetail(detail{node: "b", incarnation: 8, version: 1}) {
		t.Error("strangers keep a member's word out")
	}
	for name, b := range map[string][]byte{
		lifeName("b", 9): appendMeta(nil, meta{"c", 9, ":5301"}),
		"b":              appendMeta(nil, meta{"b", 9, ":5301"}),
		lifeName("c", 9): appendMeta(nil, meta{"c", 9, ":0"}),
		lifeName("d", 9): nil,
	} {
		if err := g.admissible(name, b); err == nil {
			t.Errorf("%s with %x is admitted", name, b)
		}
	}
}

func TestLinesOfTheGossipLibraryKeepTheirLevelAndAreLimited(t *testing.T) {
	for line, want := range map[string]hclog.Level{
		"[ERR] memberlist: x": hclog.Warn, "[WARN] memberlist: x": hclog.Warn,
		"[INFO] x": hclog.Debug, "[DEBUG] memberlist: x": hclog.Trace, "x": hclog.Debug,
	} {
		if level, text := levelOf(line); level != want || text != "x" {
			t.Errorf("%q: %v %q, want %v", line, level, text, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var lines countingWriter
		l := newGossipLog(hclog.New(&hclog.LoggerOptions{Output: &lines, Level: hclog.Trace}))
		for range 1000 {
			l.Print("[ERR] memberlist: a packet that does not parse")
			time.Sleep(time.Millisecond)
		}
		if lines > 3*maxGossipLinesPerSecond {
			t.Errorf("%d lines in a second, want at most %d", lines, 3*maxGossipLinesPerSecond)
		}
	})
}

type countingWriter int

func (w *countingWriter) Write(p []byte) (int, error) {
	*w++
	return len(p), nil
}
