package partition

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/cluster/callnet"
	"github.com/busbar-mq/busbar/fsm"
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
				c.net.SetCut(old.Node(), other, tc.alone)
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
		c.net.Isolate(alone, true)
		for _, lost := range c.others(alone) {
			c.nodes[alone].host.PeerLost(t.Context(), lost)
		}
		time.Sleep(5 * time.Second)
		c.net.Isolate(alone, false)
		time.Sleep(5 * time.Second)
		if got := termOf(leader); got != term || !leader.Leading() {
			t.Errorf("term %d after the node came back, leading %v; want %d and true", got,
				leader.Leading(), term)
		}
	})
}

// A follower that was away is asked again as soon as it is back: raft's own pauses grow to ten
// seconds, in which nothing is acknowledged if the third one goes.
func TestFollowerThatComesBackIsAskedAtOnce(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		others := c.others(r.Node())
		c.net.Isolate(others[0], true)
		time.Sleep(time.Minute)
		if _, err := c.sendVia(t.Context(), r.Node(), enqueue(fsm.RequestID{}, "x")); err != nil {
			t.Fatal(err)
		}
		c.net.Isolate(others[0], false)
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

// S-279: a leader that stops hands over and is gone soon after. A survivor that hears of its end leaves the election to the
// heir, whose request for votes may be under way to it. If both stood, neither would win, and both would wait for raft's
// time-out.
func TestTheHeirOfALeaderThatStopsIsLeftToWin(t *testing.T) {
	simulatesLong(t)
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.net = callnet.New(callnet.Config{Rand: rand.New(rand.NewPCG(7, 3))})
		c.net.SetDelay(200*time.Microsecond, 3*time.Millisecond)
		c.open(1)
		defer c.close()
		for round := range 400 {
			old := c.leader(1).Node()
			time.Sleep(3 * time.Second) // raft's pauses between tries to reach the node that came back are over
			c.settled()
			began := time.Now()
			if err := c.nodes[old].host.Close(t.Context()); err != nil {
				t.Error(err)
			}
			c.crash(old) // it is closed: its links end
			for _, id := range c.others(old) {
				go c.nodes[id].host.PeerLost(t.Context(), old)
			}
			c.leader(1, old)
			if d := time.Since(began); d > time.Second {
				t.Errorf("round %d: without a leader for %v", round, d)
			}
			c.start(old)
			if err := c.nodes[old].host.Open(1, c.ids); err != nil {
				t.Fatal(err)
			}
		}
	})
}
