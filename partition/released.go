package partition

import (
	"context"
	"fmt"
	"sync"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// OnReleased has f called for every session that an operator takes from its holder through any node (S-54). It is
// called before the front end serves. A call of f can be lost with a node or a connection, and can come for a session
// that somebody else holds by then. So f has to ask the partition.
func (r *Router) OnReleased(f func(entity fsm.EntityID, session string)) {
	r.send.host.released.Store(&f)
}

// tellReleased tells every node that an operator took a session, because the link that held it may ask the
// partition for nothing. It waits for the nodes, at most publishTimeout. The link on a node that is not
// reached ends when the session lock would have run out.
func (r *Router) tellReleased(ctx context.Context, entity fsm.EntityID, session string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	h := r.send.host
	b := appendWaitKey(nil, fsm.WaitKey{Entity: entity, Kind: fsm.WaitLost, HasSession: true, Session: session})
	var wg sync.WaitGroup
	for _, n := range r.dir.membersOf(fsm.CatalogPartition) {
		wg.Go(func() {
			if _, err := h.deps.Caller.Call(ctx, n, KindReleased, b); err != nil {
				h.deps.Log.Debug("a node did not hear that a session was released", "peer", n, "error", err)
			}
		})
	}
	wg.Wait()
}

// serveReleased hears of a session that an operator took.
func (h *Host) serveReleased(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	k, err := decodeWaitKey(b)
	if err != nil {
		return nil, err
	}
	if !h.allowed(from) {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	if f := h.released.Load(); f != nil {
		(*f)(k.Entity, k.Session)
	}
	return nil, nil
}
