package transport

import (
	"slices"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// maxLateBytes bounds the deliveries that join a request which is under way.
	maxLateBytes = 64 << 10
	// maxLateDelivery is the largest delivery that joins one. The loop translates it, so it must be small.
	maxLateDelivery = 16 << 10
)

// lateDeliveries join a request of their link that waits for its entry, so that they need none of their own. The loop of the
// connection adds them. The goroutine that packs the entry takes them. It implements fsm.Late.
type lateDeliveries struct {
	mu     sync.Mutex
	all    []*inbound
	room   int    // bytes that may still join
	taken  int    // deliveries that are part of the request, from the first on
	closed bool   // nothing joins any more
	count  int    // messages of all
	more   func() // told when deliveries join; nil for nobody
}

// newLate returns what collects deliveries for a request that begins with some bytes; nil if it may not grow.
func (c *conn) newLate(bytes int) *lateDeliveries {
	room := min(maxLateBytes, c.cfg.MaxEnqueueBytes-bytes)
	if room <= 0 {
		return nil
	}
	return &lateDeliveries{room: room}
}

// add reports whether a delivery joins.
func (l *lateDeliveries) add(d *inbound) bool {
	l.mu.Lock()
	more := l.more
	if l.closed || d.bytes > l.room {
		l.mu.Unlock()
		return false
	}
	l.room -= d.bytes
	l.count += len(d.messages)
	l.all = append(l.all, d)
	l.mu.Unlock()
	if more != nil {
		more()
	}
	return true
}

// takes reports whether a delivery of so many bytes may join.
func (l *lateDeliveries) takes(bytes int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && bytes <= l.room
}

// Len implements fsm.Late.
func (l *lateDeliveries) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// OnMore implements fsm.Late.
func (l *lateDeliveries) OnMore(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more = f
}

// Take implements fsm.Late.
func (l *lateDeliveries) Take(room int) (messages []fsm.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, d := range l.all {
		more := fsm.Enqueue{Messages: d.messages}
		if room -= more.Weight(); room < 0 {
			break
		}
		l.taken++
		messages = append(messages, d.messages...)
	}
	return messages
}

// end returns the deliveries that have become part of the request, and those that wait for the next one. Nothing joins any more.
func (l *lateDeliveries) end() (joined, left []*inbound) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.all[:l.taken:l.taken], l.all[l.taken:]
}

// join has deliveries that wait join the request that is under way. It returns those that still wait.
func (l *lateDeliveries) join(waiting []*inbound, joins func(*inbound) bool) []*inbound {
	n := 0
	for l != nil && n < len(waiting) && l.takes(waiting[n].bytes) && joins(waiting[n]) && l.add(waiting[n]) {
		n++
	}
	return slices.Delete(waiting, 0, n)
}
