package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// settleCommitted ends the deliveries of a committed transaction, and tells the client that they are settled. It does
// so before the answer to the discharge is written (amqp-protocol.md 8.3).
func (t *txn) settleCommitted(all []txnDelivery) {
	t.link.ch.c.onLoop()
	for _, d := range all {
		if !d.forgotten {
			d.ch.dones = append(d.ch.dones, ack{id: d.id, state: d.state, by: settledBy{session: d.session}})
		}
		d.ch.forgetDelivery(d.id)
	}
	for i, d := range all {
		if i == 0 || d.ch != all[i-1].ch {
			d.ch.flushAcks()
		}
	}
}

// expired reports whether the lock of a delivery has ended as far as this node can tell. It may have been
// renewed over another connection.
func (d *sentDelivery) expired() bool {
	if h := d.owner.session; h != nil {
		return h.over()
	}
	return d.until != 0 && d.until < nowWall()
}

// judge asks the partition whether a delivery that joined a transaction is still locked, and answers the
// disposition (RUL-30). The delivery is in the transaction meanwhile: if the client discharges it without
// waiting, the commit judges.
func (ch *channel) judge(d *sentDelivery, t *txn, yes amqp.DeliveryState) {
	ch.c.onLoop()
	c, o := ch.c, d.owner
	id, seq, token, path := d.id, d.seq, d.token, d.path()
	key := waist.KeyOfToken(o.desc, o.sub, token)
	session, proof, by := o.session != nil, o.proof(), d.by()
	c.spawn(func() func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ProposeTimeout)
		defer cancel()
		var lost fsm.Refusal
		if session {
			a, err := c.s.broker.Query(ctx, key, &fsm.GetSessionState{Session: proof})
			if err == nil && a.Refusal == fsm.SessionLockLost {
				lost = fsm.SessionLockLost
			}
		} else if !stillLocked(ctx, c.s.broker, key, seq, token) {
			lost = fsm.MessageLockLost
		}
		return func() {
			ch.touch()
			if lost == fsm.None {
				ch.dones = append(ch.dones, ack{id: id, state: yes, open: true})
				return
			}
			t.withdraw(ch, id)
			c.s.stats.reject(siteTransaction)
			ch.dones = append(ch.dones, ack{id: id, state: c.reject(c.s.refusal(lost, "", path), path), by: by})
			ch.sent.take(id, id, func(d *sentDelivery) bool {
				ch.forget(d)
				return true
			})
		}
	})
}

// stillLocked asks whether a message is locked under a token. Without an answer it may be.
func stillLocked(ctx context.Context, b Broker, k fsm.Key, seq fsm.SequenceNumber, token fsm.LockToken) bool {
	const ofShare = 1<<48 - 1 // the low bits of a number tell the order of arrival in its share
	a, err := b.Query(ctx, k, &fsm.ListLocks{After: uint64(seq)&ofShare - 1, Max: 1})
	if err != nil || a.Refusal != fsm.None {
		return true
	}
	return len(a.Locks) == 1 && a.Locks[0].Number == seq && [4]byte(token[2:6]) == a.Locks[0].Digits
}

// withdraw takes the settlement of a delivery out of the transaction.
func (t *txn) withdraw(ch *channel, id uint32) {
	t.link.ch.c.onLoop()
	of := func(d *txnDelivery) bool { return d != nil && d.ch == ch && d.id == id }
	work := t.work[:0]
	t.settles = nil
	for i := range t.work {
		w := t.work[i]
		if of(w.delivery) {
			continue
		}
		work = append(work, w)
		if t.settles == nil && (w.cmd != nil || w.via != nil) {
			t.settles = &w
		}
	}
	t.work = work
	settled := t.settled[:0]
	for i := range t.settled {
		if !of(&t.settled[i]) {
			settled = append(settled, t.settled[i])
		}
	}
	t.settled = settled
}
