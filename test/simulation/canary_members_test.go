package simulation

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/test/check"
)

// planted runs f with a cluster that has its first version, and in which nothing fails but what f plants.
func planted(t *testing.T, nodes int, f func(t *testing.T, n *nemesis)) {
	t.Helper()
	dir := t.TempDir()
	_, err := bubble(t, func(t *testing.T) {
		cfg := configOf(1, 1)
		cfg.Dir, cfg.Log, cfg.Nodes, cfg.MaxNodes, cfg.Partitions, cfg.Zones = dir, io.Discard, nodes, nodes+2, 2, 0
		cfg.Begins = 0 // all programs are the newest
		cfg.partition.ReplaceAfter = 10 * time.Minute
		w, err := newWorld(cfg)
		defer w.close()
		if err != nil {
			t.Fatal(err)
		}
		n := &nemesis{w: w, rng: w.rng()}
		if err := n.homes(); err != nil {
			t.Fatalf("a healthy cluster: %v", err)
		}
		if err := within(time.Minute, func(context.Context) error {
			if v := n.w.view(); v == nil || v.ClusterVersion() < fsm.NewestVersion {
				return errors.New("the cluster has an early version")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		f(t, n)
	})
	if err != nil {
		t.Error(err)
	}
}

// accused fails the test unless an error names an invariant and says why.
func accused(t *testing.T, err error, invariant, why string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), invariant+": ") || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want %s with %q", err, invariant, why)
	}
}

// alone ends the loops that keep groups whole, so that what is planted stays.
func (w *world) alone() {
	for _, m := range w.machines() {
		if m.node != nil {
			m.node.sup.Close()
		}
	}
}

// A cluster that does not give a partition its replicas back is told: the disk of a member is lost, and neither a node
// of its name comes nor an operator speaks.
func TestCanaryOfReplicas(t *testing.T) {
	planted(t, 4, func(t *testing.T, n *nemesis) {
		m := n.w.computerOf(n.w.view().Groups()[0].Members[0])
		if !n.mayLose(m) {
			t.Fatal("a healthy cluster bears the loss of a disk")
		}
		n.lose(m)
		if other := n.via(m); n.mayLose(other) {
			t.Error("a second disk may be lost before the replicas of the first are back")
		}
		time.Sleep(time.Minute)
		accused(t, n.w.misplaced(), "I27", "gone for good")
		if err := n.want(m, catalog.Gone); err != nil {
			t.Fatal(err)
		}
		if err := n.homes(); err != nil {
			t.Errorf("an operator has spoken: %v", err)
		}
	})
}

// The vote of a lost node is not missed in its place while the only other node is to be empty. When that one may vote, it
// is told.
func TestCanaryOfAVoterThatNobodyReplaces(t *testing.T) {
	planted(t, 4, func(t *testing.T, n *nemesis) {
		w := n.w
		voters := func() []fsm.NodeID {
			return w.leaderOf(fsm.CatalogPartition).node.host.Replica(fsm.CatalogPartition).Status().Voters
		}
		spare := w.there()[3]
		if err := errors.Join(n.want(spare, catalog.Drain), n.homes()); err != nil {
			t.Fatal(err)
		}
		m := w.there()[0]
		n.lose(m)
		time.Sleep(2 * w.homesLimit())
		if err := w.misplaced(); err != nil {
			t.Errorf("%s drains, and %s is lost: %v", spare.id, m.id, err)
		}
		if v := voters(); !slices.Contains(v, m.id) || slices.Contains(v, spare.id) {
			t.Errorf("voters %v: the test shows nothing", v)
		}
		w.alone()
		pl := &placement{w: w, v: w.view(), able: map[fsm.NodeID]bool{spare.id: true}}
		accused(t, pl.electorate(), "I30", string(m.id)+" is gone for good and belongs to the catalog")
	})
}

// A node without its share, and a replica that nobody wants, are told.
func TestCanaryOfAnEvenLoad(t *testing.T) {
	planted(t, 3, func(t *testing.T, n *nemesis) {
		n.w.alone()
		m := n.joined(t)
		accused(t, n.w.misplaced(), "I27", "replicas are not level")
		g := n.w.view().Groups()[0]
		if err := m.node.host.Open(g.ID, nil); err != nil {
			t.Fatal(err)
		}
		accused(t, n.w.misplaced(), "I27", "is no member")
	})
}

// Two replicas in one zone are told while a node of another zone is free.
func TestCanaryOfZones(t *testing.T) {
	planted(t, 4, func(t *testing.T, n *nemesis) {
		n.w.alone()
		for _, m := range n.w.there() {
			m.zone = "free"
		}
		for i, id := range n.w.view().Groups()[0].Members {
			n.w.computerOf(id).zone = []string{"a", "a", "b"}[i]
		}
		accused(t, n.w.misplaced(), "I27", "two replicas stand in one zone")
	})
}

