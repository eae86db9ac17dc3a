package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// coordinator is what declares and discharges transactions, AMQP 1.0 §4.2.
type coordinator struct {
	intake
	c       *conn
	closing bool
}

// maxCoordinatorBytes bounds a message to a coordinator; a discharge has about 60.
const maxCoordinatorBytes = 4 << 10

func newCoordinator(l *link) *coordinator { return &coordinator{intake: newIntake(l), c: l.ch.c} }

func (k *coordinator) start() {
	k.open()
}

// transfer collects a declare or discharge.
func (k *coordinator) transfer(p *amqp.Transfer, payload []byte) error {
	if k.now == nil {
		if err := k.begin(p); err != nil {
			return err
		}
	}
	d := k.now
	d.settled = d.settled || p.Settled.Or(false)
	if p.Aborted {
		k.now = nil
		k.rise()
		return nil
	}
	if d.payload = append(d.payload, payload...); len(d.payload) > maxCoordinatorBytes {
		return linkFault(siteMessageSize, amqp.ConditionMessageSizeExceeded,
			"a message of more than %d bytes to a coordinator", maxCoordinatorBytes)
	}
	if p.More {
		return nil
	}
	k.now = nil
	k.perform(d)
	k.rise()
	return nil
}

// perform does what a message asks for.
func (k *coordinator) perform(d *inbound) {
	var request any
	parts, err := amqp.ParseMessage(d.payload)
	if err == nil {
		request, err = amqp.DecodeTransaction(parts.Body)
	}
	if err != nil {
		k.c.s.stats.reject(siteTransaction)
		k.answer(d, k.c.reject(amqpError(amqp.ConditionDecodeError, "%v", err), ""))
		return
	}
	switch r := request.(type) {
	case *amqp.Declare:
		k.declare(d, r)
	case *amqp.Discharge:
		t := k.c.txns[string(r.TxnID)]
		if t == nil || t.link != k.l { // §4.3: over the link that declared it
			k.c.s.stats.reject(siteTransaction)
			k.answer(d, k.c.reject(amqpError(amqp.ConditionTransactionUnknownID,
				"The transaction is not known."), ""))
			return
		}
		k.waiting++
		t.discharge(r.Fail, func(state amqp.DeliveryState) {
			k.waiting--
			k.answer(d, state)
			k.rise()
			k.finish()
		})
	}
}

// declare begins a transaction.
func (k *coordinator) declare(d *inbound, r *amqp.Declare) {
	refuse := func(condition amqp.Symbol, text string) {
		k.c.s.stats.reject(siteTransaction)
		k.answer(d, k.c.reject(amqpError(condition, "%s", text), ""))
	}
	switch {
	case !r.GlobalID.IsNull():
		refuse(amqp.ConditionNotImplemented, "Distributed transactions are not supported.")
		return
	case len(k.c.txns) >= maxTxns:
		refuse(amqp.ConditionResourceLimitExceeded, "The connection has too many open transactions.")
		return
	case d.settled:
		return // the client does not want to know the id, so there is nothing to begin
	}
	id := make([]byte, txnIDBytes)
	k.c.s.draw(id)
	k.c.txns[string(id)] = &txn{id: id, link: k.l}
	k.c.s.ledger.begin(id, k.c.container)
	k.answer(d, amqp.Declared{TxnID: id})
}

func (k *coordinator) answer(d *inbound, state amqp.DeliveryState) {
	if d.settled || k.l.ch.ended {
		return
	}
	k.l.ch.acks = append(k.l.ch.acks, ack{id: d.id, state: state})
	k.l.ch.touch()
}

// close implements endpoint: what is not discharged is rolled back (S-240).
func (k *coordinator) close(orderly bool) {
	k.closing, k.now = true, nil
	k.c.dropTransactions(k.l, orderly)
	k.finish()
}

func (k *coordinator) busy() bool {
	return k.waiting > 0
}

func (k *coordinator) finish() {
	if k.closing && !k.busy() {
		k.l.finish()
	}
}

