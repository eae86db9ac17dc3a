package raftnet

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
)

// answering answers every append, and counts them.
type answering struct{ calls atomic.Int32 }

func (a *answering) Call(_ context.Context, _ fsm.NodeID, _ uint8, b []byte) ([]byte, error) {
	a.calls.Add(1)
	c, err := ParseCall(b)
	if err != nil {
		return nil, err
	}
	command, _, err := c.Command()
	if err != nil {
		return nil, err
	}
	args := command.(*raft.AppendEntriesRequest)
	return encodeAnswer(Append, &raft.AppendEntriesResponse{Term: args.Term, LastLog: args.PrevLogEntry, Success: true})
}

func (a *answering) CallStream(context.Context, fsm.NodeID, uint8, []byte, io.Reader) ([]byte, error) {
	return nil, errors.New("no snapshots")
}

// standing is a replica that stands where the test puts it.
type standing struct {
	testReplica
	at *Standing
}

func (s standing) Standing() Standing { return *s.at }
func (s standing) Term() uint64       { return s.at.Term }

const testBeat = 250 * time.Millisecond

func standingTransport(at *Standing) (*Transport, *answering) {
	a := &answering{}
	t := New(Config{Group: 3, Self: "n1", Caller: a, BeatEvery: testBeat, HeartbeatTimeout: 2 * time.Second,
		ElectionTimeout: 2 * time.Second, RPCTimeout: 10 * time.Second, MaxAppendBytes: 1 << 20}, standing{at: at},
		raft.NewInmemSnapshotStore())
	return t, a
}

func emptyAppend(term, last uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: headerOf("n1"), Term: term, PrevLogEntry: last, PrevLogTerm: term,
		LeaderCommitIndex: last}
}

func heartbeatOf(term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: headerOf("n1"), Term: term}
}

// What a leader's transport does with heartbeats, for each thing that a follower may have said.
func TestHeartbeatsOfFollowersThatRestAreSpared(t *testing.T) {
	for name, tc := range map[string]struct {
		said   Place
		from   fsm.NodeID
		after  time.Duration
		change func(*Standing)
		want   int32 // calls
	}{
		"it rests":                       {said: Place{3, 5, 9}, from: "n2", want: 0},
		"it has rested a while ago":      {said: Place{3, 5, 9}, from: "n2", after: 2 * testBeat, want: 1},
		"it rests in an earlier term":    {said: Place{3, 4, 9}, from: "n2", want: 1},
		"it rests with less":             {said: Place{3, 5, 8}, from: "n2", want: 1},
		"another one rests":              {said: Place{3, 5, 9}, from: "n3", want: 1},
		"an entry was written since":     {said: Place{3, 5, 9}, from: "n2", change: func(s *Standing) { s.Last = 10 }, want: 1},
		"the leadership is another one":  {said: Place{3, 5, 9}, from: "n2", change: func(s *Standing) { s.Term = 6 }, want: 1},
		"the leadership has ended":       {said: Place{3, 5, 9}, from: "n2", change: func(s *Standing) { s.Leads = false }, want: 1},
		"nothing has been heard from it": {from: "n2", want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := Standing{Leads: true, Leader: "n1", Term: 5, Last: 9, Commit: 9}
				tr, a := standingTransport(&at)
				tr.Writing(9)
				if tc.said.Term > 0 {
					tr.HearFollower(tc.from, tc.said, NewPulse(time.Now(), time.Time{}))
				}
				time.Sleep(tc.after)
				if tc.change != nil {
					tc.change(&at)
				}
				var resp raft.AppendEntriesResponse
				if err := tr.AppendEntries("n2", "", heartbeatOf(5), &resp); err != nil || !resp.Success || resp.Term != 5 {
					t.Errorf("%+v, %v", resp, err)
				}
				if got := a.calls.Load(); got != tc.want {
					t.Errorf("%d calls, want %d", got, tc.want)
				}
				if tr.Heartbeats() != 1 {
					t.Errorf("%d heartbeats were counted", tr.Heartbeats())
				}
			})
		})
	}
}

