package transport

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// ingress stores the messages of a sending client. One round is under way at a time, or one for each pump of a
// partitioned entity. Messages that arrive meanwhile join it as long as its request waits for an entry, and ride in the
// next one afterwards. So load makes batches.
//
// The loop of the connection owns it. Its link calls it with each transfer, and startRounds at the end of the turn.
// Invariant: held is the sum of the bytes of pending and of the deliveries that are being stored.
type ingress struct {
	// Immutable.
	l      *link
	c      *conn
	pump   *pump
	shares []*sharePump    // for an entity with several shares, else nil
	via    *fsm.Descriptor // the entity through which messages go to l.desc, nil if they go straight

	// Credit.
	count   uint32 // deliveries begun, the client's delivery-count
	credit  uint32 // deliveries that the client may still begin
	overrun uint32 // deliveries begun without credit
	average int    // bytes of a delivery, a running mean

	// Deliveries.
	now     *inbound // whose last frame has not come
	pending []*inbound
	late    *lateDeliveries // of the round that is under way; nil if nothing may join it
	flying  int             // deliveries that are being stored
	passed  uint64          // messages that were stored, but for those of transactions
	held    int             // bytes of deliveries that wait for the partition
	closing bool
}

const (
	// expectedBytes is what a message is taken to be before the first one has come.
	expectedBytes = 8 << 10
)

func newIngress(l *link) *ingress {
	g := &ingress{l: l, c: l.ch.c, pump: l.ch.c.newPump(), average: expectedBytes}
	if l.to != nil { // the link is one to the destination, by way of the entity that it names
		g.via, l.desc = l.desc, l.to
	}
	g.count = l.asked.InitialDeliveryCount.Or(0) // G22
	if n := len(g.home().Partitions); n > 1 {
		g.shares = newSharePumps(g, n)
	}
	return g
}

func (g *ingress) start() {
	g.c.onLoop()
	g.refill()
} // G5

// target is the credit that the client should have, counting what waits for the partition. It goes
// by what messages measure, not by what they may: the connection's limit stands behind it (A21).
func (g *ingress) target() uint32 {
	g.c.onLoop()
	return senderCredit(g.c.cfg.MaxCredit, g.c.cfg.MaxLinkBytes, uint64(max(2*g.average, minExpectedBytes)))
}

// minExpectedBytes keeps a run of tiny messages from promising more than large ones could keep.
const minExpectedBytes = 1 << 10

// refill grants credit in steps of half the target, not per message.
func (g *ingress) refill() {
	g.c.onLoop()
	if g.closing || g.l.state != linkAttached {
		return
	}
	target := g.target()
	if g.credit > target/2 {
		return
	}
	waiting := uint32(len(g.pending) + g.flying)
	if waiting >= target || g.credit >= target-waiting {
		return
	}
	g.credit = target - waiting
	g.sendFlow()
}

func (g *ingress) sendFlow() {
	g.c.onLoop()
	f := g.l.creditFlow(g.count, g.credit)
	g.l.ch.send(&f)
}

// flow implements endpoint; a sender's credit is ours to say, so only an echo matters.
func (g *ingress) flow(p *amqp.Flow) error {
	g.c.onLoop()
	if p.Echo {
		g.sendFlow()
	}
	return nil
}

// transfer implements endpoint.
func (g *ingress) transfer(p *amqp.Transfer, payload []byte) error {
	g.c.onLoop()
	if g.now == nil {
		if err := g.begin(p); err != nil {
			return err
		}
	} else if p.DeliveryID.Set && p.DeliveryID.Value != g.now.id {
		return linkFault(siteIllegalFrame, amqp.ConditionInvalidField,
			"delivery %d begins inside delivery %d", p.DeliveryID.Value, g.now.id)
	}
	d := g.now
	d.settled = d.settled || p.Settled.Or(false)
	if p.Aborted { // AMQP 1.0 §2.6.14: as if it had never been
		g.abort()
		g.refill()
		return nil
	}
	g.arrive(d, payload)
	if p.More {
		return nil
	}
	g.now = nil
	if d.dropped {
		g.refill()
		return nil
	}
	g.c.arrivedAll(d, d.bytes)
	if d.txnID != nil {
		g.transactional(d)
		g.refill()
		return nil
	}
	if g.c.cfg.OnConfirmed != nil || g.c.cfg.OnSpan != nil {
		d.arrived = g.c.now()
	}
	g.hold(d.bytes)
	g.average += (d.bytes - g.average) / averageWeight
	g.pending = append(g.pending, d)
	g.c.starters = append(g.c.starters, g)
	return nil
}

