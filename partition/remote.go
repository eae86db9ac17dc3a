package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/partition/wire"
)

// Remote is a partition whose leader is on another node.
type Remote struct {
	caller Caller
	node   fsm.NodeID
	id     fsm.PartitionID
}

// NewRemote returns partition id as served by node.
func NewRemote(c Caller, node fsm.NodeID, id fsm.PartitionID) *Remote {
	return &Remote{caller: c, node: node, id: id}
}

// Propose implements Group. When ctx ends, the request is taken back from the leader's parking
// slot, and only if that is impossible the outcome is awaited (A18); nothing is awaited of a node that leads
// no more.
func (r *Remote) Propose(ctx context.Context, req fsm.Request) (fsm.Outcome, error) {
	if e, is := req.Command.(*fsm.Enqueue); is {
		e.Seal(math.MaxInt)
	}
	b := fsm.AppendRequest(verbHead(r.id, req.Command.Weight()), &req)
	if !req.Command.Traits().Has(fsm.Takes) || req.ID.IsZero() {
		return decodeOutcome(r.call(ctx, KindPropose, b))
	}
	// The call must outlive ctx: only its answer tells whether something was taken.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errMoved) {
			cancel() // the next leader tells what the request has taken, if it was applied
			return
		}
		giveUp := time.AfterFunc(replica.GoneWait, cancel)
		defer giveUp.Stop()
		r.unpark(inner, req.ID)
		<-inner.Done()
	})
	defer stop()
	o, err := decodeOutcome(r.call(inner, KindPropose, b))
	switch {
	case errors.Is(err, replica.ErrUnparked):
		return o, ctx.Err()
	case err != nil && inner.Err() != nil:
		return o, fmt.Errorf("%w: %w", fsm.ErrUnknown, context.Cause(ctx))
	}
	return o, err
}

// unpark asks the leader to end the parked request; its proposal then returns.
func (r *Remote) unpark(ctx context.Context, id fsm.RequestID) {
	// Whether it was parked, the answer of the proposal itself tells.
	_, _ = r.call(ctx, KindUnpark, r.unparking(id))
}

// unparking is what asks for that.
func (r *Remote) unparking(id fsm.RequestID) []byte { return appendRequestID(verbHead(r.id, 24), id) }

// Query implements Group.
func (r *Remote) Query(ctx context.Context, q fsm.QueryRequest) (fsm.Answer, error) {
	b, err := r.call(ctx, KindQuery, fsm.AppendQuery(verbHead(r.id, 128), &q))
	if err != nil {
		return fsm.Answer{}, err
	}
	a, err := fsm.DecodeAnswer(b)
	if err != nil {
		return fsm.Answer{}, fmt.Errorf("%w: answer of node %s: %w", fsm.ErrUnknown, r.node, err)
	}
	return a, nil
}

// Await implements Group.
func (r *Remote) Await(ctx context.Context, k fsm.WaitKey) error {
	_, err := r.call(ctx, KindAwait, appendWaitKey(verbHead(r.id, 64), k))
	return err
}

// ReadIndex implements Group.
func (r *Remote) ReadIndex(ctx context.Context) (uint64, error) {
	b, err := r.call(ctx, KindReadIndex, verbHead(r.id, 0))
	if err != nil {
		return 0, err
	}
	answer := wire.NewReader(b)
	index := answer.Uint()
	if err := answer.Done(); err != nil {
		return 0, fmt.Errorf("%w: %w", fsm.ErrUnknown, err)
	}
	return index, nil
}

func (r *Remote) call(ctx context.Context, kind uint8, b []byte) ([]byte, error) {
	b, err := r.caller.Call(ctx, r.node, kind, b)
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, fsm.ErrUnavailable) {
			return nil, fmt.Errorf("%w: %w", fsm.ErrUnknown, context.Cause(ctx))
		}
		return nil, err
	}
	return openResult(b)
}

func decodeOutcome(b []byte, err error) (fsm.Outcome, error) {
	if err != nil {
		return fsm.Outcome{}, err
	}
	o, err := fsm.DecodeOutcome(b)
	if err != nil {
		return fsm.Outcome{}, fmt.Errorf("%w: outcome from a peer: %w", fsm.ErrUnknown, err)
	}
	return o, nil
}

// maxStatusReplicas bounds what a peer may claim to hold.
const maxStatusReplicas = 1 << 15

// askStatus asks a node for its Status.
func askStatus(ctx context.Context, c Caller, n fsm.NodeID) ([]replica.Status, error) {
	return askStatusWith(ctx, c, n, nil)
}

// aboutWord asks a node for what it says of itself. Programs that do not know the word answer without it.
const aboutWord = "about"

// AskAbout asks a node for its Status, and for what it says of itself. The latter is nil if its program says nothing.
func (h *Host) AskAbout(ctx context.Context, n fsm.NodeID) ([]replica.Status, json.RawMessage, error) {
	all, err := askStatusWith(ctx, h.deps.Caller, n, []byte(aboutWord))
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	return all, all[0].About, nil
}

func askStatusWith(ctx context.Context, c Caller, n fsm.NodeID, content []byte) ([]replica.Status, error) {
	b, err := c.Call(ctx, n, KindStatus, content)
	if err != nil {
		return nil, err
	}
	var out []replica.Status
	if err := json.Unmarshal(b, &out); err != nil || len(out) > maxStatusReplicas {
		return nil, fmt.Errorf("status of node %s: %w", n, fsm.ErrFormat)
	}
	return out, nil
}
