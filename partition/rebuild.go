package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// rebuildBytes is the length of a call to rebuild: partition and index of the configuration.
const rebuildBytes = 2 + 8

// askRebuild tells a failed replica that its group has gone on without it.
func askRebuild(ctx context.Context, c Caller, n fsm.NodeID, p fsm.PartitionID, removed uint64) error {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, rebuildBytes), uint16(p))
	_, err := c.Call(ctx, n, KindRebuild, binary.BigEndian.AppendUint64(b, removed))
	return err
}

func (h *Host) serveRebuild(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	if len(b) != rebuildBytes {
		return nil, fmt.Errorf("call to rebuild of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	if !h.allowed(from) {
		return nil, fmt.Errorf("node %s is no member of the cluster", from)
	}
	return nil, h.rebuild(fsm.PartitionID(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint64(b[2:]))
}

// rebuild throws the data of a failed replica away and opens it empty, to be taken in anew. removed is the index of a
// committed configuration of the group without it: from there on nothing that this replica has acknowledged or voted
// counts. A replica that works is never touched, whoever asks, and one index rebuilds once. A call that was late may
// find the replica a voter again. A replica that is stranded counts as failed.
func (h *Host) rebuild(p fsm.PartitionID, removed uint64) error {
	if h.deps.Rebuild == nil {
		return errors.New("stores of this node cannot be rebuilt")
	}
	h.mu.Lock()
	r, broken := h.replicas[p], h.broken[p]
	failed := broken != nil || r != nil && (r.Failure() != nil || r.Stranded())
	if !failed || !h.claimLocked(p) {
		h.mu.Unlock()
		return fmt.Errorf("replica of partition %d has not failed: it is not rebuilt", p)
	}
	h.mu.Unlock()
	err := h.renew(p, r, nil, func() error {
		if err := h.deps.Rebuild(p, removed); err != nil {
			return err
		}
		h.deps.Log.Warn("replica starts empty: its group takes it in again", "partition", uint16(p),
			"removed at", removed)
		h.mu.Lock()
		h.restarts[p] = 0
		h.mu.Unlock()
		return nil
	})
	if err != nil {
		return fmt.Errorf("rebuild partition %d: %w", p, err)
	}
	return nil
}
