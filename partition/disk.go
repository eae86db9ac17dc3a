package partition

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// Disk is the disk that the stores of this node are on.
type Disk interface {
	// Space returns the bytes that this process may still write, and all bytes of the disk.
	Space() (free, total uint64, err error)
	// Ballast takes some of the space, or gives it back. Raft needs it to elect, to take snapshots and to cut logs
	// when nothing else is left.
	Ballast(hold bool) error
}

// diskLevel is what the disk has room for.
type diskLevel int32

const (
	roomForAll       diskLevel = iota
	roomForSettling            // nothing that adds: what is settled and deleted makes room
	roomForDeletions           // raft's own, and the deletion of entities
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
func (r *DiskLimits) level(was diskLevel, free, total uint64) diskLevel {
	below := func(share float64, floor uint64, inside bool) bool {
		limit := min(uint64(share*float64(total)), floor)
		if inside {
			limit += limit / roomSlack
		}
		return free < limit
	}
	switch {
	case below(r.SettleFraction, r.SettleFloor, was >= roomForDeletions):
		return roomForDeletions
	case below(r.PublishFraction, r.PublishFloor, was >= roomForSettling):
		return roomForSettling
	}
	return roomForAll
}

// diskSpace watches the disk of a node.
type diskSpace struct {
	level atomic.Int32
	// left is what may be stored until the next look, in bytes: a fast disk fills a small reserve in
	// less time than that takes.
	left    atomic.Int64
	watched atomic.Bool // somebody looks
	free    atomic.Uint64
	// The rest is the watchdog's alone.
	held  bool // the ballast
	known bool // whether it is held: it may be there from the life before
	tried time.Time
}

func (r *diskSpace) now() diskLevel { return diskLevel(r.level.Load()) }

// storedTimes is how often the bytes of a message get to the disk before the next look. They are in the log, in the
// bodies, and in a segment of either that is taken ahead.
const storedTimes = 3

// allowance is what may be stored until the next look: it may eat half of the reserve.
func (r *DiskLimits) allowance(free, total uint64) int64 {
	reserve := min(uint64(r.PublishFraction*float64(total)), r.PublishFloor)
	if free < reserve/2 {
		return 0
	}
	return int64(min(free-reserve/2, 1<<62))
}

// grows returns how many bytes a command adds to what is kept, 0 for one that adds nothing.
func grows(c fsm.Command) (bytes int) {
	const around = 128 // what is kept of a message besides its body
	switch c := c.(type) {
	case *fsm.Enqueue, *fsm.Transfer:
		fsm.EachMessage(c, func(m *fsm.Message) { bytes += around + len(m.Body) })
	case *fsm.Commit:
		for i := range c.Ops {
			bytes += grows(c.Ops[i].Command)
		}
	case *fsm.BodyPart:
		bytes = around + len(c.Body)
	case *fsm.SetSessionState:
		bytes = around + len(c.State)
	}
	return bytes
}

// restartBytes is the free space at which a replica that failed for want of room starts anew on a disk that is still
// full. With the ballast given back there may be that much. It then takes deletions, which may be all that can help.
const restartBytes = 8 << 20

// mayRestart reports whether a replica that failed for want of room has what a new start needs.
func (r *diskSpace) mayRestart() bool {
	return r.now() < roomForDeletions || !r.held && r.free.Load() >= restartBytes
}

// repairHint says to people what to do about a replica that failed with an error.
func repairHint(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "the file system of the data directory is read-only: see to the disk, mount it for writing, " +
			"and start the node again; the others go on without it ('When a disk fails' in docs/operating.md)"
	case outOfFiles(err):
		return "the process has no descriptor left: raise its limit of open files, or lower limits.connections; " +
			"the replica starts anew by itself"
	case outOfRoom(err):
		return "make room on the disk: the replica starts anew by itself"
	}
	return repairText
}

// outOfRoom reports whether an error says that a disk is full.
func outOfRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// outOfFiles reports whether an error says that the process, or the machine, has no descriptor left.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// starvation reports whether an error is about something that comes back without a person: room on the disk, or
// descriptors.
func starvation(err error) bool { return outOfRoom(err) || outOfFiles(err) }

// spreadReadOnly fails every replica of the node when one met a disk that takes no more writes: they share it. A
// replica that leads and has nothing to write would keep its leadership until the first client that needs it.
func spreadReadOnly(rs []*Replica) {
	for _, r := range rs {
		e := r.failure.Load()
		if e == nil || r.spread || !errors.Is(*e, syscall.EROFS) {
			continue
		}
		r.spread = true
		for _, o := range rs {
			if o.failure.Load() == nil {
				o.spread = true
				o.fail(fmt.Errorf("the disk of partition %d and this one: %w", r.id, *e))
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
	h.space.watched.Store(true)
	h.space.free.Store(free)
	h.space.left.Store(h.cfg.Disk.allowance(free, total))
	was := h.space.now()
	now := h.cfg.Disk.level(was, free, total)
	if now != was {
		h.space.level.Store(int32(now))
		h.deps.Log.Warn("room on the disk", "free bytes", free, "total bytes", total,
			"publishing", now < roomForSettling, "settling", now < roomForDeletions)
	}
	hold := now == roomForAll || now == roomForSettling && (h.space.held || !h.space.known)
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

// errDiskFull refuses what would be kept on a full disk.
var errDiskFull = fmt.Errorf("no room: %w", fsm.ErrBusy)

// fits reports whether there is room for a command, before it gets into the log. The leader's own
// disk decides, and those of its voters: an entry needs a majority that can hold it.
func (r *Replica) fits(c fsm.Command) error {
	level := r.room.now()
	if level == roomForAll && r.votersFull.Load() {
		level = roomForSettling
	}
	if change, ok := c.(*fsm.Change); ok {
		if level >= roomForDeletions && catalog.Grows(change) {
			return fmt.Errorf("disk is full, only deletions are taken: %w", errDiskFull)
		}
		return nil
	}
	switch traits := c.Traits(); {
	case traits.Has(fsm.Frees):
	case traits.Has(fsm.Stores):
		if level >= roomForSettling {
			return fmt.Errorf("disk is nearly full, nothing more is stored: %w", errDiskFull)
		}
		if r.room.watched.Load() && r.room.left.Add(-storedTimes*int64(grows(c))) < 0 {
			return fmt.Errorf("disk fills fast, it is measured again first: %w", fsm.ErrBusy)
		}
	case level >= roomForDeletions:
		return fmt.Errorf("disk is full, only deletions are taken: %w", fsm.ErrBusy)
	}
	return nil
}

// noteFullVoters tells a leader whether so many voters have no room that a majority would not hold an entry.
func (r *Replica) noteFullVoters(servers map[fsm.NodeID]raft.ServerSuffrage, states map[fsm.NodeID]nodeState) {
	voters, full := 0, 0
	for n, s := range servers { // order-free: only counts
		if s != raft.Voter {
			continue
		}
		voters++
		if states[n][r.id].Full {
			full++
		}
	}
	r.votersFull.Store(voters > 0 && voters-full <= voters/2)
}
