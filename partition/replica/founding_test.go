package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// A founder that stopped behind the first of raft's two writes founds its group at the next start. One that has been in a
// later term does not: its log is lost, and what it acknowledged must come from the others.
func TestAFounderThatStoppedHalfWay(t *testing.T) {
	for term, founds := range map[uint64]bool{foundingTerm: true, foundingTerm + 1: false, 7: false} {
		synctest.Test(t, func(t *testing.T) {
			store := raft.NewInmemStore()
			if err := store.SetUint64([]byte(keyTerm), term); err != nil {
				t.Fatal(err)
			}
			cfg := Defaults()
			cfg.Node = "n1"
			r, err := Open(1, Stores{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore(), Bodies: brittleBodies{},
				Close: func() error { return nil }}, []fsm.NodeID{"n1"}, Options{Config: &cfg, Node: noPeers{}, Caller: noPeers{},
				Room: &Room{}, Empty: func() Machine { return &counter{} }, Verified: true, Log: hclog.NewNullLogger()})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if _, leads := r.Led(); leads != founds {
				t.Errorf("after term %d it leads: %t", term, leads)
			}
			var first raft.Log
			if err := store.GetLog(1, &first); (err == nil) != founds || founds && (first.Type != raft.LogConfiguration || first.Term != foundingTerm) {
				t.Errorf("after term %d entry 1 is %+v, %v", term, first, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
