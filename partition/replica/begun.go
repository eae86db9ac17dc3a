package replica

import (
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Begun is a request that was begun with [Replica.Begin].
type Begun struct {
	p *proposer
	c *call
}

// Begin is [Replica.Propose] without a goroutine that waits for the answer. An error means that nothing was begun. Otherwise done
// is called once, with what Propose would return. It is called under a mutex of the replica. So it must be short, and call no method
// of the replica.
//
// A request of a sender is not begun while senders are held back.
func (r *Replica) Begin(req fsm.Request, done func(fsm.Outcome, error)) (*Begun, error) {
	if err := r.admits(req.Command); err != nil {
		return nil, err
	}
	if e, is := req.Command.(*fsm.Enqueue); is && e.Origin == nil && r.prop.backpressure.any.Load() > 0 {
		return nil, fmt.Errorf("senders are held back: %w", fsm.ErrBusy)
	}
	return r.prop.begin(req, done)
}

func (p *proposer) begin(req fsm.Request, done func(fsm.Outcome, error)) (*Begun, error) {
	c := newCall(req, time.Now())
	if c.size > p.cfg.MaxCommandBytes {
		return nil, fmt.Errorf("%d bytes, maximum %d: %w", c.size, p.cfg.MaxCommandBytes, fsm.ErrBusy)
	}
	c.done = done
	if c.parkable {
		c.overdue = time.AfterFunc(time.Until(c.until), func() { p.waited(c) })
		c.done = func(o fsm.Outcome, err error) {
			c.overdue.Stop()
			p.forgetLocked(c)
			done(o, err)
		}
	}
	if err := p.accept(c); err != nil {
		if c.overdue != nil {
			c.overdue.Stop()
		}
		return nil, err
	}
	return &Begun{p, c}, nil
}

// Cancel ends the request, whose caller is gone. It does not wait. A request that is not in the log never
// will be, and has ended with the cause when Cancel returns. Another one ends with fsm.ErrUnknown. If it takes something, it is answered
// within GoneWait, so that it can be given back (A18).
func (b *Begun) Cancel(cause error) {
	if b.p.withdraw(b.c, cause) {
		return
	}
	var patience time.Duration
	if b.c.req.Command.Traits().Has(fsm.Takes) {
		patience = GoneWait
	}
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if b.c.state == callDone {
		return
	}
	b.c.giveUp = time.AfterFunc(patience, func() {
		b.p.encoded() // the command is its caller's memory
		b.p.mu.Lock()
		defer b.p.mu.Unlock()
		b.c.finish(fsm.Outcome{}, fmt.Errorf("%w: %w", fsm.ErrUnknown, cause))
	})
}