// averageWeight is how many deliveries the running mean looks back.
const averageWeight = 16

// begin takes the first frame of a delivery.
func (g *ingress) begin(p *amqp.Transfer) error {
	g.c.onLoop()
	if !p.DeliveryID.Set {
		return linkFault(siteIllegalFrame, amqp.ConditionInvalidField, "a delivery without an id")
	}
	g.count++
	if g.credit > 0 {
		g.credit--
	} else if g.overrun++; g.overrun > overrunMax || g.held > g.c.cfg.MaxLinkBytes {
		return linkFault(siteCredit, amqp.ConditionTransferLimitExceeded, "a transfer without link credit")
	}
	g.now = &inbound{id: p.DeliveryID.Value, format: p.MessageFormat.Or(amqp.FormatAMQP)}
	switch state := p.State.(type) {
	case nil:
	case *amqp.TransactionalState:
		g.now.txnID = append([]byte{}, state.TxnID...)
	default:
		g.drop(g.now, siteMessage, amqpError(amqp.ConditionNotImplemented, "a transfer in the state %T", state))
	}
	return nil
}

// limit is how many bytes a delivery may have: of a batch fewer than of a message, if messages may be large
// (RUL-32).
func (g *ingress) limit(format uint32) int {
	g.c.onLoop()
	if format == amqp.FormatBatch {
		return g.c.cfg.batchBytes(g.l.desc)
	}
	return int(g.l.desc.MaxMessageBytes)
}

// arrive adds a frame's payload; the size is counted while it comes, so nothing larger than a
// message may be is ever held.
func (g *ingress) arrive(d *inbound, payload []byte) {
	g.c.onLoop()
	if d.dropped {
		return
	}
	if limit := g.limit(d.format); d.bytes+len(payload) > limit {
		g.empty(d)
		g.drop(d, siteMessageSize, amqpError(amqp.ConditionMessageSizeExceeded,
			"The received message (delivery-id:%d, size: more than %d bytes) exceeds the limit (%d bytes) "+
				"currently allowed on the link.", d.id, limit, limit))
		return
	}
	busy := g.c.arriving(len(payload), int(g.l.desc.MaxMessageBytes), "The connection has too many messages under way.")
	if busy != nil {
		g.empty(d)
		g.drop(d, siteMessageSize, busy)
		return
	}
	d.bytes += len(payload)
	d.payload = grow(d.payload, payload, int(g.l.desc.MaxMessageBytes), g.c.cfg.OnLarge)
	g.c.arrived(d, len(payload))
}

// empty forgets what has arrived of a delivery.
func (g *ingress) empty(d *inbound) {
	g.c.onLoop()
	g.c.arrivedAll(d, d.bytes)
	d.bytes, d.payload = 0, nil
}

// abort forgets the delivery that is arriving, if any.
func (g *ingress) abort() {
	g.c.onLoop()
	if g.now != nil {
		g.empty(g.now)
		g.now = nil
	}
}

// drop refuses a delivery that is still arriving.
func (g *ingress) drop(d *inbound, at site, why *amqp.Error) {
	g.c.onLoop()
	g.c.s.stats.reject(at)
	d.dropped = true
	if reject := g.c.reject(why, g.l.addr.path()); !d.settled {
		g.answer(d.id, reject)
	}
}

func (g *ingress) hold(bytes int) {
	g.c.onLoop()
	g.held += bytes
	g.c.heldBytes += bytes
}

func (g *ingress) answer(id uint32, state amqp.DeliveryState) {
	g.c.onLoop()
	g.l.ch.acks = append(g.l.ch.acks, ack{id: id, state: state})
	g.l.ch.touch()
}

