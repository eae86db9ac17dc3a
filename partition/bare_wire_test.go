package partition

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// R2: a leader whose clock runs slow does not notice that it was deposed. A heartbeat of its successor
// that is handled beside the main loop gives it the new term, and what a client asks of it just then is
// appended under that term: the two logs hold different entries of one index and one term, which raft
// takes for the same ever after. Ours are TestTransportKnowsNoFastPath in partition/raftnet and TestDeposedLeaderReadsNothing.
func TestBareRaftDivergesByHeartbeatsBesideItsMainLoop(t *testing.T) {
	for name, fast := range map[string]bool{"beside": true, "through the main loop": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := stock(t, stockOptions{fast: fast, slow: "b1"})
				defer c.close()
				old := c.lead("b1")
				if err := old.r.Apply([]byte("early"), time.Second).Error(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				c.net.set(isolated(old.id), nil)
				next := c.leader(c.others(old)...)
				if err := next.r.Apply([]byte("acknowledged"), time.Second).Error(); err != nil {
					t.Fatal(err)
				}
				// The small packets get through first, and nothing of its own gets out.
				term := old.r.CurrentTerm()
				c.net.set(func(from, to raft.ServerID, what string) error {
					if from == old.id || to == old.id && what != "heartbeat" {
						return errLost
					}
					return nil
				}, nil)
				for old.r.CurrentTerm() == term {
					time.Sleep(time.Millisecond)
				}
				_ = old.r.Apply([]byte("stray"), time.Second).Error()
				c.net.set(nil, nil)
				for range 20 {
					if err := next.r.Apply([]byte("later"), time.Second).Error(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Second)
				if len(old.fsm.has("later")) > 0 {
					t.Error("the old leader follows nobody")
				}
				if len(next.fsm.has("stray")) == 0 {
					t.Error("what the deposed leader was asked was committed")
				}
				switch diverged := len(old.fsm.has("stray")) == 0; {
				case fast && !diverged:
					t.Error("the states are the same: this raft has no hazard R2 any more")
				case !fast && diverged:
					t.Error("the states differ although heartbeats take the main loop")
				}
			})
		})
	}
}

// R4: the answer to a heartbeat that was given before anybody asked confirms a leader that was deposed
// meanwhile. Ours are TestQueriesRideTheLog and TestDeposedLeaderReadsNothing.
func TestBareRaftConfirmsADeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stock(t, stockOptions{fast: true, slow: "b1"})
		defer c.close()
		old := c.lead("b1")
		gate := make(chan struct{})
		var held atomic.Int32
		hold := func(from, _ raft.ServerID, what string) error {
			if from == old.id && what == "heartbeat" {
				held.Add(1)
				<-gate
			}
			return nil
		}
		c.net.set(nil, hold)
		time.Sleep(10 * time.Second) // its heartbeats are seconds apart
		if held.Load() != 2 {
			t.Fatalf("%d answers are held up", held.Load())
		}
		c.net.set(isolated(old.id), hold)
		next := c.leader(c.others(old)...)
		if err := next.r.Apply([]byte("new"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		f := old.r.VerifyLeader() // whoever reads now must see what was acknowledged
		time.Sleep(time.Millisecond)
		close(gate)
		if err := f.Error(); err != nil {
			t.Errorf("not confirmed (%v): this raft has no hazard R4 any more", err)
		}
		if len(old.fsm.has("new")) == 0 {
			t.Error("the confirmed leader is not stale: nothing is shown")
		}
	})
}

// R5: a follower that rejects one call of a pipeline, its disk is full for an instant say, is never sent
// anything again, and its heartbeats go on. Ours is TestReplicationSurvivesRejections.
func TestBareRaftStopsReplicatingAfterARejection(t *testing.T) {
	for name, test := range map[string]struct{ inFlight, bursts int }{
		"two calls in flight, as by default": {0, 40}, // whether a send is under way then is chance
		"one":                                {1, 8},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := stock(t, stockOptions{pipelined: true, inFlight: test.inFlight, fast: true})
				defer c.abandon()
				l := c.leader()
				slow := c.others(l)[0]
				time.Sleep(time.Second)
				stuck := false
				for range test.bursts {
					slow.log.set(func(f *faultyLog) { f.err = errDisk })
					var all []raft.ApplyFuture
					for range 20 {
						all = append(all, l.r.Apply([]byte("x"), time.Second))
						time.Sleep(100 * time.Microsecond)
					}
					slow.log.set(func(f *faultyLog) { f.err = nil })
					for _, f := range all {
						if err := f.Error(); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(5 * time.Second)
					if stuck = slow.r.LastIndex() < l.r.LastIndex(); stuck {
						break
					}
				}
				if stuck {
					time.Sleep(5 * time.Minute)
					stuck = slow.r.LastIndex() < l.r.LastIndex() && time.Since(slow.r.LastContact()) < time.Second
				}
				if stuck != (test.inFlight == 0) {
					t.Errorf("stuck: %v; if two calls in flight do it no more, this raft has no hazard R5", stuck)
				}
			}, "hashicorp/raft.")
		})
	}
}

// R10: a transfer to a follower that does not take entries, asked for twice, and then a leadership lost
// for another reason: when the node leads again, a minute later, it still takes nothing. Ours are
// TestTransferThatNeverEnds, TestWedgedReplicaIsOpenedAnew and TestTransferAsksFirst.
func TestBareRaftTransfersForEver(t *testing.T) {
	for range 20 { // whether raft drops the second wish or the leadership first is chance
		stuck := false
		bubble(t, func(t *testing.T) { stuck = transfersForEver(t) },
			"raft.(*Raft).leadershipTransfer", "raft.(*Raft).leaderLoop")
		if stuck {
			return
		}
	}
	t.Error("a node that leads takes entries: this raft has no hazard R10 any more")
}

