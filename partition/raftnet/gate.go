package raftnet

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// gate keeps raft from taking a snapshot that its replica does not need. A leader sends one when a goroutine of its
// own believes the follower to be further back than it is. Such a goroutine has outlived a change of members, or lost
// an answer. Raft's handler then restores the older state and empties the log, with entries behind the snapshot in it
// that were acknowledged through this replica. The next commit panics on one of them, and after a restart the replica
// votes as if it had never had them. The paper keeps such entries (Raft, figure 13, rule 6); so does this.
//
// It stands in front of the snapshot store because Create is the first thing that raft's main loop does with an
// install. A decision there falls between two appends.
type gate struct {
	raft.SnapshotStore
	// holds reports whether the replica has all that a snapshot up to this entry has.
	holds func(index, term uint64) bool

	// unreadable is told of a snapshot that cannot be read.
	unreadable func(error)

	mu       sync.Mutex
	expected map[uint64]int // installs under way, by their last index
	unopened error          // why the last snapshot could not be opened
}

var errHeld = errors.New("replica has all of the snapshot already")

func newGate(s raft.SnapshotStore, holds func(index, term uint64) bool, unreadable func(error)) *gate {
	return &gate{SnapshotStore: s, holds: holds, unreadable: unreadable, expected: map[uint64]int{}}
}

// Open implements raft.SnapshotStore and remembers why it failed: raft only logs it, and whoever mends
// the replica needs the file.
func (g *gate) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := g.SnapshotStore.Open(id)
	g.mu.Lock()
	g.unopened = err
	g.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	return meta, &watchedSnapshot{r, g}, nil
}

// watchedSnapshot tells of a read that fails. A leader whose snapshot is damaged would otherwise send
// it to a follower again and again, and neither would ever be mended.
type watchedSnapshot struct {
	io.ReadCloser
	g *gate
}

// WrappedReadCloser implements raft.ReadCloserWrapper: the store finds its own reader in it.
func (w *watchedSnapshot) WrappedReadCloser() io.ReadCloser { return w.ReadCloser }

func (w *watchedSnapshot) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.g.unreadable(fmt.Errorf("read snapshot: %w", err))
	}
	return n, err
}

// trouble is why the last snapshot could not be opened, nil if it was.
func (g *gate) trouble() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unopened
}

// expect says that raft is about to be given an install; the function returned, that it has answered.
func (g *gate) expect(index uint64) (answered func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected[index]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.expected[index]--; g.expected[index] == 0 {
			delete(g.expected, index)
		}
	}
}

// Create implements raft.SnapshotStore. A snapshot of the replica's own that happens to end where an
// install does is refused too; it is taken later.
func (g *gate) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration,
	configurationIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	g.mu.Lock()
	coming := g.expected[index] > 0
	g.mu.Unlock()
	if coming && g.holds(index, term) {
		return nil, errHeld
	}
	return g.SnapshotStore.Create(version, index, term, c, configurationIndex, t)
}
