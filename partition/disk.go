package partition

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/busbar-mq/busbar/partition/replica"
)

// DiskLimits set when a node stops taking what its disk may not hold. A disk that is really full fails
// replicas, and the space that a log needs to settle a message is the same that publishing takes.
type DiskLimits struct {
	// A level is entered when the free share of the disk is below Share and the free bytes are below Floor. A share
	// alone would give a large disk up with a terabyte free. A floor alone would be all of a small one.
	PublishFraction, SettleFraction float64
	PublishFloor, SettleFloor       uint64
}

func (r *DiskLimits) problem() string {
	switch {
	case r.PublishFraction <= 0 || r.PublishFraction >= 1 || r.SettleFraction <= 0:
		return "room: shares are not between 0 and 1"
	case r.SettleFraction >= r.PublishFraction || r.SettleFloor >= r.PublishFloor:
		return "room: publishing must end before settling"
	}
	return ""
}

// roomSlack is by how much more must be free to leave a level than to enter it: 1/8.
const roomSlack = 8

// level decides the level from the one before.
func (r *DiskLimits) level(was replica.DiskLevel, free, total uint64) replica.DiskLevel {
	below := func(share float64, floor uint64, inside bool) bool {
		limit := min(uint64(share*float64(total)), floor)
		if inside {
			limit += limit / roomSlack
		}
		return free < limit
	}
	switch {
	case below(r.SettleFraction, r.SettleFloor, was >= replica.RoomForDeletions):
		return replica.RoomForDeletions
	case below(r.PublishFraction, r.PublishFloor, was >= replica.RoomForSettling):
		return replica.RoomForSettling
	}
	return replica.RoomForAll
}

// diskSpace watches the disk of a node.
type diskSpace struct {
	replica.Room
	free atomic.Uint64
	// The rest is the watchdog's alone.
	held  bool // the ballast
	known bool // whether it is held: it may be there from the life before
	tried time.Time
}

// allowance is what may be stored until the next look: it may eat half of the reserve.
func (r *DiskLimits) allowance(free, total uint64) int64 {
	reserve := min(uint64(r.PublishFraction*float64(total)), r.PublishFloor)
	if free < reserve/2 {
		return 0
	}
	return int64(min(free-reserve/2, 1<<62))
}

// restartBytes is the free space at which a replica that failed for want of room starts anew on a disk that is still
// full. With the ballast given back there may be that much. It then takes deletions, which may be all that can help.
const restartBytes = 8 << 20

// mayRestart reports whether a replica that failed for want of room has what a new start needs.
func (r *diskSpace) mayRestart() bool {
	return r.Level() < replica.RoomForDeletions || !r.held && r.free.Load() >= restartBytes
}

// spreadReadOnly fails every replica of the node when one met a disk that takes no more writes: they share it. A
// replica that leads and has nothing to write would keep its leadership until the first client that needs it.
func (h *Host) spreadReadOnly(rs []*replica.Replica) {
	for _, r := range rs {
		err := r.Failure()
		if err == nil || h.spread[r.ID()] == r || !errors.Is(err, syscall.EROFS) {
			continue
		}
		h.spread[r.ID()] = r
		for _, o := range rs {
			if o.Failure() == nil {
				h.spread[o.ID()] = o
				o.Fail(fmt.Errorf("the disk of partition %d and this one: %w", r.ID(), err))
			}
		}
	}
}

// ballastEvery is how often the ballast is tried when it could not be taken.
const ballastEvery = time.Minute

// lookAtDisk sets the level; the watchdog calls it every second.
func (h *Host) lookAtDisk() {
	if h.deps.Disk == nil {
		return
	}
	free, total, err := h.deps.Disk.Space()
	if err != nil {
		h.deps.Log.Warn("space of the disk is not known", "error", err)
		return
	}
	h.space.free.Store(free)
	h.space.Allow(h.cfg.Disk.allowance(free, total))
	was := h.space.Level()
	now := h.cfg.Disk.level(was, free, total)
	if now != was {
		h.space.SetLevel(now)
		h.deps.Log.Warn("room on the disk", "free bytes", free, "total bytes", total,
			"publishing", now < replica.RoomForSettling, "settling", now < replica.RoomForDeletions)
	}
	hold := now == replica.RoomForAll || now == replica.RoomForSettling && (h.space.held || !h.space.known)
	if h.space.known && hold == h.space.held || hold && time.Since(h.space.tried) < ballastEvery {
		return
	}
	h.space.tried = time.Now()
	if err := h.deps.Disk.Ballast(hold); err != nil {
		h.deps.Log.Warn("ballast", "hold", hold, "error", err)
		return
	}
	h.space.held, h.space.known = hold, true
}
