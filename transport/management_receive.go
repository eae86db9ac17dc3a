package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// receiveByNumber takes deferred messages by number, all or none (S-181).
func receiveByNumber(ctx context.Context, k *call) response {
	numbers, bad := k.numbers()
	if bad != nil {
		return *bad
	}
	mode, ok := k.integer("receiver-settle-mode", int64(amqp.ReceiverSecond))
	if !ok || mode < 0 || mode > 1 {
		return k.badArgument("receiver-settle-mode must be 0 or 1")
	}
	var proof fsm.SessionProof
	if k.desc.RequiresSession && k.addr.sub == fsm.Main { // S-74
		if proof, bad = k.needSession(); bad != nil {
			return *bad
		}
	}
	taken, bad := k.receive(ctx, proof, numbers, mode == int64(amqp.ReceiverFirst))
	if bad != nil {
		return *bad
	}
	var messages []carried
	for _, n := range numbers {
		d, ok := taken[n]
		if !ok {
			continue
		}
		one, err := carry(&d, false)
		if err != nil {
			k.s.log.Error("stored message is unreadable", "entity", k.desc.Name, "error", err)
			return k.fail(amqpError(amqp.ConditionInternalError, "internal error"))
		}
		messages = append(messages, one)
	}
	return k.messages(messages, 0)
}

// receive takes numbers of any shares. Over several shares it locks first, so that a number that
// is missing in one of them leaves the others as they were. If it is to remove messages, receive removes them share by
// share then, and returns what was removed. It fails if nothing was.
func (k *call) receive(ctx context.Context, proof fsm.SessionProof, numbers []fsm.SequenceNumber, remove bool,
) (map[fsm.SequenceNumber]fsm.Delivery, *response) {
	groups := k.byShare(numbers)
	if _, foreign := groups[-1]; foreign {
		r := k.refuse(fsm.MessageNotFound, "")
		return nil, &r
	}
	taken := map[fsm.SequenceNumber]fsm.Delivery{}
	one := len(groups) == 1
	for _, share := range sortedShares(groups) {
		out, bad := k.propose(ctx, k.share(share), &fsm.Receive{
			Session: proof, Numbers: groups[share], Delete: remove && one,
		})
		if bad != nil {
			if _, late := k.settleAll(ctx, proof, taken, fsm.Return); late != nil {
				k.s.log.Debug("return of deferred messages", "entity", k.desc.Name, "error", late.problem)
			}
			return nil, bad
		}
		for _, d := range out.Locked {
			taken[d.Seq] = d
		}
	}
	if !remove || one {
		return taken, nil
	}
	removed, bad := k.settleAll(ctx, proof, taken, fsm.Complete)
	if len(removed) == 0 {
		return nil, bad
	}
	for n, d := range removed {
		d.Token, d.LockedUntil = fsm.LockToken{}, 0
		removed[n] = d
	}
	return removed, nil
}

// settleAll settles messages of any shares, and returns those for which that was done. The response says why one of the
// others was not.
func (k *call) settleAll(ctx context.Context, proof fsm.SessionProof, taken map[fsm.SequenceNumber]fsm.Delivery, v fsm.Verdict,
) (settled map[fsm.SequenceNumber]fsm.Delivery, failed *response) {
	items := map[int][]fsm.SettleItem{}
	for _, d := range taken {
		share := max(0, k.desc.ShareOf(d.Token.Prefix()))
		items[share] = append(items[share], fsm.SettleItem{Seq: d.Seq, Token: d.Token, Verdict: v})
	}
	settled = map[fsm.SequenceNumber]fsm.Delivery{}
	for _, share := range sortedShares(items) {
		out, bad := k.propose(ctx, k.share(share), &fsm.Settle{Session: proof, Items: items[share]})
		if bad != nil {
			failed = bad
			continue
		}
		for i, item := range items[share] {
			if i < len(out.Refusals) && out.Refusals[i] != fsm.None { // none is told in a transaction, which is done later
				r := k.refuse(out.Refusals[i], "")
				failed = &r
				continue
			}
			settled[item.Seq] = taken[item.Seq]
		}
	}
	return settled, failed
}
