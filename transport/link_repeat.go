package transport

import (
	"net"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// heldBack reports whether the refusal of an attach waits, because the same was refused often; then it is sent later.
// A refusal that may change at any moment, such as by the holder of a session, is told at once.
func (l *link) heldBack(cause *amqp.Error) bool {
	l.ch.c.onLoop()
	code := codeOfError(cause)
	switch code {
	case refusal.EntityNotFound, refusal.EntityDisabled, refusal.Unauthorized, refusal.InvalidOperation:
	default:
		return false
	}
	c := l.ch.c
	host, _, err := net.SplitHostPort(c.socket.RemoteAddr().String())
	if err != nil {
		host = c.socket.RemoteAddr().String()
	}
	wait := c.s.repeats.wait(repeat{host, l.addr.path(), code}, time.Now())
	if wait == 0 {
		return false
	}
	l.refused = true
	l.abandon()
	time.AfterFunc(wait, func() {
		c.post(func() {
			if l.state == linkAttaching && !l.ch.ended {
				l.refuseAttach(cause)
				l.ch.touch()
			}
		})
	})
	return true
}
