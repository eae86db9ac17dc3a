package transport

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// begun is a request that is under way without a goroutine that waits for its answer. The loop of the connection owns it.
type begun struct {
	c      *conn
	cancel waist.Cancel // nil if nothing is under way
	gone   bool         // it was cancelled
	until  time.Time    // when it is given up
	timer  *time.Timer  // fires then
}

// begin has first begin a request, and calls done on the loop with what became of it. It is false if first is, and
// when the connection has been cut. If the broker gives a rest, a goroutine waits for that.
func (b *begun) begin(c *conn, timeout time.Duration, first func(func(fsm.Outcome, error, waist.Rest)) (waist.Cancel, bool),
	done func(fsm.Outcome, error),
) bool {
	c.onLoop()
	if c.ctx.Err() != nil {
		return false // giveAllUp has passed
	}
	cancel, ok := first(func(out fsm.Outcome, err error, rest waist.Rest) {
		c.postSoon(func() { b.ended(out, err, rest, done) })
	})
	if !ok {
		return false
	}
	b.c, b.cancel, b.gone, b.until = c, cancel, false, time.Now().Add(timeout)
	if b.timer == nil {
		b.timer = time.AfterFunc(timeout, func() { c.post(b.late) })
	} else {
		b.timer.Reset(timeout)
	}
	c.inflight++
	c.begun[b] = struct{}{}
	return true
}

// ended hears the end of the request. If nobody wants it any more, its rest is asked all the same: it gives back what was taken.
func (b *begun) ended(out fsm.Outcome, err error, rest waist.Rest, done func(fsm.Outcome, error)) {
	c := b.c
	c.onLoop()
	b.timer.Stop()
	b.cancel = nil
	delete(c.begun, b)
	c.inflight--
	if rest == nil {
		done(out, err)
		return
	}
	ctx, cancel := context.WithDeadline(c.ctx, b.until)
	if b.cancel = func(error) { cancel() }; b.gone {
		cancel()
	}
	c.spawn(func() func() {
		defer cancel()
		out, err := rest(ctx)
		return func() {
			b.cancel = nil
			done(out, err)
		}
	})
}

// late gives the request up if its time is over.
func (b *begun) late() {
	b.c.onLoop()
	if b.cancel != nil && !time.Now().Before(b.until) {
		b.giveUp(context.DeadlineExceeded)
	}
}

// giveUp ends the request, whose caller is gone.
func (b *begun) giveUp(cause error) {
	b.c.onLoop()
	if cancel := b.cancel; cancel != nil && !b.gone {
		b.gone = true
		cancel(cause)
	}
}

// giveAllUp ends what is under way.
func (c *conn) giveAllUp() {
	for b := range c.begun { // order-free: all of them end
		b.giveUp(context.Canceled)
	}
}
