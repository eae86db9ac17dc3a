package replica

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// snapshotPause is how long a failed snapshot waits for the next attempt.
const snapshotPause = 10 * time.Second

// needyPause is how often a snapshot is taken to get room on a disk that is nearly full.
const needyPause = 30 * time.Second

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
	// The space of settled messages comes back only when the snapshots that still name them are replaced. Without one
	// now and then a full disk would stay full, because nothing is published that would cause one.
	needy := s.r.room.Level() == RoomForSettling && m.sinceEntries.Load() > 0 &&
		time.Since(s.last) >= needyPause
	if !needy && m.sinceBytes.Load() < s.r.cfg.SnapshotBytes &&
		m.sinceEntries.Load() < s.r.cfg.SnapshotEntries {
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
