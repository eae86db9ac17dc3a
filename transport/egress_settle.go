package transport

import (
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// settlement is a verdict on its way to the partition.
type settlement struct {
	item  fsm.SettleItem
	id    uint32
	reply amqp.DeliveryState // what to answer on success, nil if nothing is waited for
	back  bool               // the client gives the message back; the link asks for no other meanwhile
	// unsent says that the client has not got the message.
	unsent bool
	sent   time.Time // when the message was delivered; zero if nobody asks
	trace  *traced   // of its delivery; nil if nobody traces it
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
	e.c.onLoop()
	share := max(0, e.desc.ShareOf(token.Prefix()))
	s := e.settlers[share]
	if s == nil {
		s = &settler{e: e, key: waist.ShareKey(e.desc, e.sub, share)}
		e.settlers[share] = s
	}
	return s
}

func (s *settler) busy() bool {
	s.e.c.onLoop()
	return len(s.pending) > 0 || slices.ContainsFunc(s.pumps, func(p *pump) bool { return p.busy })
}

// idlePump returns an idle pump if what is pending is worth one more Settle, else nil.
func (s *settler) idlePump() *pump {
	s.e.c.onLoop()
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
	s.e.c.onLoop()
	s.pending = append(s.pending, v)
	if v.reply != nil {
		s.awaited++
	}
	s.kick()
}

// kick has what is pending proposed at the end of this turn, so that all verdicts of the turn ride
// together.
func (s *settler) kick() {
	s.e.c.onLoop()
	if len(s.pending) > 0 {
		s.e.c.starters = append(s.e.c.starters, s)
	}
}

// startRound implements starter: it sends the pending verdicts.
func (s *settler) startRound() {
	s.e.c.onLoop()
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
	s.e.c.onLoop()
	e := s.e
	e.l.ch.touch()
	path := e.l.addr.path()
	back, now := false, e.c.now()
	for i := range batch {
		if batch[i].back {
			back = true
			e.returning--
		}
		why := out.Refusal
		if why == fsm.None && i < len(out.Refusals) {
			why = out.Refusals[i]
		}
		if batch[i].unsent && e.session != nil {
			e.session.unsent(batch[i].item.Token, why, err)
		}
		if err == nil && why == fsm.None {
			e.c.s.stats.Settled.Add(1)
			if e.c.cfg.OnSettled != nil && !batch[i].sent.IsZero() {
				e.c.cfg.OnSettled(now.Sub(batch[i].sent))
			}
		} else {
			e.c.s.stats.SettleRefused.Add(1)
		}
		if batch[i].trace == nil && batch[i].reply == nil {
			continue
		}
		refused := e.c.s.verdictOf(why, out.Detail, err, path)
		if batch[i].trace != nil {
			e.traceSettled(&batch[i], path, refused, now)
		}
		if batch[i].reply == nil {
			continue
		}
		state, by := batch[i].reply, settledBy{session: e.session}
		if refused != nil {
			state = e.c.reject(refused, path)
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
