package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// Survivor is what the stores of a stopped replica know of its group.
type Survivor struct {
	Voters   []fsm.NodeID
	Last     uint64   // index of the last entry, in the log or in a snapshot
	LastTerm uint64   // its term
	Written  fsm.Wall // stamped clock of the last entry of the log that has one, 0 for none
}

// Blank reports whether the replica never belonged to its group.
func (s *Survivor) Blank() bool { return len(s.Voters) == 0 }

// Behind reports whether another replica of the group has more of the log, as an election would judge.
func (s *Survivor) Behind(o *Survivor) bool {
	return s.LastTerm < o.LastTerm || s.LastTerm == o.LastTerm && s.Last < o.Last
}

// Survey reads the stores of a stopped replica.
func Survey(s Stores) (out Survivor, err error) {
	metas, err := s.Snapshots.List()
	if err != nil {
		return out, fmt.Errorf("list snapshots: %w", err)
	}
	var members raft.Configuration
	if len(metas) > 0 {
		out.Last, out.LastTerm, members = metas[0].Index, metas[0].Term, metas[0].Configuration
	}
	first, err := s.Log.FirstIndex()
	if err != nil {
		return out, fmt.Errorf("first entry: %w", err)
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return out, fmt.Errorf("last entry: %w", err)
	}
	found := false
	for i := last; i > 0 && i >= first && !(found && out.Written > 0); i-- {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil {
			return out, fmt.Errorf("entry %d: %w", i, err)
		}
		if i == last && last > out.Last {
			out.Last, out.LastTerm = last, l.Term
		}
		switch {
		case l.Type == raft.LogConfiguration && !found:
			if members, err = decodeMembers(l.Data); err != nil {
				return out, fmt.Errorf("configuration entry %d: %w", i, err)
			}
			found = true
		case l.Type == raft.LogCommand && out.Written == 0:
			e, err := fsm.DecodeEntry(l.Data)
			if err != nil {
				return out, fmt.Errorf("entry %d: %w", i, err)
			}
			out.Written = e.Wall
		}
	}
	for _, m := range members.Servers {
		if m.Suffrage == raft.Voter {
			out.Voters = append(out.Voters, fsm.NodeID(m.ID))
		}
	}
	return out, nil
}

// termsAhead is how far a recovered group's term is ahead of what its only member knows. A former member that comes back
// against all advice has a lower term, so it follows and does not lead.
const termsAhead = 1 << 20

// RecoverAlone makes a stopped replica the only voter of its group, by an entry behind all others. It is for a group
// that has lost its majority for good. Entries that only the lost members had are lost with them. Entries that were
// never committed count from now on. It returns the index of the entry.
//
// A crash before the entry is durable leaves a higher term and the former members, so it may be done again.
func RecoverAlone(s Stores, self fsm.NodeID) (index uint64, err error) {
	was, err := Survey(s)
	if err != nil {
		return 0, err
	}
	if was.Blank() {
		return 0, errors.New("the replica never belonged to its group, so there is nothing to recover")
	}
	term, err := s.Stable.GetUint64([]byte(keyTerm))
	if err != nil && !notFound(err) {
		return 0, fmt.Errorf("read the term: %w", err)
	}
	term = max(term, was.LastTerm) + termsAhead
	if err := s.Stable.SetUint64([]byte(keyTerm), term); err != nil {
		return 0, fmt.Errorf("write the term: %w", err)
	}
	alone := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(self),
		Address: raft.ServerAddress(self)}}}
	l := &raft.Log{Index: was.Last + 1, Term: term, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(alone)}
	if err := s.Log.StoreLog(l); err != nil {
		return 0, fmt.Errorf("write entry %d: %w", l.Index, err)
	}
	return l.Index, nil
}

// Replay returns the state of a stopped replica behind the last entry of its log, which may not be committed.
func Replay(ctx context.Context, p fsm.PartitionID, s Stores, empty func() Machine) (Machine, error) {
	m, err := reopen(s, empty)
	if err != nil {
		return nil, err
	}
	var out Stored
	out.Partition = p
	return m.m, out.replay(ctx, s.Log, m, 0)
}
