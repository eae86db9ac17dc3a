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

// The operations that change rules.
const (
	opAddRule    = "com.microsoft:add-rule"
	opRemoveRule = "com.microsoft:remove-rule"
)

// opSettle is the operation that settles by lock token.
const opSettle = "com.microsoft:update-disposition"

// operations is the table of operations by wire name (amqp-protocol.md 7.4). It is read only.
var operations = map[string]operation{
	"com.microsoft:renew-lock":                 {auth.Listen, renewLock},
	"com.microsoft:renew-session-lock":         {auth.Listen, renewSessionLock},
	"com.microsoft:peek-message":               {auth.Listen, peekMessage},
	"com.microsoft:receive-by-sequence-number": {auth.Listen, receiveByNumber},
	opSettle:                                 {auth.Listen, updateDisposition},
	"com.microsoft:set-session-state":        {auth.Listen, setSessionState},
	"com.microsoft:get-session-state":        {auth.Listen, getSessionState},
	"com.microsoft:get-message-sessions":     {auth.Listen, messageSessions},
	"com.microsoft:schedule-message":         {auth.Send, scheduleMessage},
	"com.microsoft:cancel-scheduled-message": {auth.Send, cancelScheduled},
	"com.microsoft:batch-delete-messages":    {auth.Listen, batchDelete},
	// Unlike over HTTP, Listen is enough to work on rules.
	opAddRule:        {auth.Listen, addRule},
	opRemoveRule:     {auth.Listen, removeRule},
	opEnumerateRules: {auth.Listen, enumerateRules},
}
