package transport

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// pump is a pump of a connection. At most one request of it is outstanding, so its next request acknowledges the
// answer of the last (A6). The loop of the connection owns it. The goroutine of the request in flight uses
// numbers and nothing else.
type pump struct {
	c       *conn
	numbers waist.Pump
	busy    bool
	begun   begun
	retired uint64 // counter when it was retired last
}

// starter has rounds to start at the end of the turn.
type starter interface{ startRound() }

func (c *conn) newPump() *pump { return &pump{c: c, numbers: c.s.waist.NewPump()} }

// send proposes one command off the loop and calls done on it. The pump must be idle.
func (p *pump) send(ctx context.Context, timeout time.Duration, k fsm.Key, cmd fsm.Command,
	done func(fsm.Outcome, error),
) {
	if p.begin(timeout, k, cmd, done) {
		return
	}
	p.run(func() func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		out, err := p.c.s.waist.Propose(ctx, &p.numbers, k, cmd)
		return func() { done(out, err) }
	})
}

// begin proposes one command and calls done on the loop. It is false if the broker does not begin it. The pump must be idle.
func (p *pump) begin(timeout time.Duration, k fsm.Key, cmd fsm.Command, done func(fsm.Outcome, error)) bool {
	if p.busy {
		panic("transport: two requests on one pump")
	}
	p.c.onLoop()
	over := func(out fsm.Outcome, err error) {
		p.busy = false
		done(out, err)
	}
	p.busy = p.begun.begin(p.c, timeout, func(ended func(fsm.Outcome, error, waist.Rest)) (waist.Cancel, bool) {
		return p.c.s.waist.Begin(&p.numbers, k, cmd, ended)
	}, over)
	return p.busy
}

// run is [conn.spawn] for work that may use the pump's numbers.
func (p *pump) run(work func() func()) {
	if p.busy {
		panic("transport: two requests on one pump")
	}
	p.busy = true
	p.c.spawn(func() func() {
		done := work()
		return func() {
			p.busy = false
			if done != nil {
				done()
			}
		}
	})
}

// retire forgets the pump: the partitions that it used may drop its last result. A late settlement
// may still use it, and retires it again.
func (p *pump) retire(keys ...fsm.Key) {
	if n := p.numbers.Counter(); n > p.retired {
		p.retired = n
		p.c.s.waist.Retire(&p.numbers, keys...)
	}
}
