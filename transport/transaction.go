package transport

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// An open transaction lives here, in the node that holds the client's connection. Its operations are kept and
// answered at once, and become one Commit entry when it is discharged (A23). It ends with its connection or
// coordinator link (S-240).

const (
	// txnTimeout ends a transaction after its first operation (S-238).
	txnTimeout = 2 * time.Minute
	// maxTxnOps bounds all its operations; each is a few dozen bytes beside its messages.
	maxTxnOps = 1_000
	// minTxnStaged is how many bytes of settlements and session states a transaction may have at least, whatever
	// the largest message of the entity is.
	minTxnStaged = 256 << 10
	// maxTxns bounds the transactions of one connection that are not discharged, aborted ones too.
	maxTxns = 100
	// txnIDBytes is the length of an id, which is drawn by chance.
	txnIDBytes = 16
)

// txn is one transaction. The connection's loop owns it.
type txn struct {
	id      []byte
	link    *link // its coordinator
	timer   *time.Timer
	sends   int
	bytes   int // of messages
	staged  int // of other commands, encoded
	work    []txnWork
	settles *txnWork    // the first that must be done where the message is: it decides about the via entity
	aborted *amqp.Error // why it cannot commit any more
	settled []txnDelivery
}

// txnWork is one operation of a transaction: a command on one entity, or messages for one.
type txnWork struct {
	desc     *fsm.Descriptor
	sub      fsm.SubQueue
	share    int         // of the home, -1 if any will do
	cmd      fsm.Command // nil for messages
	messages []fsm.Message
	text     string          // what selects the share of messages; of a settlement the key of its message
	byText   bool            // there is such a key
	keyed    bool            // text and byText tell of a settlement what is true
	via      *fsm.Descriptor // entity through whose transfer queue messages go, if the link says so
	delivery *txnDelivery    // that is settled over its link
}

// txnDelivery is a delivery that is settled when the transaction commits.
type txnDelivery struct {
	ch        *channel
	id        uint32
	forgotten bool // by the client, which settled it: it can decide about it no more
	state     amqp.DeliveryState
	session   *heldSession // nil without
}

// group is what one transaction may touch beside its transfers: a queue, or a topic with its
// subscriptions (S-234).
func group(d *fsm.Descriptor) fsm.EntityID {
	if d.Kind == fsm.Subscription {
		return d.Parent
	}
	return d.ID
}

// transaction finds the one that a client's state names.
func (c *conn) transaction(id []byte) (*txn, *amqp.Error) {
	t := c.txns[string(id)]
	switch {
	case t == nil:
		return nil, amqpError(amqp.ConditionTransactionUnknownID, "The transaction is not known.")
	case t.aborted != nil:
		return nil, t.aborted
	}
	return t, nil
}

// add takes an operation into the transaction, or says why it cannot be part of it; the rest of the
// transaction stays open then.
func (t *txn) add(w txnWork) *amqp.Error {
	t.link.ch.c.onLoop()
	s := t.link.ch.c.s
	tooLarge := func(format string, args ...any) *amqp.Error {
		return becauseOf(txnTooLarge, amqpError(amqp.ConditionResourceLimitExceeded, format, args...))
	}
	c := t.link.ch.c
	bytes, staged := 0, 0
	for i := range w.messages {
		bytes += len(w.messages[i].Body)
	}
	if w.cmd != nil {
		staged = len(fsm.AppendRequest(nil, &fsm.Request{Command: w.cmd}))
	}
	switch {
	case t.sends+len(w.messages) > int(t.link.ch.c.s.txnMost.messages.Load()): // S-239
		return tooLarge("a transaction sends at most %d messages.", t.link.ch.c.s.txnMost.messages.Load())
	case len(t.work) >= maxTxnOps:
		return tooLarge("a transaction has at most %d operations.", maxTxnOps)
	case bytes > 0 && t.bytes+bytes > int(w.desc.MaxMessageBytes): // RUL-9
		return tooLarge("the messages of a transaction have at most %d bytes.", w.desc.MaxMessageBytes)
	case staged > 0 && t.staged+staged > max(minTxnStaged, int(w.desc.MaxMessageBytes)): // RUL-9
		return tooLarge("the settlements and session states of a transaction have at most %d bytes.",
			max(minTxnStaged, int(w.desc.MaxMessageBytes)))
	case bytes+staged > 0 && c.txnBytes+bytes+staged > c.cfg.MaxConnBytes+int(w.desc.MaxMessageBytes):
		return amqpError(amqp.ConditionResourceLimitExceeded, "The open transactions of the connection have too many bytes, "+
			"at most %d: commit them, or roll them back.", c.cfg.MaxConnBytes+int(w.desc.MaxMessageBytes))
	case s.txnBytes.Load()+int64(bytes+staged) > s.txnMost.bytes.Load():
		return amqpError(amqp.ConditionResourceLimitExceeded, "The open transactions of the node have too many bytes, "+
			"at most %d: try again later.", s.txnMost.bytes.Load())
	}
	w.place()
	if why := t.fits(&w); why != "" {
		return amqpError(amqp.ConditionNotAllowed, "%s", why)
	}
	if len(t.work) == 0 {
		t.timer = time.AfterFunc(txnTimeout, func() {
			c.post(func() { t.abort(amqp.ConditionTransactionTimeout, "it was not finished in %v", txnTimeout) })
		})
	}
	t.sends, t.bytes, t.staged = t.sends+len(w.messages), t.bytes+bytes, t.staged+staged
	t.work = append(t.work, w)
	if t.settles == nil && (w.cmd != nil || w.via != nil) {
		t.settles = &w
	}
	c.holdTxnBytes(bytes + staged)
	s.ledger.note(t.id, len(w.messages), w.cmd, w.desc, w.home())
	return nil
}

