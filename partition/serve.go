package partition

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/partition/wire"
)

// handle registers what this node answers to others, before the mesh serves.
func (h *Host) handle() {
	c := h.deps.Caller
	c.Handle(KindRaft, h.serveRaft)
	c.HandleStream(KindSnapshot, h.serveSnapshot)
	c.Handle(KindPropose, h.verb(servePropose))
	c.HandleBegun(KindPropose, h.beginPropose)
	c.Handle(KindQuery, h.verb(serveQuery))
	c.Handle(KindAwait, h.verb(serveAwait))
	c.Handle(KindUnpark, h.verb(serveUnpark))
	c.Handle(KindReadIndex, h.verb(serveReadIndex))
	c.Handle(KindTransfer, h.verb(h.serveTransfer))
	c.Handle(KindStatus, h.serveStatus)
	c.Handle(KindRebuild, h.serveRebuild)
	c.Handle(KindStaleness, h.staleness.serve)
	c.Handle(KindCheckpoint, h.verb(serveCheckpoint))
	c.Handle(KindAudit, h.verb(serveAudit))
	c.Handle(KindReopen, h.serveReopen)
	c.Handle(KindQuarantine, h.serveQuarantine)
	c.Handle(KindStepDown, h.serveStepDown)
	c.Handle(KindClock, h.serveClock)
	c.Handle(KindCatalog, h.serveCatalog)
	c.Handle(KindReleased, h.serveReleased)
	c.Handle(KindVersion, h.serveVersion)
	c.Handle(KindCapture, h.verb(h.captures.serve))
	c.Handle(KindReadImage, h.verb(h.captures.serveRead))
	c.Handle(KindDropImages, h.captures.serveDrop)
	c.Handle(KindShare, h.verb(h.shareImages.serve))
	c.Handle(KindBeat, h.beats.serve)
}

func (h *Host) serveRaft(ctx context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	c, err := raftnet.ParseCall(b)
	if err != nil {
		return nil, err
	}
	h.lost.heard(from)
	r := h.Replica(c.Group)
	if r == nil {
		return nil, fmt.Errorf("partition %d: %w", c.Group, raftnet.ErrSilent)
	}
	return r.Serve(ctx, from, c)
}

func (h *Host) serveSnapshot(ctx context.Context, from fsm.NodeID, b []byte,
	body io.Reader) ([]byte, error) {
	c, err := raftnet.ParseCall(b)
	if err != nil {
		return nil, err
	}
	r := h.Replica(c.Group)
	if r == nil {
		return nil, fmt.Errorf("partition %d: %w", c.Group, raftnet.ErrSilent)
	}
	return r.ServeSnapshot(ctx, from, c, body)
}

// verb wraps the handler of a verb: it finds the replica and carries errors as statuses, because
// their meaning must survive the way.
func (h *Host) verb(serve func(context.Context, *replica.Replica, []byte) ([]byte, error)) func(
	context.Context, fsm.NodeID, []byte) ([]byte, error) {
	return func(ctx context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
		r, body, err := h.asked(from, b)
		if err != nil {
			return failure(err), nil
		}
		answer, err := serve(ctx, r, body)
		if err != nil {
			return failure(err), nil
		}
		return answer, nil
	}
}

// asked splits a request of a node, and finds the replica that it is for.
func (h *Host) asked(from fsm.NodeID, b []byte) (*replica.Replica, []byte, error) {
	p, body, err := openVerb(b)
	if err != nil {
		return nil, nil, err
	}
	if !h.allowed(from) {
		return nil, nil, fmt.Errorf("node %s is no member: %w", from, fsm.ErrNotLeader)
	}
	r := h.Replica(p)
	if r == nil {
		return nil, nil, &replica.NotLeaderError{}
	}
	return r, body, nil
}

func servePropose(ctx context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	req, err := fsm.DecodeRequest(b)
	if err != nil {
		return nil, err
	}
	o, err := r.Propose(ctx, req)
	return outcomeAnswer(&o, err)
}

// outcomeBytes is about the size of an encoded outcome.
func outcomeBytes(o *fsm.Outcome) int {
	n := 128 + 10*len(o.Numbers) + len(o.Data)
	for i := range o.Locked {
		n += 128 + len(o.Locked[i].Body)
	}
	return n
}

func serveQuery(ctx context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	q, err := fsm.DecodeQuery(b)
	if err != nil {
		return nil, err
	}
	a, err := r.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	return fsm.AppendAnswer(success(256), &a), nil
}

func serveAwait(ctx context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	k, err := decodeWaitKey(b)
	if err != nil {
		return nil, err
	}
	return success(0), r.Await(ctx, k)
}

func serveUnpark(_ context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	id, err := decodeRequestID(b)
	if err != nil {
		return nil, err
	}
	return wire.AppendBool(success(1), r.Unpark(id)), nil
}

func serveReadIndex(ctx context.Context, r *replica.Replica, _ []byte) ([]byte, error) {
	index, err := r.ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	return binary.AppendUvarint(success(10), index), nil
}

// serveStatus answers with this node's Status as JSON: for people, and for choosing a candidate. A question with the word
// "about" is answered with what the node says of itself, too.
func (h *Host) serveStatus(ctx context.Context, _ fsm.NodeID, b []byte) ([]byte, error) {
	all := h.Status()
	if string(b) == aboutWord && h.deps.About != nil && len(all) > 0 {
		all[0].About = h.deps.About(ctx)
	}
	return json.Marshal(all)
}
