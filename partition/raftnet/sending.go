package raftnet

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Sending is a snapshot that is on its way to another node.
type Sending struct {
	To    fsm.NodeID    `json:"to"`
	Index uint64        `json:"index"`  // of the last entry in it
	Size  uint64        `json:"size"`   // in bytes, bodies included
	Sent  uint64        `json:"sent"`   // of these
	Taken time.Duration `json:"for_ns"` // for so long
}

// Sending returns the snapshots that are on their way from here, by their nodes.
func (t *Transport) Sending() []Sending {
	t.sendings.mu.Lock()
	defer t.sendings.mu.Unlock()
	var all []Sending
	for o := range t.sendings.all { // order-free: sorted below
		all = append(all, Sending{To: o.to, Index: o.index, Size: o.size, Sent: o.sent.Load(), Taken: time.Since(o.began)})
	}
	slices.SortFunc(all, func(a, b Sending) int { return cmp.Compare(a.To, b.To) })
	return all
}

// sendings are the snapshots on their way from one replica.
type sendings struct {
	mu  sync.Mutex
	all map[*outgoing]bool
}

// begin notes a snapshot until end is called.
func (s *sendings) begin(to fsm.NodeID, index, size uint64) (o *outgoing, end func()) {
	o = &outgoing{to: to, index: index, size: size, began: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*outgoing]bool{}
	}
	s.all[o] = true
	return o, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, o)
	}
}

// outgoing is one snapshot on its way.
type outgoing struct {
	to          fsm.NodeID
	index, size uint64
	began       time.Time
	sent        atomic.Uint64
	paused      atomic.Int64 // nanoseconds that a Rate took
}

// await returns when ctx ends, or when the snapshot has taken longer than limit, without its pauses.
func (o *outgoing) await(ctx context.Context, limit time.Duration) {
	for left := limit; left > 0; left = limit + time.Duration(o.paused.Load()) - time.Since(o.began) {
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// sendPiece is the most that is sent between two pauses. At the lowest rate a piece takes a sixteenth of a second: no
// stream seems silent for it.
const sendPiece = 64 << 10

// pacedReader counts what is read of a snapshot, and keeps to a rate. Rate is nil for none.
type pacedReader struct {
	from io.Reader
	o    *outgoing
	rate *Rate
	done <-chan struct{} // ends a pause
}

// Read implements io.Reader.
func (r *pacedReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b[:min(len(b), sendPiece)])
	r.o.sent.Add(uint64(n))
	if wait := r.rate.take(n); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		r.o.paused.Add(int64(wait))
		select {
		case <-t.C:
		case <-r.done:
		}
	}
	return n, err
}
