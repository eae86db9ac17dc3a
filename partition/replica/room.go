package replica

import (
	"fmt"
	"sync/atomic"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// DiskLevel is what the disk has room for.
type DiskLevel int32

const (
	RoomForAll       DiskLevel = iota
	RoomForSettling            // nothing that adds: what is settled and deleted makes room
	RoomForDeletions           // raft's own, and the deletion of entities
)

// Room is what the disk of a node has room for. The node measures it, and all its replicas ask and count.
type Room struct {
	level atomic.Int32
	// left is what may be stored until the next look, in bytes: a fast disk fills a small reserve in
	// less time than that takes.
	left    atomic.Int64
	watched atomic.Bool // somebody looks
}

// Level returns what there is room for.
func (r *Room) Level() DiskLevel { return DiskLevel(r.level.Load()) }

// SetLevel says what there is room for.
func (r *Room) SetLevel(l DiskLevel) { r.level.Store(int32(l)) }

// Allow says how many bytes may be stored until the next look.
func (r *Room) Allow(bytes int64) {
	r.watched.Store(true)
	r.left.Store(bytes)
}

// holds reports whether a command may be stored before the next look, and counts its bytes.
func (r *Room) holds(c fsm.Command) bool {
	return !r.watched.Load() || r.left.Add(-storedTimes*int64(grows(c))) >= 0
}

// took counts bytes that get into the log with a command that was asked for before.
func (r *Room) took(bytes int) { r.left.Add(-storedTimes * int64(bytes)) }

// spent reports whether nothing more may be stored before the next look.
func (r *Room) spent() bool { return r.watched.Load() && r.left.Load() < 0 }

// storedTimes is how often the bytes of a message get to the disk before the next look. They are in the log, in the
// bodies, and in a segment of either that is taken ahead.
const storedTimes = 3

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

// ErrDiskFull refuses what would be kept on a full disk.
var ErrDiskFull = fmt.Errorf("no room: %w", fsm.ErrBusy)

// fits reports whether there is room for a command, before it gets into the log. The leader's own
// disk decides, and those of its voters: an entry needs a majority that can hold it.
func (r *Replica) fits(c fsm.Command) error {
	level := r.room.Level()
	if level == RoomForAll && r.votersFull.Load() {
		level = RoomForSettling
	}
	if change, ok := c.(*fsm.Change); ok {
		if level >= RoomForDeletions && catalog.Grows(change) {
			return fmt.Errorf("disk is full, only deletions are taken: %w", ErrDiskFull)
		}
		return nil
	}
	switch traits := c.Traits(); {
	case traits.Has(fsm.Frees):
	case traits.Has(fsm.Stores):
		if level >= RoomForSettling {
			return fmt.Errorf("disk is nearly full, nothing more is stored: %w", ErrDiskFull)
		}
		if !r.room.holds(c) {
			return fmt.Errorf("disk fills fast, it is measured again first: %w", fsm.ErrBusy)
		}
	case level >= RoomForDeletions:
		return fmt.Errorf("disk is full, only deletions are taken: %w", fsm.ErrBusy)
	}
	return nil
}

// SetVotersFull tells a leader whether so many voters have no room that a majority would not hold an entry.
func (r *Replica) SetVotersFull(full bool) { r.votersFull.Store(full) }

// VotersFull reports whether the replica leads and stores nothing because too many of its voters have no room.
func (r *Replica) VotersFull() bool { return r.Leading() && r.votersFull.Load() }
