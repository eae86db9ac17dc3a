package partition

import (
	"context"
	"io"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
)

// peer is the replica of a transport that only asks others.
type peer struct{}

func (peer) Silent() bool                      { return false }
func (peer) Blank() bool                       { return false }
func (peer) Allowed(fsm.NodeID) bool           { return true }
func (peer) Learner(raft.ServerID) bool        { return false }
func (peer) Voter() raft.ServerID              { return "" }
func (peer) Term() uint64                      { return 0 }
func (peer) Standing() raftnet.Standing        { return raftnet.Standing{} }
func (peer) Defers() bool                      { return false }
func (peer) Given()                            {}
func (peer) Behind(*raft.AppendEntriesRequest) {}
func (peer) Holds(uint64, uint64) bool         { return false }
func (peer) Unreadable(error)                  {}

// newPeer returns the transport of a node that calls as it likes over c.
func newPeer(self fsm.NodeID, group fsm.PartitionID, c raftnet.Caller) *raftnet.Transport {
	d := Defaults()
	return raftnet.New(raftnet.Config{Group: group, Self: self, Caller: c, HeartbeatTimeout: d.HeartbeatTimeout,
		ElectionTimeout: d.ElectionTimeout, RPCTimeout: d.RPCTimeout, MaxAppendBytes: d.MaxAppendBytes},
		peer{}, raft.NewInmemSnapshotStore())
}

// line carries the calls of one node straight to a replica, past the network, and keeps what it was answered last.
type line struct {
	from fsm.NodeID
	to   *replica.Replica
	err  error
}

func (l *line) Call(ctx context.Context, _ fsm.NodeID, _ uint8, b []byte) ([]byte, error) {
	c, err := raftnet.ParseCall(b)
	if err != nil {
		return nil, err
	}
	b, l.err = l.to.Serve(ctx, l.from, c)
	return b, l.err
}

func (l *line) CallStream(ctx context.Context, _ fsm.NodeID, _ uint8, head []byte, body io.Reader) ([]byte, error) {
	c, err := raftnet.ParseCall(head)
	if err != nil {
		return nil, err
	}
	return l.to.ServeSnapshot(ctx, l.from, c, body)
}

// peerOf returns the transport of a node that speaks to one replica.
func peerOf(r *replica.Replica, self fsm.NodeID) *raftnet.Transport {
	return newPeer(self, r.ID(), &line{from: self, to: r})
}
