package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// Keys of raft that together are a vote. raft writes them one after the other. A crash between the two would leave
// the old candidate in the place of that of the new term. The check of its log would be skipped (R9).
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
	keyVote          = "busbar/Vote" // ours: term and candidate in one value
)

// keyState is the only key in the file: its value holds all others.
const keyState = "busbar/State"

// maxStableBytes bounds a value; raft keeps numbers and an address. maxStableKeys bounds their number;
// raft has three.
const (
	maxStableBytes = 64 << 10
	maxStableKeys  = 64
)

// Stable is a raft.StableStore in a bolt file of its own. All values are one, under one key that is there from the
// beginning. Bolt checks no page but the first two. A key that a flipped bit made unreadable would look like a vote
// that was never given. A vote is one value of these. The term that raft sets first is held back in memory until its
// candidate follows. So a crash in between leaves no vote in that term, and raft takes its normal, log-checked path
// (RUL-14). Any error but "not found" must stop the replica.
type Stable struct {
	store *raftboltdb.BoltStore
	name  string

	mu      sync.Mutex
	failed  error
	values  map[string][]byte // what the file holds
	pending uint64            // term of a vote whose candidate did not come yet
	hasTerm bool
	sets    uint64
}

func openStable(name string) (*Stable, error) {
	b, err := openBolt(name, func(b *raftboltdb.BoltStore) error {
		return b.Set([]byte(keyState), encodeStable(nil))
	})
	if err != nil {
		return nil, fmt.Errorf("open votes %s: %w", name, err)
	}
	s := &Stable{store: b, name: name}
	var stored []byte
	err = guard(name, func() (err error) {
		stored, err = b.Get([]byte(keyState))
		return err
	})
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		err = fmt.Errorf("%w: no state", ErrCorrupt)
	}
	if err == nil {
		s.values, err = decodeStable(stored)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open votes %s: %w", name, err), b.Close())
	}
	return s, nil
}

// encodeStable writes the version, each key and value with its length, by key, and a checksum.
func encodeStable(values map[string][]byte) []byte {
	b := []byte{formatStable}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, uint64(len(values[key])))
		b = append(b, values[key]...)
	}
	return binary.LittleEndian.AppendUint32(b, sum(b))
}

func decodeStable(b []byte) (map[string][]byte, error) {
	n := len(b) - 4
	if n < 1 || b[0] != formatStable || binary.LittleEndian.Uint32(b[n:]) != sum(b[:n]) {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	values := map[string][]byte{}
	rest := b[1:n]
	field := func() ([]byte, bool) {
		length, used := binary.Uvarint(rest)
		if used <= 0 || length > uint64(len(rest)-used) {
			return nil, false
		}
		f := rest[used : used+int(length)]
		rest = rest[used+int(length):]
		return f, true
	}
	for len(rest) > 0 {
		key, ok := field()
		val, ok2 := field()
		if !ok || !ok2 {
			return nil, fmt.Errorf("%w: fields", ErrCorrupt)
		}
		values[string(key)] = slices.Clone(val)
	}
	return values, nil
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
	next := maps.Clone(s.values)
	next[key] = slices.Clone(val)
	if len(next) > maxStableKeys {
		return s.failLocked(fmt.Errorf("set %s: %d keys, at most %d", key, len(next), maxStableKeys))
	}
	stored := encodeStable(next)
	err := guard(s.name, func() error { return s.store.Set([]byte(keyState), stored) })
	if err != nil {
		return s.failLocked(fmt.Errorf("set %s: %w", key, err))
	}
	s.values = next
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

func (s *Stable) getLocked(key string) ([]byte, error) {
	if errors.Is(s.failed, ErrClosed) {
		return nil, ErrClosed
	}
	val, ok := s.values[key]
	if !ok {
		return nil, raftboltdb.ErrKeyNotFound
	}
	return slices.Clone(val), nil
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