// transactional takes a whole delivery into its transaction (AMQP 1.0 §4.4.1).
func (g *ingress) transactional(d *inbound) {
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
			item := v.item
			item.Seq, item.Token = d.seq, d.token
			o := d.owner
			part = &txnDelivery{ch: ch, id: d.id, forgotten: p.Settled, state: reply, session: o.session}
			w := txnWork{desc: o.desc, sub: o.sub, share: max(0, o.desc.ShareOf(d.token.Prefix())),
				cmd: &fsm.Settle{Session: o.proof(), Items: []fsm.SettleItem{item}}, delivery: part}
			if d.key != nil {
				w.text, w.byText, w.keyed = d.key.text, d.key.given, true
			}
			why = t.add(w)
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

// enlist makes a management request part of its transaction: what it would do is kept until then (amqp-protocol.md
// 8.3). A renewal is done at once and stays done. The transaction settles by that lock, which must not run out while
// the client believes it renewed (S-231). Other operations have an answer that only the deed gives.
func (k *call) enlist(q *request) *response {
	const prefix = "com.microsoft:"
	renewal := false
	switch q.operation {
	case prefix + "renew-lock", prefix + "renew-session-lock":
		renewal = true
	case prefix + "schedule-message", prefix + "cancel-scheduled-message", prefix + "update-disposition",
		prefix + "set-session-state":
	default:
		r := k.refuse(fsm.InvalidOperation, "It cannot be part of a transaction.")
		return &r
	}
	c := q.ch.c
	t, bad := c.transaction(q.txnID)
	if bad != nil {
		c.s.stats.reject(siteTransaction)
		r := k.fail(bad)
		return &r
	}
	if renewal {
		return nil
	}
	k.staging = true
	k.then = func(answer response) response {
		for _, w := range k.staged {
			if answer.problem != nil {
				break
			}
			if t.aborted != nil {
				answer = k.fail(t.aborted)
			} else if refusal := t.add(w); refusal != nil {
				c.s.stats.reject(siteTransaction)
				answer = k.fail(refusal)
			}
		}
		return answer
	}
	return nil
}

// stage keeps a command that a transaction will do.
func (k *call) stage(key fsm.Key, cmd fsm.Command) {
	w := txnWork{desc: k.desc, sub: k.addr.sub, share: int(key.Share), cmd: cmd}
	if n := len(k.desc.Partitions); key.By == fsm.ByText && n > 1 {
		w.share = fsm.KeyShare(key.Text, n)
	}
	if e, ok := cmd.(*fsm.Enqueue); ok {
		w.cmd, w.messages, w.text, w.byText = nil, e.Messages, key.Text, key.By == fsm.ByText
	}
	k.staged = append(k.staged, w)
}

// reserve gives messages that are scheduled in a transaction their numbers at once, so that the client can
// cancel them after the commit (S-232). The share that issues the numbers is the one that will store the
// messages. It does nothing outside of a transaction, and for what the transaction will refuse anyway.
func (k *call) reserve(ctx context.Context, key fsm.Key, messages []fsm.Message) ([]fsm.SequenceNumber, *response) {
	if !k.staging || len(messages) > maxTxnMessages || k.desc.Partitioned && key.By == fsm.ByAny {
		return nil, nil
	}
	out, bad := k.proposeNow(ctx, key, &fsm.Reserve{Count: uint32(len(messages))})
	if bad != nil {
		return nil, bad
	}
	for i := range messages {
		messages[i].Reserved = out.Numbers[i]
	}
	return out.Numbers, nil
}

// transferDestination is the link property that names where a sender's messages go at last, if not
// to the entity that it attaches to (amqp-protocol.md 4.6).
const transferDestination = "com.microsoft:transfer-destination-address"

// destination returns the entity that the messages of a sender go on to; it is empty for an ordinary
// link.
func (l *link) destination() (address, error) {
	v, ok := l.asked.Properties.Get(transferDestination)
	if !ok || v.IsNull() || !l.clientSends() || l.addr.management {
		return address{}, nil
	}
	text, isText := v.Text()
	a := parseAddress(text)
	if !isText || a.entity == "" || a.cbs || a.management || a.sub != fsm.Main {
		return address{}, linkFault(siteAttach, amqp.ConditionInvalidField, "%s names no entity that can be sent to",
			transferDestination)
	}
	if !l.ch.c.allowed(a.path(), auth.Send) {
		return address{}, &linkError{siteUnauthorized, l.ch.c.tell(amqpError(amqp.ConditionUnauthorizedAccess, "%s",
			unauthorizedText(a.path(), auth.Send)), a.path())}
	}
	return a, nil
}