// startRound implements starter.
func (g *ingress) startRound() {
	g.c.onLoop()
	if g.pump.busy {
		g.join()
		return
	}
	if len(g.pending) == 0 {
		return
	}
	n, bytes := 0, 0
	for n < len(g.pending) && (n == 0 || bytes+g.pending[n].bytes <= g.c.cfg.MaxEnqueueBytes) {
		bytes += g.pending[n].bytes
		n++
	}
	batch := slices.Clone(g.pending[:n])
	g.pending = slices.Delete(g.pending, 0, n)
	g.flying += n
	r := g.round()
	if g.shares == nil && g.via == nil {
		g.late = g.c.newLate(bytes)
	}
	late := g.late
	over := func() {
		joined, left := late.end()
		g.late = nil
		g.flying -= len(left)
		g.pending = slices.Concat(left, g.pending)
		g.stored(append(batch, joined...))
	}
	switch {
	case bytes > maxLateBytes:
		g.pump.run(func() func() {
			good := r.translate(batch)
			if g.shares != nil {
				return func() { g.sort(batch) }
			}
			r.storeAll(&g.pump.numbers, g.c, good, late)
			return over
		})
	case g.shares != nil:
		r.translate(batch)
		g.sort(batch)
	default:
		g.pump.store(r, r.translate(batch), late, over)
	}
}

// join has pending deliveries join the round that is under way.
func (g *ingress) join() {
	g.c.onLoop()
	if g.late == nil {
		return
	}
	r := g.round()
	was := len(g.pending)
	g.pending = g.late.join(g.pending, func(d *inbound) bool {
		return d.bytes <= maxLateDelivery && d.format != amqp.FormatBatch && len(r.translate([]*inbound{d})) > 0
	})
	g.flying += was - len(g.pending)
}

// stored answers deliveries.
func (g *ingress) stored(batch []*inbound) {
	g.c.onLoop()
	g.flying -= len(batch)
	var gone *amqp.Error
	now := g.c.now()
	for _, d := range batch {
		g.hold(-d.bytes)
		g.c.cfg.traceAccepted(d, g.l.desc.Name, now)
		if d.refusal == nil {
			g.c.s.stats.MessagesIn.Add(uint64(len(d.messages)))
			g.c.messagesIn += uint64(len(d.messages))
			g.passed += uint64(len(d.messages))
			if g.c.cfg.OnConfirmed != nil {
				g.c.cfg.OnConfirmed(now.Sub(d.arrived))
			}
		} else if d.settled {
			g.c.s.stats.reject(siteSettledLost)
		}
		if d.gone {
			gone = d.refusal
		}
		answer := amqp.DeliveryState(amqp.Accepted{})
		if d.refusal != nil { // the log has it even if the client does not want to know
			answer = g.c.reject(d.refusal, g.l.addr.path())
		}
		if !d.settled {
			g.answer(d.id, answer)
		}
	}
	g.l.ch.touch()
	if gone != nil {
		g.l.refuse(gone)
	}
	g.refill()
	if len(g.pending) > 0 {
		g.c.starters = append(g.c.starters, g)
	}
	g.finish()
}

// close implements endpoint: what has arrived is still stored and answered.
func (g *ingress) close(bool) {
	g.c.onLoop()
	if g.closing {
		return
	}
	g.closing = true
	g.abort()
	g.finish()
}

// busy implements endpoint.
func (g *ingress) busy() bool {
	g.c.onLoop()
	return g.pump.busy || len(g.pending) > 0 || g.flying > 0
}

func (g *ingress) finish() {
	g.c.onLoop()
	if !g.closing || g.busy() {
		return
	}
	home := g.home()
	shares := waist.AllShares(home)
	keys := make([]fsm.Key, len(shares))
	for i, share := range shares {
		keys[i] = waist.ShareKey(home, fsm.Main, share)
	}
	g.pump.retire(keys...)
	for _, s := range g.shares {
		s.pump.retire(keys...)
	}
	g.l.finish()
}

func (g *ingress) round() *round {
	g.c.onLoop()
	return &round{s: g.c.s, desc: g.l.desc, via: g.via, path: g.l.addr.path(), key: g.c.sender(g.l.addr.path())}
}

// home is the entity where the messages are stored.
func (g *ingress) home() *fsm.Descriptor {
	g.c.onLoop()
	if g.via != nil {
		return g.via
	}
	return g.l.desc
}
