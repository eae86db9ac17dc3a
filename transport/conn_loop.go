package transport

import (
	"errors"
	"os"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// run serves the connection to its end and cleans up after it.
func (c *conn) run(authed func()) {
	defer close(c.done)
	defer c.cancel()
	c.ownLoop()
	c.onAuthed = authed
	r := amqp.NewReader(c.socket, preOpenFrameBytes)
	if !c.handshake(r) {
		c.socket.Close()
		return
	}
	if c.turnedAway {
		c.shutdown() // it is told where to go, by the close behind our open
	}
	c.wake = time.AfterFunc(c.nextWake(), func() { c.come(c.mail.put(func(m *mailbox) { m.tick = true })) })
	defer c.wake.Stop()
	c.turns() // what came during the handshake
	c.read(r)
	<-c.swept
	c.uncount()
}

// turns takes turns of the loop until there is nothing to do. The mailbox has told the caller to.
func (c *conn) turns() {
	c.ownLoop()
	for more := true; more; {
		more = c.guarded()
	}
}

// someTurns takes at most n turns. It is true if the caller has to take more.
func (c *conn) someTurns(n int) bool {
	c.ownLoop()
	for range n {
		if !c.guarded() {
			return false
		}
	}
	return true
}

// guarded is step. A panic ends the connection instead of the process.
func (c *conn) guarded() (more bool) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
			c.broken = c.sweeping
			c.lose(sites, errPanic)
			more = true
		}
	}()
	return c.step()
}

// step takes a turn: it does what others want done, and reports whether there may be more.
func (c *conn) step() bool {
	n, more := c.collect()
	if !more {
		return false
	}
	c.clock = time.Time{}
	if n.wrote != nil {
		c.written(*n.wrote)
	}
	if c.phase < phaseFlushing {
		c.live(n)
	} else {
		c.runPosts()
	}
	if c.phase == phaseFlushing {
		c.flush()
		if c.writeErr != nil || !c.writing && len(c.out) == 0 {
			c.phase = phaseOver
		}
	}
	return c.phase != phaseOver || c.sweepOn()
}

// live does what the connection does before its end.
func (c *conn) live(n news) {
	if n.leave {
		c.leave()
	}
	if n.tick {
		c.tick(time.Now())
	}
	c.runPosts()
	if n.batch != nil {
		c.batch(n.batch)
	}
	if c.phase < phaseFlushing {
		c.advance()
	}
}

// runPosts runs what was posted. A panic leaves the rest for the next turn.
func (c *conn) runPosts() {
	for c.ran < len(c.posts) {
		f := c.posts[c.ran]
		c.posts[c.ran] = nil
		c.ran++
		f()
	}
	c.posts, c.ran = c.posts[:0], 0
}

// unfinished reports whether there is something to do although nobody has brought news.
func (c *conn) unfinished() bool {
	return c.ran < len(c.posts) || c.phase < phaseFlushing && len(c.dirty)+len(c.starters) > 0 ||
		c.phase == phaseOver && (c.broken || !c.sweeping)
}

// advance does what the events of this turn have made possible, then writes.
func (c *conn) advance() {
	c.startRounds()
	for i := 0; i < len(c.dirty); i++ { // a channel may touch itself or others
		ch := c.dirty[i]
		ch.dirty = false
		if c.channels[ch.number] == ch {
			ch.advance()
		}
	}
	clear(c.dirty)
	c.dirty = c.dirty[:0]
	c.runRequests()
	c.startRounds()
	c.checkReplies()
	c.count()
	c.finishLeaving()
	c.flush()
}

// now is the time of this turn: one reading of the clock serves all its messages.
func (c *conn) now() time.Time {
	c.onLoop()
	if c.clock.IsZero() {
		c.clock = time.Now()
	}
	return c.clock
}

// startRounds starts the rounds that this turn has collected.
func (c *conn) startRounds() {
	for i := 0; i < len(c.starters); i++ { // a starter may add others
		s := c.starters[i]
		c.starters[i] = nil // one that panics is not asked again
		if s != nil {
			s.startRound()
		}
	}
	c.starters = c.starters[:0]
}

// paused reports whether reading has to wait: too many bytes wait for partitions (A21), or the
// peer does not take what we answer.
func (c *conn) paused() bool {
	return c.heldBytes >= c.heldLimit() || len(c.out) >= 2*c.cfg.MaxWriteBytes
}

// batch handles what arrived together.
func (c *conn) batch(b *batch) {
	c.s.stats.BytesIn.Add(uint64(b.bytes))
	c.bytesIn += uint64(b.bytes)
	for i := range b.frames {
		if c.phase >= phaseFlushing {
			break
		}
		err := c.frame(&b.frames[i])
		if err == nil {
			err = c.checkStranger()
		}
		if err != nil {
			c.fault(nil, nil, err)
		}
	}
	if b.err != nil && c.phase < phaseFlushing {
		c.readEnded(b.err)
		return
	}
	c.free <- b
}

// readEnded handles the end of the byte stream.
func (c *conn) readEnded(err error) {
	switch {
	case c.phase == phaseClosing || c.orderly:
		c.endAfterWrite() // our close may not be out yet
	case errors.Is(err, amqp.ErrFraming):
		c.fault(nil, nil, wireFault(err))
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.s.stats.reject(siteIdle)
		c.sendClose(amqpError(amqp.ConditionResourceLimitExceeded, "local-idle-timeout expired"))
		c.endAfterWrite()
	default:
		c.lose(sites, err)
	}
}

// frame handles one frame.
func (c *conn) frame(f *frame) error {
	if f.kind != amqp.FrameAMQP {
		return connFault(siteIllegalFrame, amqp.ConditionFramingError, "a frame of type %d after SASL", f.kind)
	}
	if len(f.body) == 0 {
		return nil // a sign of life
	}
	if waits, err := c.waitsForEnd(f); waits || err != nil {
		return err
	}
	c.frameBytes = len(f.body)
	p, payload, err := c.decode(f.body)
	if err != nil {
		return wireFault(err)
	}
	if c.phase == phaseClosing {
		if _, ok := p.(*amqp.Close); ok {
			c.phase = phaseOver
		}
		return nil // Q25: what was in flight when we closed
	}
	if c.phase != phaseOpen && !c.takesInLeaving(f.channel, p) {
		return nil // after a close there is nothing to say
	}
	switch p := p.(type) {
	case *amqp.Open:
		return connFault(siteIllegalFrame, amqp.ConditionIllegalState, "a second open")
	case *amqp.Begin:
		return c.begin(f.channel, p)
	case *amqp.Close:
		c.peerClosed(p)
		return nil
	}
	ch := c.channels[f.channel]
	if ch == nil && c.ended[f.channel] {
		return nil // see channel.remove
	}
	if ch == nil {
		return connFault(siteChannel, amqp.ConditionNotAllowed, "channel %d has not begun", f.channel)
	}
	return ch.frame(p, payload)
}

// decode decodes a frame's body; the three frequent performatives into structs of the connection's
// own, which are good until the next frame.
func (c *conn) decode(body []byte) (p amqp.Performative, payload []byte, err error) {
	code, err := amqp.PeekCode(body)
	if err != nil {
		return nil, nil, err
	}
	switch code {
	case amqp.CodeTransfer:
		payload, err = c.lastTransfer.Decode(body)
		return &c.lastTransfer, payload, err
	case amqp.CodeDisposition:
		return &c.lastDisposition, nil, c.lastDisposition.Decode(body)
	case amqp.CodeFlow:
		return &c.lastFlow, nil, c.lastFlow.Decode(body)
	}
	return amqp.DecodePerformative(body)
}
