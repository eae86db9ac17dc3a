package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// A change of the members that is committed when the replica fails comes to an end, though raft forgets it about every second
// time. Whoever waits for it would mend the group no more.
func TestAChangeOfTheMembersEndsWithTheReplica(t *testing.T) {
	for range 12 {
		cfg := Defaults()
		cfg.Node = "n1"
		store := raft.NewInmemStore()
		r, err := Open(1, Stores{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore(),
			Bodies: brittleBodies{errors.New("the disk is gone")}, Close: func() error { return nil }}, []fsm.NodeID{"n1"},
			Options{Config: &cfg, Node: noPeers{}, Caller: noPeers{}, Room: &Room{}, Empty: func() Machine { return &counter{} },
				Verified: true, Log: hclog.NewNullLogger()})
		if err != nil {
			t.Fatal(err)
		}
		for _, led := r.Led(); !led; _, led = r.Led() {
			time.Sleep(time.Millisecond)
		}
		send := fsm.Request{ID: counted(1).ID, Entity: 1, Command: &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("abc")}}}}
		if _, err := r.Propose(t.Context(), send); err == nil {
			t.Fatal("an entry without its bodies was applied")
		}
		before := r.LastIndex()
		ended := make(chan error, 1)
		change := r.AddNonvoter("n2", 0)
		go func() { ended <- change.Error() }()
		for r.raft.CommitIndex() <= before {
			time.Sleep(time.Millisecond)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("the replica is closed, and the change goes on")
		}
	}
}
