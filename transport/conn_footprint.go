package transport

import (
	"github.com/busbar-mq/busbar/transport/amqp"
)

// Before its first valid token a client may have so many sessions and links, and make the node hold so many bytes in all.
// Clients open one session and two links to $cbs first; some open the links of a request node beside them.
const (
	strangerChannels = 8
	strangerLinks    = 16
	strangerBytes    = 256 << 10
)

const (
	// maxLinkName bounds the name of a link, in bytes. The longest names of clients hold an entity's path and a GUID.
	maxLinkName = 1 << 10
	// maxAttachBytes bounds what the links of a connection cost.
	maxAttachBytes = 32 << 20
	// linkBytes and channelBytes are what a link costs besides its attach, and a channel.
	linkBytes    = 1 << 10
	channelBytes = 4 << 10
	// footprintStep is by how much the footprint of a connection changes before the node hears of it.
	footprintStep = 64 << 10
)

// Held returns how many bytes the node holds for its clients, and how many of them in open transactions. It is exact
// to within 64 KiB of each connection.
func (s *Server) Held() (bytes, inTransactions int) {
	return int(s.memory.held.Load()), int(s.txnBytes.Load())
}

// footprint is how many bytes the node holds for the client. It counts bytes that arrive, that wait for a partition,
// answers that wait for the client, and its links and sessions. Memory that a delivery has got counts before it is filled.
func (c *conn) footprint() int {
	return c.arrivedBytes + c.spareBytes + c.heldBytes + c.replyBytes + c.queuedBytes + c.txnBytes + c.attachBytes +
		channelBytes*len(c.channels)
}

// count tells the node of the footprint, once it has changed much.
func (c *conn) count() {
	if now := c.footprint(); now-c.counted >= footprintStep || c.counted-now >= footprintStep {
		c.s.memory.held.Add(int64(now - c.counted))
		c.counted = now
	}
}

// room refuses what a connection wants to be held besides, if the node holds too much already.
func (c *conn) room() *amqp.Error {
	if !c.greedy() {
		return nil
	}
	return amqpError(amqp.ConditionServerBusy, "The node holds %d bytes for its clients, as many as it may, and this "+
		"connection is one of those with most. Try again later.", c.s.memory.limit.Load())
}

// arriving refuses more bytes of a delivery whose last frame has not come. The connection may hold one delivery of
// the largest size, and what is allowed besides. A delivery that never ends must not stop the reading that would end
// it, so it is refused instead of waited for.
func (c *conn) arriving(more, largest int, tooMany string) *amqp.Error {
	if c.arrivedBytes+more > c.cfg.MaxConnBytes+largest {
		return amqpError(amqp.ConditionServerBusy, "%s", tooMany)
	}
	return c.room()
}

// arrived counts bytes that have come of a delivery, and the memory that it has got ahead of them.
func (c *conn) arrived(d *inbound, bytes int) {
	spare := 0
	if cap(d.payload) >= apartFrom {
		spare = cap(d.payload) - len(d.payload)
	}
	c.arrivedBytes += bytes
	c.spareBytes += spare - d.spare
	d.spare = spare
}

// arrivedAll ends the count of a delivery that is complete, or is given up.
func (c *conn) arrivedAll(d *inbound, bytes int) {
	c.arrivedBytes -= bytes
	c.spareBytes -= d.spare
	d.spare = 0
}

// uncount takes the connection out of the node's count.
func (c *conn) uncount() {
	c.s.memory.held.Add(-int64(c.counted))
	c.counted = 0
}

func (c *conn) greedy() bool {
	m := &c.s.memory
	return m.held.Load() >= m.limit.Load() && m.greedy(int64(c.footprint()), c.s.stats.Connections.Load())
}

// checkStranger ends a connection that takes much before it has shown a token.
func (c *conn) checkStranger() error {
	if c.authed || c.phase != phaseOpen {
		return nil
	}
	const until = "before its first valid token. Put a token to $cbs first."
	switch {
	case len(c.channels) > strangerChannels:
		return connFault(siteStranger, amqp.ConditionResourceLimitExceeded, "a client has at most %d sessions "+until, strangerChannels)
	case c.handles > strangerLinks:
		return connFault(siteStranger, amqp.ConditionResourceLimitExceeded, "a client has at most %d links "+until, strangerLinks)
	case c.footprint() > strangerBytes:
		return connFault(siteStranger, amqp.ConditionResourceLimitExceeded, "a client may send at most %d bytes "+until, strangerBytes)
	}
	return nil
}
