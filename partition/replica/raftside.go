package replica

import (
	"context"
	"io"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// raftSide is a replica as its transport sees it.
type raftSide struct{ r *Replica }

var _ raftnet.Replica = raftSide{}

// Silent implements raftnet.Replica.
func (s raftSide) Silent() bool { return s.r.silent() }

func (r *Replica) silent() bool {
	return r.stalled.Load() || r.unverified.Load() || r.failure.Load() != nil
}

// Blank implements raftnet.Replica: the replica was not taken in yet. Raft lets such a replica vote for anybody, whatever
// the candidate has. An acknowledged entry that a replica of the same name held before it lost its disk would be voted
// away (R8).
func (s raftSide) Blank() bool { return s.r.Blank() }

// Allowed implements raftnet.Replica.
func (s raftSide) Allowed(n fsm.NodeID) bool { return s.r.node.Allowed(n) }

// Learner implements raftnet.Replica.
func (s raftSide) Learner(n raft.ServerID) bool {
	return slices.ContainsFunc(s.r.Servers(), func(o raft.Server) bool { return o.ID == n && o.Suffrage != raft.Voter })
}

// Voter implements raftnet.Replica.
func (s raftSide) Voter() raft.ServerID {
	for _, o := range s.r.Servers() {
		if o.Suffrage == raft.Voter {
			return o.ID
		}
	}
	return ""
}

// Term implements raftnet.Replica.
func (s raftSide) Term() uint64 { return s.r.raft.CurrentTerm() }

// Standing implements raftnet.Replica.
func (s raftSide) Standing() raftnet.Standing { return s.r.standing() }

// Defers implements raftnet.Replica.
func (s raftSide) Defers() bool { return s.r.node.Defers(s.r) }

// Given implements raftnet.Replica.
func (s raftSide) Given() { s.r.given() }

// Behind implements raftnet.Replica.
func (s raftSide) Behind(a *raft.AppendEntriesRequest) { s.r.behind(a) }

// Holds implements raftnet.Replica: the entry was applied, or it is stored with the same term, and then so is all
// before it.
func (s raftSide) Holds(index, term uint64) bool {
	if s.r.machine.index() >= index {
		return true
	}
	var l raft.Log
	return s.r.stores.Log.GetLog(index, &l) == nil && l.Term == term
}

// Unreadable implements raftnet.Replica.
func (s raftSide) Unreadable(err error) { s.r.guard.unreadable(err) }

// Serve answers a call of raft from another node.
func (r *Replica) Serve(ctx context.Context, from fsm.NodeID, c raftnet.Call) ([]byte, error) {
	return r.net.Serve(ctx, from, c)
}

// ServeSnapshot takes a snapshot from another node.
func (r *Replica) ServeSnapshot(ctx context.Context, from fsm.NodeID, c raftnet.Call, body io.Reader) ([]byte, error) {
	return r.net.ServeSnapshot(ctx, from, c, body)
}
