package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// A node with another root key, or of a cluster that others founded, is refused on both sides, and both logs say why,
// once. A node that tells neither is of the build before, or has not joined yet.
func TestNodesOfAnotherClusterAreRefused(t *testing.T) {
	versions := func(newest, oldest, has fsm.Version) func(*Config) {
		return func(c *Config) {
			c.Versions = func() Versions { return Versions{Newest: newest, Oldest: oldest, Has: has} }
		}
	}
	always := func(d Digest) func() Digest { return func() Digest { return d } }
	for name, c := range map[string]struct {
		a, b       func(*Config)
		reason     string // "" if they take each other
		complaints string // that are logged all the same
	}{
		"another key": {func(c *Config) { c.RootKey = always(Digest{1}) }, func(c *Config) { c.RootKey = always(Digest{2}) },
			"root key is another one", ""},
		"other founders": {func(c *Config) { c.Founded = always(Digest{1}) }, func(c *Config) { c.Founded = always(Digest{2}) },
			"that other nodes founded", ""},
		"the same": {func(c *Config) { c.RootKey, c.Founded = always(Digest{1}), always(Digest{3}) },
			func(c *Config) { c.RootKey, c.Founded = always(Digest{1}), always(Digest{3}) }, "", ""},
		"one tells nothing":       {func(c *Config) { c.RootKey, c.Founded = always(Digest{1}), always(Digest{3}) }, func(*Config) {}, "", ""},
		"one minor release apart": {versions(105, 1, 1), versions(203, 101, 1), "", ""},
		"two minor releases apart": {versions(105, 1, 1), versions(301, 200, 1),
			"knows cluster versions up to 0.1-5, and this node works with 0.2-0 and later: upgrade by one minor release at a time, " +
				"to 0.2 first", ""},
		"the dialler is the newer one": {versions(301, 200, 201), versions(199, 1, 1), "this node knows cluster versions up to " +
			"0.1-99, and the cluster of node a has 0.2-1: run release 0.2 or later on this node", ""},
		"finalized": {versions(105, 1, 1), versions(203, 101, 201),
			"node a knows cluster versions up to 0.1-5, and the cluster of this node has 0.2-1: run release 0.2 or later on node a", ""},
		"finalized at what both know": {versions(105, 1, 101), versions(203, 101, 101), "", ""},
		"a program before versions":   {func(*Config) {}, versions(101, 0, 1), "", ""},
		"the same after the end of an upgrade": {func(*Config) {}, versions(101, 0, 101),
			"node a knows cluster versions up to 0.0-1, and the cluster of this node has 0.1-1: run release 0.1", ""},
		"members whose key is being changed": {
			func(c *Config) { c.RootKey, c.Known = always(Digest{1}), func(id fsm.NodeID) bool { return id == "b" } },
			func(c *Config) { c.RootKey, c.Known = always(Digest{2}), func(id fsm.NodeID) bool { return id == "a" } },
			"", "a member of the cluster has another root key"},
	} {
		t.Run(name, func(t *testing.T) {
			var names book
			start := func(id fsm.NodeID, change func(*Config)) (*node, *lostLinks) {
				cfg := testConfig(id)
				change(&cfg)
				log := &lostLinks{}
				m, err := NewMesh(cfg, names.resolve, hclog.New(&hclog.LoggerOptions{Output: log}))
				if err != nil {
					t.Fatal(err)
				}
				n := &node{Mesh: m, parked: make(chan struct{}, 1), unparked: make(chan struct{}, 1)}
				n.serveTestKinds()
				if err := n.Start(); err != nil {
					t.Fatal(err)
				}
				names.set(id, n.Addr().String())
				return n, log
			}
			a, logA := start("a", c.a)
			b, logB := start("b", c.b)
			for range 3 {
				_, err := a.Call(testContext(t), "b", kindEcho, nil)
				if c.reason == "" && err != nil || c.reason != "" && !errors.Is(err, fsm.ErrUnavailable) {
					t.Errorf("a call: %v", err)
				}
			}
			a.Close()
			b.Close()
			for which, log := range map[string]*lostLinks{"dialler": logA, "listener": logB} {
				text := log.b.String()
				if other := map[string]string{"dialler": "peer=b", "listener": "peer=a"}[which]; c.reason != "" &&
					!strings.Contains(text, other) {
					t.Errorf("the log of the %s does not name the other node:\n%s", which, text)
				}
				if c.reason != "" && strings.Count(text, c.reason) != 1 {
					t.Errorf("the log of the %s tells the reason %d times:\n%s", which, strings.Count(text, c.reason), text)
				}
				if c.reason+c.complaints == "" && strings.Contains(text, "[WARN]") {
					t.Errorf("the %s complains:\n%s", which, text)
				}
				if c.complaints != "" && strings.Count(text, c.complaints) != 1 {
					t.Errorf("the log of the %s:\n%s", which, text)
				}
			}
		})
	}
}

func TestRefusalsAreLoggedNowAndThen(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		log := &lostLinks{}
		cfg := testConfig("a")
		m, err := NewMesh(cfg, (&book{}).resolve, hclog.New(&hclog.LoggerOptions{Output: log}))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for range 3600 {
			m.tellOnce("refused", "b", errOtherKey)
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.b.String(), "refused"); n != 6 {
			t.Errorf("%d lines in an hour", n)
		}
		for i := range 2 * maxRefusals {
			m.tellOnce("refused", fsm.NodeID(strings.Repeat("z", i/64+1)+string(rune('0'+i%64))), errOtherKey)
		}
		if len(m.refusals) > maxRefusals {
			t.Errorf("%d refusals are remembered", len(m.refusals))
		}
	})
}

// The table of versions has the forms that are written here.
func TestTheTableHasTheForms(t *testing.T) {
	for name, number := range map[string]int{"hello": helloVersion, "gossip": gossipVersion, "founders": bootstrapVersion} {
		if known := fsm.NewestFormat(name); known != number {
			t.Errorf("%s: form %d is written, fsm/versions.go has %d", name, number, known)
		}
	}
}
