package partition

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/partition/raftnet"

	"github.com/busbar-mq/busbar/fsm"
)

// A leader that cannot read a body would answer the same for ever, and nobody else is asked while it
// leads: it must give its replica up, and be rebuilt by those that have the body.
func TestLeaderWithAnUnreadableBodyIsRebuilt(t *testing.T) {
	asks := map[string]func(t *testing.T, b *brokers, k fsm.Key) int{
		"when a message is browsed": func(t *testing.T, b *brokers, k fsm.Key) int {
			a, err := b.all["n1"].r.Query(t.Context(), k, &fsm.Peek{Max: 100, MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return len(a.Messages)
		},
		"when a message is delivered": func(t *testing.T, b *brokers, k fsm.Key) int {
			o, err := b.all["n1"].r.Propose(t.Context(), reqOf(0, 90, 1), k, &fsm.Lock{Max: 100, MaxBytes: 1 << 20})
			if err != nil || o.Refusal != fsm.None {
				t.Fatal(o, err)
			}
			return len(o.Locked)
		},
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, d, sent := loaded(t)
				defer b.close()
				bad := b.all[leaderNode(b, 1)]
				bodies := bad.host.Replica(1).stores.Bodies.(*memBodies)
				bodies.mu.Lock()
				bodies.unread = errors.New("another bit")
				bodies.mu.Unlock()
				share := slices.Index(d.Partitions, 1)
				key := fsm.Key{Entity: d.ID, By: fsm.ByShare, Share: uint16(share)}
				if got, want := ask(t, b, key), sent/len(d.Partitions); got != want {
					t.Errorf("%d messages, want %d", got, want)
				}
				b.whole("n1 n2 n3")
				if bad.rebuilds.Load() != 1 {
					t.Errorf("rebuilt %d times", bad.rebuilds.Load())
				}
			})
		})
	}
}

func leaderNode(b *brokers, p fsm.PartitionID) fsm.NodeID {
	b.t.Helper()
	for range 1000 {
		for id, n := range b.all {
			if r := n.host.Replica(p); r != nil && r.Leading() {
				return id
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatal("nobody leads")
	return ""
}

// A message may be settled between the look at the state and the reading of its body.
func TestBodyThatWasFreedFailsNobody(t *testing.T) {
	failed := 0
	m := &machine{bodies: newMemBodies(), fail: func(error) { failed++ }, ended: make(chan struct{})}
	ds := []fsm.Delivery{{Ref: fsm.BodyRef{Index: 7, Length: 3}}}
	if err := m.fill(ds); err == nil || failed != 0 {
		t.Fatalf("%v, failed %d times", err, failed)
	}
	m.bodies.(*memBodies).unread = errors.New("another bit")
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
