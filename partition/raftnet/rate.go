package raftnet

import (
	"sync"
	"time"
)

// Rate bounds what a node sends to new replicas. The transports of all groups of the node share it, so that moves leave
// the network and the disks to clients. Many goroutines use it.
type Rate struct {
	mu        sync.Mutex
	perSecond int64     // bytes; 0 for no bound
	free      time.Time // when the next byte may go
}

// NewRate returns a bound of so many bytes per second, none if that is 0.
func NewRate(perSecond int64) *Rate { return &Rate{perSecond: perSecond} }

// Set changes the bound. A stream that is under way goes on at the new one.
func (r *Rate) Set(perSecond int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.perSecond = perSecond
}

// take takes the next n bytes of the bound, and returns how long to wait before they may go. Streams that wait
// are served in their order. Nothing is saved up while none sends.
func (r *Rate) take(n int) time.Duration {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.perSecond <= 0 {
		return 0
	}
	if r.free.Before(now) {
		r.free = now
	}
	wait := r.free.Sub(now)
	r.free = r.free.Add(time.Duration(float64(n) / float64(r.perSecond) * float64(time.Second)))
	return wait
}
