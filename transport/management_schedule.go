package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// scheduleMessage stores messages for later and answers with their numbers (S-107).
func scheduleMessage(ctx context.Context, k *call) response {
	if k.addr.sub != fsm.Main || k.desc.Kind == fsm.Subscription { // S-171
		return k.refuse(fsm.InvalidOperation, "Messages cannot be scheduled here.")
	}
	v, _ := k.field("messages")
	list, ok := amqp.ToItems(v)
	if !ok || len(list) == 0 {
		return k.badArgument("messages must be a list of at least one map")
	}
	d, bytes := &inbound{arrived: k.s.cfg.traceTime()}, 0
	for _, item := range list {
		m, _ := item.(amqp.Map)
		encoded, _ := m.Get("message")
		payload, ok := encoded.([]byte)
		if !ok {
			return k.badArgument("a message is missing")
		}
		if bytes += len(payload); len(payload) > int(k.desc.MaxMessageBytes) ||
			len(list) > 1 && bytes > k.s.cfg.batchBytes(k.desc) {
			return k.refuse(fsm.MessageSizeExceeded, "")
		}
		if err := d.translate(payload, k.desc, k.s.messageID, false); err != nil {
			return k.fail(err)
		}
	}
	if bad := k.charge(len(d.messages), bytes); bad != nil {
		return *bad
	}
	key := fsm.Key{Entity: k.desc.ID, By: fsm.ByAny}
	if d.byText {
		key.By, key.Text = fsm.ByText, d.text
	}
	reserved, bad := k.reserve(ctx, key, d.messages)
	if bad != nil {
		return *bad
	}
	if !k.staging { // it is not stored before the commit
		d.traces = k.s.cfg.tracesOf(d.messages)
	}
	proposed := k.s.cfg.traceTime()
	out, bad := k.propose(ctx, key, &fsm.Enqueue{Messages: d.messages})
	if d.logged(proposed); bad != nil {
		d.refusal = bad.problem
	}
	k.s.cfg.traceAccepted(d, k.desc.Name, k.s.cfg.traceTime())
	if bad != nil {
		return *bad
	}
	if k.staging {
		out.Numbers = reserved
	} else {
		k.s.stats.MessagesIn.Add(uint64(len(d.messages)))
	}
	numbers := make([]int64, len(d.messages))
	for i, n := range out.Numbers {
		numbers[i] = int64(n)
	}
	w := amqp.BeginMap(nil)
	w.Raw("sequence-numbers", amqp.AppendArray(nil, numbers))
	return response{code: codeOK, body: w.End()}
}

// cancelScheduled deletes scheduled messages, all or none in each share (S-115, S-117).
func cancelScheduled(ctx context.Context, k *call) response {
	numbers, bad := k.numbers()
	if bad != nil {
		return *bad
	}
	groups := k.byShare(numbers)
	if _, foreign := groups[-1]; foreign {
		return k.refuse(fsm.MessageNotFound, "")
	}
	for _, share := range sortedShares(groups) {
		if _, bad := k.propose(ctx, k.share(share), &fsm.Cancel{Numbers: groups[share]}); bad != nil {
			return *bad
		}
	}
	return response{code: codeOK}
}
