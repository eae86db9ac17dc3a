package transport

import (
	"github.com/busbar-mq/busbar/transport/amqp"
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
	k.c.onLoop()
	k.open()
}

// transfer collects a declare or discharge.
func (k *coordinator) transfer(p *amqp.Transfer, payload []byte) error {
	k.c.onLoop()
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
	k.c.onLoop()
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
	k.c.onLoop()
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
	k.c.onLoop()
	if d.settled || k.l.ch.ended {
		return
	}
	k.l.ch.acks = append(k.l.ch.acks, ack{id: d.id, state: state})
	k.l.ch.touch()
}

// close implements endpoint: what is not discharged is rolled back (S-240).
func (k *coordinator) close(orderly bool) {
	k.c.onLoop()
	k.closing, k.now = true, nil
	k.c.dropTransactions(k.l, orderly)
	k.finish()
}

func (k *coordinator) busy() bool {
	k.c.onLoop()
	return k.waiting > 0
}

func (k *coordinator) finish() {
	k.c.onLoop()
	if k.closing && !k.busy() {
		k.l.finish()
	}
}
