package replica

import (
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// crampedSnapshots has no room for a snapshot for a while.
type crampedSnapshots struct {
	*raft.InmemSnapshotStore
	full *atomic.Bool
}

func (s crampedSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64,
	t raft.Transport) (raft.SnapshotSink, error) {
	if s.full.Load() {
		return nil, syscall.ENOSPC
	}
	return s.InmemSnapshotStore.Create(v, index, term, c, at, t)
}

// A snapshot that failed is taken soon, although nothing more is written: the space of settled messages comes back with it.
func TestASnapshotThatFailedIsTakenAgain(t *testing.T) {
	full := &atomic.Bool{}
	full.Store(true)
	snaps := crampedSnapshots{raft.NewInmemSnapshotStore(), full}
	aloneWith(t, func(s *Stores) { s.Snapshots = snaps }, func(t *testing.T, r *Replica, _ *counter) {
		r.cfg.SnapshotEntries = 1
		if _, err := r.Propose(t.Context(), counted(1)); err != nil {
			t.Fatal(err)
		}
		taken := func() int {
			r.Look()
			synctest.Wait()
			all, err := snaps.List()
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		if n := taken(); n != 0 {
			t.Fatalf("%d snapshots without room", n)
		}
		full.Store(false)
		time.Sleep(snapshotPause)
		if n := taken(); n != 1 {
			t.Errorf("%d snapshots with room, want 1", n)
		}
		time.Sleep(snapshotPause)
		if taken(); r.machine.sinceEntries.Load() != 0 {
			t.Errorf("%d entries are counted behind the snapshot", r.machine.sinceEntries.Load())
		}
	})
}
