package scenario

import (
	"fmt"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// transaction is one that a dealer has declared.
type transaction struct {
	d       *dealer
	id      []byte
	settles []uint32 // the ids of the deliveries that it settles
}

// begin declares a transaction.
func (d *dealer) begin() *transaction {
	d.b.Helper()
	t, err := d.tryBegin()
	d.b.must("declare", err)
	return t
}

// step is something to do in a transaction.
type step func(x *transaction) error

// tryAll does the steps in a transaction of their own and commits it. The first that fails is its end:
// nothing is done again.
func (d *dealer) tryAll(steps ...step) error {
	x, err := d.tryBegin()
	if err != nil {
		return err
	}
	for _, do := range steps {
		if err := do(x); err != nil {
			return err
		}
	}
	return x.tryCommit()
}

// Steps.

func completing(m *deal) step { return func(x *transaction) error { return x.tryComplete(m) } }

func sending(entity string, m *goamqp.Message) step {
	return func(x *transaction) error { return x.trySend(entity, m) }
}

func asking(entity, operation string, body map[string]any) step {
	return func(x *transaction) error { return x.d.tryAsk(x, entity, operation, body) }
}

func (d *dealer) coordinator() (uint32, error) {
	return d.attach("coordinator", amqp.Attach{Role: amqp.RoleSender, Coordinator: &amqp.Coordinator{}})
}

func (d *dealer) tryBegin() (*transaction, error) {
	h, err := d.coordinator()
	if err != nil {
		return nil, err
	}
	state, err := d.transfer(h, nil, amqp.AppendDeclare(nil, amqp.Declare{}))
	if err != nil {
		return nil, err
	}
	declared, ok := state.(amqp.Declared)
	if !ok {
		return nil, fmt.Errorf("a declare is answered with %T", state)
	}
	return &transaction{d: d, id: declared.TxnID}, nil
}

func (t *transaction) tryCommit() error   { return t.discharge(false) }
func (t *transaction) tryRollback() error { return t.discharge(true) }

func (t *transaction) commit()   { t.d.b.Helper(); t.d.b.must("commit", t.tryCommit()) }
func (t *transaction) rollback() { t.d.b.Helper(); t.d.b.must("roll back", t.tryRollback()) }

func (t *transaction) discharge(fail bool) error {
	h, err := t.d.coordinator()
	if err != nil {
		return err
	}
	_, err = t.d.transfer(h, nil, amqp.AppendDischarge(nil, amqp.Discharge{TxnID: t.id, Fail: fail}))
	if err != nil {
		return err
	}
	// RUL-30: a commit settles its deliveries before it is answered, a roll-back does not.
	for _, id := range t.settles {
		if t.d.settled[id] == fail {
			return fmt.Errorf("delivery %d: the broker settled it: %t; rolled back: %t", id, t.d.settled[id], fail)
		}
	}
	return nil
}

// commitUnheard commits and waits for no answer.
func (t *transaction) commitUnheard() {
	t.d.b.Helper()
	h, err := t.d.coordinator()
	t.d.b.must("attach", err)
	t.d.write1(h, nil, amqp.AppendDischarge(nil, amqp.Discharge{TxnID: t.id}))
}

// send sends messages to an entity.
func (t *transaction) send(entity string, messages ...*goamqp.Message) {
	t.d.b.Helper()
	for _, m := range messages {
		t.d.b.must("send to "+entity, t.trySend(entity, m))
	}
}

func (t *transaction) trySend(entity string, m *goamqp.Message) error {
	return t.trySendThrough(entity, "", m)
}

// trySendThrough sends over a link to another entity, which names this one.
func (t *transaction) trySendThrough(entity, through string, m *goamqp.Message) error {
	h, err := t.d.sender(entity, through)
	if err != nil {
		return err
	}
	payload, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	_, err = t.d.transfer(h, &amqp.TransactionalState{TxnID: t.id}, payload)
	return err
}

// one receives a message that has to come.
func (d *dealer) one(entity string) *deal {
	d.b.Helper()
	m, err := d.receive(entity, nil)
	d.b.must("receive from "+entity, err)
	return m
}

// oneOf receives a message of a session.
func (d *dealer) oneOf(entity, session string) *deal {
	d.b.Helper()
	m, err := d.receive(entity, &session)
	d.b.must("receive from "+entity, err)
	return m
}

// The verdicts, in a transaction.

func (t *transaction) complete(m *deal) {
	t.d.b.Helper()
	t.d.b.must("complete", t.tryComplete(m))
}

func (t *transaction) tryComplete(m *deal) error { return m.settle(t, amqp.Accepted{}) }

func (t *transaction) deferIt(m *deal) {
	t.d.b.Helper()
	t.d.b.must("defer", m.settle(t, amqp.Modified{UndeliverableHere: amqp.Some(true)}))
}

// tryAsk makes a request to $management, in a transaction if t is one.
func (d *dealer) tryAsk(t *transaction, entity, operation string, body map[string]any) error {
	_, err := d.request(t, entity, operation, body)
	return err
}

// request is tryAsk with the answer.
func (d *dealer) request(t *transaction, entity, operation string, body map[string]any) (*goamqp.Message, error) {
	node := entity + "/$management"
	reply := fmt.Sprintf("reply-%d-%s", d.number, entity)
	rx, err := d.attach(node+" replies", amqp.Attach{Role: amqp.RoleReceiver,
		SndSettleMode: amqp.Some(amqp.SenderSettled), Source: &amqp.Source{Address: amqp.Some(node)},
		Target: &amqp.Target{Address: amqp.Some(reply)}})
	if err != nil {
		return nil, err
	}
	tx, err := d.attach(node, amqp.Attach{Role: amqp.RoleSender, Target: &amqp.Target{Address: amqp.Some(node)}})
	if err != nil {
		return nil, err
	}
	d.serial++
	payload, err := (&goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: fmt.Sprint(d.serial), ReplyTo: &reply},
		ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation},
		Value:                 body,
	}).MarshalBinary()
	if err != nil {
		return nil, err
	}
	d.credit(rx)
	var state amqp.DeliveryState
	if t != nil {
		state = &amqp.TransactionalState{TxnID: t.id}
	}
	if _, err := d.transfer(tx, state, payload); err != nil {
		return nil, err
	}
	f, err := d.await("a reply", func(f dealt) bool {
		p, ok := f.p.(*amqp.Transfer)
		return ok && p.Handle == rx
	})
	if err != nil {
		return nil, err
	}
	var r goamqp.Message
	if err := r.UnmarshalBinary(f.payload); err != nil {
		return nil, err
	}
	if code, _ := r.ApplicationProperties["statusCode"].(int32); code < 200 || code >= 300 {
		condition, _ := r.ApplicationProperties["errorCondition"].(string)
		text, _ := r.ApplicationProperties["statusDescription"].(string)
		return nil, &askError{code, condition, text}
	}
	return &r, nil
}

// ask makes a request of the transaction that has to be taken.
func (t *transaction) ask(entity, operation string, body map[string]any) {
	t.d.b.Helper()
	t.d.b.must(operation, t.d.tryAsk(t, entity, operation, body))
}

// scheduled is the body of a schedule-message.
func scheduled(b *bench, m *goamqp.Message) map[string]any {
	b.Helper()
	item, err := scheduleItem(m)
	b.must("encode", err)
	return map[string]any{"messages": []any{item}}
}
