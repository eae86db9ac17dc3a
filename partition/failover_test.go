package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A17: when the mesh knows that the leader's process is gone, nobody waits for a time-out.
func TestPeerLost(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1).Node()
		time.Sleep(time.Second)
		c.crash(old)
		began := time.Now()
		for _, id := range c.others(old) {
			go c.nodes[id].host.PeerLost(t.Context(), old)
		}
		c.leader(1, old)
		if d := time.Since(began); d > 250*time.Millisecond {
			t.Errorf("leaderless for %v", d)
		}
	})
}

// An entry of the lost leader reaches the disk of a survivor while they ask each other who has more. S-299.
func TestSurvivorsDoNotWaitForEachOther(t *testing.T) {
	for name, tc := range map[string]struct {
		// late has the entry under way to its disk; first is whether it asks before the entry is there,
		// and alone whether the other survivor has no such entry.
		late         int
		first, alone bool
	}{
		"each saw the other one ahead":  {late: 0, first: true},
		"who stood is behind by then":   {late: 1, first: true, alone: true},
		"the one ahead has asked after": {late: 1, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			three(t, func(t *testing.T, c *testCluster) {
				old := c.leader(1)
				time.Sleep(3 * time.Second) // two elections that a replica calls itself are 2 s apart
				survivors := c.others(old.Node())
				late, other := survivors[tc.late], survivors[1-tc.late]
				release := c.nodes[late].disks[1].log.hang()
				c.net.setCut(old.Node(), other, tc.alone)
				start(t.Context(), old, enqueue(reqID(1, 1), "x"))
				time.Sleep(100 * time.Millisecond)
				c.crash(old.Node())
				began := time.Now()
				if tc.first {
					go c.nodes[late].host.PeerLost(t.Context(), old.Node())
				}
				if tc.alone {
					go c.nodes[other].host.PeerLost(t.Context(), old.Node())
				}
				time.Sleep(20 * time.Millisecond) // each has its answers
				release()
				time.Sleep(time.Millisecond)
				if !tc.first {
					go c.nodes[late].host.PeerLost(t.Context(), old.Node())
				}
				if !tc.alone {
					go c.nodes[other].host.PeerLost(t.Context(), old.Node())
				}
				c.leader(1, old.Node())
				if d := time.Since(began); d > 250*time.Millisecond {
					t.Errorf("leaderless for %v", d)
				}
			})
		})
	}
}

// Who was told of a loss and held another one for the better looks again; a leader that lives shows by then.
func TestFalseAlarmIsForgotten(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		leader := c.leader(1)
		time.Sleep(3 * time.Second)
		term := termOf(leader)
		told := c.others(leader.Node())[0] // of equals the better one
		release := c.nodes[told].disks[1].log.hang()
		if _, err := c.sendVia(t.Context(), leader.Node(), enqueue(fsm.RequestID{}, "x")); err != nil {
			t.Fatal(err)
		}
		go c.nodes[told].host.PeerLost(t.Context(), leader.Node())
		time.Sleep(aliveAfter)
		release()
		time.Sleep(10 * time.Second)
		if got := termOf(leader); got != term || !leader.Leading() {
			t.Errorf("term %d, leading %v; want %d and true", got, leader.Leading(), term)
		}
	})
}

func TestFalseAlarmIsHarmless(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		for range 3 {
			for _, id := range c.ids {
				c.nodes[id].host.PeerLost(t.Context(), r.Node())
			}
			if _, err := c.sendVia(t.Context(), c.ids[0], enqueue(fsm.RequestID{}, "x")); err != nil &&
				!errors.Is(err, fsm.ErrUnknown) {
				t.Error(err)
			}
		}
		c.settled()
	})
}

// A17: a node that lost the network and not its peers must not raise the term: it would depose the
// leaders when it comes back.
func TestNodeThatHearsNobodyDoesNotStand(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		leader := c.leader(1)
		term := termOf(leader)
		alone := c.others(leader.Node())[0]
		c.net.isolate(alone, true)
		for _, lost := range c.others(alone) {
			c.nodes[alone].host.PeerLost(t.Context(), lost)
		}
		time.Sleep(5 * time.Second)
		c.net.isolate(alone, false)
		time.Sleep(5 * time.Second)
		if got := termOf(leader); got != term || !leader.Leading() {
			t.Errorf("term %d after the node came back, leading %v; want %d and true", got,
				leader.Leading(), term)
		}
	})
}

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
			if got := heard(&own, tc.others); got != tc.want {
				t.Errorf("a majority was heard: %v", got)
			}
		})
	}
	alone := replica.Status{Partition: 1, Node: "n1", Voters: []fsm.NodeID{"n1"}}
	if !heard(&alone, nil) {
		t.Error("the only voter is no majority of one")
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
			if got := best(&own, []replica.Status{tc.other}); got != tc.want {
				t.Errorf("stands: %v", got)
			}
			// Where somebody stands already, equals do not.
			want := tc.want && (tc.other.LastTerm != own.LastTerm || tc.other.Last != own.Last)
			if got := ahead(&own, []replica.Status{tc.other}); got != want {
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
			if got := best(&own, []replica.Status{other}); got != tc.want {
				t.Errorf("stands: %v", got)
			}
		})
	}
}

// A follower that was away is asked again as soon as it is back: raft's own pauses grow to ten
// seconds, in which nothing is acknowledged if the third one goes.
func TestFollowerThatComesBackIsAskedAtOnce(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		others := c.others(r.Node())
		c.net.isolate(others[0], true)
		time.Sleep(time.Minute)
		if _, err := c.sendVia(t.Context(), r.Node(), enqueue(fsm.RequestID{}, "x")); err != nil {
			t.Fatal(err)
		}
		c.net.isolate(others[0], false)
		c.crash(others[1])
		began := time.Now()
		if _, err := c.sendVia(t.Context(), r.Node(), enqueue(fsm.RequestID{}, "y")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second || !r.Leading() {
			t.Errorf("acknowledged after %v, leading %v", took, r.Leading())
		}
	})
}
