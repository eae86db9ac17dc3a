package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// TransferLeadership hands the leadership of a partition to another node's replica. That one is asked first whether
// it answers: a transfer to a hung node can wedge raft (R10). An empty to stands for any that answers. A node that
// does not lead the partition passes the wish on to the one that does.
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

func (h *Host) serveTransfer(ctx context.Context, r *replica.Replica, b []byte) ([]byte, error) {
	if len(b) > maxNodeBytes {
		return nil, fmt.Errorf("node id of %d bytes: %w", len(b), fsm.ErrFormat)
	}
	if !r.Leading() {
		return nil, r.NotLeader()
	}
	return success(0), h.giveAway(ctx, r, fsm.NodeID(b))
}

// giveAway hands over to a node that follows closely, because raft takes no entries while the next leader catches up.
// A node that has just come back is asked for more only from time to time.
func (h *Host) giveAway(ctx context.Context, r *replica.Replica, to fsm.NodeID) error {
	if to == h.cfg.Node {
		return nil
	}
	if to == "" {
		if to = h.transferTarget(ctx, r); to == "" {
			return fmt.Errorf("partition %d has no other voter that answers: %w", r.ID(), fsm.ErrUnavailable)
		}
		return r.Transfer(ctx, to)
	}
	if err := h.awaitClose(ctx, r, to); err != nil {
		return err
	}
	return r.Transfer(ctx, to)
}

const (
	// targetTimeout bounds the question to a possible next leader.
	targetTimeout = 500 * time.Millisecond
	// closeTimeout bounds the wait for a follower that somebody has chosen, closeEvery is between two
	// looks. Raft's pauses after failures grow to seconds.
	closeTimeout = 5 * time.Second
	closeEvery   = 50 * time.Millisecond
)

// awaitClose returns when a node follows closely. A node that does not answer is not waited for.
func (h *Host) awaitClose(ctx context.Context, r *replica.Replica, to fsm.NodeID) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	t := time.NewTicker(closeEvery)
	defer t.Stop()
	behind := uint64(0)
	for {
		switch s := h.follower(ctx, r, to); {
		case s == nil && ctx.Err() == nil:
			return fmt.Errorf("partition %d: node %s does not answer, or not with a replica that works: %w",
				r.ID(), to, fsm.ErrUnavailable)
		case s != nil && r.CloselyFollowedBy(s):
			return nil
		case s != nil:
			behind = r.LastIndex() - s.Last
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("partition %d: node %s is %d entries behind: %w", r.ID(), to, behind,
				fsm.ErrUnavailable)
		}
	}
}

// transferTarget returns the first voter that answers and follows closely, without one the one that lacks
// least, "" if none answers.
func (h *Host) transferTarget(ctx context.Context, r *replica.Replica) fsm.NodeID {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // whoever has not answered by then
	voters := slices.DeleteFunc(r.Status().Voters, func(v fsm.NodeID) bool { return v == h.cfg.Node })
	answers := make(chan *replica.Status, len(voters))
	for _, v := range voters {
		wg.Go(func() { answers <- h.follower(ctx, r, v) })
	}
	var best *replica.Status
	for range voters {
		s := <-answers
		if s == nil {
			continue
		}
		if r.CloselyFollowedBy(s) {
			return s.Node
		}
		if best == nil || s.Last > best.Last {
			best = s
		}
	}
	if best == nil {
		return ""
	}
	return best.Node
}

// follower asks a node for its replica; nil if it does not answer or has none that works.
func (h *Host) follower(ctx context.Context, r *replica.Replica, n fsm.NodeID) *replica.Status {
	ask, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	all, err := askStatus(ask, h.deps.Caller, n)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].Partition == r.ID() && all[i].Failure == "" {
			return &all[i]
		}
	}
	return nil
}
