package transport

import (
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// The request nodes, $cbs and $management, take requests over one link and answer over another of
// the same connection.

const (
	// requestSlack is what a request may take beyond the messages inside it.
	requestSlack = 64 << 10
)

// requestEndpoint makes the half of a request node that the link's direction asks for.
func (l *link) requestEndpoint() endpoint {
	l.ch.c.onLoop()
	if l.clientSends() {
		return newRequests(l)
	}
	return newReplies(l)
}

// requests is the half that takes requests. A request waits in queue, runs, and has its answer wait for the
// link credit of the link that receives it; until the answer is on its way it takes a place of the link credit.
type requests struct {
	intake
	c       *conn
	limit   int // bytes of one request
	queue   []request
	queued  bool // in the connection's list of links whose requests wait for their turn
	running int
	pumps   []*waist.Pump // pumps that are free
	made    int           // pumps that exist
	closing bool
}

func newRequests(l *link) *requests {
	r := &requests{intake: newIntake(l), c: l.ch.c, limit: defaultMessageBytes}
	if l.desc != nil {
		r.limit = int(l.desc.MaxMessageBytes) + requestSlack
	}
	return r
}

func (r *requests) start() {
	r.c.onLoop()
	r.open()
}

// transfer collects a request. Some clients send them settled and with an empty tag (Q19).
func (r *requests) transfer(p *amqp.Transfer, payload []byte) error {
	r.c.onLoop()
	if r.now == nil {
		if err := r.begin(p); err != nil {
			return err
		}
	}
	d := r.now
	d.settled = d.settled || p.Settled.Or(false)
	switch s := p.State.(type) {
	case nil:
	case *amqp.TransactionalState:
		d.txnID = append([]byte{}, s.TxnID...)
	default:
		d.badState = true
	}
	if p.Aborted {
		r.abort()
		r.rise()
		return nil
	}
	if err := r.arrive(d, payload); err != nil || p.More {
		return err
	}
	r.abort()
	r.take(d)
	r.rise()
	return nil
}

// arrive adds a frame's payload to a request. An error ends the link: the request is too large, or cannot be
// held and the client would not hear that it was refused.
func (r *requests) arrive(d *inbound, payload []byte) error {
	r.c.onLoop()
	if d.dropped {
		return nil
	}
	if len(d.payload)+len(payload) > r.limit {
		return linkFault(siteMessageSize, amqp.ConditionMessageSizeExceeded, "a request of more than %d bytes", r.limit)
	}
	busy := r.c.arriving(len(payload), r.limit, "The connection has too many requests under way whose last frame has not come.")
	if busy != nil {
		r.c.s.stats.reject(siteMessageSize)
		r.c.arrivedAll(d, len(d.payload))
		d.payload, d.dropped, d.refusal = nil, true, busy
		if d.settled {
			return linkFault(siteMessageSize, amqp.ConditionServerBusy, "%s", d.refusal.Description)
		}
		return nil
	}
	d.payload = grow(d.payload, payload, r.limit, r.c.cfg.OnLarge)
	r.c.arrived(d, len(payload))
	return nil
}

// take has a whole request run in its turn, or refuses it.
func (r *requests) take(d *inbound) {
	r.c.onLoop()
	var q request
	var err error
	refusal := d.refusal
	if refusal == nil {
		q, err = parseRequest(d.payload)
	}
	switch {
	case refusal != nil:
	case d.badState:
		r.c.s.stats.reject(siteRequest)
		refusal = amqpError(amqp.ConditionNotImplemented, "a request in such a state")
	case err != nil:
		r.c.s.stats.reject(siteRequest)
		refusal = amqpError(amqp.ConditionDecodeError, "%v", err)
	}
	state := amqp.DeliveryState(amqp.Accepted{})
	switch {
	case refusal != nil:
		state = r.c.reject(refusal, r.l.addr.path())
	case d.txnID != nil:
		state = &amqp.TransactionalState{TxnID: d.txnID, Outcome: amqp.Accepted{}}
	}
	if !d.settled {
		r.l.ch.acks = append(r.l.ch.acks, ack{id: d.id, state: state})
		r.l.ch.touch()
	}
	if refusal != nil {
		return
	}
	q.ch, q.bytes, q.txnID = r.l.ch, len(d.payload), d.txnID
	r.c.heldBytes += q.bytes
	r.waiting++
	r.queue = append(r.queue, q)
	r.next()
}

// abort forgets the request that is arriving, if any.
func (r *requests) abort() {
	r.c.onLoop()
	if r.now != nil {
		r.c.arrivedAll(r.now, len(r.now.payload))
		r.now = nil
	}
}

// close implements endpoint; requests under way are still answered.
func (r *requests) close(bool) {
	r.c.onLoop()
	r.closing = true
	r.abort()
	r.finish()
}

func (r *requests) busy() bool {
	r.c.onLoop()
	return r.running > 0 || len(r.queue) > 0
}

func (r *requests) finish() {
	r.c.onLoop()
	if !r.closing || r.busy() {
		return
	}
	if r.l.desc != nil {
		for _, p := range r.pumps {
			r.c.s.waist.Holders().End(p.Number())
			for _, share := range waist.AllShares(r.l.desc) {
				r.c.s.waist.Retire(p, waist.ShareKey(r.l.desc, r.l.addr.sub, share))
			}
		}
	}
	r.pumps = nil
	r.l.finish()
}

// answered gives the place of a request back to the link credit: its answer is on its way, or has no way.
func (r *requests) answered() {
	r.c.onLoop()
	r.waiting--
	r.rise()
}
