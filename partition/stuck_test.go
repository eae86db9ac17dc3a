package partition

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// withEntries reports whether a call is an AppendEntries of a partition that carries entries.
func withEntries(kind uint8, b []byte, p fsm.PartitionID) bool {
	if kind != KindRaft {
		return false
	}
	call, err := raftnet.ParseCall(b)
	if err != nil || call.Kind != raftnet.Append || call.Group != p {
		return false
	}
	command, _, err := call.Command()
	if err != nil {
		return false
	}
	a, ok := command.(*raft.AppendEntriesRequest)
	return ok && len(a.Entries) > 0
}

// R5, R10: a leader whose heartbeats are answered and whose entries never commit is opened anew, and
// somebody else leads. What it answered is unknown, not lost.
func TestLeaderThatDoesNotAdvanceIsOpenedAnew(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1)
		bad := l.Node()
		if _, err := l.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil {
			t.Fatal(err)
		}
		term := termOf(l)
		c.net.Swallow(func(from, _ fsm.NodeID, kind uint8, b []byte) bool {
			return from == bad && withEntries(kind, b, 1)
		})
		began := time.Now()
		_, err := l.Propose(t.Context(), enqueue(reqID(1, 2), "y"))
		if !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("the entry that is under way ended with %v", err)
		}
		if d := time.Since(began); d < Defaults().StuckAfter || d > Defaults().StuckAfter+5*time.Second {
			t.Errorf("noticed after %v", d)
		}
		if got := termOf(l); got != term {
			t.Errorf("term %d became %d: the leader was not wedged, it was deposed", term, got)
		}
		next := c.leader(1, bad)
		if o, err := next.Propose(t.Context(), enqueue(reqID(1, 2), "y")); err != nil || len(o.Numbers) != 1 {
			t.Errorf("asked again: %+v, %v", o, err)
		}
		c.net.Swallow(nil)
		if s := c.settled(); s.Enqueues != 2 {
			t.Errorf("%d enqueues", s.Enqueues)
		}
		again := c.nodes[bad].host.Replica(1)
		if s := c.nodes[bad].host.Status(); again == l || len(s) != 1 || s[0].Stuck != 1 {
			t.Errorf("status: %+v", s)
		}
	})
}

// held keeps raft's main loop of a follower of partition 1 from its work until release, and returns when
// that has been noticed.
func held(t *testing.T, c *testCluster) (deaf *replica.Replica, release func()) {
	t.Helper()
	l := c.leader(1)
	time.Sleep(time.Minute)
	for _, id := range c.ids {
		if s := c.nodes[id].host.Status(); s[0].Stuck != 0 {
			t.Fatalf("%s is healthy: %+v", id, s)
		}
	}
	deaf = c.nodes[c.others(l.Node())[0]].host.Replica(1)
	// Raft's main loop reads a snapshot itself, and this one does not come.
	body, self := make(stuckBody), []byte(l.Node())
	config := raft.EncodeConfiguration(raft.Configuration{Servers: l.Servers()})
	sends := peerOf(deaf, l.Node())
	go func() {
		_ = sends.InstallSnapshot(raft.ServerID(deaf.Node()), "", &raft.InstallSnapshotRequest{
			RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self},
			SnapshotVersion: raft.SnapshotVersionMax, Term: termOf(l), LastLogIndex: l.LastIndex() + 1000,
			LastLogTerm: termOf(l), Configuration: config, ConfigurationIndex: 1, Size: 1,
		}, new(raft.InstallSnapshotResponse), body)
	}()
	h := c.nodes[deaf.Node()].host
	for began := time.Now(); h.Status()[0].Stuck == 0; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > h.cfg.StuckAfter+15*time.Second {
			t.Fatalf("not noticed: %+v", h.Status())
		}
	}
	return deaf, func() { close(body) }
}

// stuckBody is read in vain until it is closed.
type stuckBody chan struct{}

func (b stuckBody) Read([]byte) (int, error) {
	<-b
	return 0, io.ErrUnexpectedEOF
}

// A replica whose raft does not answer itself is opened anew; one that is busy is not.
func TestRaftThatDoesNotAnswerIsOpenedAnew(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		deaf, release := held(t, c)
		release()
		time.Sleep(15 * time.Second)
		if next := c.nodes[deaf.Node()].host.Replica(1); next == deaf && next.Err() == nil {
			t.Error("it goes on")
		}
	})
}

// R5, R11: one that cannot even be closed keeps its stores, so that only a new process can open it; the
// node says so and ends.
func TestRaftThatDoesNotEndEndsTheProcess(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		deaf, release := held(t, c)
		time.Sleep(Defaults().CloseTimeout + time.Second)
		select {
		case err := <-c.fatal:
			if !errors.Is(err, replica.ErrHangs) {
				t.Errorf("it ends with %v", err)
			}
		default:
			t.Error("the node goes on without the partition")
		}
		n := c.nodes[deaf.Node()]
		if err := n.host.Close(t.Context()); !errors.Is(err, replica.ErrHangs) {
			t.Errorf("closed: %v", err)
		}
		n.port.Kill()
		n.host = nil
		release()
		time.Sleep(time.Second)
	})
}

// R5, R7: a follower that its leader reaches, and that does not advance, is opened anew, and given up
// and rebuilt if that does not help.
func TestFollowerThatDoesNotAdvance(t *testing.T) {
	for name, helps := range map[string]bool{"a new start helps": true, "only a rebuild helps": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, d, sent := loaded(t)
				defer b.close()
				l := b.leader(1)
				slow := b.others(l.Node())[0]
				stuck := b.nodes[slow].host.Replica(1)
				b.net.Swallow(func(from, to fsm.NodeID, kind uint8, msg []byte) bool {
					if !withEntries(kind, msg, 1) || to != slow {
						return false
					}
					if helps {
						return b.nodes[slow].host.Replica(1) == stuck && stuck.Failure() == nil
					}
					return b.nodes[slow].rebuilds.Load() == 0
				})
				for i := range 10 {
					k := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(slices.Index(d.Partitions, 1))}
					sendOne(t, b.all[l.Node()].r, reqOf(0, 99, i+1), k)
				}
				for range 300 {
					if r := b.nodes[slow].host.Replica(1); r != stuck && (helps || b.nodes[slow].rebuilds.Load() > 0) {
						break
					}
					time.Sleep(time.Second)
				}
				b.whole("n1 n2 n3")
				if n := b.nodes[slow].rebuilds.Load(); (n == 0) != helps {
					t.Errorf("rebuilt %d times", n)
				}
				if b.nodes[slow].host.Replica(1) == stuck {
					t.Error("it was not opened anew")
				}
				b.wantActive(l.Node(), d, sent+10)
				for _, id := range b.others(slow) {
					for _, s := range b.nodes[id].host.Status() {
						if s.Stuck != 0 {
							t.Errorf("%s: %+v", id, s)
						}
					}
				}
			})
		})
	}
}
