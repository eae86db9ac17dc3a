package transport

import (
	"bytes"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// ack answers one delivery: a client's transfer, or a client's disposition.
type ack struct {
	id    uint32
	state amqp.DeliveryState
	// open says that the delivery is not settled by the answer: a transaction will, or will not (RUL-30).
	open bool
	by   settledBy // of a client's disposition
}

// settlement is a verdict on its way to the partition.
type settlement struct {
	item  fsm.SettleItem
	id    uint32
	reply amqp.DeliveryState // what to answer on success, nil if nothing is waited for
	back  bool               // the client gives the message back; the link asks for no other meanwhile
	// unsent says that the client has not got the message.
	unsent bool
}

// settler brings verdicts to one share. They are about different messages, so those of one Settle need not wait for
// the one before. A request that arrives while an entry is on its way to the disks is to ride in the very next one.
type settler struct {
	e       *egress
	key     fsm.Key
	pumps   []*pump // as many as were ever needed at once
	pending []settlement
	awaited int // of pending, whose answer the client waits for
}

// settleSteps is how many verdicts must wait for one more Settle to be under way. With none under way
// one does; later ones must be worth a request, and the client must wait for their answers: without that
// fewer requests are better. Beyond the last everything waits.
var settleSteps = [...]int{1, 4, 16}

// settler returns the one for the share that a token came from.
func (e *egress) settler(token fsm.LockToken) *settler {
	share := max(0, e.desc.ShareOf(token.Prefix()))
	s := e.settlers[share]
	if s == nil {
		s = &settler{e: e, key: waist.ShareKey(e.desc, e.sub, share)}
		e.settlers[share] = s
	}
	return s
}

func (s *settler) busy() bool {
	return len(s.pending) > 0 || slices.ContainsFunc(s.pumps, func(p *pump) bool { return p.busy })
}

// idlePump returns an idle pump if what is pending is worth one more Settle, else nil.
func (s *settler) idlePump() *pump {
	var idle *pump
	under := 0
	for _, p := range s.pumps {
		if p.busy {
			under++
		} else {
			idle = p
		}
	}
	waiting := len(s.pending)
	if under > 0 {
		waiting = s.awaited
	}
	if under == len(settleSteps) || waiting < settleSteps[under] {
		return nil
	}
	if idle == nil {
		idle = s.e.c.newPump()
		s.pumps = append(s.pumps, idle)
	}
	return idle
}

func (s *settler) add(v settlement) {
	s.pending = append(s.pending, v)
	if v.reply != nil {
		s.awaited++
	}
	s.kick()
}

// kick has what is pending proposed at the end of this turn, so that all verdicts of the turn ride
// together.
func (s *settler) kick() {
	if len(s.pending) > 0 {
		s.e.c.starters = append(s.e.c.starters, s)
	}
}

// startRound implements starter: it sends the pending verdicts.
func (s *settler) startRound() {
	p := s.idlePump()
	if p == nil {
		return
	}
	n := min(len(s.pending), s.e.c.cfg.MaxSettle)
	batch := s.pending[:n:n]
	s.pending = s.pending[n:]
	if len(s.pending) == 0 {
		s.pending = nil
	}
	cmd := &fsm.Settle{Session: s.e.proof(), Items: make([]fsm.SettleItem, n)}
	for i := range batch {
		cmd.Items[i] = batch[i].item
		if batch[i].reply != nil {
			s.awaited--
		}
	}
	p.send(s.e.c.ctx, s.e.c.cfg.ProposeTimeout, s.key, cmd, func(out fsm.Outcome, err error) {
		s.settled(batch, out, err)
		s.kick()
		s.e.fetch()
		s.e.finish()
	})
}

// settled answers a batch.
func (s *settler) settled(batch []settlement, out fsm.Outcome, err error) {
	e := s.e
	e.l.ch.touch()
	path := e.l.addr.path()
	back := false
	for i := range batch {
		if batch[i].back {
			back = true
			e.returning--
		}
		why := out.Refusal
		if why == fsm.None && i < len(out.Refusals) {
			why = out.Refusals[i]
		}
		if batch[i].unsent {
			e.session.unsent(batch[i].item.Token, why, err)
		}
		if err == nil && why == fsm.None {
			e.c.s.stats.Settled.Add(1)
		} else {
			e.c.s.stats.SettleRefused.Add(1)
		}
		if batch[i].reply == nil {
			continue
		}
		state, by := batch[i].reply, settledBy{session: e.session}
		switch {
		case err != nil:
			state = e.c.reject(e.c.s.errorOf(err, path), path)
		case why != fsm.None:
			state = e.c.reject(e.c.s.refusal(why, out.Detail, path), path)
		}
		if err != nil || why != fsm.None && why != fsm.MessageLockLost && why != fsm.SessionLockLost {
			by = e.l.ch.fail(sentDelivery{id: batch[i].id, owner: e, seq: batch[i].item.Seq, token: batch[i].item.Token})
		}
		e.l.ch.dones = append(e.l.ch.dones, ack{id: batch[i].id, state: state, by: by})
	}
	if err != nil && back && e.session != nil && !e.closing {
		// Nobody knows whether they are back. The session's end brings them back before those behind.
		e.c.fault(e.l.ch, e.l, &linkError{siteUnavailable, e.c.s.errorOf(err, path)})
	}
}

// disposition handles what the client says about deliveries that we sent.
func (ch *channel) disposition(p *amqp.Disposition) error {
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
	if d.owner != nil {
		d.owner.unsettled--
		if d.owner.pace.decided(d.token) {
			d.owner.out.ready()
		}
	}
}

// settle sends the verdict on one delivery to its link, which may be detached already (S-161).
func (ch *channel) settle(d *sentDelivery, v verdict, settled bool) {
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
	if v.item.Verdict == 0 && d.owner.closing {
		// The Java SDK settles so when it frees a link, whatever its application still holds. The lock
		// outlives the link, and the token settles over another one (RUL-2).
		return
	}
	s := settlement{item: v.item, id: d.id, reply: v.reply}
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
		d.owner.recall()
	}
	d.owner.settler(d.token).add(s)
}

