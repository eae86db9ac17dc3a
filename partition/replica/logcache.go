package replica

import (
	"sync"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/partition/raftnet"
)

// logCache keeps the newest entries of a log in memory, bounded in bytes: raft reads back what it
// has just written, once per follower. (raft.LogCache bounds entries, which may be 256 KiB each,
// and forgets everything whenever a snapshot cuts the log's tail.)
type logCache struct {
	mu    sync.Mutex
	limit int
	bytes int
	// logs are consecutive entries in order.
	logs []*raft.Log
}

func newLogCache(limit int) *logCache { return &logCache{limit: limit} }

func cost(l *raft.Log) int { return len(l.Data) + len(l.Extensions) + raftnet.EntryOverhead }

// get copies the entry into out if it is kept.
func (c *logCache) get(index uint64, out *raft.Log) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.logs) == 0 || index < c.logs[0].Index {
		return false
	}
	if i := index - c.logs[0].Index; i < uint64(len(c.logs)) {
		*out = *c.logs[i]
		return true
	}
	return false
}

// add keeps entries that were just written. The newest one is kept whatever its size.
func (c *logCache) add(logs []*raft.Log) {
	if c.limit <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if n := len(c.logs); n > 0 && c.logs[n-1].Index+1 != l.Index {
			c.resetLocked()
		}
		c.logs = append(c.logs, l)
		c.bytes += cost(l)
	}
	cut := 0
	for c.bytes > c.limit && cut < len(c.logs)-1 {
		c.bytes -= cost(c.logs[cut])
		c.logs[cut] = nil
		cut++
	}
	c.logs = c.logs[cut:]
}

// drop forgets the entries from..to, at either end of the log; raft cuts nowhere else.
func (c *logCache) drop(from, to uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.logs) == 0 {
		return
	}
	first, last := c.logs[0].Index, c.logs[len(c.logs)-1].Index
	switch {
	case to < first || from > last:
	case from <= first && to >= last:
		c.resetLocked()
	case from <= first:
		for _, l := range c.logs[:to-first+1] {
			c.bytes -= cost(l)
		}
		c.logs = append([]*raft.Log(nil), c.logs[to-first+1:]...)
	case to >= last:
		for _, l := range c.logs[from-first:] {
			c.bytes -= cost(l)
		}
		c.logs = append([]*raft.Log(nil), c.logs[:from-first]...)
	default:
		c.resetLocked()
	}
}

func (c *logCache) resetLocked() { c.logs, c.bytes = nil, 0 }
