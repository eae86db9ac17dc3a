package control

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A node that leaves is forgotten when nothing needs it: it holds nothing, has no clients, and does not vote in the
// catalog. Its operator switches it off then. A node that never comes back is not waited for.
func TestANodeIsForgottenWhenNothingNeedsIt(t *testing.T) {
	const since = fsm.Wall(77)
	empty := catalog.New().View()
	left := replica.Status{Partition: fsm.CatalogPartition, ClientsLeft: since}
	for name, tc := range map[string]struct {
		node     fsm.NodeID
		wish     catalog.Wish
		suffrage raft.ServerSuffrage
		state    nodeState
		silent   time.Duration
		want     bool
	}{
		"all is done":                      {"b", catalog.Remove, raft.Nonvoter, nodeState{0: left}, 0, true},
		"nobody wants it":                  {"b", catalog.Serve, raft.Nonvoter, nodeState{0: left}, 0, false},
		"it is to be drained only":         {"b", catalog.Drain, raft.Nonvoter, nodeState{0: left}, 0, false},
		"it leads the catalog":             {"a", catalog.Remove, raft.Nonvoter, nodeState{0: left}, 0, false},
		"it votes in the catalog":          {"b", catalog.Remove, raft.Voter, nodeState{0: left}, 0, false},
		"it has clients":                   {"b", catalog.Remove, raft.Nonvoter, nodeState{0: {ServesClients: true}}, 0, false},
		"they left for an earlier wish":    {"b", catalog.Remove, raft.Nonvoter, nodeState{0: {ClientsLeft: since - 1}}, 0, false},
		"its program does not tell":        {"b", catalog.Remove, raft.Nonvoter, nodeState{0: {}}, 0, true},
		"it says nothing of the catalog":   {"b", catalog.Remove, raft.Nonvoter, nodeState{}, 0, false},
		"it has just fallen silent":        {"b", catalog.Remove, raft.Nonvoter, nil, 0, false},
		"it is silent":                     {"b", catalog.Remove, raft.Nonvoter, nil, time.Second, true}, // no entity has a lock
		"it is silent and votes":           {"b", catalog.Remove, raft.Voter, nil, time.Second, false},
		"it never comes back":              {"b", catalog.Gone, raft.Voter, nil, time.Second, true},
		"it never comes back, and answers": {"b", catalog.Gone, raft.Voter, nodeState{0: {ServesClients: true}}, 0, false},
	} {
		m := newRepairer(nil)
		if tc.silent > 0 {
			m.silent[tc.node] = time.Now().Add(-tc.silent)
		}
		states := map[fsm.NodeID]nodeState{}
		if tc.state != nil {
			states[tc.node] = tc.state
		}
		g := &repairGroup{self: "a", servers: map[fsm.NodeID]raft.ServerSuffrage{tc.node: tc.suffrage}}
		n := &catalog.Node{ID: tc.node, Wish: tc.wish, Since: since}
		if got := m.forgettable(empty, n, g, states); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
