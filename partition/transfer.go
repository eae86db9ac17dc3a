package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// TransferLeadership hands the leadership of a partition to another node's replica, which is asked
// first whether it answers: a transfer to a hung node can wedge raft (R10). An empty to stands for
// any that answers. A node that does not lead the partition passes the wish on to the one that does.
func (h *Host) TransferLeadership(ctx context.Context, p fsm.PartitionID, to fsm.NodeID) error {
	r := h.Replica(p)
	if r == nil || !r.Leading() {
		return h.passTransfer(ctx, p, to)
	}
	return h.giveAway(ctx, r, to)
}

// passTransfer has the leader on another node do it.
func (h *Host) passTransfer(ctx context.Context, p fsm.PartitionID, to fsm.NodeID) error {
	leader, ok := h.leader(p)
	if !ok {
		leader, ok = h.deps.Locator.Leader(p)
	}
	if !ok || leader == h.cfg.Node {
		return fmt.Errorf("partition %d has no leader that is known here: %w", p, fsm.ErrNotLeader)
	}
	b, err := h.deps.Caller.Call(ctx, leader, KindTransfer, append(verbHead(p, len(to)), to...))
	if err == nil {
		_, err = openResult(b)
	}
	if err != nil {
		return fmt.Errorf("node %s, asked to hand over partition %d: %w", leader, p, err)
	}
	return nil
}

func (h *Host) serveTransfer(ctx context.Context, r *Replica, b []byte) ([]byte, error) {
	if len(b) > maxHeaderBytes {
		return nil, fmt.Errorf("node id of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	if !r.Leading() {
		return nil, r.prop.notLeader()
	}
	return success(0), h.giveAway(ctx, r, fsm.NodeID(b))
}

func (h *Host) giveAway(ctx context.Context, r *Replica, to fsm.NodeID) error {
	switch {
	case to == h.cfg.Node:
		return nil
	case to == "":
		to = h.heir(ctx, r)
	case !h.answers(ctx, to):
		return fmt.Errorf("partition %d: node %s does not answer: %w", r.id, to, fsm.ErrUnavailable)
	}
	if to == "" {
		return fmt.Errorf("partition %d has no other voter that answers: %w", r.id, fsm.ErrUnavailable)
	}
	return r.transfer(ctx, to)
}

// heirTimeout bounds the question to a possible next leader.
const heirTimeout = 500 * time.Millisecond

// heir returns a voter that answers, "" if there is none.
func (h *Host) heir(ctx context.Context, r *Replica) fsm.NodeID {
	for _, v := range r.Status().Voters {
		if v == h.cfg.Node {
			continue
		}
		if h.answers(ctx, v) {
			return v
		}
	}
	return ""
}

func (h *Host) answers(ctx context.Context, n fsm.NodeID) bool {
	ask, cancel := context.WithTimeout(ctx, heirTimeout)
	defer cancel()
	_, err := h.deps.Caller.Call(ask, n, KindStatus, nil)
	return err == nil
}

func (r *Replica) transfer(ctx context.Context, to fsm.NodeID) error {
	f := r.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(to))
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("transfer leadership of partition %d to %s: %w", r.id, to, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.stopping:
		return fsm.ErrClosed
	}
}
