package transport

import (
	"errors"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// fault ends what an error says is broken. ch and l are where it happened, nil if unknown.
func (c *conn) fault(ch *channel, l *link, err error) {
	var onConn *connError
	var onChannel *channelError
	var onLink *linkError
	switch {
	case errors.As(err, &onLink) && l != nil:
		c.s.stats.reject(onLink.at)
		c.log.Debug("detach", "link", l.name, "site", siteNames[onLink.at], "error", onLink.cause)
		l.refuse(onLink.cause)
	case errors.As(err, &onChannel) && ch != nil:
		c.s.stats.reject(onChannel.at)
		c.log.Debug("end", "channel", ch.number, "site", siteNames[onChannel.at], "error", onChannel.cause)
		ch.end(onChannel.cause)
	case errors.As(err, &onConn):
		c.s.stats.reject(onConn.at)
		c.log.Debug("close", "site", siteNames[onConn.at], "error", onConn.cause)
		c.sendClose(onConn.cause)
	default:
		c.log.Error("unexpected error", "error", err)
		c.sendClose(amqpError(amqp.ConditionInternalError, "internal error"))
	}
}
