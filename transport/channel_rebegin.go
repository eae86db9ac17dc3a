package transport

import (
	"slices"

	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	// maxBehind bounds the frames that a client may send behind an end and a begin before our end is out, and
	// maxBehindBytes their bytes. The client has our end within the time of a round to the partitions.
	maxBehind      = 1_000
	maxBehindBytes = 1 << 20
)

// waitsForEnd keeps a frame that belongs to the next session of a channel. A client may begin again right
// behind its end (AMQP 1.0 §2.5.5), while we still give back what the session before held; its frames are
// served when our end is out.
func (c *conn) waitsForEnd(f *frame) (bool, error) {
	ch := c.channels[f.channel]
	if ch == nil || !ch.ending || c.phase != phaseOpen {
		return false, nil
	}
	if len(ch.behind) == 0 {
		if code, err := amqp.PeekCode(f.body); err != nil || code != amqp.CodeBegin {
			return false, nil
		}
	}
	ch.behindBytes += len(f.body)
	if len(ch.behind) >= maxBehind || ch.behindBytes > maxBehindBytes {
		return true, connFault(siteChannel, amqp.ConditionResourceLimitExceeded,
			"too many frames on channel %d before the end of its session is answered", f.channel)
	}
	ch.behind = append(ch.behind, frame{f.kind, f.channel, slices.Clone(f.body)})
	return true, nil
}

// beginAgain serves what waited for the end of the session.
func (ch *channel) beginAgain() {
	ch.c.onLoop()
	behind := ch.behind
	ch.behind = nil
	for i := range behind {
		if err := ch.c.frame(&behind[i]); err != nil {
			ch.c.fault(nil, nil, err)
			return
		}
	}
}
