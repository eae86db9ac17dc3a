package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// A leader whose disk stalls is given up after StallAfter and one look of the watchdog; from there on
// nobody waits for a time-out of raft.
func TestStalledLeaderIsFollowedAtOnce(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1)
		defer c.nodes[old.Node()].disks[1].log.hang()()
		p := start(t.Context(), old, enqueue(reqID(1, 1), "x"))
		began := time.Now()
		next := c.leader(1, old.Node())
		if took := time.Since(began); took > Defaults().StallAfter+2*watchdogEvery {
			t.Errorf("taken over after %v", took)
		}
		<-p.done
		if o, err := next.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil || len(o.Numbers) != 1 {
			t.Errorf("next leader: %+v, %v", o, err)
		}
	})
}

// A leader that failed is followed at once, and one that never led tells nobody anything.
func TestFailedLeaderIsFollowedAtOnce(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1)
		follower := c.nodes[c.others(old.Node())[0]].host.Replica(1)
		term := termOf(old)
		follower.Fail(errDisk)
		time.Sleep(10 * time.Second)
		if !old.Leading() || termOf(old) != term {
			t.Errorf("the end of a follower deposed the leader of term %d", term)
		}
	})
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1)
		time.Sleep(time.Second)
		began := time.Now()
		old.Fail(errDisk)
		c.leader(1, old.Node())
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("leaderless for %v", took)
		}
	})
}

// What is said of a leadership is believed of the leader and the term that is followed, and of no other.
func TestResignationsAreBelievedOfThePresentLeader(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1)
		time.Sleep(3 * time.Second) // two elections that a replica calls itself are 2 s apart
		term := termOf(l)
		others := c.others(l.Node())
		h := c.nodes[others[0]].host
		say := func(from fsm.NodeID, b []byte) error {
			t.Helper()
			_, err := h.serveStepDown(t.Context(), from, b)
			time.Sleep(3 * time.Second)
			return err
		}
		for name, b := range map[string][]byte{"nothing": {}, "half": {0, 1, 0}, "too many": make([]byte,
			stepDownBytes*(maxStatusReplicas+1))} {
			if err := say(l.Node(), b); !errors.Is(err, fsm.ErrFormat) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, tc := range map[string]struct {
			from fsm.NodeID
			b    []byte
		}{
			"another term":      {l.Node(), appendStepDown(nil, 1, term-1)},
			"another partition": {l.Node(), appendStepDown(nil, 2, term)},
			"not the leader":    {others[1], appendStepDown(nil, 1, term)},
		} {
			if err := say(tc.from, tc.b); err != nil || !l.Leading() || termOf(l) != term {
				t.Errorf("%s: %v; leading %v in term %d", name, err, l.Leading(), termOf(l))
			}
		}
		// And the canary: told by the leader of its term, both survivors hear it, and one stands.
		for _, o := range others {
			if _, err := c.nodes[o].host.serveStepDown(t.Context(), l.Node(), appendStepDown(nil, 1, term)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if next := c.leader(1); termOf(next) == term {
			t.Error("nobody stood for election")
		}
	})
}

// A disk answers again just after its leaders were dismissed, so that raft may have kept them. A leader takes entries again
// within the time of an election, although nobody asks for one.
func TestALeaderWithoutWorkOutlivesAShortStall(t *testing.T) {
	for _, lasts := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond, 5 * time.Second} {
		three(t, func(t *testing.T, c *testCluster) {
			r := quiet(t, c)
			r.SetStalled(true)
			time.Sleep(lasts)
			r.SetStalled(false)
			began, led := time.Now(), false
			for time.Since(began) < time.Minute && !led {
				time.Sleep(10 * time.Millisecond)
				for _, id := range c.ids {
					led = led || c.nodes[id].host.Replica(1).Leading()
				}
			}
			if d := time.Since(began); d > 2*Defaults().HeartbeatTimeout+everyBeat() {
				t.Errorf("after a stall of %v no leader takes entries for %v", lasts, d)
			}
			if _, err := c.sendVia(shortly(t, time.Minute), r.Node(), enqueue(reqID(1, 1), "x")); err != nil {
				t.Errorf("after a stall of %v: %v", lasts, err)
			}
		})
	}
}
