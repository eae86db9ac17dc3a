package replica

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// snapshotPause is how long a failed snapshot waits for the next attempt.
const snapshotPause = 10 * time.Second

// needyPause is how often a snapshot is taken to get room on a disk that is nearly full.
const needyPause = 30 * time.Second

// fillingTimes is by how much the log of a leader may grow longer while a new replica is filled.
const fillingTimes = 16

// snapshots decides when a replica takes one. Raft's own schedule counts entries, which may be 256
// KiB or 100 bytes.
type snapshots struct {
	r      *Replica
	busy   atomic.Bool
	resume time.Time
	last   time.Time // when the last one was begun
}

func (s *snapshots) look() {
	m := s.r.machine
	if s.busy.Load() || time.Now().Before(s.resume) {
		return
	}
	// The space of settled and deleted messages comes back only when the snapshots that still name them are replaced.
	// Without one now and then a full disk would stay full, because nothing is published that would cause one.
	needy := s.r.room.Level() >= RoomForSettling && m.sinceEntries.Load() > 0 &&
		time.Since(s.last) >= needyPause
	bytes, entries := s.r.cfg.SnapshotBytes, s.r.cfg.SnapshotEntries
	if s.r.fills() {
		bytes, entries = fillingTimes*bytes, fillingTimes*entries
	}
	if !needy && m.sinceBytes.Load() < bytes && m.sinceEntries.Load() < entries {
		return
	}
	s.last = time.Now()
	s.busy.Store(true)
	s.resume = time.Now().Add(snapshotPause)
	s.r.wg.Add(1)
	go func() {
		defer s.r.wg.Done()
		defer s.busy.Store(false)
		err := s.r.Snapshot()
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			s.r.log.Warn("snapshot failed", "error", err)
		}
	}()
}

// fills reports whether this replica leads a group that a new member catches up with. A snapshot cuts the log, whose
// entries the member needs behind the snapshot that it was sent. Without them it would be sent another one, and again. The catalog has members without a vote for good, and its images are small.
func (r *Replica) fills() bool {
	return r.id != fsm.CatalogPartition && r.Leading() &&
		slices.ContainsFunc(r.Servers(), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
}

// Snapshot writes a snapshot now and cuts the log behind it.
func (r *Replica) Snapshot() error {
	f := r.raft.Snapshot()
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-r.stopping:
		return fsm.ErrClosed
	}
}
