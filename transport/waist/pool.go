package waist

import (
	"context"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
)

// pool lends pumps to callers that have no link: HTTP requests and operators. A pump is with one
// caller at a time, so its next command acknowledges the result of the last (A6).
type pool struct {
	mu   sync.Mutex
	free []*Pump
}

// maxFreePumps bounds the pumps that wait for a caller; one too many is forgotten by the partitions
// after ten minutes.
const maxFreePumps = 256

// Borrow returns a pump that nobody else uses. A pump that is not given back is not lent again.
func (s *Source) Borrow() *Pump {
	p := &s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		pump := p.free[n-1]
		p.free = p.free[:n-1]
		return pump
	}
	pump := s.NewPump()
	return &pump
}

// GiveBack returns a borrowed pump.
func (s *Source) GiveBack(pump *Pump) {
	p := &s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < maxFreePumps {
		p.free = append(p.free, pump)
	}
}

// ProposeOnce sends one command with a borrowed pump.
func (s *Source) ProposeOnce(ctx context.Context, k fsm.Key, c fsm.Command) (fsm.Outcome, error) {
	pump := s.Borrow()
	defer s.GiveBack(pump)
	return s.Propose(ctx, pump, k, c)
}
