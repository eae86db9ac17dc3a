package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime/debug"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// lane is one pump: at most one request of it is outstanding, so its next request acknowledges the
// answer of the last (A6). The loop of the connection owns it; the goroutine of the request in
// flight uses id and nothing else.
type lane struct {
	c       *conn
	id      pumpID
	busy    bool
	retired uint64 // counter when it was retired last
}

// proposer has something to propose at the end of the turn.
type proposer interface{ propose() }

// pumpID numbers the requests of a pump.
type pumpID struct {
	pump    uint64
	counter uint64
}

func (c *conn) newLane() *lane { return &lane{c: c, id: pumpID{pump: c.s.newPump()}} }

// propose sends one command off the loop and calls done on it. The lane must be idle.
func (l *lane) propose(ctx context.Context, timeout time.Duration, k fsm.Key, cmd fsm.Command,
	done func(fsm.Outcome, error),
) {
	l.run(func() func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		out, err := l.c.s.propose(ctx, &l.id, k, cmd)
		return func() { done(out, err) }
	})
}

// run is [conn.spawn] for work that may use the lane's id.
func (l *lane) run(work func() func()) {
	if l.busy {
		panic("transport: two requests on one lane")
	}
	l.busy = true
	l.c.spawn(func() func() {
		done := work()
		return func() {
			l.busy = false
			if done != nil {
				done()
			}
		}
	})
}

// retire forgets the lane: the partitions that it used may drop its last result. A late settlement
// may still use it, and retires it again.
func (l *lane) retire(keys ...fsm.Key) {
	if l.id.counter > l.retired {
		l.retired = l.id.counter
		l.c.s.janitor.drop(l.id.pump, keys...)
	}
}

// spawn runs work on a goroutine of its own and what work returns on the loop. The loop does not
// end before all of them have come back.
func (c *conn) spawn(work func() func()) {
	c.inflight++
	go func() {
		done := c.guard(work)
		c.post(func() {
			c.inflight--
			if done != nil {
				done()
			}
		})
	}()
}

// guard runs work; a panic ends the connection instead of the process.
func (c *conn) guard(work func() func()) (done func()) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
			done = func() { c.lose(sitePanic, errPanic) }
		}
	}()
	return work()
}

var errPanic = errors.New("internal error")

// panicked reports a broken invariant.
func (c *conn) panicked(p any) {
	c.s.stats.reject(sitePanic)
	c.log.Error("panic on a connection", "panic", p, "stack", string(debug.Stack()))
}

// propose gives the command the pump's next id. When the cluster has declared this life of the
// node lost, it starts a new one: the refused command changed nothing (RUL-19).
func (s *Server) propose(ctx context.Context, p *pumpID, k fsm.Key, cmd fsm.Command) (fsm.Outcome, error) {
	_, out, err := s.proposeAs(ctx, p, k, cmd)
	return out, err
}

// proposeAs is propose, and tells the id under which the command can be asked about.
func (s *Server) proposeAs(ctx context.Context, p *pumpID, k fsm.Key, cmd fsm.Command) (
	fsm.RequestID, fsm.Outcome, error,
) {
	for {
		life := s.incarnation.Load()
		p.counter++
		id := fsm.RequestID{Node: fsm.Incarnation(life), Pump: p.pump, Counter: p.counter}
		out, err := s.broker.Propose(ctx, id, k, cmd)
		if err != nil || out.Refusal != fsm.NodeExpired || ctx.Err() != nil {
			return id, out, err
		}
		s.rebirth(life)
	}
}

// rebirth replaces the incarnation that the cluster refuses.
func (s *Server) rebirth(refused uint64) {
	var b [8]byte
	s.draw(b[:])
	next := binary.BigEndian.Uint64(b[:]) | 1
	if s.incarnation.CompareAndSwap(refused, next) {
		s.holders.born(fsm.Incarnation(next))
		s.log.Warn("the cluster declared this node lost; going on as a new incarnation")
	}
}