// holdTxnBytes counts what open transactions hold, for the connection and the node.
func (c *conn) holdTxnBytes(n int) {
	c.txnBytes += n
	c.s.txnBytes.Add(int64(n))
}

// release gives back what the transaction holds.
func (t *txn) release() {
	t.link.ch.c.onLoop()
	t.link.ch.c.holdTxnBytes(-t.bytes - t.staged)
	t.bytes, t.staged = 0, 0
}

const onePartition = "All operations of a transaction on a partitioned entity must have the same partition key."

// fits returns why the operation may not join those before it, "" if it may (S-234 to S-236).
func (t *txn) fits(w *txnWork) string {
	t.link.ch.c.onLoop()
	bound := w.cmd != nil || w.via != nil
	if bound && t.settles != nil && group(t.settles.home()) != group(w.home()) {
		return "A transaction receives from one entity only; other entities may be sent to."
	}
	if !bound && w.desc.Partitioned && !w.byText { // S-235
		return "A transaction may send to a partitioned entity only messages with a session id or partition key."
	}
	for i := range t.work {
		o := &t.work[i]
		if group(o.home()) != group(w.home()) {
			continue
		}
		if o.otherKey(w) || o.share >= 0 && w.share >= 0 && o.share != w.share {
			return onePartition
		}
	}
	return ""
}

// place sets the share of an operation that sends, -1 if any will do.
func (w *txnWork) place() {
	if w.cmd != nil {
		return
	}
	w.share = -1
	if n := len(w.home().Partitions); w.byText && n > 1 {
		w.share = fsm.KeyShare(w.text, n)
	}
}

// otherKey reports whether two operations on one partitioned entity have different partition keys, which may fall
// into one share by chance. A message that goes through the entity without a key of its own has none. A settlement by
// token has one that is not known here.
func (w *txnWork) otherKey(o *txnWork) bool {
	known := func(w *txnWork) bool { return w.byText || w.keyed }
	return w.home().Partitioned && known(w) && known(o) && (w.byText != o.byText || w.text != o.text)
}

// home is the entity where the work is done.
func (w *txnWork) home() *fsm.Descriptor {
	if w.via != nil {
		return w.via
	}
	return w.desc
}

// abort ends the transaction without effect; who uses it later hears why.
func (t *txn) abort(condition amqp.Symbol, format string, args ...any) {
	t.link.ch.c.onLoop()
	if t.aborted == nil {
		why := fmt.Sprintf(format, args...)
		t.aborted = becauseOf(txnAborted, amqpError(condition, "%s.", why))
		t.link.ch.c.s.ledger.end(t.id, TransactionAborted, why)
	}
	t.drop()
}

// drop forgets what the transaction holds. The locks of its messages stay as they are (S-233), but for
// those that the client has forgotten.
func (t *txn) drop() {
	t.link.ch.c.onLoop()
	if t.timer != nil {
		t.timer.Stop()
	}
	giveUp(t.settled)
	t.release()
	t.work, t.settled, t.sends = nil, nil, 0
}

// dropTransactions aborts what a coordinator link has not discharged. The locks of a lost connection end
// in their own time (RUL-2).
func (c *conn) dropTransactions(l *link, orderly bool) {
	for id, t := range c.txns {
		if t.link != l {
			continue
		}
		if !orderly {
			t.settled = nil
		}
		t.drop()
		delete(c.txns, id)
		c.s.ledger.end(t.id, TransactionAborted, "its connection or coordinator link ended")
	}
}

