package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

// retire deletes the replica of a partition that its group has removed, and that the catalog places elsewhere. It
// closes the replica and then asks. From then on the node does not list it, so no leader takes it in. The leader
// commits an entry after that, so it leads in earnest, and what it says of its members is true.
func (h *Host) retire(ctx context.Context, d *Directory, p fsm.PartitionID, leader fsm.NodeID) error {
	if h.deps.Rebuild == nil {
		return errors.New("stores of this node cannot be rebuilt")
	}
	h.mu.Lock()
	r := h.replicas[p]
	if r == nil || r.Leading() || !h.claimLocked(p) {
		h.mu.Unlock()
		return nil
	}
	members := h.members[p]
	h.setLocked(p, nil)
	h.mu.Unlock()
	_, term := r.Leader()
	blank := r.Blank()
	if err := r.Close(); errors.Is(err, replica.ErrHangs) {
		h.unclaim(p)
		h.fatal(fmt.Errorf("a replica can be closed by a new process only: %w", err))
		return err
	}
	removed, err := h.removedAt(ctx, d, p, leader, term)
	if err == nil && !blank { // a replica that was never taken in holds nothing
		err = h.deps.Rebuild(p, removed)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("partition %d: %w", p, err), h.openClaimed(p, members))
	}
	h.mu.Lock()
	delete(h.broken, p)
	delete(h.members, p)
	h.mu.Unlock()
	h.unclaim(p)
	h.deps.Log.Info("a replica that has moved is deleted", "partition", uint16(p), "removed at", removed)
	return nil
}

// removedAt returns the index of a committed configuration of a group without this node. It is an error if the leader
// has another one or does not lead, or if the catalog as of now places the partition here.
func (h *Host) removedAt(ctx context.Context, d *Directory, p fsm.PartitionID, leader fsm.NodeID, term uint64) (
	uint64, error) {
	if _, err := NewRemote(h.deps.Caller, leader, p).ReadIndex(ctx); err != nil {
		return 0, fmt.Errorf("node %s: %w", leader, err)
	}
	all, err := askStatus(ctx, h.deps.Caller, leader)
	if err != nil {
		return 0, fmt.Errorf("node %s: %w", leader, err)
	}
	i := slices.IndexFunc(all, func(s replica.Status) bool { return s.Partition == p })
	if i < 0 || !all[i].Leading || all[i].Term < term || !control.Lacks(&all[i], h.cfg.Node) {
		return 0, fmt.Errorf("node %s does not say that it leads a group without this node: %w", leader, fsm.ErrUnavailable)
	}
	if err := d.catchUp(ctx); err != nil {
		return 0, err
	}
	v := d.View()
	if v == nil {
		return 0, fmt.Errorf("the catalog is not known: %w", fsm.ErrUnavailable)
	}
	if g, placed := v.Group(p); !placed || slices.Contains(g.Members, h.cfg.Node) {
		return 0, fmt.Errorf("the catalog places it here again: %w", fsm.ErrUnavailable)
	}
	return all[i].Configured, nil
}
