package transport

import (
	"context"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// browser shows the active messages of an entity to a receiving client and takes none: what AMQP 1.0
// §3.5.3 calls the distribution mode copy (docs/decisions/0033). It goes over them once, from the front.
type browser struct {
	l       *link
	c       *conn
	session amqp.Opt[string] // whose messages alone are shown
	out     outgoing

	parts   []browsed
	turn    int            // the part that is asked; len(parts) behind the last message
	stale   bool           // the client has spoken since the round began
	queue   []fsm.Delivery // found and not sent yet
	passed  uint64         // messages that were sent
	pump    *pump          // busy while a part is asked
	cancel  context.CancelFunc
	closing bool
}

// browsed is how far a browser has come in one share.
type browsed struct {
	share int
	from  fsm.SequenceNumber // behind the last message that was shown
	after uint64             // cursor of the state, behind what was not shown too
}

// browses reports whether a receiver wants to look and not to take. A durable source with that mode is a
// subscription in JMS, whose consumers take.
func (l *link) browses() bool {
	l.ch.c.onLoop()
	return l.asked.Source.DistributionMode == amqp.DistributionCopy && l.asked.Source.Durable == 0
}

// acceptBrowser answers that copies come settled, whatever was asked for.
func (l *link) acceptBrowser(session amqp.Opt[string]) {
	l.ch.c.onLoop()
	reply := l.reply()
	reply.SndSettleMode = amqp.Some(amqp.SenderSettled)
	l.acceptWith(newBrowser(l, session), reply)
}

func newBrowser(l *link, session amqp.Opt[string]) *browser {
	b := &browser{l: l, c: l.ch.c, session: session, pump: l.ch.c.newPump()}
	b.out = outgoing{l: l, from: b}
	for _, share := range waist.SharesFrom(l.desc, 0) {
		b.parts = append(b.parts, browsed{share: share})
	}
	return b
}

func (b *browser) start() {
	b.c.onLoop()
}

// flow takes credit. The browser looks anew for messages behind the last one that it found. A client that drains must
// see all that was stored before.
func (b *browser) flow(p *amqp.Flow) error {
	b.c.onLoop()
	b.stale = true
	b.out.grant(p)
	b.out.ready()
	return nil
}

func (b *browser) transfer(*amqp.Transfer, []byte) error {
	b.c.onLoop()
	return channelFault(siteIllegalFrame, amqp.ConditionNotAllowed, "a transfer on a link that receives")
}

// next implements parcels. A copy has nothing to settle.
func (b *browser) next(scratch []byte) (parcel, bool) {
	b.c.onLoop()
	for len(b.queue) > 0 && !b.closing {
		d := b.queue[0]
		b.queue[0] = fsm.Delivery{}
		b.queue = b.queue[1:]
		p, err := newParcel(scratch, &d, true)
		b.c.unqueue(len(d.Body))
		if err != nil { // as for receivers: the partition's affair
			b.c.log.Error("stored message is unreadable", "entity", b.l.desc.Name, "number", d.Seq, "error", err)
			continue
		}
		p.tag, p.settled = guidTag(b.c.s.randomToken()), true
		b.c.messagesOut++
		b.passed++
		return p, true
	}
	return parcel{}, false
}

// idle implements parcels: it looks for more if the client wants some, and ends a drain behind the last.
func (b *browser) idle() {
	b.c.onLoop()
	if b.closing || b.pump.busy || b.out.now != nil {
		return
	}
	if b.turn == len(b.parts) && b.stale {
		b.turn = 0
	}
	switch {
	case b.out.drain && (b.out.credit == 0 || b.turn == len(b.parts) && len(b.queue) == 0):
		b.out.drained()
	case b.out.credit == 0, len(b.queue) > 0, b.turn == len(b.parts): // the client's next flow goes on
	case b.c.queuedBytes >= b.c.cfg.MaxConnBytes:
		b.c.starved = append(b.c.starved, &b.out)
	default:
		b.ask()
	}
}

// ask asks the part whose turn it is.
func (b *browser) ask() {
	b.c.onLoop()
	if b.turn == 0 {
		b.stale = false
	}
	part := &b.parts[b.turn]
	q := &fsm.Browse{
		From: part.from, After: part.after, States: 1 << fsm.StateActive,
		Max: min(b.out.credit, b.c.cfg.MaxLock), MaxBytes: b.c.cfg.MaxLockBytes,
		Session: b.session.Value, HasSession: b.session.Set,
	}
	ctx, cancel := context.WithCancel(b.c.ctx)
	b.cancel = cancel
	key := waist.ShareKey(b.l.desc, b.l.addr.sub, part.share)
	b.pump.run(func() func() {
		defer cancel()
		b.c.s.waist.Touch(ctx, &b.pump.numbers, b.l.desc, b.l.addr.sub)
		a, err := b.c.s.waist.Ask(ctx, key, q)
		return func() {
			b.l.ch.touch()
			b.found(part, a, err)
		}
	})
}

// found handles an answer.
func (b *browser) found(part *browsed, a fsm.Answer, err error) {
	b.c.onLoop()
	path := b.l.addr.path()
	switch {
	case b.closing:
		b.finish()
		return
	case err != nil && b.c.ctx.Err() == nil:
		b.c.fault(b.l.ch, b.l, &linkError{siteRefused, b.c.s.errorOf(err, path)})
		return
	case err != nil:
		return // the connection ends
	case a.Refusal != fsm.None:
		b.c.fault(b.l.ch, b.l, &linkError{siteRefused, b.c.s.refusal(a.Refusal, a.Detail, path)})
		return
	}
	shown := a.Messages[:min(len(a.Messages), int(b.out.credit))] // some credit may be gone by now
	for i := range shown {
		b.c.queuedBytes += len(shown[i].Body)
		part.from = shown[i].Seq + 1
	}
	b.queue = slices.Clip(shown)
	if len(shown) == len(a.Messages) {
		part.after = max(part.after, a.Next)
		if a.Next == 0 {
			b.turn++
		}
	}
	b.out.ready()
}

// stopped implements parcels: what is shown is locked by nobody, and waits.
func (b *browser) stopped(bool) {
	b.c.onLoop()
}

// close implements endpoint.
func (b *browser) close(bool) {
	b.c.onLoop()
	if b.closing {
		return
	}
	b.closing = true
	if b.pump.busy {
		b.cancel()
	}
	for i := range b.queue {
		b.c.unqueue(len(b.queue[i].Body))
	}
	b.queue = nil
	b.out.drop()
	b.finish()
}

// busy implements endpoint.
func (b *browser) busy() bool {
	b.c.onLoop()
	return b.pump.busy
}

func (b *browser) finish() {
	b.c.onLoop()
	if !b.closing || b.pump.busy {
		return
	}
	b.pump.retire(waist.ShareKey(b.l.desc, b.l.addr.sub, 0))
	b.l.finish()
}
