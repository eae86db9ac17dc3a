package transport

import (
	"errors"
	"io"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// This file is how a connection ends: by the client's close, by ours, or without a word.

// sendClose says goodbye; the peer's answer is waited for, its other frames are ignored.
func (c *conn) sendClose(cause *amqp.Error) {
	if c.phase >= phaseClosing {
		return
	}
	for _, ch := range c.channels {
		ch.flushAcks()
		ch.stopFetches()
	}
	c.appendClose(c.tell(cause, ""))
	c.phase = phaseClosing
	c.leftAt = time.Now()
	c.rearm()
}

// appendClose writes our close. Nothing goes out behind it (AMQP 1.0 §2.7.9), see flush.
func (c *conn) appendClose(cause *amqp.Error) {
	c.out = amqp.AppendFrame(c.out, 0, &amqp.Close{Error: cause})
	c.saidClose, c.last = true, len(c.out)
}

// stopFetches takes back the fetches of a connection that ends, so that nothing is removed for a client that does not
// hear of it.
func (ch *channel) stopFetches() {
	ch.c.onLoop()
	for _, l := range ch.links {
		if e, ok := l.end.(*egress); ok && e.fetching {
			e.cancel()
		}
	}
}

// peerClosed handles a close: every link ends as if it were detached, then the close is answered.
func (c *conn) peerClosed(p *amqp.Close) {
	if p.Error != nil {
		c.log.Debug("client closed", "error", p.Error)
	}
	c.orderly = true
	c.phase = phaseLeaving
	c.leftAt = time.Now()
	for _, ch := range c.channels {
		ch.closeLinks(true)
	}
	c.rearm()
}

// leave ends the connection because the node stops. No more messages are delivered. Requests in flight are answered, and
// the client has a moment to settle what it holds (awaitsVerdicts). Then the client is told. When it has answered, or does
// not within CloseTimeout, its sessions are given back. Before that it would take itself for the holder of a session that
// another one has already.
func (c *conn) leave() {
	if c.phase != phaseOpen {
		return
	}
	c.forced = true
	c.phase = phaseLeaving
	c.leftAt = time.Now()
	for _, ch := range c.channels {
		ch.closeLinks(true)
		for _, l := range ch.links {
			if e := l.stopped(); e != nil && e.out.drain {
				e.out.drained()
			}
		}
	}
	c.rearm()
}

// detachable reports whether a link is closed, and its client has not been told. Such a client may detach the link as at any
// other time. Links of sessions are left out: they end with the connection.
func (l *link) detachable() bool {
	l.ch.c.onLoop()
	e := l.stopped()
	return l.silent && !l.told && (e == nil || e.session == nil)
}

// stopped returns the egress of a link that is closed, while its client has not been told. It is nil for other links.
func (l *link) stopped() *egress {
	l.ch.c.onLoop()
	if e, receives := l.end.(*egress); receives && l.silent && !l.told {
		return e
	}
	return nil
}

// takesInLeaving reports whether a frame counts although the node stops. It is a verdict, a detach, a close, or a drain. A
// transfer or an attach is for the next node.
//
// The library for JavaScript drains its credit at the end of each receive. It detaches the link if the drain is not answered, and
// its process ends if that detach is answered with an error.
func (c *conn) takesInLeaving(number uint16, p amqp.Performative) bool {
	if c.phase != phaseLeaving || !c.forced || c.orderly {
		return false
	}
	linkOf := func(handle uint32) *link {
		if ch := c.channels[number]; ch != nil {
			return ch.links[handle]
		}
		return nil
	}
	switch p := p.(type) {
	case *amqp.Disposition, *amqp.Close:
		return true
	case *amqp.Detach:
		l := linkOf(p.Handle)
		return l != nil && (l.told || l.detachable())
	case *amqp.Flow:
		l := linkOf(p.Handle.Value)
		return l != nil && p.Handle.Set && p.Drain && l.stopped() != nil
	}
	return false
}

// awaitsVerdicts reports whether the close has to wait for the verdicts on what the client holds. For half of
// CloseTimeout the client may settle over its links. Then they are detached, and the other half is for its answer. A client
// that learns of the detach first settles over another connection, by the token (RUL-2). The Go SDK does not if it
// learns of the close first: it tries the dead link again and again. Links of sessions end with the connection.
func (c *conn) awaitsVerdicts() (awaits bool) {
	patient := time.Since(c.leftAt) < c.cfg.CloseTimeout/2
	for _, ch := range c.channels {
		for _, l := range ch.links {
			e, ok := l.end.(*egress)
			switch {
			case !ok || l.state != linkDetaching:
			case l.told:
				awaits = true
			case e.unsettled == 0:
			case patient:
				awaits = true
			case e.session == nil:
				awaits, l.told = true, true
				ch.flushAcks()
				l.sendDetach(amqpError(amqp.ConditionDetachForced, "%s", c.farewell().Description))
			}
		}
	}
	return awaits
}

// releaseSessions gives back the sessions that leave kept.
func (ch *channel) releaseSessions() {
	ch.c.onLoop()
	for _, l := range ch.links {
		if e, ok := l.end.(*egress); ok {
			e.finish()
		}
	}
}

// finishLeaving answers the peer's close, or sends ours, when every link has given back what it held.
func (c *conn) finishLeaving() {
	if c.phase != phaseLeaving {
		return
	}
	late := time.Since(c.leftAt) >= c.cfg.CloseTimeout
	for _, ch := range c.channels {
		if !late && ch.busy() {
			return
		}
	}
	if !late && !c.orderly && c.awaitsVerdicts() {
		return
	}
	for _, ch := range c.channels {
		ch.flushAcks()
	}
	if c.orderly {
		c.appendClose(nil)
		c.phase = phaseClosing
		c.leftAt = time.Now()
		c.endAfterWrite()
		return
	}
	c.phase = phaseOpen // for sendClose
	c.sendClose(c.farewell())
}

// endAfterWrite ends the connection when the last frames are out.
func (c *conn) endAfterWrite() { c.phase = phaseFlushing }

// lose ends the connection without a word from the peer.
func (c *conn) lose(at site, err error) {
	if c.phase == phaseOver {
		return
	}
	if at < sites {
		c.s.stats.reject(at)
	}
	if !errors.Is(err, io.EOF) {
		c.log.Debug("connection lost", "error", err)
	}
	c.phase = phaseOver // flush may call again
	c.flush()
}

// sweep cleans up after the connection. Held messages are given back, and a lost connection's locks and sessions are dropped
// (RUL-2).
func (c *conn) sweep() {
	lost := !c.orderly && !c.forced
	if lost {
		c.s.stats.Lost.Add(1)
	}
	for _, ch := range c.channels {
		if lost {
			ch.dropLocks()
		}
		ch.closeLinks(!lost)
		if c.forced {
			ch.releaseSessions()
		}
	}
}

// closeSocket closes the socket without waiting. TLS and WebSockets say goodbye, which waits for a peer that does not read.
func (c *conn) closeSocket() {
	if c.direct != nil {
		c.socket.Close()
		return
	}
	c.spawn(func() func() {
		c.socket.Close()
		return nil
	})
}

// sweepOn sweeps once, and goes on until everything in flight has come back. It is false when the connection has ended.
func (c *conn) sweepOn() bool {
	if !c.sweeping {
		c.sweeping = true
		c.closeSocket()
		close(c.quit)
		c.giveUp = time.AfterFunc(c.cfg.ProposeTimeout, c.cancel)
		c.sweep()
	}
	if !c.broken {
		c.startRounds()
		if c.inflight > 0 || c.writing {
			return true
		}
	}
	c.giveAllUp() // what is under way has no loop to come back to, if the connection is broken
	c.giveUp.Stop()
	c.mail.close()
	close(c.swept)
	return false
}
