package replica

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// ID returns the partition that the replica is of.
func (r *Replica) ID() fsm.PartitionID { return r.id }

// Node returns the id of the node that the replica is on.
func (r *Replica) Node() fsm.NodeID { return r.cfg.Node }

// Log returns the logger of the replica.
func (r *Replica) Log() hclog.Logger { return r.log }

// OpenedAt returns when the replica was opened.
func (r *Replica) OpenedAt() time.Time { return r.openedAt }

// Failure returns why the replica stopped for good, nil if it did not.
func (r *Replica) Failure() error {
	if e := r.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// Unverified reports whether nobody knows yet that the data is not an old copy.
func (r *Replica) Unverified() bool { return r.unverified.Load() }

// strandedAfter is for how long nobody must have said that the data is not an old copy, for the replica to be given up.
const strandedAfter = 2 * time.Minute

// Stranded reports whether nobody has said that for so long. All other voters that this replica knows may have been exchanged for others
// while its node was off. Its group may have it rebuilt, because the replica has taken part in nothing.
func (r *Replica) Stranded() bool { return r.Unverified() && time.Since(r.openedAt) >= strandedAfter }

// Stalled reports whether a store call hangs on the disk of the node.
func (r *Replica) Stalled() bool { return r.stalled.Load() }

// SetStalled says whether a store call hangs, and reports whether that is new. Callers are answered when one does.
func (r *Replica) SetStalled(stalled bool) (changed bool) {
	if r.stalled.Swap(stalled) == stalled {
		return false
	}
	if stalled {
		r.prop.leave(nil)
	} else {
		r.prop.poke()
	}
	return true
}

// OldestCall returns the age of the oldest store call under way, 0 if there is none (R1).
func (r *Replica) OldestCall() time.Duration { return r.guard.oldest() }

// TakeStuck reports whether the replica was found stuck, once.
func (r *Replica) TakeStuck() bool { return r.stuck.Swap(false) }

// Fail stops the replica for good: it serves nothing, and answers nobody. The guard has parked the
// goroutine that met the error.
func (r *Replica) Fail(err error) {
	if !r.failure.CompareAndSwap(nil, &err) {
		return
	}
	r.log.Error("replica failed and stops", "error", err, "mend", repairHint(err))
	r.shut()
	r.node.Changed(r)
}

// RestartStuck asks the node for a new start of this replica (R5, R10).
func (r *Replica) RestartStuck(err error) {
	if r.failure.Load() != nil {
		return // what failed otherwise is not opened anew for this
	}
	r.stuck.Store(true)
	r.Fail(err)
}

func (r *Replica) shut() {
	r.stopOnce.Do(func() {
		close(r.stopping)
		if r.prop != nil {
			close(r.prop.closed)
			r.prop.leave(r.ending())
		}
	})
}

// Err returns why the replica does not serve, or nil.
func (r *Replica) Err() error {
	if e := r.failure.Load(); e != nil {
		return fmt.Errorf("replica failed (%w): %w", *e, fsm.ErrNotLeader)
	}
	if r.stalled.Load() {
		return fmt.Errorf("disk is stalled: %w", fsm.ErrNotLeader)
	}
	if r.unverified.Load() {
		return fmt.Errorf("no peer has said yet that the data is not an old copy: %w", fsm.ErrNotLeader)
	}
	return nil
}

// ending is what callers hear when the proposer ends: this node closes, or another replica must
// serve them.
func (r *Replica) ending() error {
	if err := r.Err(); err != nil {
		return err
	}
	return fsm.ErrClosed
}
