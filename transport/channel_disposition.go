package transport

import (
	"maps"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// disposition handles what the client says about deliveries that we sent.
func (ch *channel) disposition(p *amqp.Disposition) error {
	ch.c.onLoop()
	if p.Role != amqp.RoleReceiver {
		return nil // about its own transfers, which we settle ourselves
	}
	last := p.Last.Or(p.First)
	if serialLess(last, p.First) {
		return channelFault(siteDisposition, amqp.ConditionInvalidField, "a disposition from %d to %d", p.First, last)
	}
	if state, ok := p.State.(*amqp.TransactionalState); ok {
		ch.dispositionIn(p, state)
		return nil
	}
	v, err := verdictOf(p.State)
	if err != nil {
		if p.Settled {
			return nil // nothing can be answered; the lock runs out
		}
		ch.c.s.stats.reject(siteDisposition)
		ch.sent.take(p.First, last, func(d *sentDelivery) bool {
			ch.dones = append(ch.dones, ack{id: d.id, state: ch.c.reject(err, d.path()), by: d.by()})
			ch.forget(d)
			return true
		})
		ch.again(p, amqp.Released{})
		return nil
	}
	if v.item.Verdict == 0 && !p.Settled {
		return nil // received, or no state: the client has not decided
	}
	found := ch.sent.take(p.First, last, func(d *sentDelivery) bool {
		ch.settle(d, v, p.Settled)
		return true
	})
	if found && last == p.First {
		return nil
	}
	ch.retry(p, v)
	ch.again(p, v.reply)
	return nil
}

// forget takes a delivery out of its link's count.
func (ch *channel) forget(d *sentDelivery) {
	ch.c.onLoop()
	if d.owner != nil {
		d.owner.unsettled--
		if d.owner.pace.decided(d.token) {
			d.owner.out.ready()
		}
	}
}

// settle sends the verdict on one delivery to its link, which may be detached already (S-161).
func (ch *channel) settle(d *sentDelivery, v verdict, settled bool) {
	ch.c.onLoop()
	if d.owner == nil { // a reply of a request node: the client has it
		if !settled {
			ch.dones = append(ch.dones, ack{id: d.id, state: v.reply, by: d.by()})
		}
		return
	}
	ch.forget(d)
	ch.decide(d, v, settled)
}

// decide sends the verdict on one delivery on its way to the partition.
func (ch *channel) decide(d *sentDelivery, v verdict, settled bool) {
	ch.c.onLoop()
	if v.item.Verdict == 0 && d.owner.closing {
		// The Java SDK settles so when it frees a link, whatever its application still holds. The lock
		// outlives the link, and the token settles over another one (RUL-2).
		return
	}
	s := settlement{item: v.item, id: d.id, reply: v.reply, sent: d.at, trace: d.trace}
	if v.item.Verdict == 0 {
		s.item.Verdict = fsm.Return // settled without a decision
	}
	s.item.Seq, s.item.Token = d.seq, d.token
	if settled {
		s.reply = nil
	}
	if s.item.Verdict == fsm.Abandon || s.item.Verdict == fsm.Return {
		s.back = true
		d.owner.returning++
		d.owner.recall(v.item.Verdict)
	}
	d.owner.settler(d.token).add(s)
}

// dropLocks shortens the locks of a lost connection's unsettled deliveries (RUL-2, RUL-19).
func (ch *channel) dropLocks() {
	ch.c.onLoop()
	type group struct {
		key    fsm.Key
		tokens []fsm.LockToken
	}
	groups := map[fsm.Key]*group{}
	for i := range ch.sent.items {
		d := &ch.sent.items[i]
		if !d.live || d.owner == nil || d.owner.session != nil {
			continue
		}
		o := d.owner
		key := waist.KeyOfToken(o.desc, o.sub, d.token)
		g := groups[key]
		if g == nil {
			g = &group{key: key}
			groups[key] = g
		}
		g.tokens = append(g.tokens, d.token)
	}
	grace := fsm.Millis(ch.c.cfg.DisconnectGrace.Milliseconds())
	for _, g := range groups {
		for len(g.tokens) > 0 {
			n := min(len(g.tokens), ch.c.cfg.MaxSettle)
			p := ch.c.newPump()
			p.send(ch.c.ctx, ch.c.cfg.ProposeTimeout, g.key, &fsm.DropLocks{Tokens: g.tokens[:n], Grace: grace},
				func(_ fsm.Outcome, err error) {
					if err != nil {
						ch.c.log.Debug("drop locks", "error", err)
					}
					p.retire(g.key)
				})
			g.tokens = g.tokens[n:]
		}
	}
}

// retry settles deliveries once more whose first settlement failed. A client that settles one itself is
// done with it.
func (ch *channel) retry(p *amqp.Disposition, v verdict) {
	ch.c.onLoop()
	if len(ch.failed) == 0 {
		return
	}
	last := p.Last.Or(p.First)
	for _, id := range slices.Sorted(maps.Keys(ch.failed)) {
		if serialLess(id, p.First) || serialLess(last, id) {
			continue
		}
		d := ch.failed[id]
		delete(ch.failed, id)
		if !p.Settled {
			ch.decide(&d, v, false)
		}
	}
}
