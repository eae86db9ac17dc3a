package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/cmd/busbar/client"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/storage"
)

func TestWhichReplicaOfALostMajorityGoesOn(t *testing.T) {
	has := func(node string, term, last uint64, voters string) candidate {
		c := candidate{fsm.NodeID(node), "/" + node, replica.Survivor{Last: last, LastTerm: term}}
		for _, v := range strings.Fields(voters) {
			c.Voters = append(c.Voters, fsm.NodeID(v))
		}
		return c
	}
	for _, tc := range []struct {
		name string
		all  []candidate
		want string // verdict, node, missing, rebuilt
	}{
		{"two of three need nothing", []candidate{has("a", 2, 9, "a b c"), has("b", 2, 9, "a b c")}, "whole a [c] []"},
		{"one of three goes on alone", []candidate{has("b", 2, 9, "a b c")}, "recover b [a c] []"},
		{"two of four are no majority", []candidate{has("a", 2, 9, "a b c d"), has("b", 2, 9, "a b c d")}, "recover a [c d] [/b]"},
		{"the later term has more of the log", []candidate{has("a", 2, 99, "a b c d e"), has("b", 3, 9, "a b c d e")}, "recover b [c d e] [/a]"},
		{"the longer log of one term", []candidate{has("a", 3, 8, "a b c d e"), has("b", 3, 9, "a b c d e")}, "recover b [c d e] [/a]"},
		{"a learner alone", []candidate{has("d", 2, 9, "a b c")}, "recover d [a b c] []"},
		{"a learner beside a voter", []candidate{has("d", 2, 9, "a b c"), has("a", 2, 8, "a b c")}, "recover d [b c] [/a]"},
		{"the only voter is whole", []candidate{has("a", 2, 9, "a")}, "whole a [] []"},
		{"the longest log knows that the others have left", []candidate{has("a", 2, 9, "a b c"), has("b", 4, 12, "b")}, "whole b [] []"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := judgeGroups(map[fsm.PartitionID][]candidate{7: tc.all})[0]
			got := fmt.Sprint(g.Verdict, " ", g.Node, " ", g.Missing, " ", g.Rebuilt)
			if g.Partition != 7 || got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	order := judgeGroups(map[fsm.PartitionID][]candidate{3: {has("a", 1, 1, "a")}, 0: {has("a", 1, 1, "a")}, 1: {has("a", 1, 1, "a")}})
	var ids []fsm.PartitionID
	for _, g := range order {
		ids = append(ids, g.Partition)
	}
	if want := []fsm.PartitionID{0, 1, 3}; !reflect.DeepEqual(ids, want) || order[0].Verdict != client.VerdictWhole {
		t.Errorf("got %v, want %v", ids, want)
	}
}

// A replica that is alone keeps what its snapshot holds and what stands in the log behind it, with both kinds of log.
func TestARecoveredReplicaServesSnapshotAndLog(t *testing.T) {
	for _, log := range []string{storage.LogWAL, storage.LogBolt} {
		t.Run(log, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "n1")
			cfg := damagedConfig(t, path, log)
			fillDamaged(t, cfg)
			n, err := openStopped(path, log)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := n.dir.Groups()
			if err != nil || len(ids) != 2 {
				t.Fatalf("groups %v, %v", ids, err)
			}
			for _, id := range ids {
				s, err := openStores(n.dir, fsm.PartitionID(id))
				if err != nil {
					t.Fatal(err)
				}
				before, err := replica.Survey(s)
				if err != nil || !slices.Equal(before.Voters, []fsm.NodeID{fsm.NodeID(n.dir.NodeID())}) || before.Last == 0 {
					t.Fatalf("group %d: %+v, %v", id, before, err)
				}
				index, err := replica.RecoverAlone(s, fsm.NodeID(n.dir.NodeID()))
				if err != nil || index != before.Last+1 {
					t.Fatalf("group %d: entry %d behind %d, %v", id, index, before.Last, err)
				}
				after, err := replica.Survey(s)
				if err != nil || after.Last != index || !before.Behind(&after) || after.Written != before.Written {
					t.Errorf("group %d: %+v after %+v, %v", id, after, before, err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.dir.Close(); err != nil {
				t.Fatal(err)
			}
			started := startNode(t, cfg)
			defer stopNode(t, started)
			if err := readDamaged(t.Context(), started); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAReplicaThatNeverBelongedIsNotRecovered(t *testing.T) {
	n, err := storage.Open(func() storage.Config { c := storage.Defaults(); c.Dir = filepath.Join(t.TempDir(), "n"); return c }(), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	s, err := openStores(n, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replica.RecoverAlone(s, "n"); err == nil || !strings.Contains(err.Error(), "never belonged to its group") {
		t.Errorf("got %v", err)
	}
	if known, err := replica.Survey(s); err != nil || !known.Blank() {
		t.Errorf("%+v, %v", known, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
