package transport

import (
	"slices"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// replies is the half that sends responses.
type replies struct {
	l       *link
	c       *conn
	out     outgoing
	queue   [][]byte
	settled bool
}

func newReplies(l *link) *replies {
	r := &replies{l: l, c: l.ch.c, settled: l.asked.SndSettleMode.Or(amqp.SenderMixed) == amqp.SenderSettled}
	r.out = outgoing{l: l, from: r}
	return r
}

func (r *replies) start() { r.c.replies = append(r.c.replies, r) }

// add queues a response; without credit it waits (amqp-protocol.md 7.1).
func (r *replies) add(payload []byte) {
	if len(r.queue) >= r.c.cfg.MaxReplies || r.c.replyBytes > r.c.cfg.MaxConnBytes {
		r.c.s.stats.reject(siteReply)
		return
	}
	r.queue = append(r.queue, payload)
	r.c.replyBytes += len(payload)
	r.out.ready()
}

func (r *replies) flow(p *amqp.Flow) error {
	r.out.grant(p)
	r.out.ready()
	return nil
}

func (r *replies) transfer(*amqp.Transfer, []byte) error {
	return channelFault(siteIllegalFrame, amqp.ConditionNotAllowed, "a transfer on a link that receives")
}

func (r *replies) next(scratch []byte) (parcel, bool) {
	if len(r.queue) == 0 {
		return parcel{}, false
	}
	p := parcel{settled: r.settled, payload: append(scratch, r.queue[0]...)}
	p.tag = guidTag(r.c.s.randomToken())
	r.c.replyBytes -= len(r.queue[0])
	r.queue[0] = nil
	r.queue = r.queue[1:]
	return p, true
}

func (r *replies) idle() {
	if r.out.drain {
		r.out.drained()
	}
}

// stopped implements parcels: a reply is locked by nobody, and waits.
func (r *replies) stopped(bool) {}

func (r *replies) close(bool) {
	r.c.replies = slices.DeleteFunc(r.c.replies, func(o *replies) bool { return o == r })
	for _, payload := range r.queue {
		r.c.replyBytes -= len(payload)
	}
	r.queue = nil
	r.out.drop()
}

func (r *replies) busy() bool { return false }
