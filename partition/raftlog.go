package partition

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLogEvery is how often the same line of raft is passed on: it logs every failed call, many a
// second while a peer is down.
const raftLogEvery = 10 * time.Second

// maxRaftLines bounds the remembered lines; raft has far fewer different ones.
const maxRaftLines = 256

// raftLog passes on what raft has to say at WARN and above, each line now and then. What is worth an
// INFO this room says itself.
type raftLog struct {
	hclog.Logger
	seen *raftLines // shared with loggers derived from this one
}

type raftLines struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newRaftLog(l hclog.Logger) hclog.Logger {
	return &raftLog{Logger: l, seen: &raftLines{at: map[string]time.Time{}}}
}

func (s *raftLines) fresh(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at, ok := s.at[line]; ok && now.Sub(at) < raftLogEvery {
		return false
	}
	if len(s.at) >= maxRaftLines {
		clear(s.at)
	}
	s.at[line] = now
	return true
}

// Log implements hclog.Logger.
func (l *raftLog) Log(level hclog.Level, msg string, args ...any) {
	if level >= hclog.Warn && l.seen.fresh(msg) {
		l.Logger.Log(level, msg, args...)
	}
}

// Trace implements hclog.Logger and drops the line.
func (l *raftLog) Trace(string, ...any) {}

// Debug implements hclog.Logger and drops the line.
func (l *raftLog) Debug(string, ...any) {}

// Info implements hclog.Logger and drops the line.
func (l *raftLog) Info(string, ...any) {}

// Warn implements hclog.Logger.
func (l *raftLog) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger. A call that fails is no error of this node: it is a WARN.
func (l *raftLog) Error(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// With implements hclog.Logger.
func (l *raftLog) With(args ...any) hclog.Logger {
	return &raftLog{Logger: l.Logger.With(args...), seen: l.seen}
}

// Named implements hclog.Logger.
func (l *raftLog) Named(name string) hclog.Logger {
	return &raftLog{Logger: l.Logger.Named(name), seen: l.seen}
}
