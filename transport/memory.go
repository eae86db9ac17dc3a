package transport

import (
	"sync/atomic"
)

// memory counts what all connections of the node hold for their clients.
type memory struct {
	limit  atomic.Int64
	held   atomic.Int64
	bodies atomic.Int64 // of sends over HTTP that are in memory, or on their way there
}

// greedy reports whether the node holds as much as it may for its clients, and a client with so many bytes too much.
// Too much is more than half of an equal share. Clients that hold most are refused first.
func (m *memory) greedy(bytes, connections int64) bool {
	limit := m.limit.Load()
	return m.held.Load() >= limit && bytes > limit/max(1, 2*(connections+m.bodies.Load()))
}
