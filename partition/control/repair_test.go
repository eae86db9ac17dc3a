package control

import (
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

func TestMendingNeverGoesBelowAMajorityWithTheData(t *testing.T) {
	const v, n = raft.Voter, raft.Nonvoter
	type members = map[fsm.NodeID]raft.ServerSuffrage
	set := func(ids ...fsm.NodeID) map[fsm.NodeID]bool {
		m := map[fsm.NodeID]bool{}
		for _, id := range ids {
			m[id] = true
		}
		return m
	}
	tests := []struct {
		name          string
		servers       members
		failed, ready map[fsm.NodeID]bool
		listed        map[fsm.NodeID]bool
		want          []fsm.NodeID
		step          string
		rebuilt       map[fsm.NodeID]uint64 // the configuration is that of entry 7
	}{
		{"one of three failed", members{"a": v, "b": v, "c": v}, set("c"), set("a", "b"), nil,
			[]fsm.NodeID{"a", "b", "c"}, "remove failed replica c", nil},
		{"one of three failed, another lags", members{"a": v, "b": v, "c": v}, set("c"), set("a"), nil,
			[]fsm.NodeID{"a", "b", "c"}, "", nil},
		{"one of two failed", members{"a": v, "b": v}, set("b"), set("a"), nil,
			[]fsm.NodeID{"a", "b"}, "", nil},
		{"a failed one without a vote", members{"a": v, "b": v, "c": n}, set("c"), set("a"), nil,
			[]fsm.NodeID{"a", "b", "c"}, "remove failed replica c", nil},
		{"a removed one has failed", members{"a": v, "b": v}, set("c"), set("a", "b"), nil,
			[]fsm.NodeID{"a", "b", "c"}, "rebuild failed replica c", nil},
		{"it was rebuilt before it was taken in and removed", members{"a": v, "b": v}, set("c"), set("a", "b"), nil,
			[]fsm.NodeID{"a", "b", "c"}, "rebuild failed replica c", map[fsm.NodeID]uint64{"c": 5}},
		{"it was rebuilt since", members{"a": v, "b": v}, set("c"), set("a", "b"), nil,
			[]fsm.NodeID{"a", "b", "c"}, "remove failed replica again c", map[fsm.NodeID]uint64{"c": 7}},
		{"a removed one waits", members{"a": v, "b": v}, nil, set("a", "b"), set("c"),
			[]fsm.NodeID{"a", "b", "c"}, "take in without a vote c", nil},
		{"it lags", members{"a": v, "b": v, "c": n}, nil, set("a", "b"), set("c"),
			[]fsm.NodeID{"a", "b", "c"}, "", nil},
		{"it has caught up", members{"a": v, "b": v, "c": n}, nil, set("a", "b", "c"), nil,
			[]fsm.NodeID{"a", "b", "c"}, "give a vote c", nil},
		{"a replaced one goes last", members{"a": v, "b": v, "c": v, "d": v}, nil, set("a", "b", "d"), nil,
			[]fsm.NodeID{"a", "b", "d"}, "remove replaced replica c", nil},
		{"a replaced one stays while its successor has no vote", members{"a": v, "b": v, "c": v, "d": n},
			nil, set("a", "b"), set("d"), []fsm.NodeID{"a", "b", "d"}, "", nil},
		{"a replaced leader hands over", members{"a": v, "b": v, "c": v, "d": v}, nil,
			set("a", "b", "c", "d"), nil, []fsm.NodeID{"b", "c", "d"}, "hand over, being replaced a", nil},
		{"the only replica moves", members{"a": v, "c": v}, nil, set("a", "c"), nil,
			[]fsm.NodeID{"a"}, "remove replaced replica c", nil},
		{"two vote and the one to go is away: no majority", members{"a": v, "c": v}, nil, set("a"), nil,
			[]fsm.NodeID{"a"}, "", nil},
		{"all is well", members{"a": v, "b": v, "c": v}, nil, set("a", "b", "c"), nil,
			[]fsm.NodeID{"a", "b", "c"}, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := &repairGroup{id: 1, self: "a", want: tt.want, servers: tt.servers, failed: tt.failed,
				ready: tt.ready, listed: tt.listed, index: 7, rebuilt: tt.rebuilt}
			for _, id := range []fsm.NodeID{"a", "b", "c", "d"} {
				if _, in := tt.servers[id]; in {
					g.existing = append(g.existing, id)
				}
			}
			got := ""
			if s := g.next(); s != nil {
				got = s.what + " " + string(s.node)
			}
			if got != tt.step {
				t.Errorf("step %q, want %q", got, tt.step)
			}
		})
	}
}

// Two replicas that differ say nothing about who is right: nothing is thrown away.
func TestDigestsAreJudgedByAMajority(t *testing.T) {
	for name, c := range map[string]struct {
		sums    map[fsm.NodeID]string
		voters  int
		bad     []fsm.NodeID
		unclear bool
	}{
		"all agree":                     {map[fsm.NodeID]string{"a": "x", "b": "x", "c": "x"}, 3, nil, false},
		"one of three differs":          {map[fsm.NodeID]string{"a": "x", "b": "y", "c": "x"}, 3, []fsm.NodeID{"b"}, false},
		"one is away, two agree":        {map[fsm.NodeID]string{"a": "x", "b": "x"}, 3, nil, false},
		"one is away, two differ":       {map[fsm.NodeID]string{"a": "x", "b": "y"}, 3, nil, true},
		"three differ":                  {map[fsm.NodeID]string{"a": "x", "b": "y", "c": "z"}, 3, nil, true},
		"two of five differ":            {map[fsm.NodeID]string{"a": "x", "b": "y", "c": "x", "d": "z", "e": "x"}, 5, []fsm.NodeID{"b", "d"}, false},
		"two against two of five":       {map[fsm.NodeID]string{"a": "x", "b": "y", "c": "x", "d": "y"}, 5, nil, true},
		"a group of one has no peers":   {map[fsm.NodeID]string{"a": "x"}, 1, nil, false},
		"a group of two cannot decide":  {map[fsm.NodeID]string{"a": "x", "b": "y"}, 2, nil, true},
		"nobody but the leader reports": {map[fsm.NodeID]string{"a": "x"}, 3, nil, false},
	} {
		bad, _, unclear := compare(c.sums, c.voters)
		if !slices.Equal(bad, c.bad) || unclear != c.unclear {
			t.Errorf("%s: %v, %v", name, bad, unclear)
		}
	}
}

func TestLeaderMindsTheDisksOfItsVoters(t *testing.T) {
	full := func(yes bool) nodeState { return nodeState{1: {Full: yes}} }
	servers := map[fsm.NodeID]raft.ServerSuffrage{"a": raft.Voter, "b": raft.Voter, "c": raft.Voter,
		"d": raft.Nonvoter}
	tests := []struct {
		name   string
		states map[fsm.NodeID]nodeState
		want   bool
	}{
		{"all have room", map[fsm.NodeID]nodeState{"a": full(false), "b": full(false), "c": full(false)}, false},
		{"one has none", map[fsm.NodeID]nodeState{"a": full(false), "b": full(true), "c": full(false)}, false},
		{"two have none", map[fsm.NodeID]nodeState{"a": full(false), "b": full(true), "c": full(true)}, true},
		{"who does not vote does not count", map[fsm.NodeID]nodeState{"b": full(true), "d": full(true)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := votersFull(1, servers, tt.states); got != tt.want {
				t.Errorf("full: %v", got)
			}
		})
	}
}
