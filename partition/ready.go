package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Check is one thing that a node looks at in itself. Its error is nil while all is well.
type Check struct {
	Name string
	Err  error
}

// The names of the checks. Operators use them in alerts, so they stay as they are.
const (
	CheckReplicas      = "replicas"       // what the catalog places here is open, and works
	CheckLeaders       = "leaders"        // each replica here knows a leader
	CheckCommits       = "commits"        // what is led here commits
	CheckMembership    = "membership"     // nobody wants this node out of the cluster
	CheckCatalogLeader = "catalog-leader" // the catalog has a leader, so entities can be changed
	CheckDiskSpace     = "disk-space"     // messages are stored
	CheckClock         = "clock"          // the date here is that of the others
)

// Ready returns why this node should get no new clients now, nil if it should (RUL-20).
func (h *Host) Ready(ctx context.Context) error {
	var errs []error
	for _, c := range h.Readiness(ctx) {
		if c.Err != nil {
			errs = append(errs, c.Err)
		}
	}
	return errors.Join(errs...)
}

// Readiness returns the checks that decide whether this node gets new clients. They are about its own share of the way
// of a message. Its replicas are open and work, and those of messages know a leader. A barrier at most a second old must
// have passed through those that lead. A fault that all nodes share is an alarm: if a node were not ready for that, none
// would be, and clients would find nobody.
func (h *Host) Readiness(ctx context.Context) []Check {
	var failed, leaderless, stuck []error
	rs := h.list()
	if len(rs) == 0 {
		failed = append(failed, fmt.Errorf("no partition is open: %w", fsm.ErrUnavailable))
	}
	failed = append(failed, h.missing()...)
	for _, r := range rs {
		if err := r.Err(); err != nil {
			failed = append(failed, fmt.Errorf("partition %d: %w", r.ID(), err))
			continue
		}
		if r.ID() == fsm.CatalogPartition {
			continue
		}
		if err := h.leaderless(r); err != nil {
			leaderless = append(leaderless, err)
		} else if r.Leading() {
			if err := r.Barrier(ctx, time.Second); err != nil {
				stuck = append(stuck, fmt.Errorf("partition %d: %w", r.ID(), err))
			}
		}
	}
	return []Check{
		{CheckReplicas, errors.Join(failed...)},
		{CheckLeaders, errors.Join(leaderless...)},
		{CheckCommits, errors.Join(stuck...)},
		{CheckMembership, h.unwanted()},
	}
}

// unwanted returns why clients should not come to this node although it works. It leaves the cluster for good, and has no
// place in a partition any more.
func (h *Host) unwanted() error {
	v := h.catalog()
	if v == nil {
		return nil
	}
	n, known := v.Node(h.cfg.Node)
	if v.IsRemoved(h.cfg.Node) || known && n.LeavesForGood() && !v.HoldsAny(h.cfg.Node) {
		return fmt.Errorf("this node leaves the cluster for good: %w", fsm.ErrUnavailable)
	}
	return nil
}

// Alarms returns the checks that turn no client away, and of which an operator should hear. They fail when entities
// cannot be changed, messages are not stored, or the clock is wrong.
func (h *Host) Alarms() []Check {
	catalog, disk, clock := error(nil), h.noRoom(), error(nil)
	if r := h.Replica(fsm.CatalogPartition); r != nil && r.Err() == nil {
		if catalog = h.leaderless(r); catalog != nil {
			catalog = fmt.Errorf("the catalog has no leader, so entities cannot be changed: %w", catalog)
		}
	}
	if c := h.Clock(); c.Wrong {
		clock = fmt.Errorf("the clock is %v ahead of the median of all nodes, so others lead: %w", c.Ahead, fsm.ErrUnavailable)
	}
	return []Check{{CheckCatalogLeader, catalog}, {CheckDiskSpace, disk}, {CheckClock, clock}}
}

// noRoom returns why messages are not stored here: the disk of this node, or those of most voters of a partition that it
// leads.
func (h *Host) noRoom() error {
	if h.space.Level() >= replica.RoomForSettling {
		return fmt.Errorf("disk is nearly full, %d bytes are free: nothing more is stored: %w", h.space.free.Load(), fsm.ErrBusy)
	}
	for _, r := range h.list() {
		if r.VotersFull() {
			return fmt.Errorf("partition %d stores nothing more, because the disks of most of its nodes are nearly full: %w",
				r.ID(), fsm.ErrBusy)
		}
	}
	return nil
}

// leaderless returns an error if a replica knows no leader, or a lost one. A follower believes in its leader until a
// time-out that is longer than the loss is new.
func (h *Host) leaderless(r *replica.Replica) error {
	leader, _ := r.Leader()
	switch {
	case leader == "":
		return fmt.Errorf("partition %d: no leader is known: %w", r.ID(), fsm.ErrUnavailable)
	case h.lost.has(leader):
		return fmt.Errorf("partition %d: its leader %s is lost: %w", r.ID(), leader, fsm.ErrUnavailable)
	}
	return nil
}

// missing returns an error for each partition that the catalog places here and that is not open. A
// catalog without partitions serves nobody yet.
func (h *Host) missing() (errs []error) {
	v := h.catalog()
	if v == nil {
		return nil
	}
	groups := v.Groups()
	if len(groups) == 0 {
		return []error{fmt.Errorf("no partition is placed yet: %w", fsm.ErrUnavailable)}
	}
	for _, g := range groups {
		if slices.Contains(g.Members, h.cfg.Node) && h.Replica(g.ID) == nil {
			errs = append(errs, fmt.Errorf("partition %d is not open: %w", g.ID, fsm.ErrUnavailable))
		}
	}
	return errs
}