// joined starts a node, and returns when the catalog knows it. The loops of the others have ended, so it gets nothing.
func (n *nemesis) joined(t *testing.T) *machine {
	t.Helper()
	m := n.w.addMachine("", "", "")
	n.w.boot(m)
	for range 60 {
		if time.Sleep(time.Second); n.known(m) {
			return m
		}
	}
	t.Fatalf("%s is not in the catalog", m.id)
	return nil
}

// commits has the leaders of a partition commit something, each looked at before and afterwards.
func commits(t *testing.T, w *world, p fsm.PartitionID) []check.Violation {
	t.Helper()
	l := &lookout{w: w, seen: map[home]uint64{}}
	l.look()
	for _, m := range w.machines() {
		if m.node == nil {
			continue
		}
		if r := m.node.host.Replica(p); r != nil && r.Leading() {
			if err := r.Barrier(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spoiled
}

// A node that founds a partition anew is a second home. The lookout tells it, and so does the witness.
func TestCanaryOfOneHome(t *testing.T) {
	planted(t, 4, func(t *testing.T, n *nemesis) {
		w := n.w
		w.alone()
		g := w.view().Groups()[0]
		if got := commits(t, w, g.ID); len(got) != 0 {
			t.Fatalf("one home: %v", got)
		}
		i := slices.IndexFunc(w.there(), func(m *machine) bool { return !slices.Contains(g.Members, m.id) })
		second := w.there()[i]
		if err := second.node.host.Open(g.ID, []fsm.NodeID{second.id}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if got := caught(commits(t, w, g.ID)); !slices.Equal(got, []string{"I28"}) {
			t.Errorf("the lookout has %v", got)
		}
		if got := caught(w.witness.Check(w.rec.History())); !slices.Contains(got, "I24") {
			t.Errorf("the witness has %v", got)
		}
	})
}

// An even number of voters, and a voter without a place, are told.
func TestCanaryOfTheElectorate(t *testing.T) {
	planted(t, 4, func(t *testing.T, n *nemesis) {
		n.w.alone()
		r := n.w.leaderOf(fsm.CatalogPartition).node.host.Replica(fsm.CatalogPartition)
		learner := r.Status().Nonvoters
		if len(learner) != 1 {
			t.Fatalf("learners %v", learner)
		}
		if err := r.AddVoter(learner[0], 0).Error(); err != nil {
			t.Fatal(err)
		}
		accused(t, n.w.misplaced(), "I29", "4 nodes of 4")
	})
	planted(t, 5, func(t *testing.T, n *nemesis) {
		n.w.alone()
		v := n.w.view()
		placed := control.Placed(v)
		r := n.w.leaderOf(fsm.CatalogPartition).node.host.Replica(fsm.CatalogPartition)
		m := n.joined(t)
		for _, voter := range r.Status().Voters {
			if placed[voter] && voter != r.Node() {
				err := errors.Join(r.Demote(voter, 0).Error(), r.AddVoter(m.id, 0).Error())
				if err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		pl := &placement{w: n.w, v: n.w.view(), able: map[fsm.NodeID]bool{}}
		accused(t, pl.electorate(), "I29", string(m.id)+" votes in the catalog and has no place")
	})
}

// A node that was removed and belongs to a group again is told, whichever group it is.
func TestCanaryOfTheRemoved(t *testing.T) {
	planted(t, 4, func(t *testing.T, n *nemesis) {
		w := n.w
		g := w.view().Groups()[0]
		m := w.computerOf(g.Members[0])
		if err := n.want(m, catalog.Remove); err != nil {
			t.Fatal(err)
		}
		if err := n.homes(); err != nil {
			t.Fatal(err)
		}
		if !m.out.Load() {
			t.Fatalf("%s is in the cluster", m.id)
		}
		w.alone()
		if got := commits(t, w, g.ID); len(got) != 0 {
			t.Fatalf("nobody is in a group who should not: %v", got)
		}
		if err := w.leaderOf(g.ID).node.host.Replica(g.ID).AddNonvoter(m.id, 0).Error(); err != nil {
			t.Fatal(err)
		}
		if got := caught(commits(t, w, g.ID)); !slices.Equal(got, []string{"I30"}) {
			t.Errorf("a group of messages: %v", got)
		}
		r := w.leaderOf(fsm.CatalogPartition).node.host.Replica(fsm.CatalogPartition)
		if err := r.AddNonvoter(m.id, 0).Error(); err != nil {
			t.Fatal(err)
		}
		pl := &placement{w: w, v: w.view(), able: map[fsm.NodeID]bool{}}
		accused(t, pl.electorate(), "I30", string(m.id)+" is gone for good and belongs to the catalog")
	})
}

// A share whose move does not end is told: the loops that carry moves out are dead.
func TestCanaryOfSharesThatMove(t *testing.T) {
	planted(t, 3, func(t *testing.T, n *nemesis) {
		n.w.alone()
		d := n.w.view().Entity("plain")
		if moves, err := n.via(nil).node.directory.Rehome(t.Context(), "plain", 3-d.Partitions[0], false); err != nil || len(moves) != 1 {
			t.Fatalf("%v, %v", moves, err)
		}
		time.Sleep(time.Second)
		accused(t, n.w.misplaced(), "I27", "share 0 of entity")
	})
}
