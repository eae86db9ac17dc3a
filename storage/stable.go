package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// Keys of raft that together are a vote. raft writes them one after the other and, after a crash
// between the two, would take the old candidate for the one of the new term and skip the check of
// its log (R9).
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
	keyVote          = "busbar/Vote" // ours: term and candidate in one value
)

// maxStableBytes bounds a value; raft keeps numbers and an address.
const maxStableBytes = 64 << 10

// Stable is a raft.StableStore in a bolt file of its own. Every value carries a checksum over key
// and value, and a vote is one value under one key: the term that raft sets first is held back in
// memory until its candidate follows, so a crash in between leaves no vote in that term, and raft
// takes its normal, log-checked path (RUL-14). Any error but "not found" must stop the replica.
type Stable struct {
	store *raftboltdb.BoltStore
	name  string

	mu      sync.Mutex
	failed  error
	pending uint64 // term of a vote whose candidate did not come yet
	hasTerm bool
	sets    uint64
}

func openStable(name string) (*Stable, error) {
	b, err := openBolt(name)
	if err != nil {
		return nil, fmt.Errorf("open votes %s: %w", name, err)
	}
	return &Stable{store: b, name: name}, nil
}

// Set stores a value durably.
func (s *Stable) Set(key, val []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) != keyVoteCandidate {
		return s.setLocked(string(key), val)
	}
	if !s.hasTerm {
		return s.failLocked(errors.New("a candidate without a term"))
	}
	vote := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(val)), s.pending)
	if err := s.setLocked(keyVote, append(vote, val...)); err != nil {
		return err
	}
	s.hasTerm = false
	return nil
}

// SetUint64 stores a number durably, except the term of a vote, which waits for its candidate.
func (s *Stable) SetUint64(key []byte, val uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) == keyVoteTerm {
		if s.failed != nil {
			return s.failed
		}
		s.pending, s.hasTerm = val, true
		return nil
	}
	return s.setLocked(string(key), binary.BigEndian.AppendUint64(nil, val))
}

func (s *Stable) setLocked(key string, val []byte) error {
	if s.failed != nil {
		return s.failed
	}
	if len(val) > maxStableBytes {
		return s.failLocked(fmt.Errorf("set %s: %d bytes, at most %d", key, len(val), maxStableBytes))
	}
	stored := append(make([]byte, 0, 5+len(val)), formatStable)
	stored = append(stored, val...)
	stored = binary.LittleEndian.AppendUint32(stored, sum([]byte(key), stored))
	if err := guard(s.name, func() error { return s.store.Set([]byte(key), stored) }); err != nil {
		return s.failLocked(fmt.Errorf("set %s: %w", key, err))
	}
	s.sets++
	return nil
}

// Get returns a value. For a missing key the text of the error is exactly "not found", by which
// raft knows it.
func (s *Stable) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) != keyVoteCandidate {
		return s.getLocked(string(key))
	}
	vote, err := s.voteLocked()
	if err != nil {
		return nil, err
	}
	return vote[8:], nil
}

// GetUint64 returns a number; errors as Get.
func (s *Stable) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) == keyVoteTerm {
		vote, err := s.voteLocked()
		if err != nil {
			return 0, err
		}
		return binary.BigEndian.Uint64(vote), nil
	}
	val, err := s.getLocked(string(key))
	if err != nil {
		return 0, err
	}
	if len(val) != 8 {
		return 0, fmt.Errorf("get %s: %w: %d bytes are no number", key, ErrCorrupt, len(val))
	}
	return binary.BigEndian.Uint64(val), nil
}

func (s *Stable) voteLocked() ([]byte, error) {
	vote, err := s.getLocked(keyVote)
	if err != nil {
		return nil, err
	}
	if len(vote) < 8 {
		return nil, fmt.Errorf("get %s: %w: %d bytes are no vote", keyVote, ErrCorrupt, len(vote))
	}
	return vote, nil
}

func (s *Stable) getLocked(key string) (val []byte, err error) {
	if errors.Is(s.failed, ErrClosed) {
		return nil, ErrClosed
	}
	err = guard(s.name, func() (err error) {
		val, err = s.store.Get([]byte(key))
		return err
	})
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, raftboltdb.ErrKeyNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	n := len(val) - 4
	if n < 1 || val[0] != formatStable {
		return nil, fmt.Errorf("get %s: %w: no checksum", key, ErrCorrupt)
	}
	if binary.LittleEndian.Uint32(val[n:]) != sum([]byte(key), val[:n]) {
		return nil, fmt.Errorf("get %s: %w: checksum", key, ErrCorrupt)
	}
	return val[1:n:n], nil
}

// Close closes the file. Later calls answer ErrClosed.
func (s *Stable) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.failed, ErrClosed) {
		return nil
	}
	s.failed = ErrClosed
	return s.store.Close()
}

func (s *Stable) failLocked(err error) error {
	s.failed = fmt.Errorf("%s takes no more writes: %w", s.name, err)
	return err
}
