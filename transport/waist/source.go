package waist

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// Broker is what the package needs of the cluster. The contract of the three verbs is that of transport.Broker.
type Broker interface {
	Propose(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (fsm.Outcome, error)
	Await(ctx context.Context, k fsm.Key) error
	Query(ctx context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error)
}

// Beginner is what a [Broker] may implement to need no goroutine for a request that is under way. The contract is that of
// transport.Beginner.
type Beginner interface {
	Begin(id fsm.RequestID, k fsm.Key, c fsm.Command, done func(fsm.Outcome, error, Rest)) (Cancel, bool)
}

// Rest goes on with a request that was begun. It may wait.
type Rest = func(context.Context) (fsm.Outcome, error)

// Cancel ends a request that was begun, with the error of a context. It does not wait.
type Cancel = func(cause error)

// Config is what a [Source] is made of.
type Config struct {
	Broker Broker
	Log    hclog.Logger
	// Incarnation names this life of the node in request ids, until the cluster declares it lost.
	Incarnation fsm.Incarnation
	// Draw fills bytes with chance, for the next incarnation.
	Draw func([]byte)
	// ProposeTimeout ends an attempt that found no leader.
	ProposeTimeout time.Duration
}

// Source sends the requests of one node. Its methods may be called from any goroutine.
type Source struct {
	cfg         Config
	beginner    Beginner      // the broker; nil if it begins nothing
	incarnation atomic.Uint64 // of the ids of requests
	pumps       atomic.Uint64 // the last pump number given out

	pool     pool
	turns    turns
	janitor  janitor
	activity activity
	holders  Holders
}

// New returns the source of a node.
func New(cfg Config) *Source {
	s := &Source{cfg: cfg}
	s.beginner, _ = cfg.Broker.(Beginner)
	s.incarnation.Store(uint64(cfg.Incarnation))
	s.holders.born(cfg.Incarnation)
	s.janitor.pending = map[fsm.Key][]uint64{}
	return s
}

// Pump numbers the requests of one sequence. At most one of them is outstanding, so each request acknowledges the
// result of the last (A6). The holder of the pump owns it; it has no mutex.
type Pump struct {
	number  uint64
	counter uint64 // of the last request; 0 before the first
}

// NewPump returns a pump that this process has not used yet.
func (s *Source) NewPump() Pump { return Pump{number: s.pumps.Add(1)} }

// Number names the pump among those of its node.
func (p *Pump) Number() uint64 { return p.number }

// Counter is the number of the pump's last request, 0 before the first.
func (p *Pump) Counter() uint64 { return p.counter }

// Incarnation is the name of this life of the node in the ids of new requests.
func (s *Source) Incarnation() fsm.Incarnation { return fsm.Incarnation(s.incarnation.Load()) }

// Holders returns the names of the links that take locks.
func (s *Source) Holders() *Holders { return &s.holders }

// Propose gives the command the pump's next id. When the cluster has declared this life of the
// node lost, it starts a new one: the refused command changed nothing (RUL-19).
func (s *Source) Propose(ctx context.Context, p *Pump, k fsm.Key, cmd fsm.Command) (fsm.Outcome, error) {
	_, out, err := s.ProposeAs(ctx, p, k, cmd)
	return out, err
}

// ProposeAs is Propose, and tells the id under which the command can be asked about.
func (s *Source) ProposeAs(ctx context.Context, p *Pump, k fsm.Key, cmd fsm.Command) (
	fsm.RequestID, fsm.Outcome, error,
) {
	for {
		life := s.Incarnation()
		p.counter++
		id := fsm.RequestID{Node: life, Pump: p.number, Counter: p.counter}
		out, err := s.cfg.Broker.Propose(ctx, id, k, cmd)
		if err != nil || out.Refusal != fsm.NodeExpired || ctx.Err() != nil {
			return id, out, err
		}
		s.Renew(life)
	}
}

// Begin is Propose without a goroutine that waits; it is false if nothing was begun. The pump has a request outstanding until done is
// called, and if that has a rest until the rest is over. done must be short, and call nothing of the package.
func (s *Source) Begin(p *Pump, k fsm.Key, cmd fsm.Command, done func(fsm.Outcome, error, Rest)) (Cancel, bool) {
	if s.beginner == nil {
		return nil, false
	}
	life := s.Incarnation()
	id := fsm.RequestID{Node: life, Pump: p.number, Counter: p.counter + 1}
	cancel, ok := s.beginner.Begin(id, k, cmd, func(out fsm.Outcome, err error, rest Rest) {
		if rest == nil {
			done(out, err, nil)
			return
		}
		done(out, err, func(ctx context.Context) (fsm.Outcome, error) {
			out, err := rest(ctx)
			if err != nil || out.Refusal != fsm.NodeExpired || ctx.Err() != nil {
				return out, err
			}
			s.Renew(life)
			return s.Propose(ctx, p, k, cmd)
		})
	})
	if ok {
		p.counter++
	}
	return cancel, ok
}

// Renew replaces the incarnation that the cluster refuses, unless that has been done.
func (s *Source) Renew(refused fsm.Incarnation) {
	var b [8]byte
	s.cfg.Draw(b[:])
	next := binary.BigEndian.Uint64(b[:]) | 1
	if s.incarnation.CompareAndSwap(uint64(refused), next) {
		s.holders.born(fsm.Incarnation(next))
		s.cfg.Log.Warn("the cluster declared this node lost; going on as a new incarnation")
	}
}

// Ask asks a share until there is an answer, the entity is gone or ctx ends. It is for callers that have no deadline
// of their own, as a link that browses.
func (s *Source) Ask(ctx context.Context, key fsm.Key, q fsm.Query) (fsm.Answer, error) {
	for pause := time.Duration(0); ; {
		try, cancel := context.WithTimeout(ctx, s.cfg.ProposeTimeout)
		a, err := s.cfg.Broker.Query(try, key, q)
		cancel()
		if !momentary(fsm.Outcome{Refusal: a.Refusal}, err) {
			return a, err
		}
		pause = min(max(2*pause, busyPauseMin), busyPauseMax)
		if !Sleep(ctx, pause) {
			return a, ctx.Err()
		}
	}
}
