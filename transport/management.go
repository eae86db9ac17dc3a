package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/waist"
)

// serve runs the operation on what the entity's name stands for now. A request link outlives the
// entity it was attached to, so each request looks the name up (S-259).
func (k *call) serve(ctx context.Context, op operation) response {
	d, err := k.s.catalog.Entity(ctx, k.desc.Name)
	switch {
	case err != nil:
		return k.fail(k.s.errorOf(err, k.addr.path()))
	case d.Version < k.desc.Version: // the link knows better than the catalog of this node, which lags behind
	case d.ID != k.desc.ID:
		return k.moveTo(d)
	default:
		k.desc = d
	}
	answer := op.run(ctx, k)
	if !k.missing || k.staging || k.s.rules == nil {
		return answer
	}
	// The catalog of this node may lag behind, so the one that cannot is asked before "not found" is said.
	switch d, err = k.s.rules.Get(ctx, k.desc.Name); {
	case waist.IsGone(err):
		return k.refuse(fsm.EntityNotFound, "")
	case err == nil && d.ID != k.desc.ID:
		return k.moveTo(d)
	}
	return answer
}

// operation is one entry of the table of operations. There is no operation without a right.
type operation struct {
	right auth.Right
	run   func(context.Context, *call) response
}

// opEnumerateRules is the one operation whose answer is cut to what the client takes.
const opEnumerateRules = "com.microsoft:enumerate-rules"

// opSettle is the operation that settles by lock token.
const opSettle = "com.microsoft:update-disposition"

// operationOf finds an operation by its wire name (amqp-protocol.md 7.4).
func operationOf(name string) (operation, bool) {
	const prefix = "com.microsoft:"
	switch name {
	case prefix + "renew-lock":
		return operation{auth.Listen, renewLock}, true
	case prefix + "renew-session-lock":
		return operation{auth.Listen, renewSessionLock}, true
	case prefix + "peek-message":
		return operation{auth.Listen, peekMessage}, true
	case prefix + "receive-by-sequence-number":
		return operation{auth.Listen, receiveByNumber}, true
	case opSettle:
		return operation{auth.Listen, updateDisposition}, true
	case prefix + "set-session-state":
		return operation{auth.Listen, setSessionState}, true
	case prefix + "get-session-state":
		return operation{auth.Listen, getSessionState}, true
	case prefix + "get-message-sessions":
		return operation{auth.Listen, messageSessions}, true
	case prefix + "schedule-message":
		return operation{auth.Send, scheduleMessage}, true
	case prefix + "cancel-scheduled-message":
		return operation{auth.Send, cancelScheduled}, true
	case prefix + "batch-delete-messages":
		return operation{auth.Listen, batchDelete}, true
	// Unlike over HTTP, Listen is enough to work on rules.
	case prefix + "add-rule":
		return operation{auth.Listen, addRule}, true
	case prefix + "remove-rule":
		return operation{auth.Listen, removeRule}, true
	case opEnumerateRules:
		return operation{auth.Listen, enumerateRules}, true
	}
	return operation{}, false
}
