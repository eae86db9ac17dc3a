package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// renewLock extends message locks, all or none in each share (S-156).
func renewLock(ctx context.Context, k *call) response {
	if k.desc.RequiresSession && k.addr.sub == fsm.Main { // RUL-5, S-44
		return k.refuse(fsm.InvalidOperation, "Renew the lock of the session.")
	}
	groups, bad := k.tokens()
	if bad != nil {
		return *bad
	}
	until := map[int]fsm.Wall{}
	count := 0
	for _, share := range sortedShares(groups) {
		out, bad := k.propose(ctx, k.share(share), &fsm.Renew{Tokens: groups[share]})
		if bad != nil {
			return *bad
		}
		until[share] = out.LockedUntil
		count += len(groups[share])
	}
	// The answer is parallel to the request.
	v, _ := k.field("lock-tokens")
	ids, _ := amqp.ToUUIDs(v)
	expirations := make([]amqp.Timestamp, 0, count)
	for _, id := range ids {
		expirations = append(expirations, amqp.Timestamp(until[k.desc.ShareOf(fsm.LockToken(id).Prefix())]))
	}
	w := amqp.BeginMap(nil)
	w.Raw("expirations", amqp.AppendArray(nil, expirations))
	return response{code: codeOK, body: w.End()}
}

// renewSessionLock extends the lock of a session (S-46).
func renewSessionLock(ctx context.Context, k *call) response {
	proof, bad := k.needLock()
	if bad != nil {
		return *bad
	}
	held := k.held
	out, bad := k.propose(ctx, k.share(held.share), &fsm.RenewSession{Session: proof})
	if bad != nil {
		return *bad
	}
	k.then = func(answer response) response {
		held.renewed(out.LockedUntil)
		return answer
	}
	w := amqp.BeginMap(nil)
	w.Timestamp("expiration", amqp.Timestamp(out.LockedUntil))
	return response{code: codeOK, body: w.End()}
}
