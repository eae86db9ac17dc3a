package transport

import (
	"context"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// egress takes messages out of an entity for a receiving client.
type egress struct {
	l       *link
	c       *conn
	desc    *fsm.Descriptor
	sub     fsm.SubQueue
	remove  bool         // receive and delete (S-142)
	session *heldSession // nil without
	out     outgoing

	queue     []fsm.Delivery // taken and not sent yet
	unsettled int            // sent, and no disposition yet
	returning int            // given back by the client, and the partition has not said so yet
	taker     *taker
	fetching  bool
	cancel    context.CancelFunc // of the fetch under way
	tried     bool               // since drain was asked for, the entity was asked without waiting
	closing   bool
	lost      bool // the connection is gone without a word
	released  bool // what is held has been given back, or is on its way

	settlers map[int]*settler // by share
}

func newEgress(l *link, session *heldSession) *egress {
	e := &egress{
		l: l, c: l.ch.c, desc: l.desc, sub: l.addr.sub, session: session,
		remove:   l.asked.SndSettleMode.Or(amqp.SenderMixed) == amqp.SenderSettled,
		settlers: map[int]*settler{},
	}
	e.out = outgoing{l: l, from: e}
	shares := allShares(l.desc)
	if session != nil {
		shares = []int{session.share}
	}
	e.taker = newTaker(l.ch.c.s, l.desc, l.addr.sub, shares)
	for i := range e.taker.pumps {
		e.c.s.holders.begin(e.taker.pumps[i].pump, l)
	}
	return e
}

func (e *egress) start() {
	if e.session != nil {
		e.session.watch()
	}
}

// proof is what commands of this receiver carry.
func (e *egress) proof() fsm.SessionProof {
	if e.session == nil {
		return fsm.SessionProof{}
	}
	return e.session.proof
}

// flow takes credit.
func (e *egress) flow(p *amqp.Flow) error {
	if p.Drain && !e.out.drain {
		e.tried = false
	}
	e.out.grant(p)
	if e.fetching && (e.out.drain || e.out.credit == 0) {
		e.cancel() // parked with a wait that nobody wants any more
	}
	e.out.ready()
	return nil
}

func (e *egress) transfer(*amqp.Transfer, []byte) error {
	return channelFault(siteIllegalFrame, amqp.ConditionNotAllowed, "a transfer on a link that receives")
}

// next implements parcels.
func (e *egress) next(scratch []byte) (parcel, bool) {
	for len(e.queue) > 0 && !e.closing {
		d := &e.queue[0]
		payload, err := appendDelivery(scratch, d, false)
		token := d.Token
		if err != nil {
			// The bytes were checked when they came in; a disk that lies is the partition's affair.
			e.c.log.Error("stored message is unreadable", "entity", e.desc.Name, "number", d.Seq, "error", err)
			e.giveBack(e.queue[:1])
			e.pop()
			continue
		}
		p := parcel{payload: payload, settled: e.remove}
		if token.IsZero() {
			token = e.c.s.randomToken() // receive and delete has no lock, but a tag
		}
		p.tag = guidTag(token)
		if !e.remove {
			p.sent = sentDelivery{owner: e, seq: d.Seq, token: d.Token, until: d.LockedUntil}
			e.unsettled++
		}
		e.c.s.stats.MessagesOut.Add(1)
		e.pop()
		return p, true
	}
	return parcel{}, false
}

func (e *egress) pop() {
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
func (e *egress) idle() { e.fetch() }

// fetch asks the entity for messages if the client wants some, and ends a drain if there are none.
func (e *egress) fetch() {
	if e.closing || e.fetching || e.out.now != nil || e.returning > 0 {
		return // whoever gives back and asks for more gets the same one again: it is next (S-58)
	}
	if e.out.drain && (e.out.credit == 0 || e.tried && len(e.queue) == 0) {
		e.out.drained()
		return
	}
	if e.out.credit == 0 || len(e.queue) > 0 {
		return
	}
	if e.c.queuedBytes >= e.c.cfg.MaxConnBytes && !e.out.drain {
		e.c.starved = append(e.c.starved, &e.out)
		return
	}
	want := min(int(e.out.credit), int(e.c.cfg.MaxLock))
	if !e.remove {
		if e.unsettled >= e.c.cfg.MaxUnsettled {
			e.unsettled -= e.l.ch.sent.prune(e, nowMillis())
		}
		want = min(want, e.c.cfg.MaxUnsettled-e.unsettled)
	}
	if want <= 0 { // the next settlement calls again
		if e.out.drain {
			e.out.drained()
		}
		return
	}
	lock := fsm.Lock{
		Session: e.proof(), Max: uint32(want), MaxBytes: e.c.cfg.MaxLockBytes, Delete: e.remove,
		Wait: fsm.Millis(e.c.cfg.LockWait / time.Millisecond),
	}
	if e.out.drain {
		lock.Wait = 0
	}
	e.take(&lock)
}

func (e *egress) take(lock *fsm.Lock) {
	ctx, cancel := context.WithCancel(e.c.ctx)
	e.fetching, e.cancel = true, cancel
	e.c.spawn(func() func() {
		defer cancel()
		out, err := e.taker.take(ctx, lock)
		return func() {
			e.fetching = false
			e.l.ch.touch()
			e.took(lock, out, err)
		}
	})
}

// took handles what a fetch brought.
func (e *egress) took(lock *fsm.Lock, out fsm.Outcome, err error) {
	if e.closing {
		if !e.remove {
			e.giveBack(out.Locked)
		}
		e.finish()
		return
	}
	if cause := e.ended(out, err); cause != nil {
		e.c.fault(e.l.ch, e.l, cause)
		return
	}
	if lock.Wait == 0 && len(out.Locked) == 0 {
		e.tried = true
	}
	if !e.remove && e.c.queuedBytes >= e.c.cfg.MaxConnBytes {
		// Other links hold all that a client that does not read may have; nothing gets lost.
		e.giveBack(out.Locked)
		out.Locked = nil
		e.tried = true // a drain is over with that
	}
	e.queue = out.Locked
	if room := int(e.out.credit); !e.remove && len(e.queue) > room {
		e.giveBack(e.queue[room:]) // the client took credit back meanwhile
		e.queue = e.queue[:room:room]
	}
	for i := range e.queue {
		e.c.queuedBytes += len(e.queue[i].Body)
	}
	if len(e.queue) > 0 {
		e.out.ready()
		return
	}
	e.fetch()
}

// ended returns why the link must end, nil if it goes on. What only means "not now" has been waited
// for by the taker.
func (e *egress) ended(out fsm.Outcome, err error) error {
	switch {
	case err != nil && e.c.ctx.Err() == nil && isFinal(err):
		return &linkError{siteRefused, e.c.s.errorOf(err, e.l.addr.path())}
	case err != nil || out.Refusal == fsm.None || out.Refusal == fsm.NoSession:
		return nil
	}
	return &linkError{siteRefused, e.c.s.refusal(out.Refusal, out.Detail, e.l.addr.path())}
}

// giveBack returns messages that the client will not get, counts unchanged (S-147).
func (e *egress) giveBack(ds []fsm.Delivery) {
	for i := range ds {
		e.settler(ds[i].Token).add(settlement{item: fsm.SettleItem{
			Seq: ds[i].Seq, Token: ds[i].Token, Verdict: fsm.Return,
		}})
	}
}

// close implements endpoint.
func (e *egress) close(orderly bool) {
	if e.closing {
		return
	}
	e.closing, e.lost = true, !orderly
	if e.fetching {
		e.cancel()
	}
	if !e.remove {
		e.giveBack(e.queue)
	}
	for i := range e.queue {
		e.c.unqueue(len(e.queue[i].Body))
	}
	e.queue = nil
	e.out.drop()
	e.finish()
}

// busy implements endpoint.
func (e *egress) busy() bool {
	if e.fetching || e.holdsSession() && !e.c.keepsSessions() {
		return true
	}
	for _, s := range e.settlers {
		if s.busy() {
			return true
		}
	}
	return false
}

func (e *egress) holdsSession() bool { return e.session != nil && !e.session.released }

// finish goes on with closing: settlements first, then the session, then the pumps.
func (e *egress) finish() {
	if !e.closing {
		return
	}
	for _, s := range e.settlers {
		if s.busy() {
			return
		}
	}
	switch {
	case e.fetching, e.holdsSession() && e.c.keepsSessions():
	case e.holdsSession():
		e.session.release(!e.lost, e.finish)
	default:
		for _, s := range e.settlers {
			for _, l := range s.lanes {
				l.retire(s.key)
			}
		}
		if !e.released {
			e.released = true
			e.taker.retire()
		}
		e.l.finish()
	}
}
