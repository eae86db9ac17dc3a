package partition

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// sendSnapshot makes a leader send its newest snapshot, as a goroutine of raft does that believes the
// follower to be far behind.
func sendSnapshot(t *testing.T, c *testCluster, from *replica.Replica, to fsm.NodeID) (raft.InstallSnapshotResponse, error) {
	t.Helper()
	list, err := c.nodes[from.Node()].disks[1].snaps.List()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d snapshots, %v", len(list), err)
	}
	meta, body, err := c.nodes[from.Node()].disks[1].snaps.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	self := []byte(from.Node())
	args := &raft.InstallSnapshotRequest{
		RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self},
		SnapshotVersion: meta.Version, Term: termOf(from), Leader: self,
		LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: int64(len(data)),
		Configuration:      raft.EncodeConfiguration(meta.Configuration),
		ConfigurationIndex: meta.ConfigurationIndex,
	}
	var resp raft.InstallSnapshotResponse
	err = newPeer(from.Node(), 1, c.nodes[from.Node()].port).InstallSnapshot(raft.ServerID(to), raft.ServerAddress(to), args, &resp, bytes.NewReader(data))
	return resp, err
}

// A snapshot that a follower has no need of leaves its log alone: what lies behind it there was
// acknowledged through that follower.
func TestSnapshotDoesNotTakeALogBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		for _, id := range c.ids {
			d := newDisk()
			d.log.whole = true
			c.start(id).disks[1] = d
		}
		c.open(1)
		defer c.close()
		r := c.leader(1)
		fill := func(from, to uint64) {
			for i := from; i < to; i++ {
				if _, err := r.Propose(t.Context(), enqueue(reqID(1, i+1), "x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill(0, 100)
		if err := r.Snapshot(); err != nil {
			t.Fatal(err)
		}
		fill(100, 150)
		c.settled()
		to := c.others(r.Node())[0]
		f := c.nodes[to].host.Replica(1)
		last := f.LastIndex()
		resp, err := sendSnapshot(t, c, r, to)
		if err != nil || !resp.Success {
			t.Errorf("the leader is answered %+v, %v", resp, err)
		}
		var l raft.Log
		if err := c.nodes[to].disks[1].log.GetLog(last, &l); err != nil {
			t.Errorf("entry %d is gone: %v", last, err)
		}
		fill(150, 200)
		if s := c.settled(); s.Enqueues != 200 {
			t.Errorf("%d enqueues", s.Enqueues)
		}
	})
}

// A follower that has no room for the bodies of a snapshot starts anew when there is room. Before, it was sent the same
// snapshot again and again, and its store of bodies took no more writes, whatever room there was.
func TestAFollowerWithoutRoomForASnapshotStartsAnew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.disk = &memDisk{free: 1 << 30}
		c.cfg = func(c *Config) { c.TrailingLogs = 64 }
		c.open(1)
		defer c.close()
		r := c.leader(1)
		far := c.others(r.Node())[0]
		c.net.Isolate(far, true)
		for i := range 200 {
			if _, err := r.Propose(t.Context(), enqueue(reqID(1, uint64(i+1)), fmt.Sprint("b", i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Snapshot(); err != nil {
			t.Fatal(err)
		}
		n := c.nodes[far]
		bodies := n.disks[1].bodies
		bodies.mu.Lock()
		bodies.noRoom = &fs.PathError{Op: "write", Path: "bodies", Err: syscall.ENOSPC} // of this store for ever
		bodies.mu.Unlock()
		c.net.Isolate(far, false)
		time.Sleep(time.Minute)
		n.mu.Lock()
		same := n.disks[1].bodies == bodies
		n.mu.Unlock()
		if same {
			t.Fatalf("after %d snapshots the follower goes on with a store that takes no writes: %+v",
				c.net.Calls(KindSnapshot), n.host.Replica(1).Status())
		}
		if s := c.settled(); s.Enqueues != 200 {
			t.Errorf("%d enqueues", s.Enqueues)
		}
	})
}
