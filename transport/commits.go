package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// maxCommitted bounds the deliveries of a channel that are remembered as settled by a commit, 16 KiB for
// the ids and some 100 KiB for the map. Of older ones only the highest id is remembered.
const maxCommitted = 4096

// committed remembers which deliveries the commits of transactions have settled. A client that has not
// heard of it may settle one once more and waits for an answer (RUL-30).
type committed struct {
	ids    map[uint32]struct{}
	order  []uint32 // of ids, a ring once it is full
	next   int      // of order: the oldest
	before uint32   // highest id that was pushed out
	pushed bool     // before means something
}

func (c *committed) add(id uint32) {
	if c.ids == nil {
		c.ids = map[uint32]struct{}{}
	}
	if _, ok := c.ids[id]; ok {
		return
	}
	c.ids[id] = struct{}{}
	if len(c.order) < maxCommitted {
		c.order = append(c.order, id)
		return
	}
	old := c.order[c.next]
	delete(c.ids, old)
	if !c.pushed || serialLess(c.before, old) {
		c.before, c.pushed = old, true
	}
	c.order[c.next] = id
	c.next = (c.next + 1) % maxCommitted
}

// each calls f with the remembered ids from first to last, and with a single id that may have been one.
func (c *committed) each(first, last uint32, f func(id uint32)) {
	if first == last {
		if _, ok := c.ids[first]; ok || c.pushed && !serialLess(c.before, first) {
			f(first)
		}
		return
	}
	for i := range c.order { // the oldest first
		id := c.order[(c.next+i)%len(c.order)]
		if !serialLess(id, first) && !serialLess(last, id) {
			f(id)
		}
	}
}

// settledBefore answers a disposition for deliveries that the channel does not have any more: their lock
// ended with a commit. found says that the disposition was about others, too. It reports whether it
// answered.
func (ch *channel) settledBefore(p *amqp.Disposition, found bool) (answered bool) {
	last := p.Last.Or(p.First)
	if p.Settled || found && last == p.First {
		return false
	}
	ch.committed.each(p.First, last, func(id uint32) {
		answered = true
		ch.c.s.stats.reject(siteDisposition)
		ch.dones = append(ch.dones, ack{id: id, state: ch.c.reject(ch.c.s.refusal(fsm.MessageLockLost, "", ""), "")})
	})
	return answered
}

// settleCommitted ends the deliveries of a committed transaction, and tells the client that they are
// settled, before the answer to the discharge is written (amqp-protocol.md 8.3).
func (t *txn) settleCommitted(all []txnDelivery) {
	for _, d := range all {
		if !d.forgotten {
			d.ch.committed.add(d.id)
			d.ch.dones = append(d.ch.dones, ack{id: d.id, state: d.state})
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
		return h.leaving || h.until < nowMillis()
	}
	return d.until != 0 && d.until < nowMillis()
}

// judge asks the partition whether a delivery that joined a transaction is still locked, and answers the
// disposition (RUL-30). The delivery is in the transaction meanwhile: if the client discharges it without
// waiting, the commit judges.
func (ch *channel) judge(d *sentDelivery, t *txn, yes amqp.DeliveryState) {
	c, o := ch.c, d.owner
	id, seq, token, path := d.id, d.seq, d.token, d.path()
	key := shareKey(o.desc, o.sub, max(0, o.desc.ShareOf(token.Prefix())))
	session, proof := o.session != nil, o.proof()
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
			ch.dones = append(ch.dones, ack{id: id, state: c.reject(c.s.refusal(lost, "", path), path)})
			ch.sent.take(id, id, func(d *sentDelivery) bool {
				ch.forget(d)
				return true
			})
			ch.committed.add(id) // whatever the client says of it later is answered the same
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
