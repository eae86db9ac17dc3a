package cluster

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

func TestPlaceIsBalancedStableAndDeterministic(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for nodes := 1; nodes <= 12; nodes++ {
		for replicas := 1; replicas <= 5; replicas++ {
			for _, partitions := range []int{1, 2, 3, 6, 7, 16, 60} {
				name := fmt.Sprintf("%d nodes, %d replicas, %d partitions", nodes, replicas, partitions)
				all, some := make([]fsm.PartitionID, partitions), []fsm.PartitionID(nil)
				for i := range all {
					all[i] = fsm.PartitionID(i + 1)
				}
				some = all[:partitions/2]
				placed := Place(ids(nodes), all, replicas)
				shuffledNodes, shuffled := ids(nodes), slices.Clone(all)
				rng.Shuffle(nodes, func(i, j int) {
					shuffledNodes[i], shuffledNodes[j] = shuffledNodes[j], shuffledNodes[i]
				})
				rng.Shuffle(partitions, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				if again := Place(shuffledNodes, shuffled, replicas); !maps.EqualFunc(placed, again, slices.Equal) {
					t.Errorf("%s: the order of the input changes the answer", name)
				}
				for p, members := range Place(ids(nodes), some, replicas) {
					if !slices.Equal(members, placed[p]) {
						t.Errorf("%s: partition %d moves when others are added", name, p)
					}
				}
				checkBalance(t, name, placed, nodes, min(nodes, replicas), partitions)
			}
		}
	}
	if got := Place(nil, []fsm.PartitionID{1}, 3); len(got) != 0 {
		t.Errorf("no nodes: %v, want nothing", got)
	}
	if got := Place(ids(3), []fsm.PartitionID{1}, -1); len(got) != 0 {
		t.Errorf("-1 replicas: %v, want nothing", got)
	}
}

func checkBalance(
	t *testing.T, name string, placed map[fsm.PartitionID][]fsm.NodeID, nodes, replicas, partitions int,
) {
	t.Helper()
	hosts, leads := map[fsm.NodeID]int{}, map[fsm.NodeID]int{}
	if len(placed) != partitions {
		t.Errorf("%s: %d were placed", name, len(placed))
	}
	for p, members := range placed {
		if len(sortedSet(members)) != replicas || len(members) != replicas {
			t.Errorf("%s: partition %d on %v", name, p, members)
		}
		for _, id := range members {
			hosts[id]++
		}
		leads[members[0]]++
	}
	for what, counts := range map[string]map[fsm.NodeID]int{"replicas": hosts, "leaders": leads} {
		low, high := partitions*replicas, 0
		for _, id := range ids(nodes) {
			low, high = min(low, counts[id]), max(high, counts[id])
		}
		if high-low > 1 {
			t.Errorf("%s: between %d and %d %s per node: %v", name, low, high, what, counts)
		}
	}
}

func TestPreferredLeadersSkipNodesThatAreDown(t *testing.T) {
	placed := Place(ids(3), []fsm.PartitionID{1, 2, 3}, 3)
	up := func(down ...fsm.NodeID) func(fsm.NodeID) bool {
		return func(id fsm.NodeID) bool { return !slices.Contains(down, id) }
	}
	all := PreferredLeaders(placed, up())
	for p, members := range placed {
		if all[p] != members[0] {
			t.Errorf("partition %d: %s, want %s", p, all[p], members[0])
		}
		if got := PreferredLeaders(placed, up(members[0]))[p]; got != members[1] {
			t.Errorf("partition %d without %s: %s, want %s", p, members[0], got, members[1])
		}
	}
	if got := PreferredLeaders(placed, func(fsm.NodeID) bool { return false }); len(got) != 0 {
		t.Errorf("all down: %v, want nobody", got)
	}
}

// S-296: who asks after a leader change is led to the newest one that anybody has named.
func TestTheNewestTermWins(t *testing.T) {
	type word struct {
		leader fsm.NodeID
		term   uint64
	}
	for _, c := range []struct {
		name  string
		words []word
		want  fsm.NodeID
		news  int
	}{
		{"nothing heard", nil, "", 0},
		{"one leader", []word{{"a", 1}}, "a", 1},
		{"a newer one", []word{{"a", 1}, {"b", 2}}, "b", 2},
		{"an older one late", []word{{"b", 2}, {"a", 1}}, "b", 1},
		{"the same again", []word{{"a", 1}, {"a", 1}}, "a", 1},
		{"a new term without a leader yet", []word{{"a", 1}, {"", 2}}, "", 2},
		{"which then gets one", []word{{"a", 1}, {"", 2}, {"c", 2}}, "c", 3},
		{"a term does not lose its leader", []word{{"a", 1}, {"", 1}}, "a", 1},
		{"nor change it", []word{{"a", 1}, {"b", 1}}, "a", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := NewView()
			told := 0
			v.spreadWith(func(fsm.PartitionID, fsm.NodeID, uint64) { told++ })
			for _, w := range c.words {
				changed := v.Changed()
				before := told
				v.Announce(3, w.leader, w.term)
				select {
				case <-changed:
					if told == before {
						t.Error("a change was not spread")
					}
				default:
					if told != before {
						t.Error("what was spread changed nothing")
					}
				}
			}
			got, ok := v.Leader(3)
			if got != c.want || ok != (c.want != "") || told != c.news {
				t.Errorf("%q, %v after %d news; want %q after %d", got, ok, told, c.want, c.news)
			}
			if _, ok := v.Leader(4); ok {
				t.Error("another partition has a leader")
			}
		})
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	cfg := Config{}
	err := cfg.Validate()
	for _, want := range []string{
		"cluster name", "node id", "incarnation", "dial timeout", "hello timeout", "write timeout",
		"ping interval", "redial pause", "stream idle", "silent pings", "queue bytes", "maximum calls",
		"handled bytes", "maximum streams", "maximum peers", "maximum handshakes", "frame bytes",
		"peer listen", "gossip listen",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the empty config: %q is missing in %v", want, err)
		}
	}
	for range 20 {
		if again := cfg.Validate(); again.Error() != err.Error() {
			t.Fatalf("the problems come in another order:\n%v\n\n%v", err, again)
		}
	}
	for name, change := range map[string]func(*Config){
		"a long cluster name":                func(c *Config) { c.ClusterName = strings.Repeat("x", 65) },
		"a node id with a slash":             func(c *Config) { c.Node = "a/b" },
		"a frame beyond the queue":           func(c *Config) { c.MaxQueueBytes = int(c.MaxFrameBytes) },
		"a frame beyond handlers":            func(c *Config) { c.MaxHandledBytes = int(c.MaxFrameBytes) - 1 },
		"redial pauses upside down":          func(c *Config) { c.RedialMax = c.RedialMin - 1 },
		"half a TLS":                         func(c *Config) { c.TLS = &TLS{} },
		"a short gossip key":                 func(c *Config) { c.GossipKeys = [][]byte{make([]byte, 16)} },
		"a port that is a name":              func(c *Config) { c.PeerListen = "127.0.0.1:http" },
		"a port too large":                   func(c *Config) { c.GossipListen = "127.0.0.1:65536" },
		"an advertised address without host": func(c *Config) { c.PeerAdvertise = ":5301" },
		"an advertised address without port": func(c *Config) { c.GossipAdvertise = "h:0" },
		"a long operations address":          func(c *Config) { c.OpsAddr = strings.Repeat("x", 254) },
		"too many client addresses":          func(c *Config) { c.ClientAddrs = make([]string, MaxClientAddrs+1) },
		"too many seeds":                     func(c *Config) { c.Join = make([]string, maxJoinAddrs+1) },
		"too many first members":             func(c *Config) { c.BootstrapExpect = maxBootstrapNodes + 1 },
	} {
		cfg := testConfig("a")
		if err := cfg.Validate(); err != nil {
			t.Fatalf("the test config: %v", err)
		}
		change(&cfg)
		if cfg.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// The bytes of docs/formats/mesh.md and gossip.md. What is here may not change without a new version.
func TestGoldenBytes(t *testing.T) {
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"hello": {appendHello(nil, identity{cluster: "prod", node: "n1", incarnation: 0x0102, wants: "n2"}),
			"42424d48 03 00 0013 0000000000000102 04 70726f64 02 6e31 02 6e32"},
		"hello with digests": {appendHello(nil, identity{cluster: "prod", node: "n1", incarnation: 0x0102,
			founded: Digest{1, 2}, keyed: Digest{3}}),
			"42424d48 03 00 0025 0000000000000102 04 70726f64 02 6e31 00 01 08 0102000000000000 02 08 0300000000000000"},
		"hello with versions": {appendHello(nil, identity{cluster: "prod", node: "n1", incarnation: 0x0102,
			versions: &Versions{Newest: 0x0a0b, Oldest: 0x0c, Has: 0x0d0e}}),
			"42424d48 03 00 001f 0000000000000102 04 70726f64 02 6e31 00 03 0c 00000a0b 0000000c 00000d0e"},
		"hello of version 2": {appendHello(nil, identity{version: 2, cluster: "prod", node: "n1", incarnation: 0x0102}),
			"42424d48 02 00 0010 0000000000000102 04 70726f64 02 6e31"},
		"refusal": {appendRefusal(nil, helloVersion, "no"), "42424d48 03 01 0002 6e6f"},
		"frame":   {append(appendFrameHeader(nil, frameRequest, 3, 0x0a0b, 2), "hi"...), "00000002 01 03 0000000000000a0b 6869"},
		"meta":    {appendMeta(nil, meta{"n1", 0x0102, ":5301"}), "01 0000000000000102 02 6e31 05 3a35333031"},
		"leader": {appendLeader([]byte{msgLeader}, LeaderInfo{7, "n1", 9}),
			"01 0007 0000000000000009 02 6e31"},
		"detail": {appendDetail([]byte{msgDetail}, detail{"n1", 2, 3, "o:1", []string{"c:2"}}),
			"02 02 6e31 0000000000000002 00000003 03 6f3a31 01 03 633a32"},
		"farewell": {appendFarewell([]byte{msgFarewell}, farewell{"n1", 2}), "03 02 6e31 0000000000000002"},
		"state":    {appendState(nil, nil, []LeaderInfo{{7, "", 9}}), "01 0000 0001 0007 0000000000000009 00"},
		"question": {appendQuestion(nil, question{opAgree, true, 5, []fsm.NodeID{"a", "b"}}),
			"02 01 0000000000000005 01 02 01 61 01 62"},
		"answer": {appendAnswer(nil, answer{true, true, []fsm.NodeID{"a"}}), "03 01 01 01 61"},
	} {
		if got, want := hex.EncodeToString(c.got), strings.ReplaceAll(c.want, " ", ""); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func FuzzGossipMessages(f *testing.F) {
	f.Add(appendLeader([]byte{msgLeader}, LeaderInfo{7, "n1", 9}))
	f.Add(appendDetail([]byte{msgDetail}, detail{"n1", 2, 3, "o:1", []string{"c:2"}}))
	f.Add(appendFarewell([]byte{msgFarewell}, farewell{"n1", 2}))
	f.Add(appendState(nil, []detail{{node: "n1"}}, []LeaderInfo{{7, "", 9}}))
	f.Add(appendMeta(nil, meta{"n1", 1, ":5301"}))
	f.Add(appendQuestion(nil, question{opAgree, true, 5, []fsm.NodeID{"a", "b"}}))
	f.Add(appendAnswer(nil, answer{true, true, []fsm.NodeID{"a"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		again := func(what string, written []byte) {
			if string(written) != string(b) {
				t.Errorf("%s %x writes as %x", what, b, written)
			}
		}
		if m, err := parseMessage(b); err == nil {
			switch w := m.(type) {
			case LeaderInfo:
				again("leader", appendLeader([]byte{msgLeader}, w))
			case detail:
				again("detail", appendDetail([]byte{msgDetail}, w))
			case farewell:
				again("farewell", appendFarewell([]byte{msgFarewell}, w))
			}
		}
		if details, leaders, err := parseState(b); err == nil {
			again("state", appendState(nil, details, leaders))
		}
		if m, err := parseMeta(b); err == nil {
			again("meta", appendMeta(nil, m))
		}
		parseQuestion(b)
		parseAnswer(b)
	})
}

func TestClocksAreMeasured(t *testing.T) {
	g, err := NewGossip(testConfig("a"), NewView(), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	g.arrived("b.1", "10.0.0.2", "10.0.0.2:5302", appendMeta(nil, meta{"b", 1, ":5301"}))
	now := time.Now().UnixMilli()
	for _, c := range []struct {
		wall int64
		want time.Duration
	}{
		{now + 3_600_000, time.Hour},
		{now - 60_000, -time.Minute},
		{1<<63 - 1, maxSkewMillis * time.Millisecond},
		{-1, -maxSkewMillis * time.Millisecond},
	} {
		g.measured("b.1", fsm.Wall(c.wall), 0)
		m := g.Members()[0]
		if off := (m.ClockSkew - c.want).Abs(); !m.SkewKnown || off > 30*time.Second {
			t.Errorf("clock at %d: %v ahead (known %v), want %v", c.wall, m.ClockSkew, m.SkewKnown, c.want)
		}
	}
}
