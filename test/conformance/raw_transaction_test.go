package conformance

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	lockLost    = "com.microsoft:message-lock-lost"
	sessionLost = "com.microsoft:session-lock-lost"
)

// inTransaction decides about a message in a transaction and checks that the answer is unsettled.
func (e *rawEnv) inTransaction(id uint32, txn []byte, outcome amqp.DeliveryState) {
	e.Helper()
	d, err := e.c.Settle(id, &amqp.TransactionalState{TxnID: txn, Outcome: outcome})
	e.must("settle in a transaction", err)
	e.check(!d.Settled, "a disposition within a transaction is answered settled")
}

// RUL-30, S-241, N1
func rawRollBack(e *rawEnv) {
	for _, session := range []any{nil, "s"} {
		q := e.queue(&admin.QueueProperties{RequiresSession: to(session != nil)})
		tx, k := e.sender(q), e.coordinator()
		outcomes := []amqp.DeliveryState{amqp.Accepted{}, amqp.Modified{DeliveryFailed: amqp.Some(true)},
			amqp.Modified{UndeliverableHere: amqp.Some(true)}, amqp.Rejected{Error: &amqp.Error{Condition: "com.microsoft:dead-letter"}}}
		for range outcomes {
			e.deliver(tx, encode("x", group("s")))
		}
		rx := e.receiver(q, session)
		for _, outcome := range outcomes {
			m := e.take(rx)
			txn := e.declare(k)
			e.inTransaction(m.ID, txn, outcome)
			e.must("roll back", e.c.Discharge(k, txn, true))
			e.check(!e.c.Settled[m.ID], "a roll-back settled the delivery")
			e.settle(m, amqp.Accepted{})
		}
		a := e.asker(q)
		e.ask(a, 204, "peek-message", fields("from-sequence-number", int64(0), "message-count", int32(10)))
	}
}

// RUL-30, S-233, N1
func rawCommit(e *rawEnv) {
	q := e.queue(nil)
	tx, k := e.sender(q), e.coordinator()
	e.deliver(tx, encode("old"))
	rx := e.receiver(q, nil)
	m := e.take(rx)
	txn := e.declare(k)
	e.inTransaction(m.ID, txn, amqp.Accepted{})
	_, err := e.c.Deliver(tx, &amqp.TransactionalState{TxnID: txn}, encode("new"))
	e.must("send in a transaction", err)
	e.must("commit", e.c.Discharge(k, txn, false))
	e.check(e.c.Settled[m.ID], "the commit was answered before it settled its delivery")
	d, err := e.c.Outcome(amqp.RoleSender, m.ID)
	e.must("the commit's disposition", err)
	e.check(d.Settled, "the commit's disposition is unsettled")
	// The library may ask again; it is told, never left without an answer.
	_, err = e.c.Settle(m.ID, amqp.Accepted{})
	e.refused("a disposition behind the commit", err, lockLost)
	next := e.take(rx)
	e.check(next.Body == "new", "received %q", next.Body)
	e.settle(next, amqp.Accepted{})
}

// RUL-30, S-241, N5
func rawLostInTransaction(e *rawEnv) {
	lock := "PT5S"
	q := e.queue(&admin.QueueProperties{LockDuration: &lock})
	tx, k := e.sender(q), e.coordinator()
	e.deliver(tx, encode("x"))
	rx := e.receiver(q, nil)
	m := e.take(rx)
	txn := e.declare(k)
	time.Sleep(7 * time.Second)
	d, err := e.c.Settle(m.ID, &amqp.TransactionalState{TxnID: txn, Outcome: amqp.Accepted{}})
	e.refused("settle after the lock", err, lockLost)
	e.check(d.Settled, "the refusal is unsettled")
	_, err = e.c.Deliver(tx, &amqp.TransactionalState{TxnID: txn}, encode("new"))
	e.must("go on", err)
	e.must("commit what remains", e.c.Discharge(k, txn, false))
	e.check(e.take(rx).Body == "x", "the message is not back")
}

