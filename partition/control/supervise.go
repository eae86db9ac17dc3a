package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Supervisor runs the loops that keep the groups of a node whole. Each loop is a goroutine that owns its state. The
// caller makes one Supervisor for a node, starts it when the calls of the node are served, and closes it before the
// replicas.
type Supervisor struct {
	cfg    Config
	timing Timing
	host   Host
	log    hclog.Logger

	ctx    context.Context // of its goroutines, which Close ends
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New returns a supervisor that does nothing yet.
func New(cfg Config, t Timing, h Host, log hclog.Logger) (*Supervisor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("supervisor config: %w", err)
	}
	s := &Supervisor{cfg: cfg, timing: t, host: h, log: log}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Start opens group 0, and runs the loops and more of the caller's own.
func (s *Supervisor) Start(more ...Loop) error {
	if err := s.host.Open(fsm.CatalogPartition, s.cfg.Bootstrap); err != nil {
		if !s.host.Rebuilds() || errors.Is(err, fsm.ErrClosed) {
			return err
		}
		// The catalog's leader has it rebuilt. Replicas that the catalog places here later open then.
		s.log.Error("open the catalog", "error", err, "mend", replica.RepairText)
	}
	s.hasten(catalog.Group{ID: fsm.CatalogPartition, Members: s.cfg.Bootstrap})
	for _, l := range append(s.Loops(), more...) {
		s.Go(func(context.Context) { s.run(l) })
	}
	return nil
}

// Close ends supervision; the replicas stay open.
func (s *Supervisor) Close() {
	s.cancel()
	s.wg.Wait()
}

// Go runs f on a goroutine that Close waits for; the context ends when Close begins. A loop or a goroutine of it calls
// Go, so that Close already waits.
func (s *Supervisor) Go(f func(ctx context.Context)) {
	s.wg.Add(1)
	go func() { defer s.wg.Done(); f(s.ctx) }()
}

// lookEvery is how often a node that the catalog does not name yet tries again.
const lookEvery = time.Second

// run takes the steps of a loop: now, whenever the catalog here or a leader changes, and now and then.
func (s *Supervisor) run(l Loop) {
	if l.Run != nil {
		l.Run(s.ctx)
		return
	}
	if l.End != nil {
		defer l.End()
	}
	for {
		changed, leaders, looks := s.host.CatalogChanged(), s.host.LeadersChanged(), s.host.Looks()
		if v := s.host.View(); v != nil {
			l.Step(s.ctx, Facts{View: v, Replicas: s.host.Replicas()})
		}
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		case <-leaders:
		case <-looks:
		}
	}
}

// wait waits for raft to end a change, or for Close.
func (s *Supervisor) wait(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
