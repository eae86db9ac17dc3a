package transport

import (
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// transactional takes a whole delivery into its transaction (AMQP 1.0 §4.4.1).
func (g *ingress) transactional(d *inbound) {
	g.c.onLoop()
	s := g.c.s
	t, refusal := g.c.transaction(d.txnID)
	d.via = g.via
	if refusal == nil {
		if err := translateInbound(d, g.l.desc, &messageIDs{s: s, of: 1}); err != nil {
			refusal = err
		}
	}
	if refusal == nil {
		if refusal = s.rates.take(g.c.sender(g.l.addr.path()), len(d.messages), d.bytes); refusal != nil {
			s.stats.reject(siteKeyRate)
		}
	}
	if refusal == nil {
		w := txnWork{desc: g.l.desc, messages: d.messages, text: d.text, byText: d.byText, via: g.via}
		refusal = t.add(w)
	}
	switch {
	case refusal != nil:
		s.stats.reject(siteTransaction)
		if !d.settled {
			g.answer(d.id, g.c.reject(refusal, g.l.addr.path()))
		} else if t != nil {
			// The client does not hear of it, so the transaction must not commit without it.
			t.abort(amqp.ConditionTransactionRollback, "a message was refused: %s", refusal.Description)
		}
	case !d.settled:
		g.answer(d.id, &amqp.TransactionalState{TxnID: d.txnID, Outcome: amqp.Accepted{}})
	}
}

// dispositionIn takes settlements into their transaction. The deliveries stay with us until it
// commits, so that a rollback leaves them as they were (S-233).
func (ch *channel) dispositionIn(p *amqp.Disposition, state *amqp.TransactionalState) {
	ch.c.onLoop()
	c := ch.c
	id := append([]byte(nil), state.TxnID...)
	v, refusal := verdictOf(state.Outcome)
	if refusal == nil && v.item.Verdict == 0 {
		refusal = amqpError(amqp.ConditionInvalidField, "a transactional state without an outcome")
	}
	t, unknown := c.transaction(id)
	if unknown != nil {
		refusal = unknown
	}
	reply := &amqp.TransactionalState{TxnID: id, Outcome: v.reply}
	last := p.Last.Or(p.First)
	var unsaid *amqp.Error // a refusal that the client does not hear of
	found := ch.sent.take(p.First, last, func(d *sentDelivery) bool {
		why := refusal
		var part *txnDelivery
		if why == nil && d.owner != nil {
			part = &txnDelivery{ch: ch, id: d.id, forgotten: p.Settled, state: reply, session: d.owner.session}
			why = t.add(settlementWork(d, v.item, part))
		}
		switch {
		case why != nil:
			c.s.stats.reject(siteTransaction)
			if p.Settled {
				unsaid = why
			} else {
				// The delivery is as it was, and can be settled outside of the transaction.
				ch.dones = append(ch.dones, ack{id: d.id, state: c.reject(why, d.path()), open: d.owner != nil, by: d.by()})
			}
		case part == nil:
			if !p.Settled {
				ch.dones = append(ch.dones, ack{id: d.id, state: reply, by: d.by()})
			}
		default:
			t.settled = append(t.settled, *part)
			switch {
			case p.Settled:
			case d.expired():
				ch.judge(d, t, reply)
			default:
				ch.dones = append(ch.dones, ack{id: d.id, state: reply, open: true})
			}
		}
		return false
	})
	if unsaid != nil {
		// The transaction must not commit without it.
		if t != nil {
			t.abort(amqp.ConditionTransactionRollback, "a settlement was refused: %s", unsaid.Description)
		}
		ch.giveUp(p.First, last)
	}
	if !ch.again(p, reply) && !found && !p.Settled && last == p.First {
		ch.dones = append(ch.dones, ack{id: p.First, state: c.reject(amqpError(amqp.ConditionNotFound,
			"The delivery is not known to the link any more."), "")})
	}
}

// settlementWork is the settlement of a delivery as work of a transaction.
func settlementWork(d *sentDelivery, item fsm.SettleItem, part *txnDelivery) txnWork {
	o := d.owner
	item.Seq, item.Token = d.seq, d.token
	w := txnWork{desc: o.desc, sub: o.sub, share: max(0, o.desc.ShareOf(d.token.Prefix())),
		cmd: &fsm.Settle{Session: o.proof(), Items: []fsm.SettleItem{item}}, delivery: part}
	if d.key != nil {
		w.text, w.byText, w.keyed = d.key.text, d.key.given, true
	}
	return w
}
