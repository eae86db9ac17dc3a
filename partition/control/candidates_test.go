package control

import (
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A majority has to be heard: the one who asks, and whoever answers and votes.
func TestHeard(t *testing.T) {
	own := replica.Status{Partition: 1, Node: "n2", Voters: []fsm.NodeID{"n1", "n2", "n3"}}
	for _, tc := range []struct {
		name   string
		others []replica.Status
		want   bool
	}{
		{"nobody", nil, false},
		{"another voter", []replica.Status{{Partition: 1, Node: "n3"}}, true},
		{"a voter whose replica failed", []replica.Status{{Partition: 1, Node: "n3", Failure: "disk"}}, false},
		{"somebody without a vote", []replica.Status{{Partition: 1, Node: "n9"}}, false},
		{"a voter of another partition", []replica.Status{{Partition: 2, Node: "n3"}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Heard(&own, tc.others); got != tc.want {
				t.Errorf("a majority was heard: %v", got)
			}
		})
	}
	alone := replica.Status{Partition: 1, Node: "n1", Voters: []fsm.NodeID{"n1"}}
	if !Heard(&alone, nil) {
		t.Error("the only voter is no majority of one")
	}
}

// A voter in a newer term stands, or follows one that does.
func TestStands(t *testing.T) {
	own := replica.Status{Partition: 1, Node: "n2", Voters: []fsm.NodeID{"n1", "n2", "n3"}, Term: 7}
	for _, tc := range []struct {
		name   string
		others []replica.Status
		want   bool
	}{
		{"nobody", nil, false},
		{"a voter of the same term", []replica.Status{{Partition: 1, Node: "n1", Term: 7}}, false},
		{"the second of two", []replica.Status{{Partition: 1, Node: "n1", Term: 6}, {Partition: 1, Node: "n3", Term: 8}}, true},
		{"a voter whose replica failed", []replica.Status{{Partition: 1, Node: "n3", Term: 8, Failure: "disk"}}, false},
		{"somebody without a vote", []replica.Status{{Partition: 1, Node: "n9", Term: 8}}, false},
		{"a voter of another partition", []replica.Status{{Partition: 2, Node: "n3", Term: 8}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Stands(&own, tc.others); got != tc.want {
				t.Errorf("somebody stands: %v", got)
			}
		})
	}
}

// A17: the best of the survivors stands.
func TestBestCandidate(t *testing.T) {
	own := replica.Status{Partition: 1, Node: "n2", Voters: []fsm.NodeID{"n1", "n2", "n3"}, LastTerm: 5, Last: 100}
	for _, tc := range []struct {
		name  string
		other replica.Status
		want  bool
	}{
		{"longer log of the same term", replica.Status{Partition: 1, Node: "n3", LastTerm: 5, Last: 101}, false},
		{"shorter log", replica.Status{Partition: 1, Node: "n1", LastTerm: 5, Last: 99}, true},
		{"shorter log of a later term", replica.Status{Partition: 1, Node: "n3", LastTerm: 6, Last: 9}, false},
		{"longer log of an older term", replica.Status{Partition: 1, Node: "n3", LastTerm: 4, Last: 900}, true},
		{"equal, lower id", replica.Status{Partition: 1, Node: "n1", LastTerm: 5, Last: 100}, false},
		{"equal, higher id", replica.Status{Partition: 1, Node: "n3", LastTerm: 5, Last: 100}, true},
		{"leads already", replica.Status{Partition: 1, Node: "n3", LastTerm: 5, Last: 9, Leading: true}, false},
		{"no vote", replica.Status{Partition: 1, Node: "n9", LastTerm: 9, Last: 900}, true},
		{"failed", replica.Status{Partition: 1, Node: "n3", LastTerm: 9, Last: 900, Failure: "disk"}, true},
		{"another partition", replica.Status{Partition: 2, Node: "n3", LastTerm: 9, Last: 900}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Best(&own, []replica.Status{tc.other}); got != tc.want {
				t.Errorf("stands: %v", got)
			}
			// Where somebody stands already, equals do not.
			want := tc.want && (tc.other.LastTerm != own.LastTerm || tc.other.Last != own.Last)
			if got := Ahead(&own, []replica.Status{tc.other}); got != want {
				t.Errorf("refuses it the vote: %v", got)
			}
		})
	}
}

// S-289: of two that have the same, the one whose date is right stands; who has more stands all the same.
func TestBestCandidateHasTheRightDate(t *testing.T) {
	for _, tc := range []struct {
		name              string
		wrong, otherWrong bool
		other             fsm.NodeID
		otherLast         uint64
		want              bool
	}{
		{"the other one is right", true, false, "n3", 100, false},
		{"the other one is wrong, and has the lower id", false, true, "n1", 100, true},
		{"both are wrong: the lower id", true, true, "n1", 100, false},
		{"wrong, and has more", true, false, "n1", 99, true},
		{"right, and has less", false, true, "n3", 101, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			own := replica.Status{Partition: 1, Node: "n2", Voters: []fsm.NodeID{"n1", "n2", "n3"}, LastTerm: 5, Last: 100,
				WrongClock: tc.wrong}
			other := replica.Status{Partition: 1, Node: tc.other, LastTerm: 5, Last: tc.otherLast, WrongClock: tc.otherWrong}
			if got := Best(&own, []replica.Status{other}); got != tc.want {
				t.Errorf("stands: %v", got)
			}
		})
	}
}
