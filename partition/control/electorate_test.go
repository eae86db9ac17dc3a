package control

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// electorateOf reads nodes as "a b! (c) d~left e~lost f~late": "!" works not or not yet, brackets have no vote, "?" has no place.
func electorateOf(text string, most int) (*electorate, *repairGroup) {
	e := &electorate{self: "a", most: most, servers: map[fsm.NodeID]raft.ServerSuffrage{}, ready: map[fsm.NodeID]bool{},
		placed: map[fsm.NodeID]bool{}, lost: map[fsm.NodeID]bool{}, left: map[fsm.NodeID]bool{},
		late: map[fsm.NodeID]bool{}, zone: map[fsm.NodeID]string{}}
	g := &repairGroup{self: "a", servers: e.servers, ready: e.ready}
	for word := range strings.FieldsSeq(text) {
		word, zone, _ := strings.Cut(word, "@")
		word, flags, _ := strings.Cut(word, "~")
		name := fsm.NodeID(strings.Trim(word, "()!?"))
		e.servers[name] = raft.Voter
		if strings.HasPrefix(word, "(") {
			e.servers[name] = raft.Nonvoter
		}
		e.placed[name] = !strings.Contains(word, "?")
		e.ready[name] = !strings.Contains(word, "!") && flags == ""
		e.lost[name], e.left[name] = flags == "lost", flags == "left"
		e.late[name] = flags == "late" || flags == "lost"
		e.zone[name] = zone
		g.existing = append(g.existing, name)
	}
	return e, g
}

func TestTheVotersOfTheCatalog(t *testing.T) {
	for _, tt := range []struct {
		name, nodes, want string
	}{
		{"three", "a b c", "a b c"},
		{"a learner without a place", "a b c (d)?", "a b c"},
		{"a voter without a place", "a b c d?", "a b c"},
		{"five", "a b c d e", "a b c d e"},
		{"four", "a b c d", "a b c"},
		{"one of five restarts", "a b c d e~left", "a b c d e"},
		{"two of five left", "a b c d~left e~left", "a b c"},
		{"one of three restarts", "a b c~left", "a b c"},
		{"one of three left, and another one has a place", "a b c~left (d)", "a b d"},
		{"one of three is away, for a moment", "a b c! (d)", "a b c"},
		{"one of three is away, and another one has a place", "a b c~late (d)", "a b d"},
		{"one of three is lost, and nobody is there", "a b c~lost", "a b c"},
		{"a learner that has not caught up", "a b c~lost (d)!", "a b c"},
		{"two founders", "a b", "a b"},
		{"one founder, and one that was placed", "a (b)", "a"},
		{"one founder, and two that were placed", "a (b) (c)", "a b c"},
		{"two voters of whom one has no place, and one that was placed", "a b? (c)", "a c"},
		{"two voters of whom the leader has no place, and one that was placed", "a? b (c)", "b c"},
		{"three voters of whom one has no place", "a b c?", "a b"},
		{"nothing is placed yet", "a? b? c?", ""},
		{"a zone for each of three", "a@x b@x c@x (d)@y (e)@z", "a b c d e"},
		{"two of three in one zone", "a@x b@x c@y (d)@z", "a c d"},
		{"unknown zones are no zone", "a b c@x (d)@x", "a b c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, _ := electorateOf(tt.nodes, 5)
			got := e.chosen()
			slices.Sort(got)
			if s := strings.Trim(fmt.Sprint(got), "[]"); s != tt.want {
				t.Errorf("%s: %s, want %s", tt.nodes, s, tt.want)
			}
		})
	}
}

// From every mixture of nodes single steps lead to the voters that are chosen, or stop because no majority would be left.
// No step costs a majority that is there.
func TestStepsToTheVotersKeepAMajority(t *testing.T) {
	rng := rand.New(rand.NewPCG(53, 54))
	kinds := []string{"%s", "%s", "%s", "(%s)", "(%s)", "%s!", "(%s)!", "%s?", "(%s)?", "%s~left", "%s~late", "%s~lost", "%s?~left"}
	for range 20_000 {
		words := []string{"a"}
		for _, n := range []string{"b", "c", "d", "e", "f", "g"}[:rng.IntN(7)] {
			words = append(words, fmt.Sprintf(kinds[rng.IntN(len(kinds))], n))
		}
		text := strings.Join(words, " ")
		e, g := electorateOf(text, 5)
		for steps := 0; ; steps++ {
			what, n := e.next(g)
			if what == 0 {
				break
			}
			if steps > 20 {
				t.Fatalf("%s: the steps do not end: %v", text, e.servers)
			}
			before := margin(e)
			switch what {
			case giveVote:
				e.servers[n] = raft.Voter
			case takeVote:
				e.servers[n] = raft.Nonvoter
			case handOver:
				t.Fatalf("%s: the leader has a place and is to go", text)
			}
			if before >= 0 && margin(e) < 0 {
				t.Fatalf("%s: a step on %s leaves no majority: %v", text, n, maps.Collect(maps.All(e.servers)))
			}
		}
		voters := 0
		for _, s := range e.servers { // order-free: only counts
			if s == raft.Voter {
				voters++
			}
		}
		if even := voters%2 == 0 && voters > 2; even && margin(e) > 0 && len(e.chosen()) != voters {
			t.Errorf("%s: ends with %d voters %v, of whom enough are ready", text, voters, e.servers)
		}
	}
}

// margin is how many of the voters that are ready can be lost.
func margin(e *electorate) int {
	voters, ready := 0, 0
	for n, s := range e.servers { // order-free: only counts
		if s == raft.Voter {
			voters++
			if e.ready[n] {
				ready++
			}
		}
	}
	return ready - voters/2 - 1
}

func TestCatalogVotes(t *testing.T) {
	for placed, want := range []int{0, 1, 1, 3, 3, 5, 5, 5} {
		if got := CatalogVotes(placed, 5); got != want {
			t.Errorf("%d nodes: %d votes, want %d", placed, got, want)
		}
	}
}
