package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// R7: a deposed leader with entries of its own comes back so late that it needs a snapshot. With
// one entry in flight and TrailingLogs far above that, no conflicting entry lies beyond the
// snapshot, and one installation is enough.
func TestDeposedLeaderNeedsOneSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.cfg = func(c *Config) { c.TrailingLogs = 64 }
		c.open(1)
		defer c.close()
		old := c.leader(1)
		if _, err := old.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil {
			t.Fatal(err)
		}
		c.net.Isolate(old.Node(), true)
		for i := range uint64(5) { // what it has to itself, in terms that nobody else knows
			if _, err := old.Propose(shortly(t, time.Second), enqueue(reqID(2, i+1), "lost")); err == nil {
				t.Fatal("a cut leader acknowledges")
			}
		}
		r := c.leader(1, old.Node())
		for i := range uint64(300) {
			if _, err := r.Propose(t.Context(), enqueue(reqID(3, i+1), "y")); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range c.others(old.Node()) {
			if err := c.nodes[id].host.Replica(1).Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		before := installs(c)
		c.net.Isolate(old.Node(), false)
		if s := c.settled(); s.Enqueues != 301 { // S-303: what was not committed leaves no trace
			t.Errorf("%d enqueues", s.Enqueues)
		}
		time.Sleep(time.Minute)
		if n := installs(c) - before; n == 0 || n > 2 {
			t.Errorf("%d installations", n)
		}
	})
}

func installs(c *testCluster) int {
	return c.net.Calls(KindSnapshot)
}

// R5: rejected calls in a burst do not stop replication to a follower for good.
func TestReplicationSurvivesRejections(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		slow := c.others(r.Node())[0]
		for i := range uint64(100) {
			c.net.SetCut(r.Node(), slow, i%2 == 0)
			if _, err := r.Propose(t.Context(), enqueue(reqID(1, i+1), "x")); err != nil {
				t.Fatal(err)
			}
		}
		c.net.SetCut(r.Node(), slow, false)
		if s := c.settled(); s.Enqueues != 100 {
			t.Errorf("%d enqueues", s.Enqueues)
		}
	})
}

// R2, R4: a heartbeat takes the same way as everything else, and leads no read astray.
func TestDeposedLeaderReadsNothing(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1)
		c.net.Isolate(old.Node(), true)
		next := c.leader(1, old.Node())
		if _, err := next.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil {
			t.Fatal(err)
		}
		a, err := old.Query(shortly(t, 10*time.Second), fsm.QueryRequest{Entity: 1, Query: &fsm.Counts{}})
		if err == nil {
			t.Errorf("stale answer: %+v", a) // S-304
		}
	})
}

// A candidate that is no member, or a peer of another cluster, is not heard.
func TestStrangersAreNotHeard(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.open(1)
		defer c.close()
		r := c.leader(1)
		c.nodes["n1"].host.deps.Member = func(n fsm.NodeID) bool { return n != "evil" }
		evil := c.net.Port("evil")
		h := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("evil"), Addr: []byte("evil")}
		vote := &raft.RequestVoteRequest{RPCHeader: h, Term: 99, LeadershipTransfer: true}
		if err := newPeer("evil", 1, evil).RequestVote("n1", "n1", vote, new(raft.RequestVoteResponse)); err == nil {
			t.Error("a stranger's vote was answered")
		}
		if _, err := NewRemote(evil, "n1", 1).Propose(t.Context(), enqueue(reqID(1, 1), "x")); !errors.Is(err, fsm.ErrNotLeader) {
			t.Errorf("a stranger's proposal: %v", err)
		}
		if _, term := r.Leader(); term >= 99 || !r.Leading() {
			t.Errorf("term %d", term)
		}
	})
}

// holeyStore is a log that does not find one of its entries.
type holeyStore struct {
	*raft.InmemStore
	hide uint64
}

func (s *holeyStore) GetLog(i uint64, l *raft.Log) error {
	if i == s.hide {
		return raft.ErrLogNotFound
	}
	return s.InmemStore.GetLog(i, l)
}
