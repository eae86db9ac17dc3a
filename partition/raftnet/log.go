package raftnet

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// repeatEvery is how often the same line of raft is passed on: it logs every failed call, many a
// second while a peer is down.
const repeatEvery = 10 * time.Second

// maxLines bounds the remembered lines; raft has far fewer different ones.
const maxLines = 256

// logger passes on what raft has to say at WARN and above, each line now and then. This room says itself what is
// worth an INFO.
type logger struct {
	hclog.Logger
	seen *lines // shared with loggers derived from this one
}

type lines struct {
	mu sync.Mutex
	at map[string]time.Time
}

func NewLogger(l hclog.Logger) hclog.Logger {
	return &logger{Logger: l, seen: &lines{at: map[string]time.Time{}}}
}

func (s *lines) fresh(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at, ok := s.at[line]; ok && now.Sub(at) < repeatEvery {
		return false
	}
	if len(s.at) >= maxLines {
		clear(s.at)
	}
	s.at[line] = now
	return true
}

// Log implements hclog.Logger.
func (l *logger) Log(level hclog.Level, msg string, args ...any) {
	if level >= hclog.Warn && l.seen.fresh(msg) {
		l.Logger.Log(level, msg, args...)
	}
}

// Trace implements hclog.Logger and drops the line.
func (l *logger) Trace(string, ...any) {}

// Debug implements hclog.Logger and drops the line.
func (l *logger) Debug(string, ...any) {}

// Info implements hclog.Logger and drops the line.
func (l *logger) Info(string, ...any) {}

// Warn implements hclog.Logger.
func (l *logger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger. A call that fails is no error of this node: it is a WARN.
func (l *logger) Error(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// With implements hclog.Logger.
func (l *logger) With(args ...any) hclog.Logger {
	return &logger{Logger: l.Logger.With(args...), seen: l.seen}
}

// Named implements hclog.Logger.
func (l *logger) Named(name string) hclog.Logger {
	return &logger{Logger: l.Logger.Named(name), seen: l.seen}
}
