package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// Stored is what the stores of a replica of a stopped node hold, replayed.
type Stored struct {
	Audit
	Last     uint64   `json:"last"`      // index of the last entry of the log
	LastTerm uint64   `json:"last_term"` // its term
	Digests  []Digest `json:"digests,omitempty"`
}

// AuditStores opens the newest snapshot of stores that no replica uses. It replays the log behind it up to an index,
// 0 for all of it. It recounts the result as Replica.Audit does. Audit.Digest is that of the state at the end,
// Digests are those of the marked entries on the way. The end of a log may hold entries that were never committed.
// Two replicas are compared up to an entry that both have with one term.
func AuditStores(ctx context.Context, p fsm.PartitionID, s Stores, empty func() Machine, upTo uint64) (
	out Stored, err error) {
	out.Partition = p
	m, err := reopen(s, empty)
	if err != nil {
		return out, err
	}
	if err := out.replay(ctx, s.Log, m, upTo); err != nil {
		return out, err
	}
	c := m.freeze()
	end, err := digest(c.image, ctx.Done())
	if err != nil {
		return out, err
	}
	last, term, digests := out.Last, out.LastTerm, out.Digests
	out = Stored{Audit: audit(ctx, c, empty(), s.Bodies), Last: last, LastTerm: term, Digests: digests}
	end.Index = c.index
	out.Partition, out.Digest = p, end
	return out, ctx.Err()
}

// reopen restores the newest snapshot of stores that no replica uses, if there is one.
func reopen(s Stores, empty func() Machine) (*machine, error) {
	m := &machine{bodies: s.Bodies, m: empty(), notify: func() {}, digests: newDigests(nil, nil)}
	metas, err := s.Snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	if len(metas) == 0 {
		return m, nil
	}
	_, r, err := s.Snapshots.Open(metas[0].ID)
	if err != nil {
		return nil, fmt.Errorf("open snapshot %s: %w", metas[0].ID, err)
	}
	if err := errors.Join(m.Restore(r), r.Close()); err != nil {
		return nil, err
	}
	m.applied.Store(max(m.applied.Load(), metas[0].Index))
	return m, nil
}

// replay applies the log behind what was restored.
func (s *Stored) replay(ctx context.Context, log raft.LogStore, m *machine, upTo uint64) error {
	first, err := log.FirstIndex()
	if err != nil {
		return fmt.Errorf("first entry: %w", err)
	}
	if s.Last, err = log.LastIndex(); err != nil {
		return fmt.Errorf("last entry: %w", err)
	}
	if first > m.applied.Load()+1 {
		return fmt.Errorf("the log begins with entry %d, the snapshot ends with %d", first, m.applied.Load())
	}
	until := s.Last
	if upTo > 0 {
		until = min(until, upTo)
	}
	if m.applied.Load() > until && upTo > 0 {
		return fmt.Errorf("the snapshot ends with entry %d, behind %d", m.applied.Load(), upTo)
	}
	for i := m.applied.Load() + 1; i <= until; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		var l raft.Log
		if err := log.GetLog(i, &l); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if err := s.step(ctx, m, &l); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	if s.Last == 0 {
		return nil
	}
	var l raft.Log
	if err := log.GetLog(s.Last, &l); err != nil {
		return fmt.Errorf("entry %d: %w", s.Last, err)
	}
	s.LastTerm = l.Term
	return nil
}

func (s *Stored) step(ctx context.Context, m *machine, l *raft.Log) error {
	if l.Type != raft.LogCommand {
		m.applied.Store(max(m.applied.Load(), l.Index))
		return nil
	}
	marked := isCheckpoint(l)
	l.Extensions = nil // its digest is computed here and now
	if _, err := m.apply(l); err != nil {
		return err
	}
	if !marked {
		return nil
	}
	d, err := digest(m.freeze().image, ctx.Done())
	d.Index = l.Index
	s.Digests = append(s.Digests, d)
	return err
}

// LastCommon returns the last entry that all logs have with one term, and that no snapshot has passed. The replicas
// of stopped nodes can be compared up to it. It is 0 if there is none, as with a replica that was far behind.
func LastCommon(all []Stores) (uint64, error) {
	if len(all) < 2 {
		return 0, nil
	}
	var least, most uint64 // of the last entries, and of the snapshots
	for i, s := range all {
		last, err := s.Log.LastIndex()
		if err != nil {
			return 0, fmt.Errorf("last entry: %w", err)
		}
		if i == 0 || last < least {
			least = last
		}
		metas, err := s.Snapshots.List()
		if err != nil {
			return 0, fmt.Errorf("list snapshots: %w", err)
		}
		if len(metas) > 0 {
			most = max(most, metas[0].Index)
		}
	}
	for i := least; i > most; i-- {
		same, err := sameTerm(all, i)
		if err != nil {
			return 0, err
		}
		if same {
			return i, nil
		}
	}
	return 0, nil
}

func sameTerm(all []Stores, index uint64) (bool, error) {
	var term uint64
	for i, s := range all {
		var l raft.Log
		if err := s.Log.GetLog(index, &l); err != nil {
			return false, fmt.Errorf("entry %d: %w", index, err)
		}
		if i > 0 && l.Term != term {
			return false, nil
		}
		term = l.Term
	}
	return true, nil
}
