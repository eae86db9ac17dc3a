package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
)

const (
	// dropLineEvery is how often one entity has a line about messages dropped for one reason.
	dropLineEvery = time.Minute
	// maxDropLines bounds the pairs of entity and reason that are remembered, some 200 bytes each. Messages beyond
	// that are in the counters only.
	maxDropLines = 4096
	// maxDropRead is the largest body, in bytes, that is read for the message id of an example.
	maxDropRead = 1 << 20
	// maxDropID is how many bytes of a message id a line shows.
	maxDropID = 128
)

// dropLog writes lines about messages that ended without being completed (S-169). Only the replica that
// leads writes: the counters are the same on all. The first message of an entity and a reason has its line
// at once; those of the minute after it share one.
type dropLog struct {
	log  hclog.Logger
	raft atomic.Pointer[raft.Raft] // nil until raft is open

	mu    sync.Mutex
	lines map[dropKey]*dropLine
}

type dropKey struct {
	entity fsm.EntityID
	reason fsm.DropReason
}

// dropLine is what the next line of a key will say.
type dropLine struct {
	next    time.Time // before that there is no further line
	count   uint64    // messages since the last line
	example fsm.Drop
}

// leads reports whether the replica leads. It takes no lock.
func (l *dropLog) leads() bool {
	r := l.raft.Load()
	return r != nil && r.State() == raft.Leader
}

// note takes what one entry dropped, before the bodies of the examples are freed.
func (l *dropLog) note(drops []fsm.Drop, bodies Bodies, now time.Time) {
	if len(drops) == 0 || !l.leads() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range drops {
		d := &drops[i]
		k := dropKey{d.Entity, d.Reason}
		line := l.lines[k]
		if line == nil {
			if len(l.lines) >= maxDropLines {
				continue
			}
			if l.lines == nil {
				l.lines = map[dropKey]*dropLine{}
			}
			line = &dropLine{}
			l.lines[k] = line
		}
		if line.count == 0 {
			line.example = *d
			line.example.MessageID = exampleID(d, bodies)
		}
		line.count += d.Count
		line.example.Total = d.Total
		if !now.Before(line.next) {
			l.writeLocked(line, now)
		}
	}
}

// flush writes the lines whose minute is over, and forgets the keys that dropped nothing in it.
func (l *dropLog) flush(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, line := range l.lines { // the order of lines of different keys does not matter
		switch {
		case now.Before(line.next):
		case line.count == 0:
			delete(l.lines, k)
		default:
			l.writeLocked(line, now)
		}
	}
}

func (l *dropLog) writeLocked(line *dropLine, now time.Time) {
	d := &line.example
	level := hclog.Warn
	if d.Reason == fsm.DropPurged || d.Reason == fsm.DropWithEntity {
		level = hclog.Info // somebody has asked for it
	}
	args := []any{"entity", d.Name, "reason", d.Reason.String(), "messages", line.count, "total", d.Total}
	if d.Number != 0 {
		args = append(args, "sequenceNumber", uint64(d.Number))
	}
	if d.MessageID != "" {
		args = append(args, "messageId", d.MessageID[:min(len(d.MessageID), maxDropID)])
	}
	l.log.Log(level, "messages ended without being completed", args...)
	line.count, line.next = 0, now.Add(dropLineEvery)
}

// exampleID is the message id of an example, "" if it cannot be had at little cost.
func exampleID(d *fsm.Drop, bodies Bodies) string {
	if d.MessageID != "" || d.Ref.Length == 0 || d.Ref.Length > maxDropRead {
		return d.MessageID
	}
	body, err := bodies.Read(d.Ref.Index, d.Ref.Offset, d.Ref.Length)
	if err != nil {
		return "" // the line is worth more than the id in it
	}
	return stored.MessageIDOf(body)
}
