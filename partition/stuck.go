package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/wire"
)

// reopenBytes is the length of a call to reopen: partition, and whether to give it up.
const reopenBytes = 2 + 1

func askReopen(ctx context.Context, c Caller, n fsm.NodeID, p fsm.PartitionID, giveUp bool) error {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, reopenBytes), uint16(p))
	_, err := c.Call(ctx, n, KindReopen, wire.AppendBool(b, giveUp))
	return err
}

var (
	errNotFollowing = errors.New("its leader sees that it does not advance")
	errGivenUp      = errors.New("its leader sees that it does not advance, and a new start did not help")
)

// serveReopen gives a follower that its leader sees standing still a new start, or gives it up. The leader then
// removes it and has it rebuilt. A leader is not asked to.
func (h *Host) serveReopen(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) != reopenBytes || b[2] > 1 {
		return nil, fmt.Errorf("call to reopen of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	r := h.Replica(fsm.PartitionID(binary.BigEndian.Uint16(b)))
	if !h.allowed(from) || r == nil {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	if leader, _ := r.Leader(); leader != from {
		return nil, fmt.Errorf("node %s does not lead here: %w", from, fsm.ErrNotLeader)
	}
	if b[2] == 0 {
		r.RestartStuck(errNotFollowing)
		return nil, nil
	}
	h.mu.Lock()
	h.stuckFound[r.ID()]++
	h.mu.Unlock()
	r.Fail(errGivenUp)
	return nil, nil
}
