package replica

import (
	"strconv"
	"sync/atomic"
)

// lastTerm knows the term of the last entry of a log. Raft offers it only in a long text. An entry of the term that the
// replica is in stays while that term lasts, so it is remembered. One of an earlier term may be replaced by another one with
// the same index.
type lastTerm struct {
	seen atomic.Pointer[lastEntry]
}

// lastEntry is an entry that was the last one of the log.
type lastEntry struct{ index, term uint64 }

// told is what raft says of its log.
type told interface {
	CurrentTerm() uint64
	LastIndex() uint64
	Stats() map[string]string
}

// of returns the term of the last entry, 0 if raft does not say.
func (l *lastTerm) of(r told) uint64 {
	term := r.CurrentTerm()
	if e := l.seen.Load(); e != nil && e.term == term && e.index == r.LastIndex() {
		return term
	}
	said := r.Stats()
	index, err := strconv.ParseUint(said["last_log_index"], 10, 64)
	if err != nil {
		return 0
	}
	last, err := strconv.ParseUint(said["last_log_term"], 10, 64)
	if err != nil {
		return 0
	}
	l.seen.Store(&lastEntry{index, last})
	return last
}
