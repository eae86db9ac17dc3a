package partition

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// lag cuts a follower off, lets the others go on without it, and brings it back: raft will ask it for
// what it lacks only after a pause.
func (c *testCluster) lag(t *testing.T, leader *replica.Replica, follower fsm.NodeID) {
	t.Helper()
	c.net.Isolate(follower, true)
	time.Sleep(10 * time.Second)
	for range 32 { // four times what a follower that is closely behind may lack
		if _, err := c.sendVia(t.Context(), leader.Node(), enqueue(fsm.RequestID{}, "x")); err != nil {
			t.Fatal(err)
		}
	}
	c.net.Isolate(follower, false)
}

// A stop in good order, and an operator without a wish, hand over to who can lead at once. S-295.
func TestHeirIsTheOneThatFollowsClosely(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		others := c.others(r.Node())
		for i, behind := range others {
			c.lag(t, r, behind)
			began := time.Now()
			if got := c.nodes[r.Node()].host.transferTarget(t.Context(), r); got != others[1-i] {
				t.Errorf("the target is %s, %s was away", got, behind)
			}
			if took := time.Since(began); took > closeEvery {
				t.Errorf("a target was found after %v", took)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// Somebody's choice is waited for, while the leader goes on serving.
func TestTransferWaitsForAFollowerThatIsBehind(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		to := c.others(r.Node())[0]
		c.lag(t, r, to)
		h := c.nodes[r.Node()].host
		handed := make(chan error, 1)
		go func() { handed <- h.TransferLeadership(t.Context(), 1, to) }()
		var longest time.Duration
		for over := false; !over; {
			began := time.Now()
			if _, err := c.sendVia(t.Context(), to, enqueue(fsm.RequestID{}, "x")); err != nil {
				t.Fatal(err)
			}
			longest = max(longest, time.Since(began))
			select {
			case err := <-handed:
				if err != nil {
					t.Fatal(err)
				}
				over = true
			case <-time.After(10 * time.Millisecond):
			}
		}
		if r.Leading() {
			t.Error("the transfer is over, and the old leader leads")
		}
		if c.leader(1).Node() != to {
			t.Errorf("%s leads, not %s", c.leader(1).Node(), to)
		}
		if longest > 200*time.Millisecond {
			t.Errorf("a sender waited for %v", longest)
		}
	})
}

func TestTransferToANodeThatStaysBehindIsRefused(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		to := c.others(r.Node())[0]
		c.lag(t, r, to)
		err := c.nodes[r.Node()].host.TransferLeadership(shortly(t, time.Millisecond), 1, to)
		if !errors.Is(err, fsm.ErrUnavailable) || !strings.Contains(err.Error(), "entries behind") {
			t.Errorf("handed to a node that is behind: %v", err)
		}
		if !r.Leading() {
			t.Error("the leader no longer leads")
		}
	})
}
