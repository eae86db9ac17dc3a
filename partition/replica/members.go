package replica

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// Blank reports whether this replica has no configuration: it was not taken in yet.
func (r *Replica) Blank() bool {
	return len(r.Servers()) == 0
}

// Servers returns the members of the group as far as raft knows here; that may not be committed.
func (r *Replica) Servers() []raft.Server { return r.raft.GetConfiguration().Configuration().Servers }

// Configuration returns the last committed configuration and its index, 0 without one. Raft's own answer may be of an
// entry that is not committed, and has no index. It waits neither for the machine nor for the disk.
func (r *Replica) Configuration() (raft.Configuration, uint64) {
	if m := r.machine.members.Load(); m != nil {
		return m.Configuration, m.index
	}
	return raft.Configuration{}, 0
}

// imaged returns the configuration beside the newest snapshot.
func (r *Replica) imaged() membership {
	metas, err := r.stores.Snapshots.List()
	if err != nil || len(metas) == 0 {
		return membership{}
	}
	return membership{metas[0].Configuration, metas[0].ConfigurationIndex}
}

// Peers returns the other voters of the group as far as this replica knows.
func (r *Replica) Peers() []fsm.NodeID {
	var ids []fsm.NodeID
	for _, s := range r.Servers() {
		if s.Suffrage == raft.Voter && s.ID != raft.ServerID(r.cfg.Node) {
			ids = append(ids, fsm.NodeID(s.ID))
		}
	}
	return ids
}

// Votes reports whether this replica has a vote as far as it knows. One without a configuration has none.
func (r *Replica) Votes() bool {
	return slices.ContainsFunc(r.Servers(), func(s raft.Server) bool {
		return s.ID == raft.ServerID(r.cfg.Node) && s.Suffrage == raft.Voter
	})
}

// OnlyVoter reports whether this replica alone votes in its group.
func (r *Replica) OnlyVoter() bool {
	voters := 0
	self := false
	for _, s := range r.Servers() {
		if s.Suffrage == raft.Voter {
			voters++
			self = self || s.ID == raft.ServerID(r.cfg.Node)
		}
	}
	return self && voters == 1
}

// changeTimeout bounds how long raft takes to begin one change of the configuration.
const changeTimeout = 10 * time.Second

// change is a change of the configuration that is under way.
type change struct {
	raft.Future
	stopping <-chan struct{} // the replica ends
}

// change returns a change that ends with the replica.
func (r *Replica) change(f raft.Future) raft.Future { return change{f, r.stopping} }

// Error implements raft.Future. Raft can forget a change when it shuts down; then only the goroutine here waits for ever.
func (c change) Error() error {
	done := make(chan error, 1)
	go func() { done <- c.Future.Error() }()
	select {
	case err := <-done:
		return err
	case <-c.stopping:
		return fsm.ErrClosed
	}
}

// AddNonvoter takes a node into the group without a vote. If index is not 0, raft refuses unless the configuration has
// that index.
func (r *Replica) AddNonvoter(n fsm.NodeID, index uint64) raft.Future {
	return r.change(r.raft.AddNonvoter(raft.ServerID(n), raft.ServerAddress(n), index, changeTimeout))
}

// AddVoter gives a node a vote, as AddNonvoter takes it in.
func (r *Replica) AddVoter(n fsm.NodeID, index uint64) raft.Future {
	return r.change(r.raft.AddVoter(raft.ServerID(n), raft.ServerAddress(n), index, changeTimeout))
}

// Demote takes a node's vote; the node goes on holding the group. The index is that of AddNonvoter.
func (r *Replica) Demote(n fsm.NodeID, index uint64) raft.Future {
	return r.change(r.raft.DemoteVoter(raft.ServerID(n), index, changeTimeout))
}

// Remove removes a node from the group, if the configuration has that index.
func (r *Replica) Remove(n fsm.NodeID, index uint64) raft.Future {
	return r.change(r.raft.RemoveServer(raft.ServerID(n), index, changeTimeout))
}
