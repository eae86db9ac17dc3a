package replica

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// counter is a state machine that counts requests of the present leadership.
type counter struct{ epoch, requests uint64 }

func (c *counter) Apply(index uint64, e *fsm.Entry) fsm.Result {
	r := fsm.Result{Outcomes: make([]fsm.Outcome, len(e.Requests))}
	if _, ok := e.Requests[0].Command.(*fsm.BecomeLeader); ok {
		c.epoch = index
		return r
	}
	for i := range e.Requests {
		if e.Epoch != c.epoch {
			r.Outcomes[i].Refusal = fsm.NotLeader
			continue
		}
		c.requests++
	}
	return r
}

func (c *counter) Query(fsm.QueryRequest) fsm.Answer              { return fsm.Answer{} }
func (c *counter) Capture() io.WriterTo                           { return strings.NewReader("") }
func (c *counter) Restore(io.Reader) error                        { return nil }
func (c *counter) Clocks() (wall fsm.Wall, lease fsm.Lease)       { return 0, 0 }
func (c *counter) NextDeadline() (wall fsm.Wall, lease fsm.Lease) { return 0, 0 }

// noPeers is the node of a replica that is alone.
type noPeers struct{}

func (noPeers) Allowed(fsm.NodeID) bool     { return true }
func (noPeers) WrongClock() bool            { return false }
func (noPeers) ClusterVersion() fsm.Version { return fsm.NewestVersion }
func (noPeers) Lost(fsm.NodeID) bool        { return false }
func (noPeers) Defers(*Replica) bool        { return false }
func (noPeers) Changed(*Replica)            {}
func (noPeers) Applied(fsm.PartitionID)     {}

func (noPeers) Call(context.Context, fsm.NodeID, uint8, []byte) ([]byte, error) {
	return nil, fsm.ErrUnavailable
}

func (noPeers) CallStream(context.Context, fsm.NodeID, uint8, []byte, io.Reader) ([]byte, error) {
	return nil, fsm.ErrUnavailable
}

// brittleBodies keeps nothing, and fails with err.
type brittleBodies struct{ err error }

func (b brittleBodies) Put(uint64, []byte, []Span) error { return b.err }
func (b brittleBodies) Read(uint64, uint32, uint32) ([]byte, error) {
	if b.err == nil {
		return nil, fs.ErrNotExist
	}
	return nil, b.err
}
func (b brittleBodies) Free(uint64, uint32, uint32) {}
func (b brittleBodies) Pin() interface {
	io.WriterTo
	Inline(io.Writer) (int64, error)
	io.Closer
} {
	return emptyPin{strings.NewReader("")}
}
func (b brittleBodies) Restore(io.Reader) error { return b.err }

type emptyPin struct{ *strings.Reader }

func (emptyPin) Inline(io.Writer) (int64, error) { return 0, nil }
func (emptyPin) Close() error                    { return nil }

// alone runs f with the leader of a group of one that counts, in a bubble.
func alone(t *testing.T, f func(t *testing.T, r *Replica, state *counter)) {
	t.Helper()
	aloneWith(t, func(*Stores) {}, f)
}

// aloneWith is alone with stores that the test exchanges.
func aloneWith(t *testing.T, exchange func(*Stores), f func(t *testing.T, r *Replica, state *counter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := Defaults()
		cfg.Node = "n1"
		store, state := raft.NewInmemStore(), &counter{}
		stores := Stores{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore(), Bodies: brittleBodies{},
			Close: func() error { return nil }}
		exchange(&stores)
		r, err := Open(1, stores, []fsm.NodeID{"n1"}, Options{Config: &cfg, Node: noPeers{}, Caller: noPeers{},
			Room: &Room{}, Empty: func() Machine { return state }, Verified: true, Log: hclog.NewNullLogger()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}()
		for _, led := r.Led(); !led; _, led = r.Led() {
			time.Sleep(10 * time.Millisecond)
		}
		f(t, r, state)
	})
}

// counted is a request that the counter counts.
func counted(number uint64) fsm.Request {
	return fsm.Request{ID: fsm.RequestID{Node: 7, Pump: 1, Counter: number}, Entity: 1, Command: &fsm.Settle{}}
}

// A15: what a deposed leader's entry carries never happened, and is asked again.
func TestFencedEntryNeverHappened(t *testing.T) {
	alone(t, func(t *testing.T, r *Replica, state *counter) {
		r.prop.mu.Lock()
		r.prop.epoch-- // as if another leadership had begun behind this one's back
		r.prop.mu.Unlock()
		_, err := r.Propose(t.Context(), counted(1))
		if !errors.Is(err, fsm.ErrNotLeader) || errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("got %v", err)
		}
		if state.requests != 0 {
			t.Error("a fenced entry had an effect") // S-303
		}
		time.Sleep(time.Second)
		if _, err := r.Propose(t.Context(), counted(1)); err != nil || state.requests != 1 {
			t.Errorf("asked again: %v, counted %d", err, state.requests)
		}
	})
}

// F3: who looks whether a replica advances does not wait for an entry that takes long to apply.
func TestALookAtAReplicaDoesNotWaitForItsMachine(t *testing.T) {
	alone(t, func(t *testing.T, r *Replica, _ *counter) {
		r.machine.mu.Lock() // as an entry does
		looked := make(chan Status)
		go func() { looked <- r.Status() }()
		select {
		case s := <-looked:
			if s.Applied == 0 {
				t.Error("the replica has applied nothing")
			}
		case <-time.After(time.Minute):
			t.Error("the look waits")
			r.machine.mu.Unlock()
			<-looked
			return
		}
		r.machine.mu.Unlock()
	})
}

