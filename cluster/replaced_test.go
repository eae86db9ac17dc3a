package cluster

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// lostLinks counts the lines of a log that tell of the loss of a link.
type lostLinks struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lostLinks) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lostLinks) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), "link lost")
}

// A node whose disk was replaced comes back at its address under a new identity. The others had links to the old
// identity, and keep those to the new one.
func TestAReplacedDiskAtTheSameAddressLosesNoLink(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		logs := map[string]*lostLinks{}
		s.log = func(ip string) hclog.Logger {
			logs[ip] = &lostLinks{}
			return hclog.New(&hclog.LoggerOptions{Output: logs[ip]})
		}
		nodes := []*simNode{}
		for i := 1; i <= 3; i++ {
			nodes = append(nodes, s.start(s.config(i, fsm.Incarnation(i)), simIP(i)))
		}
		n1, n2 := nodes[0], nodes[1]
		defer n1.stop()
		defer n2.stop()
		for _, n := range nodes {
			n.wantStates(t, "n1=alive n2=alive n3=alive ", 20*time.Second)
		}
		mustCall(t, n1.node, "n3", "connect")
		mustCall(t, n2.node, "n3", "connect")
		nodes[2].kill()
		time.Sleep(3 * time.Second)
		again := s.start(s.config(4, 4), simIP(3))
		defer again.stop()
		n1.wantStates(t, "n1=alive n2=alive n3=dead n4=alive ", 20*time.Second)
		n2.wantStates(t, "n1=alive n2=alive n3=dead n4=alive ", 20*time.Second)
		mustCall(t, again.node, "n1", "from the new identity")
		mustCall(t, n2.node, "n4", "to the new identity")
		before := 0
		for _, l := range logs {
			before += l.count()
		}
		// Raft goes on calling the lost voter, and so do others.
		for range 5 * 60 {
			time.Sleep(time.Second)
			for _, n := range []*simNode{n1, n2} {
				if _, err := n.Call(testContext(t), "n3", kindEcho, nil); !errors.Is(err, fsm.ErrUnavailable) {
					t.Fatalf("a call to the lost identity: %v, want ErrUnavailable", err)
				}
				mustCall(t, n.node, "n4", "still here")
			}
		}
		after := 0
		for _, l := range logs {
			after += l.count()
		}
		if after != before {
			t.Errorf("%d links were lost in five quiet minutes", after-before)
		}
	})
}

// The rest of the rule, without gossip's help: the acceptor refuses a dialler that wants another node before its link
// meets the one there is, and the dialler gives up.
func TestADiallerThatWantsAnotherNodeGetsNoLink(t *testing.T) {
	var names book
	log := &lostLinks{}
	a := startNode(t, &names, testConfig("a"))
	b, err := NewMesh(testConfig("b"), names.resolve, hclog.New(&hclog.LoggerOptions{Output: log}))
	if err != nil {
		t.Fatal(err)
	}
	nb := &node{Mesh: b, parked: make(chan struct{}, 1), unparked: make(chan struct{}, 1)}
	nb.serveTestKinds()
	if err := nb.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nb.Close() })
	names.set("b", nb.Addr().String())
	names.set("dead", nb.Addr().String())
	mustCall(t, a, "b", "the good link")
	for range 5 {
		_, err := a.Call(testContext(t), "dead", kindEcho, nil)
		if !errors.Is(err, fsm.ErrUnavailable) || !errors.Is(err, errOtherNode) {
			t.Fatalf("%v, want ErrUnavailable because another node is there", err)
		}
	}
	mustCall(t, a, "b", "still the good link")
	// It is forgotten behind the end of the call.
	waitFor(t, func() bool {
		return !slices.ContainsFunc(a.Peers(), func(p PeerState) bool { return p.Node == "dead" })
	})
	if n := log.count(); n != 0 {
		t.Errorf("%d links were lost", n)
	}
}

// The build before speaks version 2 only. It hangs up on a later one, and is greeted again.
func TestTheBuildBeforeIsGreeted(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig("a")
			var ca *authority
			if secure {
				ca = newAuthority(t)
				cfg.TLS = ca.tls(t)
			}
			var names book
			a := startNode(t, &names, cfg)
			if secure {
				names.set("z", oldNode(t, a, ca.tls(t)))
			} else {
				names.set("z", oldNode(t, a, nil))
			}
			mustConnect(t, a, "z")
			if p := a.Peers(); len(p) != 1 || p[0].Node != "z" || !p[0].Up {
				t.Errorf("peers %+v, want a link to z", p)
			}
		})
	}
	t.Run("it dials", func(t *testing.T) {
		var names book
		a := startNode(t, &names, testConfig("a"))
		c := dialRaw(t, a)
		_, _ = c.Write(appendHello(nil, identity{version: 2, cluster: "test", node: "y", incarnation: 9}))
		if got, err := readHello(c); err != nil || got.version != 2 || got.node != "a" {
			t.Errorf("hello %+v, %v; want version 2 of a", got, err)
		}
		refused := dialRaw(t, a)
		_, _ = refused.Write(appendHello(nil, identity{version: 2, cluster: "other", node: "y", incarnation: 9}))
		header := make([]byte, helloHeaderBytes)
		if _, err := io.ReadFull(refused, header); err != nil || header[4] != 2 || header[5] != helloRefused {
			t.Errorf("refusal %x, %v; want one of version 2", header, err)
		}
	})
}

func mustConnect(t *testing.T, from *node, to fsm.NodeID) {
	t.Helper()
	if err := from.Connect(testContext(t), to); err != nil {
		t.Fatal(err)
	}
}

// oldNode listens as node z of the build before, and returns its address.
func oldNode(t *testing.T, a *node, security *TLS) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	old := &Mesh{cfg: testConfig("z")}
	old.cfg.TLS = security
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conn, err := old.secure(testContext(t), c, false)
			var header [helloHeaderBytes]byte
			if err == nil {
				_, err = io.ReadFull(conn, header[:])
			}
			if err != nil || header[4] != 2 {
				c.Close()
				continue
			}
			_, _ = io.CopyN(io.Discard, conn, int64(header[6])<<8|int64(header[7]))
			_, _ = conn.Write(appendHello(nil, old.identity(2, "")))
			go func() { _, _ = io.Copy(io.Discard, conn); c.Close() }()
		}
	}()
	return l.Addr().String()
}

// A later build may say more behind the names.
func TestFieldsThatALaterBuildAddsArePassedOver(t *testing.T) {
	b := appendHello(nil, identity{cluster: "test", node: "z", incarnation: 9, wants: "a"})
	b = append(b, 200, 3, 'x', 'y', 'z', 201, 0)
	b[7] += 7
	id, err := readHello(bytes.NewReader(b))
	if err != nil || id.node != "z" || id.wants != "a" {
		t.Errorf("%+v, %v", id, err)
	}
	b[len(b)-1] = 1 // a field that ends behind the body
	if id, err := readHello(bytes.NewReader(b)); err == nil {
		t.Errorf("a field without its bytes was read as %+v", id)
	}
}
