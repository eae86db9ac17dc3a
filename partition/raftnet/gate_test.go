package raftnet

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// An install is judged again when raft takes it up: entries may have come while it waited.
func TestInstallGate(t *testing.T) {
	for name, c := range map[string]struct {
		expected bool
		holds    bool
		refused  bool
	}{
		"an install that is needed":          {expected: true},
		"an install that is not":             {expected: true, holds: true, refused: true},
		"a snapshot of the replica's own":    {holds: true},
		"its own while nothing is held here": {},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(raft.NewInmemSnapshotStore(), func(index, term uint64) bool {
				return c.holds && index == 7 && term == 2
			}, func(error) {})
			if c.expected {
				defer g.expect(7)()
			}
			g.expect(7)() // one that was answered
			sink, err := g.Create(raft.SnapshotVersionMax, 7, 2, raft.Configuration{}, 1, nil)
			if c.refused != (err != nil) {
				t.Fatalf("created: %v", err)
			}
			if err == nil {
				sink.Cancel()
			}
		})
	}
}

// The table of versions has the form that is written here.
func TestTheTableHasTheForm(t *testing.T) {
	if known := fsm.NewestFormat("raft call"); known != version {
		t.Errorf("form %d is written, fsm/versions.go has %d", version, known)
	}
}
