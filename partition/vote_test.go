package partition

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// A voter that has not heard of a change of the configuration votes for a candidate that the change gave a vote. Otherwise a
// leader that is lost behind the change would leave a group for good: the candidate lacks a vote, and the voter lacks the
// entries to be elected itself.
func TestAVoterElectsACandidateThatItsConfigurationDoesNotHave(t *testing.T) {
	for name, leave := range map[string]func(*replica.Replica, fsm.NodeID) error{
		"a learner before": func(r *replica.Replica, n fsm.NodeID) error { return r.Demote(n, 0).Error() },
		"unknown before":   func(r *replica.Replica, n fsm.NodeID) error { return r.Remove(n, 0).Error() },
	} {
		t.Run(name, func(t *testing.T) {
			three(t, func(t *testing.T, c *testCluster) {
				leader := c.leader(1)
				others := c.others(leader.Node())
				voter, candidate := others[0], others[1]
				if err := leave(leader, candidate); err != nil {
					t.Fatal(err)
				}
				if _, err := leader.Propose(t.Context(), enqueue(reqID(1, 1), "both have it")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				c.net.Isolate(voter, true)
				if err := leader.AddVoter(candidate, 0).Error(); err != nil {
					t.Fatal(err)
				}
				if _, err := leader.Propose(t.Context(), enqueue(reqID(1, 2), "the voter lacks it")); err != nil {
					t.Fatal(err)
				}
				c.crash(leader.Node())
				c.net.Isolate(voter, false)
				r := c.leader(1, leader.Node())
				if r.Node() != candidate {
					t.Errorf("%s leads, and lacks an entry that is committed", r.Node())
				}
				if _, err := r.Propose(t.Context(), enqueue(reqID(1, 3), "another")); err != nil {
					t.Error(err)
				}
				if s := c.settled(leader.Node()); s.Enqueues != 3 {
					t.Errorf("%d messages, want 3", s.Enqueues)
				}
			})
		})
	}
}

// A replica without a vote does not stand, although the others would judge it by its log alone.
func TestAReplicaWithoutAVoteDoesNotStand(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		leader := c.leader(1)
		learner := c.nodes[c.others(leader.Node())[0]].host.Replica(1)
		if err := leader.Demote(learner.Node(), 0).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		term := termOf(leader)
		learner.Campaign(t.Context(), leader.Node())
		time.Sleep(5 * time.Second)
		if !leader.Leading() || termOf(leader) != term || termOf(learner) != term {
			t.Errorf("leading %v, in term %d; the learner is in term %d, and was in %d", leader.Leading(), termOf(leader), termOf(learner),
				term)
		}
	})
}