// commit is the command that does all of it, and where. The via entity is the one that messages are
// settled on; without one it is the first that is sent to. Messages for others go through its
// transfer queue (S-236).
func (t *txn) commit() (home *fsm.Descriptor, key fsm.Key, cmd *fsm.Commit) {
	t.link.ch.c.onLoop()
	via := t.work[0].home()
	if t.settles != nil {
		via = t.settles.home()
	}
	key = fsm.Key{Entity: via.ID, By: fsm.ByAny}
	cmd = &fsm.Commit{ID: bytes.Clone(t.id)}
	for i := range t.work {
		w := &t.work[i]
		if via.Partitioned && w.share >= 0 && group(w.home()) == group(via) { // all of them have the same
			key.By, key.Share = fsm.ByShare, uint16(w.share)
		}
		op := fsm.Op{Entity: w.desc.ID, Sub: w.sub, Command: w.cmd}
		switch {
		case w.cmd != nil:
		case w.via != nil, group(w.desc) != group(via):
			op.Entity, op.Command = via.ID, &fsm.Transfer{To: w.desc.ID, Messages: w.messages}
		default:
			op.Command = &fsm.Enqueue{Messages: w.messages}
		}
		cmd.Ops = append(cmd.Ops, op)
	}
	if n := len(via.Partitions); key.By == fsm.ByAny && n > 1 {
		// One share, whatever happens: only there can be asked what became of it.
		key.By, key.Share = fsm.ByShare, uint16(fsm.KeyShare(string(t.id), n))
	}
	return via, key, cmd
}

// discharge ends the transaction as the client says; done gets the answer, on the loop.
func (t *txn) discharge(fail bool, done func(amqp.DeliveryState)) {
	t.link.ch.c.onLoop()
	c := t.link.ch.c
	delete(c.txns, string(t.id))
	switch {
	case t.aborted != nil && !fail:
		done(c.reject(t.aborted, ""))
		return
	case fail || t.aborted != nil || len(t.work) == 0:
		if fail {
			c.s.ledger.end(t.id, TransactionAborted, "rolled back")
		} else {
			c.s.ledger.end(t.id, TransactionCommitted, "") // nothing was done in it
		}
		t.drop()
		done(amqp.Accepted{})
		return
	}
	home, key, cmd := t.commit()
	path := t.work[0].home().Name
	deliveries, sends := t.settled, t.sends
	t.timer.Stop()
	t.work, t.settled = nil, nil
	c.spawn(func() func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ProposeTimeout)
		defer cancel()
		out, err := c.s.commit(ctx, t.id, home, key, cmd)
		return func() {
			t.release()
			switch {
			case err != nil:
				// If nobody knows, nothing is lost: the commit is done whole before this or, without these
				// locks, never.
				giveUp(deliveries)
				done(c.reject(c.s.commitError(err, path), path))
			case out.Refusal != fsm.None:
				giveUp(deliveries)
				done(c.reject(c.s.refusal(out.Refusal, abortCause(out), path), path))
			default:
				c.s.stats.MessagesIn.Add(uint64(sends))
				c.messagesIn += uint64(sends)
				c.s.stats.Settled.Add(uint64(len(deliveries)))
				t.settleCommitted(deliveries)
				done(amqp.Accepted{})
			}
		}
	})
}

// abortCause tells people which operation stopped a commit.
func abortCause(out fsm.Outcome) string {
	detail := out.Detail
	if n := len(out.Ops); n > 0 {
		why := out.Ops[n-1].Refusal
		for _, r := range out.Ops[n-1].Refusals {
			if why == fsm.None {
				why = r
			}
		}
		if condition, _ := conditionOf(why); why != fsm.None {
			detail = strings.TrimSpace(fmt.Sprintf("%s (%s)", detail, condition))
		}
	}
	return detail
}

// forgetDelivery ends a delivery that a committed transaction has settled.
func (ch *channel) forgetDelivery(id uint32) {
	ch.c.onLoop()
	ch.sent.take(id, id, func(d *sentDelivery) bool {
		owner := d.owner
		ch.forget(d)
		if owner != nil && !ch.ended {
			ch.touch()
			owner.fetch()
		}
		return true
	})
}

// giveUp ends the locks of deliveries that the client has settled in a transaction that did not commit.
// It has forgotten them and could only wait for that, so it is as if they had run out now.
func giveUp(all []txnDelivery) {
	for _, d := range all {
		if d.forgotten {
			d.ch.giveUp(d.id, d.id)
		}
	}
}

// giveUp abandons deliveries that the client has forgotten.
func (ch *channel) giveUp(first, last uint32) {
	ch.c.onLoop()
	ch.sent.take(first, last, func(d *sentDelivery) bool {
		ch.settle(d, verdict{item: fsm.SettleItem{Verdict: fsm.Abandon}}, true)
		return true
	})
}