// RUL-30, S-53, N1: what the broker has settled is answered once more, alone, in a range and in a transaction, and
// never by silence. The client settles none of the deliveries itself.
func rawLate(e *rawEnv) {
	outcomes := map[string]amqp.DeliveryState{"accepted": amqp.Accepted{}, "released": amqp.Released{},
		"modified": amqp.Modified{DeliveryFailed: amqp.Some(true)}, "deferred": amqp.Modified{UndeliverableHere: amqp.Some(true)},
		"rejected": amqp.Rejected{Error: &amqp.Error{Condition: "com.microsoft:dead-letter"}}}
	for _, session := range []any{nil, "s"} {
		q := e.queue(&admin.QueueProperties{RequiresSession: to(session != nil), LockDuration: to("PT5S")})
		tx, k := e.sender(q), e.coordinator()
		rx := e.receiver(q, session)
		var last *raw.Message
		for name, outcome := range outcomes {
			e.deliver(tx, encode(name, group("s")))
			last = e.take(rx)
			e.settle(last, outcome)
			for late, state := range outcomes {
				d, err := e.c.Settle(last.ID, state)
				e.refused(late+" behind "+name, err, lockLost)
				e.check(d.Settled, "%s behind %s is answered unsettled", late, name)
			}
			if name == "released" || name == "modified" { // the message is back
				e.settle(e.take(rx), amqp.Accepted{})
			}
		}
		d, err := e.c.Settle(last.ID, &amqp.TransactionalState{TxnID: e.declare(k), Outcome: amqp.Accepted{}})
		e.refused("in a transaction", err, lockLost)
		e.check(d.Settled, "the answer within a transaction is unsettled")
		e.deliver(tx, encode("open", group("s")))
		open := e.take(rx)
		e.c.Send(&amqp.Disposition{Role: amqp.RoleReceiver, First: last.ID, Last: amqp.Some(open.ID), State: amqp.Accepted{}})
		_, err = e.c.Outcome(amqp.RoleSender, last.ID)
		e.refused("in a range", err, lockLost)
		_, err = e.c.Outcome(amqp.RoleSender, open.ID)
		e.must("the open one of the range", err)
		if session != nil {
			e.refused("the session's link", e.detached(e.c, rx), sessionLost)
			_, err = e.c.Settle(last.ID, amqp.Accepted{})
			e.refused("after the session", err, sessionLost)
		}
	}
}

// RUL-34, S-234, N7
func rawTwoKeys(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{EnablePartitioning: to(true)})
	tx, k := e.sender(q), e.coordinator()
	keyed := func(key string) []byte {
		return annotated("x-opt-partition-key", key, key)
	}
	// More keys than shares: some of them are in the same one.
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"} {
		e.deliver(tx, keyed(key))
	}
	rx := e.receiver(q, nil)
	txn := e.declare(k)
	e.inTransaction(e.take(rx).ID, txn, amqp.Accepted{})
	for range 16 {
		m := e.take(rx)
		_, err := e.c.Settle(m.ID, &amqp.TransactionalState{TxnID: txn, Outcome: amqp.Accepted{}})
		e.refused("a second key", err, "amqp:not-allowed")
	}
	e.must("commit", e.c.Discharge(k, txn, false))
}

// annotated is an encoded message with one annotation.
func annotated(name, value, text string, edit ...func(*amqp.Properties)) []byte {
	w := amqp.BeginMapSection(nil, amqp.CodeMessageAnnotations)
	w.SymbolPair(amqp.AppendSymbol(nil, amqp.Symbol(name)), amqp.AppendString(nil, value))
	return append(w.End(), encode(text, edit...)...)
}

// transactions is a client that commits transactions over two queues: no SDK of this language has them.
type transactions struct {
	b          *backupCase
	c          *raw.Client
	via, other uint32
	k          uint32
}

func (b *backupCase) transactions() *transactions {
	b.Helper()
	e := &rawEnv{env: b.env, wire: raw.Plain}
	e.c = e.connect(0)
	return &transactions{b: b, c: e.c, via: e.sender(loadVia), other: e.sender(loadOther), k: e.coordinator()}
}

func (t *transactions) close() { t.c.Close() }

// one sends the same number to both queues in one transaction.
func (t *transactions) one(n int) bool {
	id, err := t.c.Declare(t.k)
	if err == nil {
		_, err = t.c.Deliver(t.via, &amqp.TransactionalState{TxnID: id}, encode(fmt.Sprintf("%s %d", loadVia, n)))
	}
	if err == nil { // the queue of the first operation is the one by which the other is reached
		_, err = t.c.Deliver(t.other, &amqp.TransactionalState{TxnID: id}, encode(fmt.Sprintf("%s %d", loadOther, n)))
	}
	if err == nil {
		err = t.c.Discharge(t.k, id, false)
	}
	if err != nil {
		t.b.Errorf("transaction %d beside a backup: %v", n, err)
	}
	return err == nil
}

// openTransaction sends in a transaction that is committed when the returned function is called. A transaction lasts two minutes, so
// one of a long backup may be over.
func (b *backupCase) openTransaction() (commit func()) {
	b.Helper()
	t := b.transactions()
	id, err := t.c.Declare(t.k)
	b.must("declare", err)
	_, err = t.c.Deliver(t.via, &amqp.TransactionalState{TxnID: id}, encode("open 0"))
	b.must("send in a transaction", err)
	began := time.Now()
	return func() {
		b.Helper()
		defer t.close()
		err := t.c.Discharge(t.k, id, false)
		// by the clock: a transaction lasts two minutes. A commit that comes later, on a busy machine, is not judged.
		if err != nil && time.Since(began) < 100*time.Second {
			b.Errorf("commit what was open while the backup was taken: %v", err)
		}
	}
}

// transactionsAreWhole waits until each transaction has both of its messages.
func (b *backupCase) transactionsAreWhole() {
	b.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(100 * time.Millisecond) {
		via, other := len(b.lines(loadVia)), len(b.lines(loadOther))
		if via == other {
			return
		}
		if time.Now().After(deadline) {
			b.Errorf("%s has %d messages and %s has %d: a transaction came back in part", loadVia, via, loadOther, other)
			return
		}
	}
}
