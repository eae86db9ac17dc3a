package storage

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// flakyStable fails the second of the two writes of a vote, as a crash between them does.
type flakyStable struct {
	raft.StableStore
	fail bool
}

func (s *flakyStable) Set(key, val []byte) error {
	if s.fail && string(key) == keyVoteCandidate {
		return errors.New("the machine has crashed")
	}
	return s.StableStore.Set(key, val)
}

type noMachine struct{ raft.FSM }

func (noMachine) Apply(*raft.Log) any { return nil }

// R9: a voter whose vote was written by half grants it, without a look at the log, to the candidate of
// the vote before. A bare setup does; over Stable it is refused.
func TestHalfAVoteIsNoVote(t *testing.T) {
	tests := []struct {
		name    string
		stable  func(t *testing.T) raft.StableStore
		granted bool
	}{
		{"bare", func(*testing.T) raft.StableStore { return raft.NewInmemStore() }, true},
		{"ours", func(t *testing.T) raft.StableStore {
			return mustOpenStable(t, filepath.Join(t.TempDir(), "votes.db"))
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stable := &flakyStable{StableStore: tt.stable(t)}
			synctest.Test(t, func(t *testing.T) {
				c := raft.DefaultConfig()
				c.LocalID, c.Logger = "v", hclog.NewNullLogger()
				log, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
				_, tr := raft.NewInmemTransportWithTimeout("v", time.Second)
				_, from := raft.NewInmemTransportWithTimeout("x", time.Second)
				from.Connect("v", tr)
				err := raft.BootstrapCluster(c, log, stable, snaps, tr, raft.Configuration{Servers: []raft.Server{
					{ID: "v", Address: "v"}, {ID: "x", Address: "x"}, {ID: "y", Address: "y"}}})
				if err != nil {
					t.Fatal(err)
				}
				r, err := raft.NewRaft(c, noMachine{}, log, stable, snaps, tr)
				if err != nil {
					t.Fatal(err)
				}
				ask := func(term uint64, candidate string, lastIndex, lastTerm uint64) bool {
					resp := new(raft.RequestVoteResponse)
					err := from.RequestVote("v", "v", &raft.RequestVoteRequest{
						RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(candidate),
							Addr: []byte(candidate)},
						Term: term, LastLogIndex: lastIndex, LastLogTerm: lastTerm, LeadershipTransfer: true,
					}, resp)
					return err == nil && resp.Granted
				}
				if !ask(10, "x", 100, 1) {
					t.Fatal("a candidate with a longer log is refused")
				}
				stable.fail = true
				if ask(20, "y", 100, 1) {
					t.Fatal("a vote that was not written is granted")
				}
				stable.fail = false
				if got := ask(20, "x", 0, 0); got != tt.granted {
					t.Errorf("x with an empty log gets the vote of a term in which it was not given one: %v", got)
				}
				if ask(30, "x", 0, 0) {
					t.Error("an empty log gets a vote")
				}
				if err := r.Shutdown().Error(); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(tr.Close(), from.Close()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