// R10: refusals because of a transfer mean that nothing happened, until they last too long.
func TestTransferThatNeverEnds(t *testing.T) {
	alone(t, func(t *testing.T, r *Replica, _ *counter) {
		var stuck error
		p := newProposer(r.cfg, r.raft, r.machine, r.waits, r.log, r.stalled.Load, func(err error) { stuck = err }, r.ending)
		began := time.Now()
		for stuck == nil && time.Since(began) < time.Minute {
			one := newCall(counted(1), time.Now())
			one.answer = make(chan answer, 1)
			one.state = callRiding
			p.riding = []*call{one}
			p.failed(raft.ErrLeadershipTransferInProgress)
			if a := <-one.answer; !errors.Is(a.err, fsm.ErrNotLeader) {
				t.Fatal(a.err)
			}
		}
		if d := time.Since(began); stuck == nil || d < 2*r.cfg.ElectionTimeout {
			t.Errorf("stuck after %v: %v", d, stuck)
		}
	})
}

// An entry that does not decode stops the replica: to skip it would make this one differ from the others.
func TestAnEntryThatDoesNotDecodeStopsTheReplica(t *testing.T) {
	alone(t, func(t *testing.T, r *Replica, _ *counter) {
		go func() { _ = r.raft.Apply([]byte("nonsense"), 0).Error() }()
		synctest.Wait()
		if _, err := r.Propose(t.Context(), counted(1)); err == nil {
			t.Error("proposal succeeded")
		}
		if r.Failure() == nil || r.Status().Failure == "" {
			t.Error("replica goes on")
		}
	})
}

// What was not applied is raft's alone to judge.
func TestAppendsBehindWhatWasAppliedStayAsTheyAre(t *testing.T) {
	alone(t, func(t *testing.T, r *Replica, _ *counter) {
		applied := r.Applied()
		for _, a := range []*raft.AppendEntriesRequest{
			{PrevLogEntry: 0, Entries: []*raft.Log{{Index: 1, Term: 9}}},
			{PrevLogEntry: applied, PrevLogTerm: 9, LeaderCommitIndex: 99},
			{PrevLogEntry: applied + 5, PrevLogTerm: 9, Entries: []*raft.Log{{Index: applied + 6}}},
			{PrevLogEntry: 1, PrevLogTerm: 9, Entries: []*raft.Log{{Index: 2}}}, // it is in the log
		} {
			was := *a
			r.behind(a)
			if a.PrevLogEntry != was.PrevLogEntry || a.PrevLogTerm != was.PrevLogTerm || len(a.Entries) != len(was.Entries) ||
				a.LeaderCommitIndex != was.LeaderCommitIndex {
				t.Errorf("%+v became %+v", was, *a)
			}
		}
	})
}

// liar is a state whose counters are wrong.
type liar struct{ *fsm.State }

func (l *liar) Query(q fsm.QueryRequest) fsm.Answer {
	a := l.State.Query(q)
	a.Counts.Active++
	return a
}

// I16: a recount finds counters that are wrong.
func TestARecountFindsWrongCounters(t *testing.T) {
	state := fsm.New(1)
	state.Apply(1, &fsm.Entry{Requests: []fsm.Request{{Command: &fsm.BecomeLeader{Node: "n1"}}}})
	put := &fsm.PutEntity{Descriptor: fsm.Descriptor{ID: 9, Name: "q", Kind: fsm.Queue, Version: 1,
		Partitions: []fsm.PartitionID{1}, LockDuration: 60_000, MaxDelivery: 10, MaxMessageBytes: 1 << 20,
		MaxSizeBytes: 1 << 30, DefaultTTL: fsm.Unlimited, AutoDeleteOnIdle: fsm.Unlimited}}
	if r := state.Apply(2, &fsm.Entry{Epoch: 1, Requests: []fsm.Request{{Entity: 9, Command: put}}}); r.Outcomes[0].Refusal != fsm.None {
		t.Fatalf("put: %+v", r.Outcomes[0])
	}
	if a := audit(t.Context(), (&machine{m: state}).freeze(), fsm.New(1), nil); a.Entities != 1 || len(a.Problems) != 0 {
		t.Fatalf("it is well, but: %+v", a)
	}
	a := audit(t.Context(), (&machine{m: &liar{state}}).freeze(), fsm.New(1), nil)
	if len(a.Problems) == 0 || !strings.Contains(a.Problems[0], "counts") {
		t.Errorf("wrong counters: %+v", a.Problems)
	}
}

// A leader minds the disks of its voters as its own.
func TestALeaderWhoseVotersAreFullStoresNothing(t *testing.T) {
	r := &Replica{room: &Room{}}
	for _, full := range []bool{false, true} {
		r.SetVotersFull(full)
		err := r.fits(&fsm.Enqueue{})
		if (err != nil) != full || r.fits(&fsm.Settle{}) != nil {
			t.Errorf("publish with voters that are full (%v): %v", full, err)
		}
	}
}

// A disk that turned read-only needs a person, and the log says what to do.
func TestAReadOnlyDiskHasAHint(t *testing.T) {
	if hint := repairHint(&fs.PathError{Op: "write", Path: "log", Err: syscall.EROFS}); !strings.Contains(hint, "read-only") {
		t.Errorf("hint: %s", hint)
	}
}

// R6, and settings of raft that must not come back.
func TestRaftSettings(t *testing.T) {
	alone(t, func(t *testing.T, r *Replica, _ *counter) {
		c := r.raftConfig()
		if c.RestoreCommittedLogs || c.NotifyCh != nil || !c.ShutdownOnRemove || c.PreVoteDisabled ||
			!c.NoLegacyTelemetry || c.ProtocolVersion != raft.ProtocolVersionMax ||
			c.LeaderLeaseTimeout > c.HeartbeatTimeout/2 {
			t.Errorf("settings: %+v", c)
		}
	})
}
