package replica

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/raftnet"
)

// A message may be settled between the look at the state and the reading of its body.
func TestBodyThatWasFreedFailsNobody(t *testing.T) {
	failed := 0
	m := &machine{bodies: brittleBodies{}, fail: func(error) { failed++ }, ended: make(chan struct{})}
	ds := []fsm.Delivery{{Ref: fsm.BodyRef{Index: 7, Length: 3}}}
	if err := m.fill(ds); err == nil || failed != 0 {
		t.Fatalf("%v, failed %d times", err, failed)
	}
	m.bodies = brittleBodies{errors.New("another bit")}
	if err := m.fill(ds); err == nil || failed != 1 {
		t.Fatalf("%v, failed %d times", err, failed)
	}
	ended := make(chan struct{})
	close(ended)
	m.ended = ended
	if err := m.fill(ds); err == nil || failed != 1 {
		t.Fatalf("%v while closing, failed %d times", err, failed)
	}
}

type rottenSnapshots struct{ raft.SnapshotStore }

type rotten struct{ io.ReadCloser }

func (rotten) Read([]byte) (int, error) { return 0, errors.New("another bit") }

func (s rottenSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.SnapshotStore.Open(id)
	return meta, rotten{r}, err
}

// A leader sends a snapshot that it cannot read for ever, and the follower never catches up.
func TestLeaderWithAnUnreadableSnapshotGivesUp(t *testing.T) {
	for _, runs := range []bool{false, true} {
		t.Run(fmt.Sprintf("raft runs %v", runs), func(t *testing.T) {
			store := raft.NewInmemSnapshotStore()
			sink, err := store.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, nil)
			if err != nil || sink.Close() != nil {
				t.Fatal(err)
			}
			failed := 0
			g := newGuard(Stores{}, 1, func(error) { failed++ })
			side := raftSide{r: &Replica{guard: g}}
			gate := raftnet.New(raftnet.Config{}, side, rottenSnapshots{store}).Snapshots()
			if runs {
				g.start()
			}
			_, r, err := gate.Open(sink.ID())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(r); err == nil {
				t.Error("rot is read")
			}
			if runs != (failed == 1) {
				t.Errorf("failed %d times", failed)
			}
		})
	}
}
