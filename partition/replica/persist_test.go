package replica

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// pinOf are bodies that write themselves to a snapshot with what an error says.
type pinOf struct {
	brittleBodies
	err error
}

func (b *pinOf) Pin() pin { return failingPin{emptyPin{strings.NewReader("bodies")}, b.err} }

type failingPin struct {
	emptyPin
	err error
}

func (p failingPin) WriteTo(w io.Writer) (int64, error) {
	if p.err != nil {
		return 0, p.err
	}
	return p.emptyPin.WriteTo(w)
}

// fullSnapshots has no room for a snapshot.
type fullSnapshots struct{ *raft.InmemSnapshotStore }

type fullSink struct{ raft.SnapshotSink }

func (fullSink) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func (s fullSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64,
	t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.InmemSnapshotStore.Create(v, index, term, c, at, t)
	return fullSink{sink}, err
}

// A15: bodies that a snapshot could not write are not written any more, so no later snapshot is taken either. The replica
// starts anew when there is room. A snapshot that has no room itself is only taken later.
func TestBodiesThatCannotBeWrittenFailTheReplica(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "bodies", Err: syscall.ENOSPC}
	for name, tt := range map[string]struct {
		bodies error
		snaps  raft.SnapshotStore
		fails  bool
	}{
		"the bodies have no room":  {full, raft.NewInmemSnapshotStore(), true},
		"the snapshot has no room": {nil, fullSnapshots{raft.NewInmemSnapshotStore()}, false},
		"there is room for it all": {nil, raft.NewInmemSnapshotStore(), false},
	} {
		t.Run(name, func(t *testing.T) {
			aloneWith(t, func(s *Stores) { s.Bodies, s.Snapshots = &pinOf{err: tt.bodies}, tt.snaps },
				func(t *testing.T, r *Replica, _ *counter) {
					if _, err := r.Propose(t.Context(), counted(1)); err != nil {
						t.Fatal(err)
					}
					_ = r.Snapshot()
					if err := r.Failure(); tt.fails != errors.Is(err, syscall.ENOSPC) || tt.fails != (r.Starved() != nil) {
						t.Errorf("the replica says %v", err)
					}
				})
		})
	}
}
