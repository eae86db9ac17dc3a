package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

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
		if answer.problem != nil || len(k.staged) == 0 {
			return answer
		}
		if refusal := k.join(t); refusal != nil {
			c.s.stats.reject(siteTransaction)
			return k.fail(refusal)
		}
		return answer
	}
	return nil
}

// join takes what is staged into the transaction, all or nothing (S-3).
func (k *call) join(t *txn) *amqp.Error {
	_, over := t.link.ch.c.transaction(t.id)
	switch {
	case over != nil: // it was discharged or aborted while the request ran
		return over
	case len(k.staged) > 1: // each of its commands is for another share
		return amqpError(amqp.ConditionNotAllowed, "%s", onePartition)
	}
	return t.add(k.staged[0])
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