// An empty append to a follower that rests waits until an entry is written, the follower is not heard of, or the
// leadership ends. Only the second makes a call.
func TestEmptyAppendsWaitForSomethingToSay(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(*Transport, *Standing)
		want int32
	}{
		"an entry":           {func(tr *Transport, _ *Standing) { tr.Writing(10) }, 0},
		"it was lost":        {func(tr *Transport, _ *Standing) { tr.Forget("n2") }, 1},
		"it is silent":       {func(tr *Transport, _ *Standing) { time.Sleep(2 * testBeat); tr.Look(time.Now()) }, 1},
		"another leadership": {func(tr *Transport, at *Standing) { at.Leads = false; tr.Look(time.Now()) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := Standing{Leads: true, Leader: "n1", Term: 5, Last: 9, Commit: 9}
				tr, a := standingTransport(&at)
				tr.Writing(9)
				beats := NewPulse(time.Now(), time.Time{})
				tr.HearFollower("n2", Place{3, 5, 9}, beats)
				done := make(chan error, 1)
				go func() {
					var resp raft.AppendEntriesResponse
					err := tr.AppendEntries("n2", "", emptyAppend(5, 9), &resp)
					if err == nil && !resp.Success {
						err = errors.New("refused")
					}
					done <- err
				}()
				for range 20 {
					time.Sleep(testBeat / 2)
					beats.Renew(time.Now(), time.Time{})
					tr.Look(time.Now())
				}
				select {
				case err := <-done:
					t.Fatal("it did not wait:", err)
				default:
				}
				tc.then(tr, &at)
				synctest.Wait()
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Fatal("it waits on")
				}
				if got := a.calls.Load(); got != tc.want {
					t.Errorf("%d calls, want %d", got, tc.want)
				}
			})
		})
	}
	t.Run("the transport closes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			at := Standing{Leads: true, Term: 5, Last: 9, Commit: 9}
			tr, _ := standingTransport(&at)
			tr.Writing(9)
			tr.HearFollower("n2", Place{3, 5, 9}, NewPulse(time.Now(), time.Time{}))
			done := make(chan error, 1)
			go func() { done <- tr.AppendEntries("n2", "", emptyAppend(5, 9), &raft.AppendEntriesResponse{}) }()
			synctest.Wait()
			tr.Close()
			synctest.Wait()
			select {
			case <-done:
			default:
				t.Fatal("it waits on")
			}
		})
	})
}

// An entry that is being written when the empty append begins must not find it waiting: raft tells of it only once.
func TestAnEntryThatIsBeingWrittenIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := Standing{Leads: true, Term: 5, Last: 9, Commit: 9}
		tr, a := standingTransport(&at)
		tr.HearFollower("n2", Place{3, 5, 9}, NewPulse(time.Now(), time.Time{}))
		tr.Writing(10) // and raft still says that 9 is the last
		var resp raft.AppendEntriesResponse
		if err := tr.AppendEntries("n2", "", emptyAppend(5, 9), &resp); err != nil || !resp.Success || a.calls.Load() != 0 {
			t.Errorf("%+v, %v, %d calls", resp, err, a.calls.Load())
		}
	})
}

