package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
	"github.com/busbar-mq/busbar/partition/replica"
	"github.com/busbar-mq/busbar/partition/wire"
)

// diverge fails a replica because its state is not that of its group. The rebuild is noted on its disk first. A
// process that ended before the rebuild would open the replica again. Until the next checkpoint it would serve, and
// vote for, what is wrong. Other failures are not noted: they are met again, or have passed, and a replica without peers
// would be shut out by them for ever.
func (h *Host) diverge(r *replica.Replica, own replica.Digest, agreed string) {
	err := fmt.Errorf("digest %s behind entry %d, a majority has %s: %w", own.Sum, own.Index, agreed,
		errDiverged)
	if h.deps.Quarantine != nil {
		if noted := h.deps.Quarantine(r.ID(), err.Error()); noted != nil {
			r.Log().Error("quarantine lasts only as long as the process", "error", noted)
		}
	}
	r.Fail(err)
}

// askQuarantine tells a follower that a majority has another digest behind an entry.
func askQuarantine(ctx context.Context, c Caller, n fsm.NodeID, p fsm.PartitionID, index uint64, agreed string) error {
	b := binary.BigEndian.AppendUint16(nil, uint16(p))
	b = binary.BigEndian.AppendUint64(b, index)
	_, err := c.Call(ctx, n, KindQuarantine, wire.AppendBytes(b, []byte(agreed)))
	return err
}

// serveQuarantine fails a replica whose digest is not the one that its leader tells. The replica looks
// for itself: one that agrees is left alone.
func (h *Host) serveQuarantine(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
	const head = 2 + 8
	if len(b) < head {
		return nil, fmt.Errorf("call to quarantine of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	in := wire.NewReader(b[head:])
	agreed := string(in.Bytes(2 * replica.SumBytes))
	if err := in.Done(); err != nil {
		return nil, err
	}
	r := h.Replica(fsm.PartitionID(binary.BigEndian.Uint16(b)))
	if !h.allowed(from) || r == nil {
		return nil, fmt.Errorf("node %s: %w", from, raftnet.ErrSilent)
	}
	if leader, _ := r.Leader(); leader != from {
		return nil, fmt.Errorf("node %s does not lead here: %w", from, fsm.ErrNotLeader)
	}
	own, ok := r.DigestAt(binary.BigEndian.Uint64(b[2:]))
	if !ok || own.Sum == agreed {
		return nil, fmt.Errorf("replica of partition %d does not differ", r.ID())
	}
	h.diverge(r, own, agreed)
	return nil, nil
}

var errDiverged = errors.New("state differs from that of a majority of the group")
