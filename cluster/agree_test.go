package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// put asks a node one question as another would and returns its yes.
func (i *islander) put(t *testing.T, from fsm.NodeID, q question) bool {
	t.Helper()
	b, err := i.serve(t.Context(), from, appendQuestion(nil, q))
	if err != nil {
		t.Fatal(err)
	}
	a, err := parseAnswer(b)
	if err != nil {
		t.Fatal(err)
	}
	return a.yes
}

func TestAgreements(t *testing.T) {
	ours, theirs := []fsm.NodeID{"n0", "n2", "n3"}, []fsm.NodeID{"n1", "n2", "n3"}
	type step struct {
		fact  string
		after time.Duration
		from  fsm.NodeID
		q     question
		want  bool
	}
	agree := func(round uint64, list []fsm.NodeID) question {
		return question{op: opAgree, round: round, list: list}
	}
	accept := func(round uint64, list []fsm.NodeID) question {
		return question{op: opAccept, round: round, list: list}
	}
	backed := func(list []fsm.NodeID) question {
		return question{op: opAccept, backed: true, list: list}
	}
	start := step{"a node that has just started agrees with nobody", reservation - 1, "n0", agree(1, ours), false}
	ready := step{"later it agrees", 1, "n0", agree(1, ours), true}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"one proposer", []step{start, ready,
			{"not to a list that it did not agree to", 0, "n1", accept(1, theirs), false},
			{"nor to an earlier round", 0, "n0", accept(0, ours), false},
			{"to the one it did", reservation - 1, "n0", accept(1, ours), true},
			{"again, when asked again", time.Hour, "n0", accept(1, ours), true},
			{"never to another", time.Hour, "n1", backed(theirs), false},
		}},
		{"two proposers", []step{start, ready,
			{"not with two at once", reservation - 1, "n1", agree(2, theirs), false},
			{"with the second when the first took too long", 1, "n1", agree(2, theirs), true},
			{"and then not with the first", 0, "n0", accept(1, ours), false},
			{"but with the second", 0, "n1", accept(2, theirs), true},
		}},
		{"a list that another node has accepted", []step{
			{"needs no agreement", 0, "n3", backed(ours), true},
			{"but only one", 0, "n3", backed(theirs), false},
		}},
		{"strangers", []step{
			{"not to a list without itself", time.Hour, "n0", agree(1, []fsm.NodeID{"n0", "n1"}), false},
			{"not even a backed one", 0, "n0", backed([]fsm.NodeID{"n0", "n1"}), false},
			{"not with one who is not the lowest of its list", 0, "n3", agree(1, ours), false},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newIsland().add("n2", 3, &memoryOnce{})
				for _, s := range c.steps {
					time.Sleep(s.after)
					if got := n.put(t, s.from, s.q); got != s.want {
						t.Fatalf("%s: %v, want %v", s.fact, got, s.want)
					}
				}
			})
		})
	}
}

func TestANodeDoesNotAgreeWhileItSeesALowerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newIsland().add("n2", 3, &memoryOnce{})
		time.Sleep(reservation)
		n.look("n0", "n1", "n2", "n3")
		q := question{op: opAgree, list: []fsm.NodeID{"n1", "n2", "n3"}}
		if n.put(t, "n1", q) {
			t.Error("agreed with n1 although n0 is alive")
		}
		n.look("n1", "n2", "n3")
		if !n.put(t, "n1", q) {
			t.Error("did not agree with the lowest")
		}
	})
}

func TestAnOfferIsConfirmedOnlyIfAllAccept(t *testing.T) {
	for _, c := range []struct {
		name string
		prep func(s *island)
		want bool
	}{
		{"all accept", func(*island) {}, true},
		{"one cannot be reached", func(s *island) { delete(s.nodes, "n2") }, false},
		{"the answer of one is lost", func(s *island) {
			s.lose = func(_, to fsm.NodeID) (bool, bool) { return false, to == "n2" }
		}, false},
		{"one has accepted another list", func(s *island) {
			s.nodes["n2"].accept([]fsm.NodeID{"n2", "n3", "n4"})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newIsland()
				for _, id := range ids(3) {
					s.add(id, 3, &memoryOnce{})
				}
				n0 := s.nodes["n0"]
				c.prep(s)
				list, err := n0.offer(t.Context(), question{op: opAccept, backed: true, list: ids(3)})
				if err != nil || slices.Equal(list, ids(3)) != c.want || !c.want && list != nil {
					t.Errorf("%v, %v; want confirmed %v", list, err, c.want)
				}
				if _, err := n0.store.Read(confirmedName); (err == nil) != c.want {
					t.Errorf("confirmed file: %v, want it %v", err, c.want)
				}
			})
		})
	}
}

func TestAProposalThatTookTooLongIsNotOffered(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration
		want  bool
	}{{100 * time.Millisecond, true}, {400 * time.Millisecond, true}, {499 * time.Millisecond, true}} {
		proposeWith(t, c.delay, 3, c.want)
	}
	proposeWith(t, 400*time.Millisecond, 5, false) // four others: 1.6 s, more than half a reservation
}

func proposeWith(t *testing.T, delay time.Duration, nodes int, want bool) {
	synctest.Test(t, func(t *testing.T) {
		s := newIsland()
		s.delay = func() time.Duration { return delay }
		for _, id := range ids(nodes) {
			s.add(id, nodes, &memoryOnce{})
		}
		time.Sleep(reservation)
		list, err := s.nodes["n0"].propose(t.Context(), ids(nodes))
		if err != nil || (list != nil) != want {
			t.Errorf("%d nodes, %v each: %v, %v; want confirmed %v", nodes, delay, list, err, want)
		}
		if _, err := s.nodes["n1"].store.Read(acceptedName); (err == nil) != want {
			t.Errorf("%d nodes, %v each: n1 accepted: %v, want %v", nodes, delay, err, want)
		}
	})
}
