package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// maxBatchDelete bounds the messages of one request (S-263).
const maxBatchDelete = 4_000

// batchDelete removes waiting messages, oldest first, share by share (S-263 to S-266). Clients purge
// by asking again until nothing is deleted.
func batchDelete(ctx context.Context, k *call) response {
	count, ok := k.integer("message-count", 0)
	if !ok || count < 1 || count > maxBatchDelete {
		return k.badArgument("message-count must be a number from 1 to %d", maxBatchDelete)
	}
	cmd := fsm.DeleteMessages{Max: uint32(count)}
	if raw, ok := k.request.body.Get("enqueued-time-utc"); ok && !raw.IsNull() {
		before, ok := raw.Timestamp()
		if !ok {
			return k.badArgument("enqueued-time-utc must be a timestamp")
		}
		// To the state machine 0 means "whatever is there"; nothing is older than the first
		// millisecond either.
		cmd.Before = max(fsm.Wall(before), 1)
	}
	shares := waist.AllShares(k.desc)
	if k.desc.RequiresSession && k.addr.sub == fsm.Main { // S-264
		proof, bad := k.needSession()
		if bad != nil {
			return *bad
		}
		cmd.Session, shares = proof, []int{k.held.share}
	}
	deleted := uint64(0)
	for _, share := range shares {
		part := cmd
		part.Max = uint32(uint64(count) - deleted)
		out, bad := k.propose(ctx, k.share(share), &part)
		if bad != nil {
			if deleted > 0 {
				break // what is gone is gone, and fewer than asked for is no failure (S-263)
			}
			return *bad
		}
		if deleted += out.Count; deleted >= uint64(count) {
			break
		}
	}
	if deleted == 0 {
		return response{code: codeNoContent}
	}
	w := amqp.BeginMap(nil)
	w.Int("message-count", int32(deleted))
	return response{code: codeOK, body: w.End()}
}