func transfersForEver(t *testing.T) (stuck bool) {
	c := stock(t, stockOptions{fast: true})
	defer c.close()
	l := c.leader()
	time.Sleep(time.Second)
	deaf := c.others(l)[0]
	c.net.set(func(_, to raft.ServerID, what string) error {
		if to == deaf.id && what == "append" {
			time.Sleep(10 * time.Second)
			return errLost
		}
		return nil
	}, nil)
	if err := l.r.Apply([]byte("x"), time.Second).Error(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	for range 2 {
		if err := l.r.LeadershipTransferToServer(deaf.id, raft.ServerAddress(deaf.id)).Error(); err == nil {
			t.Fatal("a deaf node was handed the leadership")
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.net.set(isolated(l.id), nil)
	time.Sleep(15 * time.Second)
	c.net.set(nil, nil)
	time.Sleep(10 * time.Second)
	c.lead(l.id)
	time.Sleep(time.Minute)
	err := l.r.Apply([]byte("y"), time.Second).Error()
	return errors.Is(err, raft.ErrLeadershipTransferInProgress) && l.r.State() == raft.Leader
}

// R11: raft has ended, as it says, and a heartbeat is inside the store all the same: whoever closes the
// store now, as raft's users do, has the term not kept, and raft panics over that. Ours is
// TestCloseUnderHeartbeats.
func TestBareRaftUsesItsStoresAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stock(t, stockOptions{fast: true})
		defer c.close()
		l := c.leader()
		victim := c.others(l)[0]
		gate := make(chan struct{})
		victim.stable.gate.Store(&gate)
		peer := c.net.stockTransport("peer", 1)
		defer peer.Close()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_ = peer.AppendEntries(victim.id, raft.ServerAddress(victim.id), &raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(l.id), Addr: []byte(l.id)},
				Term:      victim.r.CurrentTerm() + 1,
			}, &raft.AppendEntriesResponse{})
		}()
		for victim.stable.inside.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := victim.r.Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
		if victim.stable.inside.Load() == 0 {
			t.Error("the end waits for whoever is inside a store: this raft has no hazard R11 any more")
		}
		close(gate)
		<-sent
	})
}

// R12: whoever reaches the port of a stock transport writes into the log. Ours are
// TestStrangersAreNotHeard and, in package cluster, TestGarbageOnThePeerPort.
func TestBareRaftTakesEntriesOfAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stock(t, stockOptions{fast: true})
		defer c.close()
		l := c.leader()
		if err := l.r.Apply([]byte("early"), time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		victim := c.others(l)[0]
		var last raft.Log
		if err := victim.log.GetLog(victim.r.LastIndex(), &last); err != nil {
			t.Fatal(err)
		}
		evil := c.net.stockTransport("evil", 1)
		defer evil.Close()
		var answer raft.AppendEntriesResponse
		err := evil.AppendEntries(victim.id, raft.ServerAddress(victim.id), &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("evil"), Addr: []byte("evil")},
			Term:      last.Term + 100, PrevLogEntry: last.Index, PrevLogTerm: last.Term,
			Entries:           []*raft.Log{{Index: last.Index + 1, Term: last.Term + 100, Data: []byte("forged")}},
			LeaderCommitIndex: last.Index + 1,
		}, &answer)
		time.Sleep(time.Millisecond)
		if err != nil || len(victim.fsm.has("forged")) > 0 {
			t.Errorf("%v, %+v: this raft has no hazard R12 any more", err, answer)
		}
	})
}

// R12: sockets that say nothing are kept for ever, a quarter of a MiB each, and what a stranger claims
// to send is decoded before it is looked at. Ours are, in package cluster,
// TestSilentSocketsDoNotKeepPeersOut and TestALengthThatIsOnlyClaimedAllocatesLittle.
func TestStockPortIsOpenToAnybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stockNet{}
		tr := s.stockTransport("b1", 1)
		evil := s.listen("evil")
		dial := func() net.Conn {
			c, err := evil.Dial("b1", time.Second)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		const sockets, holds = 64, 128 << 10
		before := allocated()
		var silent []net.Conn
		for range sockets {
			silent = append(silent, dial())
		}
		time.Sleep(365 * 24 * time.Hour)
		if grown := allocated() - before; grown < sockets*holds {
			t.Errorf("%d silent sockets hold %d bytes: less than hazard R12 says", sockets, grown)
		}
		for _, c := range silent {
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%v after a year: this raft gives silent sockets up", err)
			}
		}
		// An AppendEntries whose list of entries is a million times nothing.
		const entries = 1 << 20
		b := append([]byte{0, 0x81, 0xa0 | byte(len("Entries"))}, "Entries"...)
		b = append(binary.BigEndian.AppendUint32(append(b, 0xdd), entries), make([]byte, entries)...)
		for i := len(b) - entries; i < len(b); i++ {
			b[i] = 0xc0
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		was := m.TotalAlloc
		if _, err := dial().Write(b); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		runtime.ReadMemStats(&m)
		if grown := m.TotalAlloc - was; grown < 8*entries {
			t.Errorf("%d bytes of nothing took %d: less than hazard R12 says", len(b), grown)
		}
		_ = tr.Close()
		s.hangUp()
	})
}

// allocated returns the bytes of the heap that are in use.
func allocated() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