// What a leader and a follower say in a beat.
func TestWhatABeatSays(t *testing.T) {
	at := Standing{Leads: true, Leader: "n1", Term: 5, Last: 9, Commit: 9}
	tr, _ := standingTransport(&at)
	say := func() (b Beat) { tr.Say("n2", &b); return b }
	if b := say(); len(b.Leads)+len(b.Rests) != 0 {
		t.Errorf("of a follower that has answered nothing: %+v", b)
	}
	tr.acknowledged("n2", emptyAppend(5, 8), true, time.Now())
	if b := say(); len(b.Leads) != 0 {
		t.Errorf("of a follower that lacks an entry: %+v", b)
	}
	tr.acknowledged("n2", emptyAppend(5, 9), true, time.Now())
	if b := say(); len(b.Leads) != 1 || b.Leads[0] != (Place{3, 5, 9}) {
		t.Errorf("of a follower that has everything: %+v", b)
	}
	tr.acknowledged("n2", emptyAppend(5, 9), false, time.Now())
	if b := say(); len(b.Leads) != 0 {
		t.Errorf("of a follower that has refused: %+v", b)
	}
	tr.acknowledged("n2", emptyAppend(5, 9), true, time.Now())
	at.Commit = 8
	if b := say(); len(b.Leads) != 0 {
		t.Errorf("of an entry that is not committed: %+v", b)
	}
	at = Standing{Leader: "n2", Term: 5, Last: 9, Commit: 9}
	if b := say(); len(b.Rests) != 0 {
		t.Errorf("by a follower that has heard no beat: %+v", b)
	}
	tr.HearLeader("n2", Place{3, 5, 9}, NewPulse(time.Now(), time.Time{}))
	if b := say(); len(b.Rests) != 1 || b.Rests[0] != (Place{3, 5, 9}) {
		t.Errorf("by a follower that has everything: %+v", b)
	}
	tr.HearLeader("n2", Place{3, 5, 10}, NewPulse(time.Now(), time.Time{}))
	if b := say(); len(b.Rests) != 0 {
		t.Errorf("by a follower that lacks an entry: %+v", b)
	}
	tr.HearLeader("n3", Place{3, 5, 9}, NewPulse(time.Now(), time.Time{}))
	if got := tr.LedBy("n3", 5); !got.IsZero() {
		t.Error("a node that does not lead was taken for the leader")
	}
	if got := tr.LedBy("n2", 5); got.IsZero() {
		t.Error("the leader was not heard")
	}
	tr.Forget("n2")
	if got := tr.LedBy("n2", 5); !got.IsZero() {
		t.Error("what a lost node said counts")
	}
}

// hanging answers nothing.
type hanging struct{ answering }

func (h *hanging) Call(ctx context.Context, _ fsm.NodeID, _ uint8, _ []byte) ([]byte, error) {
	h.calls.Add(1)
	<-ctx.Done()
	return nil, fsm.ErrUnknown
}

// A leadership that gives up: the heartbeat under way is refused at once, and so is the next. Appends fail. In another term
// all is as before.
func TestALeadershipThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := Standing{Leads: true, Leader: "n1", Term: 5, Last: 9, Commit: 9}
		tr, _ := standingTransport(&at)
		h := &hanging{}
		tr.cfg.Caller = h
		type ending struct {
			resp raft.AppendEntriesResponse
			err  error
		}
		send := func(a *raft.AppendEntriesRequest) chan ending {
			done := make(chan ending, 1)
			go func() {
				var e ending
				e.err = tr.AppendEntries("n2", "", a, &e.resp)
				done <- e
			}()
			synctest.Wait()
			return done
		}
		beat, empty := send(heartbeatOf(5)), send(emptyAppend(5, 9))
		tr.Abdicate(5)
		synctest.Wait()
		for range 2 {
			if e := <-beat; e.err != nil || e.resp.Success || e.resp.Term != 5 {
				t.Errorf("a heartbeat ends with %+v, %v, want a refusal", e.resp, e.err)
			}
			beat = send(heartbeatOf(5))
		}
		if e := <-empty; e.err == nil {
			t.Error("an append was answered")
		}
		if got := h.calls.Load(); got != 2 {
			t.Errorf("%d calls, want 2", got)
		}
		at.Term = 6
		tr.cfg.Caller = &answering{}
		if e := <-send(heartbeatOf(6)); e.err != nil || !e.resp.Success {
			t.Errorf("in another term: %+v, %v", e.resp, e.err)
		}
	})
}
