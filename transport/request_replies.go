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
	queue   []reply
	settled bool
}

// reply is one response, and the link whose request it answers. tail follows payload: views of large bodies,
// which are not copied.
type reply struct {
	payload []byte
	tail    [][]byte
	of      *requests
}

func (p *reply) size() int { return len(p.payload) + totalBytes(p.tail) }

func newReplies(l *link) *replies {
	r := &replies{l: l, c: l.ch.c, settled: l.asked.SndSettleMode.Or(amqp.SenderMixed) == amqp.SenderSettled}
	r.out = outgoing{l: l, from: r}
	return r
}

func (r *replies) start() {
	r.c.onLoop()
	r.c.replies = append(r.c.replies, r)
}

// add queues a response; without credit it waits (amqp-protocol.md 7.1). Waiting requests are bounded by the link
// credit of the link that they come over, and by runRequests.
func (r *replies) add(p reply) {
	r.c.onLoop()
	r.queue = append(r.queue, p)
	r.c.replyBytes += p.size()
	r.out.ready()
}

func (r *replies) flow(p *amqp.Flow) error {
	r.c.onLoop()
	r.out.grant(p)
	r.out.ready()
	return nil
}

func (r *replies) transfer(*amqp.Transfer, []byte) error {
	r.c.onLoop()
	return channelFault(siteIllegalFrame, amqp.ConditionNotAllowed, "a transfer on a link that receives")
}

func (r *replies) next(scratch []byte) (parcel, bool) {
	r.c.onLoop()
	if len(r.queue) == 0 {
		return parcel{}, false
	}
	first := r.queue[0]
	p := parcel{settled: r.settled, payload: append(scratch, first.payload...), tail: first.tail}
	p.tag = guidTag(r.c.s.randomToken())
	r.queue[0] = reply{}
	r.queue = r.queue[1:]
	r.gone(first)
	return p, true
}

// gone gives back what a response held while it waited.
func (r *replies) gone(what reply) {
	r.c.onLoop()
	r.c.replyBytes -= what.size()
	what.of.answered()
}

func (r *replies) idle() {
	r.c.onLoop()
	if r.out.drain {
		r.out.drained()
	}
}

// stopped implements parcels: a reply is locked by nobody, and waits.
func (r *replies) stopped(bool) {
	r.c.onLoop()
}

func (r *replies) close(bool) {
	r.c.onLoop()
	r.c.replies = slices.DeleteFunc(r.c.replies, func(o *replies) bool { return o == r })
	waiting := r.queue
	r.queue = nil
	for _, what := range waiting {
		r.gone(what)
	}
	r.out.drop()
}

func (r *replies) busy() bool {
	r.c.onLoop()
	return false
}
