package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/partition/replica"
)

// appended gives a replica an append of its leader and returns raft's answer.
func appended(t *testing.T, c *testCluster, r, leader *replica.Replica, from, count uint64) *raft.AppendEntriesResponse {
	t.Helper()
	self := []byte(leader.Node())
	a := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self},
		Term: termOf(leader), PrevLogEntry: from - 1, LeaderCommitIndex: leader.Status().Committed}
	var l raft.Log
	if err := c.nodes[leader.Node()].disks[1].log.GetLog(from-1, &l); err != nil {
		t.Fatalf("the leader has no entry %d: %v", from-1, err)
	}
	a.PrevLogTerm = l.Term
	for i := from; i < from+count; i++ {
		e := new(raft.Log)
		if err := c.nodes[leader.Node()].disks[1].log.GetLog(i, e); err != nil {
			t.Fatalf("the leader has no entry %d: %v", i, err)
		}
		a.Entries = append(a.Entries, e)
	}
	resp := new(raft.AppendEntriesResponse)
	if err := peerOf(r, leader.Node()).AppendEntries(raft.ServerID(r.Node()), "", a, resp); err != nil {
		t.Fatal(err)
	}
	return resp
}

// A leader that takes a follower for further back than it is finds its place again. The follower was given a snapshot
// and has nothing before it; appends that begin there used to be refused for ever.
func TestAppendsFromBeforeASnapshotAreTaken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.cfg = func(c *Config) { c.TrailingLogs = 64 }
		c.open(1)
		defer c.close()
		leader := c.leader(1)
		far := c.others(leader.Node())[0]
		c.net.Isolate(far, true)
		sent := 0
		fill := func(n int) {
			for range n {
				sent++
				if _, err := leader.Propose(t.Context(), enqueue(reqID(1, uint64(sent)), fmt.Sprint("b", sent))); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill(200)
		if err := leader.Snapshot(); err != nil {
			t.Fatal(err)
		}
		c.net.Isolate(far, false)
		c.settled()
		fill(20)
		c.settled()
		follower := c.nodes[far].host.Replica(1)
		snapshot := leader.Applied() - 20
		if installs(c) == 0 {
			t.Fatal("no snapshot was installed")
		}
		// The log of a disk is emptied when a snapshot is installed; that of this test keeps what it had.
		if err := c.nodes[far].disks[1].log.DeleteRange(1, snapshot); err != nil {
			t.Fatal(err)
		}
		first, err := c.nodes[far].disks[1].log.FirstIndex()
		if err != nil || first != snapshot+1 {
			t.Fatalf("the follower's log begins at %d, %v", first, err)
		}
		last := follower.LastIndex()
		for _, call := range []struct{ from, count uint64 }{
			{first - 1, 0}, {first, 0}, {first - 20, 5}, {first - 20, 19}, {first - 20, 20}, {first - 20, 30}, {first, 5},
			{first, last - first + 1}, {first - 1, last - first + 2}, {first - 30, last - first + 31},
		} {
			if a := appended(t, c, follower, leader, call.from, call.count); !a.Success {
				t.Errorf("%d entries from %d, where the log begins at %d: refused, last %d", call.count, call.from, first, a.LastLog)
			}
		}
		if now := follower.LastIndex(); now != last {
			t.Errorf("the log ends at %d, it was %d", now, last)
		}
		// Entries that are new come along.
		c.net.Isolate(far, true)
		fill(10)
		a := appended(t, c, follower, leader, first-10, leader.LastIndex()-(first-10)+1)
		if !a.Success || follower.LastIndex() != leader.LastIndex() {
			t.Errorf("success %t, the log ends at %d, the leader's at %d", a.Success, follower.LastIndex(), leader.LastIndex())
		}
		time.Sleep(time.Second)
		c.net.Isolate(far, false)
		if s := c.settled(); s.Enqueues != sent {
			t.Errorf("%d messages, want %d", s.Enqueues, sent)
		}
	})
}
