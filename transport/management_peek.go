package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// maxPeek bounds the messages of one peek; clients ask again (S-249).
const maxPeek = 1_000

// peekMessage browses, share by share in the order of their numbers (S-246, S-247).
func peekMessage(ctx context.Context, k *call) response {
	from, ok := k.integer("from-sequence-number", 0)
	count, ok2 := k.integer("message-count", 1)
	if !ok || !ok2 || count < 1 {
		return k.badArgument("from-sequence-number and message-count must be numbers, the count positive")
	}
	omit, bad := k.omitsBody()
	if bad != nil {
		return *bad
	}
	left, bytes := uint32(min(count, maxPeek)), k.s.cfg.MaxLockBytes
	start := fsm.SequenceNumber(max(from, 0))
	k.s.waist.Touch(ctx, k.pump, k.desc, k.addr.sub)
	var messages []carried
	for _, share := range waist.SharesFrom(k.desc, start) {
		q := &fsm.Peek{Max: left, MaxBytes: bytes, HasSession: k.hasSession, Session: k.sessionID}
		if !k.desc.Partitioned || k.desc.Prefix(share) == start.Prefix() {
			q.From = start
		}
		a, bad := k.query(ctx, k.share(share), q)
		if bad != nil {
			return *bad
		}
		for i := range a.Messages {
			var shown carried
			var err error
			if omit {
				shown.payload, err = withoutBody(&a.Messages[i])
			} else {
				shown, err = carry(&a.Messages[i], true)
			}
			if err != nil {
				k.s.log.Error("stored message is unreadable", "entity", k.desc.Name, "error", err)
				continue
			}
			messages = append(messages, shown)
			bytes -= min(bytes, uint32(len(a.Messages[i].Body)))
		}
		left -= min(left, uint32(len(a.Messages)))
		if left == 0 || bytes == 0 {
			break
		}
	}
	if len(messages) == 0 {
		return response{code: codeNoContent}
	}
	return k.messages(messages)
}

// omitsBody reports whether a peek asks for messages without their bodies.
func (k *call) omitsBody() (bool, *response) {
	v, ok := k.field("omit-message-body")
	if !ok {
		return false, nil
	}
	omit, ok := v.(bool)
	if !ok {
		bad := k.badArgument("omit-message-body must be a boolean")
		return false, &bad
	}
	return omit, nil
}
