package transport

import (
	"context"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
)

// slots lends pumps to callers that have no link: HTTP requests and operators. A pump is with one
// caller at a time, so its next command acknowledges the result of the last (A6).
type slots struct {
	mu   sync.Mutex
	free []*pumpID
}

// maxFreeSlots bounds the pumps that wait for a caller; one too many is forgotten by the partitions
// after ten minutes.
const maxFreeSlots = 256

func (p *slots) take(s *Server) *pumpID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		pump := p.free[n-1]
		p.free = p.free[:n-1]
		return pump
	}
	return &pumpID{pump: s.newPump()}
}

func (p *slots) give(pump *pumpID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < maxFreeSlots {
		p.free = append(p.free, pump)
	}
}

// Propose makes one command durable for a caller that is no AMQP client, and returns what it did.
// It retries by itself until ctx ends; an error means that the command may or may not have been done.
// Errors are those of [Broker.Propose].
func (s *Server) Propose(ctx context.Context, k fsm.Key, c fsm.Command) (fsm.Outcome, error) {
	pump := s.slots.take(s)
	defer s.slots.give(pump)
	return s.propose(ctx, pump, k, c)
}

// Query reads the state as of now; errors are those of [Broker.Query].
func (s *Server) Query(ctx context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error) {
	return s.broker.Query(ctx, k, q)
}
