package transport

import (
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// egress takes messages out of an entity for a receiving client, no more than can go onto the wire now (RUL-28).
//
// The loop of the connection owns it. Its link calls it with each flow; its outgoing asks it for messages.
// Invariant: a message that was taken is in queue, sent and counted by unsettled, or on its way back in a settler.
type egress struct {
	// Immutable.
	l        *link
	c        *conn
	desc     *fsm.Descriptor
	sub      fsm.SubQueue
	remove   bool         // receive and delete (S-142)
	session  *heldSession // nil without
	receiver *waist.Receiver

	// Deliveries.
	out       outgoing
	queue     []fsm.Delivery   // taken and not sent yet
	unsettled int              // sent, and no disposition yet
	passed    uint64           // messages that were sent
	returning int              // given back, and the partition has not said so yet
	settlers  map[int]*settler // by share
	pace      pace
	alarm     *time.Timer   // set while the queue waits for the socket
	waiting   fsm.LockToken // of the first of the queue when the alarm was set

	// The fetch under way.
	fetching bool
	asked    uint32 // how many messages it asks for
	parked   bool   // it waits where there is nothing
	void     bool   // what it brings goes back
	cancel   func() // ends it
	begun    begun  // the request
	tried    bool   // since drain was asked for, the entity was asked without waiting

	// Closing.
	closing  bool
	lost     bool // the connection is gone without a word
	released bool // what is held has been given back, or is on its way
}

func newEgress(l *link, session *heldSession) *egress {
	e := &egress{
		l: l, c: l.ch.c, desc: l.desc, sub: l.addr.sub, session: session,
		remove:   l.asked.SndSettleMode.Or(amqp.SenderMixed) == amqp.SenderSettled,
		settlers: map[int]*settler{},
	}
	e.out = outgoing{l: l, from: e}
	e.pace.on = session != nil && !e.remove && (e.c.goClient || e.c.pythonClient)
	e.pace.lags = e.c.pythonClient
	e.pace.learns = session != nil && !e.remove && e.c.javaClient
	if e.remove {
		l.ch.removers++
	}
	shares := waist.AllShares(l.desc)
	if session != nil {
		shares = []int{session.share}
	}
	e.receiver = e.c.s.waist.NewReceiver(l.desc, l.addr.sub, shares)
	e.receiver.Sure = session != nil && !e.remove
	e.receiver.NameHolder(l.holder())
	return e
}

func (e *egress) start() {
	e.c.onLoop()
	if e.session != nil {
		e.session.watch()
	}
}

// proof is what commands of this receiver carry.
func (e *egress) proof() fsm.SessionProof {
	e.c.onLoop()
	if e.session == nil {
		return fsm.SessionProof{}
	}
	return e.session.proof
}

// flow takes credit. Messages that were taken for credit that the client takes back go back at once (S-147, RUL-28);
// a receive-and-delete link sends it when credit comes again.
func (e *egress) flow(p *amqp.Flow) error {
	e.c.onLoop()
	if p.Drain && !e.out.drain {
		e.tried = e.c.jsClient // its drain is the end of a call, and asks for nothing
	}
	left := e.out.credit
	anew := e.out.grant(p) && e.pace.granted(left) && e.parked
	if !e.remove && len(e.queue) > int(e.out.credit) {
		e.shorten(int(e.out.credit))
	}
	tooMuch := e.out.credit < e.asked
	if e.fetching && (anew || e.parked && (e.out.drain || tooMuch) || e.remove && tooMuch || e.out.credit == 0) {
		e.cancel() // it asks for more than is wanted, or with a wait that nobody wants any more
	}
	e.out.ready()
	return nil
}

func (e *egress) transfer(*amqp.Transfer, []byte) error {
	e.c.onLoop()
	return channelFault(siteIllegalFrame, amqp.ConditionNotAllowed, "a transfer on a link that receives")
}

// next implements parcels.
func (e *egress) next(scratch []byte) (parcel, bool) {
	e.c.onLoop()
	for len(e.queue) > 0 {
		d := &e.queue[0]
		p, err := newParcel(scratch, d, false)
		token := d.Token
		if err != nil {
			// The bytes were checked when they came in; a disk that lies is the partition's affair.
			e.c.log.Error("stored message is unreadable", "entity", e.desc.Name, "number", d.Seq, "error", err)
			e.giveBack(e.queue[:1])
			e.pop()
			continue
		}
		if !e.remove && e.l.tooLarge(p.size()) {
			return parcel{}, false
		}
		p.settled = e.remove
		if token.IsZero() {
			token = e.c.s.randomToken() // receive and delete has no lock, but a tag
		}
		p.tag = guidTag(token)
		now := e.c.now()
		if e.c.cfg.OnDelivered != nil && d.Attempts == 0 && d.EnqueuedAt != 0 {
			e.c.cfg.OnDelivered(max(0, now.Sub(time.UnixMilli(int64(d.EnqueuedAt)))))
		}
		trace := e.c.cfg.traceDelivered(d, e.l.addr, now)
		if !e.remove {
			p.sent = sentDelivery{owner: e, seq: d.Seq, token: d.Token, until: d.LockedUntil,
				key: keyOfStored(e.desc, d), trace: trace}
			if e.c.cfg.OnSettled != nil || e.c.cfg.OnSpan != nil {
				p.sent.at = now
			}
			e.unsettled++
			e.pace.sent(e, d.Token)
		}
		e.c.s.stats.MessagesOut.Add(1)
		e.c.messagesOut++
		e.passed++
		e.pop()
		return p, true
	}
	return parcel{}, false
}

func (e *egress) pop() {
	e.c.onLoop()
	e.c.unqueue(len(e.queue[0].Body))
	e.queue[0] = fsm.Delivery{}
	e.queue = e.queue[1:]
	if len(e.queue) == 0 {
		e.queue = nil
	}
}

// unqueue counts bytes that do not wait for the client's window any more, and lets links go on
// that waited for that.
func (c *conn) unqueue(bytes int) {
	full := c.queuedBytes >= c.cfg.MaxConnBytes
	c.queuedBytes -= bytes
	if !full || c.queuedBytes >= c.cfg.MaxConnBytes {
		return
	}
	starved := c.starved
	c.starved = nil
	for _, o := range starved {
		o.ready() // asks when its channel's turn comes
	}
}

// idle implements parcels: everything taken is sent, or credit is used up.
func (e *egress) idle() {
	e.c.onLoop()
	if e.remove && len(e.queue) == 0 && e.out.now == nil && !e.fetching {
		e.out.keep(0)
	}
	e.fetch()
}

// maxHold is how long what was taken may wait for the socket before it goes back. It is shorter than
// the shortest lock, so that no delivery is sent under a lock that is over (RUL-28).
const maxHold = time.Second

// stopped implements parcels: what a shut window keeps from the client goes back at once, what a full socket keeps
// from it soon. Messages that receive-and-delete has removed wait.
func (e *egress) stopped(window bool) {
	e.c.onLoop()
	switch {
	case e.remove || len(e.queue) == 0:
	case window:
		e.shorten(0)
	case e.alarm == nil:
		e.waiting = e.queue[0].Token
		e.alarm = time.AfterFunc(maxHold, func() { e.c.post(e.heldLong) })
	}
}

// heldLong gives back what has waited for the socket since the alarm was set.
func (e *egress) heldLong() {
	e.c.onLoop()
	e.alarm = nil
	if e.closing || len(e.queue) == 0 {
		return
	}
	if e.queue[0].Token == e.waiting {
		e.shorten(0)
	} else {
		e.stopped(false)
	}
	e.l.ch.touch()
}

// shorten gives back what is queued beyond the first n.
func (e *egress) shorten(n int) {
	e.c.onLoop()
	back := e.queue[n:]
	e.giveBack(back)
	for i := range back {
		e.c.unqueue(len(back[i].Body))
	}
	if e.queue = e.queue[:n:n]; n == 0 {
		e.queue = nil
	}
}

// giveBack returns messages that the client will not get, counts unchanged (S-147). The link asks for
// no other before they are back, so that none overtakes them.
func (e *egress) giveBack(ds []fsm.Delivery) {
	e.c.onLoop()
	for i := range ds {
		e.returning++
		e.settler(ds[i].Token).add(settlement{back: true, unsent: true, item: fsm.SettleItem{
			Seq: ds[i].Seq, Token: ds[i].Token, Verdict: fsm.Return,
		}})
	}
}

// recall is called when the client gives back a message, by abandoning or releasing it. A fetch that is parked is taken back, so that others who
// wait get the message first. In a session, messages that were taken behind it, or are being taken, go back as well.
// The message is the next one that the client gets (RUL-28).
func (e *egress) recall(by fsm.Verdict) {
	e.c.onLoop()
	if e.fetching && (e.parked || e.session != nil) {
		e.cancel()
	}
	if e.session != nil {
		e.pace.gaveBack(e, by)
		e.void = true
		e.shorten(0)
	}
}

// close implements endpoint.
func (e *egress) close(orderly bool) {
	e.c.onLoop()
	if e.closing {
		return
	}
	e.closing, e.lost = true, !orderly
	if e.fetching {
		e.cancel()
	}
	if e.alarm != nil {
		e.alarm.Stop()
	}
	e.pace.stop()
	if len(e.l.ch.sent.items) > e.c.cfg.MaxUnsettled {
		e.l.ch.pruneEnded()
	}
	if e.remove {
		e.sendRest()
		e.l.ch.removers--
	} else {
		e.shorten(0)
		if e.out.now != nil && e.session != nil { // cut off in its middle
			e.session.unsent(e.out.now.sent.token, fsm.SessionLockLost, nil)
		}
		e.out.drop()
	}
	e.finish()
}

// sendRest writes what receive-and-delete has removed for a link that ends, before the client is told or answered. A
// removed message goes onto the wire, as far as the client's window takes it (RUL-28). A client that has closed its
// connection takes none.
func (e *egress) sendRest() {
	e.c.onLoop()
	ch := e.l.ch
	hears := e.l.silent && !ch.ended && e.c.phase < phaseClosing && !e.c.orderly
	if e.l.state == linkLeaving || e.l.state == linkAttached || hears {
		for ch.peerWindow > 0 && (e.out.now != nil || len(e.queue) > 0) && e.out.step() {
		}
	}
	for i := range e.queue {
		e.c.unqueue(len(e.queue[i].Body))
	}
	e.queue = nil
	e.out.drop()
	if !e.fetching {
		e.out.keep(0)
	}
}

// busy implements endpoint.
func (e *egress) busy() bool {
	e.c.onLoop()
	if e.fetching || e.holdsSession() && !e.c.keepsSessions() {
		return true
	}
	return e.owes()
}

// owes reports whether a verdict of the client waits for its answer.
func (e *egress) owes() bool {
	e.c.onLoop()
	for _, s := range e.settlers {
		if s.busy() {
			return true
		}
	}
	return false
}

func (e *egress) holdsSession() bool {
	e.c.onLoop()
	return e.session != nil && !e.session.released
}

// finish goes on with closing: settlements first, then the session, then the pumps.
func (e *egress) finish() {
	e.c.onLoop()
	if !e.closing {
		return
	}
	if e.owes() {
		return
	}
	switch {
	case e.fetching, e.holdsSession() && e.c.keepsSessions():
	case e.holdsSession():
		e.session.release(!e.lost, e.finish)
	default:
		for _, s := range e.settlers {
			for _, p := range s.pumps {
				p.retire(s.key)
			}
		}
		if !e.released {
			e.released = true
			e.receiver.Retire()
		}
		e.l.finish()
	}
}

// unmeantLimit is the max-message-size, in bytes, that every version of the Python SDK puts into the attach of a
// receiver. Its application cannot change the number, and the SDK takes larger messages all the same
// (docs/decisions/0045).
const unmeantLimit = 1 << 20

// tooLarge ends a receiving link whose client takes no message of that size (AMQP 1.0 §2.7.3); what is
// taken for it goes back uncounted. Receive-and-delete does not ask: the message is removed already.
func (l *link) tooLarge(size int) bool {
	l.ch.c.onLoop()
	limit := l.asked.MaxMessageSize.Or(0)
	if limit == 0 || limit == unmeantLimit || uint64(size) <= limit {
		return false
	}
	l.ch.c.fault(l.ch, l, linkFault(siteMessageSize, amqp.ConditionMessageSizeExceeded, "The next message has %d bytes, "+
		"and the receiver takes %d at most. Attach with a larger max-message-size or none.", size, limit))
	return true
}
