package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Opening, closing for a new start and rebuilding a replica exclude each other: who does one of them
// holds the partition's claim. Two at once would open one replica's stores twice, or delete stores
// that are in use.

// claimLocked takes the claim of a partition, unless somebody has it or the host closes. Close waits
// until it is given back.
func (h *Host) claimLocked(p fsm.PartitionID) bool {
	if h.closed || h.opening[p] {
		return false
	}
	h.opening[p] = true
	h.wg.Add(1)
	return true
}

func (h *Host) unclaim(p fsm.PartitionID) {
	h.mu.Lock()
	delete(h.opening, p)
	h.mu.Unlock()
	h.wg.Done()
}

// openClaimed opens a replica, lists it, and gives the claim back.
func (h *Host) openClaimed(p fsm.PartitionID, members []fsm.NodeID) error {
	defer h.unclaim(p)
	r, err := h.open(p, members)
	h.mu.Lock()
	h.members[p] = members
	delete(h.broken, p)
	switch {
	case err != nil:
		h.broken[p] = err
	case h.closed:
		h.mu.Unlock()
		return errors.Join(fsm.ErrClosed, r.Close())
	default:
		h.setLocked(p, r)
	}
	h.mu.Unlock()
	if err == nil {
		h.note(r) // what it saw before it was listed
		h.staleness.opened()
	}
	return err
}

// renew closes the replica of a claimed partition, nil if it could not be opened. It does what is to be done while
// the replica is closed, and opens it. It gives the claim back.
func (h *Host) renew(p fsm.PartitionID, r *replica.Replica, members []fsm.NodeID, between func() error) error {
	if r != nil {
		err := r.Close()
		if errors.Is(err, replica.ErrHangs) {
			// A goroutine inside the stores keeps them open; only a new process helps.
			h.unclaim(p)
			h.fatal(fmt.Errorf("a replica can be opened by a new process only: %w", err))
			return err
		}
		if err != nil {
			r.Log().Warn("close replica for a new start", "error", err)
		}
	}
	if err := between(); err != nil {
		h.unclaim(p)
		return err
	}
	h.mu.Lock()
	h.setLocked(p, nil)
	delete(h.broken, p)
	h.mu.Unlock()
	return h.openClaimed(p, members)
}

// again closes a replica and opens it from what its stores hold, on a goroutine of its own. Closing waits for a disk,
// and the watchdog must not. It stays closed for a pause. It reports false if somebody else is at it.
func (h *Host) again(r *replica.Replica, pause time.Duration) bool {
	h.mu.Lock()
	if h.replicas[r.ID()] != r || !h.claimLocked(r.ID()) {
		h.mu.Unlock()
		return false
	}
	members := h.members[r.ID()]
	h.mu.Unlock()
	go h.renewAfter(r.ID(), r, members, pause)
	return true
}

// renewAfter renews a claimed partition, whose replica is nil if it could not be opened. The replica stays closed for a
// pause.
func (h *Host) renewAfter(p fsm.PartitionID, r *replica.Replica, members []fsm.NodeID, pause time.Duration) {
	err := h.renew(p, r, members, func() error {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-h.stop:
			return fsm.ErrClosed
		case <-t.C:
			return nil
		}
	})
	if err != nil && !errors.Is(err, fsm.ErrClosed) {
		h.deps.Log.Error("open replica anew", "partition", p, "error", err)
	}
}

const (
	// maxRestarts is how often a replica that is stuck again and again is opened anew before the
	// process must be.
	maxRestarts = 3
	// restartsForget is how long a replica must have worked for its stops to count no more.
	restartsForget = 10 * time.Minute
)

// reopen gives a stuck replica a new start.
func (h *Host) reopen(r *replica.Replica) {
	h.mu.Lock()
	if time.Since(r.OpenedAt()) > restartsForget {
		h.restarts[r.ID()] = 0
	}
	h.restarts[r.ID()]++
	h.stuckFound[r.ID()]++
	n := h.restarts[r.ID()]
	h.mu.Unlock()
	if n > maxRestarts {
		h.fatal(fmt.Errorf("partition %d is wedged again after %d restarts", r.ID(), maxRestarts))
		return
	}
	r.Log().Error("wedged replica is opened anew", "times", n)
	// The cause that kept it from leading may be there still, so another replica is given the time to be elected.
	h.again(r, h.cfg.HeartbeatTimeout+h.cfg.ElectionTimeout)
}

// restartEvery is the least time between two new starts of a replica that ran out of room or descriptors.
const restartEvery = 10 * time.Second

// restartFilesEvery is the same of one that ran out of descriptors: whoever took them gives them back at once.
const restartFilesEvery = 2 * time.Second

// restartedLatelyLocked reports whether a replica had a new start a short while ago. If not, it has one now.
func (h *Host) restartedLatelyLocked(p fsm.PartitionID, err error) bool {
	pause := restartEvery
	if replica.OutOfFiles(err) {
		pause = restartFilesEvery
	}
	if time.Since(h.restarted[p]) < pause {
		return true
	}
	h.restarted[p] = time.Now()
	return false
}

// mayRestart reports whether what was missing is there again.
func (h *Host) mayRestart(err error) bool {
	// Nobody can ask for free descriptors without taking them: a new start tries.
	return replica.OutOfFiles(err) || h.space.mayRestart()
}

// restartUnopened opens the replicas anew that could not be opened for want of room or descriptors.
func (h *Host) restartUnopened() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, err := range h.broken {
		if !replica.Starvation(err) || !h.mayRestart(err) || h.restartedLatelyLocked(p, err) || !h.claimLocked(p) {
			continue
		}
		go h.renewAfter(p, nil, h.members[p], 0)
	}
}

// restartStarved gives a replica that failed for want of room a new start, now that there is room. Its group
// may be without a majority until then, and nobody left to rebuild it; opening it is what a restart
// of the process would do, and as safe.
func (h *Host) restartStarved(r *replica.Replica) {
	h.mu.Lock()
	early := h.restartedLatelyLocked(r.ID(), r.Failure())
	h.mu.Unlock()
	if !early && h.again(r, 0) {
		r.Log().Warn("what was missing may be there again: the replica starts anew", "failed", r.Failure())
	}
}
