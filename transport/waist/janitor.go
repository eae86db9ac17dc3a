package waist

import (
	"context"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	// janitorInterval is how long retired pumps are collected, and how long they then wait before they are dropped
	// together. A request that the node gave up may still be under way to a leader that was paused or cut off; when
	// it arrives after its pump was forgotten it is applied once more. The broker does not drop pumps of which it
	// gave up a request, so the wait is a second guard. Half a minute is longer than any of the mesh's time-outs, and
	// what is remembered is small.
	janitorInterval = 15 * time.Second
	// janitorBatch is how many pumps one DropPumps names.
	janitorBatch = 1_024
	// janitorMax bounds the pumps that wait; above it they are left to expire by themselves after
	// the ten minutes of A6.
	janitorMax = 64 << 10
	// janitorTimeout ends an attempt; what is not dropped expires by itself.
	janitorTimeout = 10 * time.Second
)

// janitor tells partitions which remembered results nobody will ask for any more (A6).
type janitor struct {
	mu      sync.Mutex
	pending map[fsm.Key][]uint64 // retired in this interval
	ripe    map[fsm.Key][]uint64 // retired in the one before
	count   int                  // pumps in pending
}

// Retire has the shares that a pump was used with forget its last result. A pump that was never used is left out.
func (s *Source) Retire(pump *Pump, keys ...fsm.Key) {
	if pump.counter > 0 {
		s.janitor.drop(pump.number, keys...)
	}
}

// drop forgets a pump at the shares it was used with.
func (j *janitor) drop(pump uint64, keys ...fsm.Key) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, k := range keys {
		k.Sub = fsm.Main // the share is what counts
		if j.count >= janitorMax {
			return
		}
		j.pending[k] = append(j.pending[k], pump)
		j.count++
	}
}

// Run tells partitions of retired pumps until ctx ends.
func (s *Source) Run(ctx context.Context) {
	t := time.NewTicker(janitorInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		s.Flush(ctx)
	}
}

// Flush drops what has waited for an interval, and lets what is pending begin to.
func (s *Source) Flush(ctx context.Context) {
	j := &s.janitor
	j.mu.Lock()
	ripe := j.ripe
	j.ripe, j.pending, j.count = j.pending, map[fsm.Key][]uint64{}, 0
	j.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, janitorTimeout)
	defer cancel()
	node := s.Incarnation()
	for k, pumps := range ripe {
		for len(pumps) > 0 && ctx.Err() == nil {
			n := min(len(pumps), janitorBatch)
			// No id: the command is idempotent, and a lost one costs ten minutes of memory.
			_, err := s.cfg.Broker.Propose(ctx, fsm.RequestID{}, k, &fsm.DropPumps{Node: node, Pumps: pumps[:n]})
			if err != nil {
				s.cfg.Log.Debug("drop pumps", "error", err)
			}
			pumps = pumps[n:]
		}
	}
}