// flushAcks writes the answers of this turn, equal neighbours as one range.
func (ch *channel) flushAcks() {
	ch.writeAcks(amqp.RoleReceiver, ch.acks)
	ch.writeAcks(amqp.RoleSender, ch.dones)
	ch.acks, ch.dones = ch.acks[:0], ch.dones[:0]
}

func (ch *channel) writeAcks(role amqp.Role, acks []ack) {
	if ch.ended {
		return
	}
	for i := 0; i < len(acks); {
		j := i + 1
		for j < len(acks) && acks[j].id == acks[j-1].id+1 && acks[i].open == acks[j].open && sameState(acks[i].state, acks[j].state) {
			j++
		}
		ch.c.out = amqp.AppendDisposition(ch.c.out, ch.number, &amqp.Disposition{
			Role: role, First: acks[i].id, Last: amqp.Some(acks[j-1].id), Settled: !acks[i].open, State: acks[i].state,
		})
		for ; i < j; i++ {
			if role == amqp.RoleSender && !acks[i].open && acks[i].by.how != undecided {
				ch.answered.add(acks[i].id, acks[i].by)
			}
		}
	}
}

// sameState reports whether two answers may share a frame.
func sameState(a, b amqp.DeliveryState) bool {
	if a.StateCode() != b.StateCode() {
		return false
	}
	switch a := a.(type) {
	case amqp.Accepted, amqp.Released:
		return true
	case amqp.Rejected:
		return a.Error == nil && b.(amqp.Rejected).Error == nil
	case *amqp.TransactionalState:
		b := b.(*amqp.TransactionalState)
		return bytes.Equal(a.TxnID, b.TxnID) && sameState(a.Outcome, b.Outcome)
	case amqp.Modified:
		return a.UndeliverableHere == b.(amqp.Modified).UndeliverableHere
	}
	return false
}

// dropLocks shortens the locks of a lost connection's unsettled deliveries (RUL-2, RUL-19).
func (ch *channel) dropLocks() {
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
