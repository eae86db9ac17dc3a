package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// three runs f with a group of three in a bubble.
func three(t *testing.T, f func(t *testing.T, c *testCluster)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.open(1)
		defer c.close()
		f(t, c)
	})
}

// sendVia proposes through a node's sender, as its router would, with retries.
func (c *testCluster) sendVia(ctx context.Context, id fsm.NodeID, req fsm.Request) (fsm.Outcome, error) {
	h := c.nodes[id].host
	s := &sender{host: h, caller: c.nodes[id].port, members: func(fsm.PartitionID) []fsm.NodeID { return c.ids }}
	return s.propose(ctx, 1, req, &attempts{}, nil)
}

func (c *testCluster) others(id fsm.NodeID) []fsm.NodeID {
	return slices.DeleteFunc(slices.Clone(c.ids), func(o fsm.NodeID) bool { return o == id })
}

// settled waits until all nodes but the excepted have applied the same and returns that state.
func (c *testCluster) settled(except ...fsm.NodeID) smallState {
	c.t.Helper()
	var s smallState
	for range 1000 {
		time.Sleep(50 * time.Millisecond)
		var all []smallState
		for _, id := range c.ids {
			if n := c.nodes[id]; n.host != nil && !slices.Contains(except, id) {
				all = append(all, state(n.host.Replica(1)))
			}
		}
		same := true
		for _, o := range all {
			same = same && o.Index == all[0].Index
		}
		if s = all[0]; same {
			for _, o := range all {
				if o.Enqueues != s.Enqueues || o.Seq != s.Seq || o.Lease != s.Lease ||
					!maps.Equal(o.Locked, s.Locked) {
					c.t.Fatalf("replicas differ at entry %d:\n%+v\n%+v", s.Index, o, s)
				}
			}
			return s
		}
	}
	c.t.Fatal("replicas do not settle")
	return s
}

// S-298, S-307, A6: whatever happens to leaders, a request asked again with its id has one effect.
func TestOneEffectThroughLeaderCuts(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		c.net.SetDelay(time.Millisecond, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		stop := make(chan struct{})
		done := make(chan map[fsm.SequenceNumber]bool)
		for w, id := range c.ids {
			go func() {
				got := map[fsm.SequenceNumber]bool{}
				defer func() { done <- got }()
				for n := uint64(1); ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					o, err := c.sendVia(ctx, id, enqueue(reqID(uint64(w+1), n), "x"))
					if err != nil || len(o.Numbers) != 1 || got[o.Numbers[0]] {
						t.Errorf("send: %+v, %v", o, err)
						return
					}
					got[o.Numbers[0]] = true
					time.Sleep(3 * time.Millisecond)
				}
			}()
		}
		for range 8 {
			l := c.leader(1).Node()
			time.Sleep(time.Second)
			c.net.Isolate(l, true)
			c.leader(1, l)
			time.Sleep(time.Second)
			c.net.Isolate(l, false)
		}
		close(stop)
		sum := 0
		all := map[fsm.SequenceNumber]bool{}
		for range c.ids {
			got := <-done
			sum += len(got)
			maps.Copy(all, got)
		}
		s := c.settled()
		// S-297: nothing acknowledged is lost. S-302: numbers have no gap and no repeat.
		if len(all) != sum || s.Enqueues != sum || s.Seq != uint64(sum) {
			t.Errorf("%d answers, %d numbers, %d effects, last number %d", sum, len(all), s.Enqueues, s.Seq)
		}
		t.Logf("%d sends over 8 leader cuts", sum)
	})
}

// S-296, A18: a parked request dies with its leader; whoever asked parks it again at the next one,
// for the rest of its wait.
func TestParkedRequestMovesToTheNextLeader(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1).Node()
		via := c.others(old)[0]
		type result struct {
			o   fsm.Outcome
			err error
		}
		got := make(chan result, 1)
		go func() {
			o, err := c.sendVia(t.Context(), via, lock(reqID(1, 1), 1, 60_000))
			got <- result{o, err}
		}()
		time.Sleep(time.Second)
		c.crash(old)
		next := c.leader(1, old)
		time.Sleep(time.Second)
		if _, err := next.Propose(t.Context(), enqueue(reqID(2, 1), "late")); err != nil {
			t.Fatal(err)
		}
		if r := <-got; r.err != nil || len(bodies(r.o)) != 1 {
			t.Errorf("got %+v, %v", r.o, r.err)
		}
		began := time.Now()
		if o, err := c.sendVia(t.Context(), via, lock(reqID(1, 2), 1, 2000)); err != nil ||
			len(o.Locked) != 0 || time.Since(began) > 3*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), o, err)
		}
	})
}

// S-287, S-300: time without a majority is not lease time.
func TestLeaseStandsStillWithoutALeader(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil {
			t.Fatal(err)
		}
		before := state(r)
		for _, id := range c.ids {
			c.net.Isolate(id, true)
		}
		time.Sleep(10 * time.Minute)
		if _, err := c.sendVia(shortly(t, time.Second), "n1", enqueue(reqID(9, 1), "x")); err == nil {
			t.Error("a write succeeds without a majority")
		}
		for _, id := range c.ids {
			c.net.Isolate(id, false)
		}
		r = c.leader(1)
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 2), "x")); err != nil {
			t.Fatal(err)
		}
		after := state(r)
		if d := after.Lease - before.Lease; d < 0 || d > 5000 {
			t.Errorf("lease went on by %d ms", d)
		}
		if d := after.Wall - before.Wall; d < 10*60*1000 {
			t.Errorf("wall went on by %d ms only", d)
		}
		if !slices.IsSorted(after.Leases) {
			t.Error("lease went back")
		}
	})
}

func shortly(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// S-284, S-301, S-300: a leader that is cut off answers unknown or not at all, never success, and hands nothing
// out: the next leader hands the message out once.
func TestCutLeaderAcknowledgesNothing(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		if _, err := r.Propose(t.Context(), enqueue(reqID(2, 1), "one")); err != nil {
			t.Fatal(err)
		}
		c.net.Isolate(r.Node(), true)
		cut := make(chan error, 1)
		go func() {
			o, err := r.Propose(t.Context(), lock(reqID(3, 1), 1, 0))
			if len(o.Locked) > 0 {
				err = fmt.Errorf("handed out %+v", o.Locked)
			}
			cut <- err
		}()
		_, sent := r.Propose(t.Context(), enqueue(reqID(1, 1), "x"))
		if _, err := r.Query(t.Context(), fsm.QueryRequest{Entity: 1, Query: &fsm.Counts{}}); err == nil {
			t.Error("a deposed leader answers a query") // R4
		}
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 2), "x")); !errors.Is(err, fsm.ErrNotLeader) {
			t.Errorf("propose later: %v", err)
		}
		// Either may be in the entry under way. The other waits for the next entry, which is never proposed.
		received, unknown := <-cut, 0
		for what, err := range map[string]error{"send": sent, "receive": received} {
			switch {
			case errors.Is(err, fsm.ErrUnknown):
				unknown++
			case !errors.Is(err, fsm.ErrNotLeader):
				t.Errorf("a %s at the leader that is cut off: %v", what, err)
			}
		}
		if unknown == 0 {
			t.Errorf("nothing was under way: %v, %v", sent, received)
		}
		o, err := c.leader(1, r.Node()).Propose(t.Context(), lock(reqID(4, 1), 10, 0))
		if err != nil || len(o.Locked) != 1 || string(o.Locked[0].Body) != "one" {
			t.Errorf("the next leader hands out %+v, %v", o.Locked, err)
		}
	})
}

// S-282: a snapshot and the log behind it are the whole state, for a restart and for a follower
// that missed everything.
func TestSnapshotRestartInstall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.cfg = func(c *Config) { c.TrailingLogs = 64 }
		c.open(1)
		defer c.close()
		r := c.leader(1)
		far := c.others(r.Node())[0]
		c.net.Isolate(far, true)
		fill := func(from, to int) {
			for i := from; i < to; i++ {
				if _, err := r.Propose(t.Context(), enqueue(reqID(1, uint64(i+1)), fmt.Sprint("b", i))); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill(0, 200)
		if err := r.Snapshot(); err != nil {
			t.Fatal(err)
		}
		fill(200, 300)
		c.net.Isolate(far, false)
		s := c.settled()
		if s.Enqueues != 300 || len(s.Ready[1]) != 300 {
			t.Fatalf("%d enqueues, %d ready", s.Enqueues, len(s.Ready[1]))
		}
		installs := c.net.Calls(KindSnapshot)
		if installs == 0 {
			t.Error("no snapshot was installed: the test tests nothing")
		}
		// The follower reads bodies from before and after its snapshot once it leads.
		if err := c.nodes[r.Node()].host.TransferLeadership(t.Context(), 1, far); err != nil {
			t.Fatal(err)
		}
		r = c.leader(1, c.others(far)...)
		o, err := r.Propose(t.Context(), lock(reqID(5, 1), 300, 0))
		if err != nil || len(o.Locked) != 300 {
			t.Fatal(len(o.Locked), err)
		}
		for i, b := range bodies(o) {
			if b != fmt.Sprint("b", i) {
				t.Fatalf("body %d is %q", i, b)
			}
		}
		// All nodes stop and start again.
		for _, id := range c.ids {
			c.crash(id)
		}
		for _, id := range c.ids {
			c.start(id)
			if err := c.nodes[id].host.Open(1, c.ids); err != nil {
				t.Fatal(err)
			}
		}
		c.leader(1)
		if s := c.settled(); len(s.Locked) != 300 || s.Enqueues != 300 {
			t.Errorf("after the restart: %d locked, %d enqueues", len(s.Locked), s.Enqueues)
		}
	})
}

func TestSnapshotsAreTakenByBytes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.cfg = func(c *Config) { c.SnapshotBytes, c.TrailingLogs = 1<<20, 64 }
		c.open(1)
		defer c.close()
		r := c.leader(1)
		for i := range uint64(100) {
			if _, err := r.Propose(t.Context(), enqueue(reqID(1, i+1), string(make([]byte, 20<<10)))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		snaps, err := c.nodes["n1"].disks[1].snaps.List()
		if err != nil || len(snaps) != 1 || snaps[0].Index < 100 {
			t.Errorf("snapshots %+v, %v", snaps, err)
		}
		first, err := c.nodes["n1"].disks[1].log.FirstIndex()
		if err != nil || first < 30 {
			t.Errorf("log begins at %d, %v", first, err)
		}
	})
}

// R3: a write that reports an error but was kept must not let raft go on.
func TestFailedDiskStopsTheReplica(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1)
		acked := 0
		for i := range uint64(10) {
			if _, err := old.Propose(t.Context(), enqueue(reqID(1, i+1), "x")); err != nil {
				t.Fatal(err)
			}
			acked++
		}
		c.nodes[old.Node()].disks[1].log.set(func(l *faultyLog) { l.err, l.keep = errDisk, true })
		if _, err := old.Propose(t.Context(), enqueue(reqID(1, 11), "x")); !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("in the failing write: %v", err)
		}
		if _, err := old.Propose(t.Context(), enqueue(reqID(1, 12), "x")); !errors.Is(err, fsm.ErrNotLeader) {
			t.Errorf("after it: %v", err)
		}
		if s := old.Status(); s.Failure == "" || s.Leading {
			t.Errorf("status: %+v", s)
		}
		c.leader(1, old.Node())
		via := c.others(old.Node())[0]
		o, err := c.sendVia(t.Context(), via, enqueue(reqID(1, 11), "x"))
		if err != nil || o.Refusal != fsm.None {
			t.Errorf("asked again: %+v, %v", o, err)
		}
		if s := c.settled(old.Node()); s.Enqueues != acked+1 {
			t.Errorf("%d effects of %d", s.Enqueues, acked+1)
		}
	})
}

// R1: a disk that hangs keeps raft's heartbeats going, so nobody else would take over.
func TestStalledDiskHandsOver(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		old := c.leader(1)
		release := c.nodes[old.Node()].disks[1].log.hang()
		p := start(t.Context(), old, enqueue(reqID(1, 1), "x"))
		began := time.Now()
		next := c.leader(1, old.Node())
		if d := time.Since(began); d > 15*time.Second {
			t.Errorf("taken over after %v", d)
		}
		if <-p.done; !errors.Is(p.err, fsm.ErrUnknown) {
			t.Errorf("caller of the stalled leader: %v", p.err)
		}
		if o, err := next.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil || len(o.Numbers) != 1 {
			t.Errorf("next leader: %+v, %v", o, err)
		}
		select {
		case <-c.fatal:
		case <-time.After(20 * time.Second):
			t.Error("nobody was told that the process must end")
		}
		release()
		time.Sleep(5 * time.Second)
		if s := c.settled(); s.Enqueues != 1 {
			t.Errorf("%d effects", s.Enqueues)
		}
	})
}

func TestBrokenMachineStopsItsReplicaOnly(t *testing.T) {
	for name, break_ := range map[string]func(*testCluster, *replica.Replica) error{
		"an invariant is broken": func(_ *testCluster, r *replica.Replica) error {
			_, err := r.Propose(context.Background(),
				fsm.Request{ID: reqID(1, 1), Entity: 1, Command: &fsm.Cancel{Numbers: []fsm.SequenceNumber{1}}})
			return err
		},
		"a body is not kept": func(c *testCluster, r *replica.Replica) error {
			c.nodes["n1"].disks[1].bodies.fail = errDisk
			_, err := r.Propose(context.Background(), enqueue(reqID(1, 1), "x"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := newTestCluster(t, 1)
				c.open(1)
				if err := c.nodes["n1"].host.Open(2, c.ids); err != nil {
					t.Fatal(err)
				}
				defer c.close()
				r, other := c.leader(1), c.leader(2)
				if err := break_(c, r); err == nil {
					t.Error("proposal succeeded")
				}
				if r.Status().Failure == "" {
					t.Error("replica goes on")
				}
				if _, err := other.Propose(t.Context(), enqueue(reqID(2, 1), "x")); err != nil {
					t.Errorf("the other partition: %v", err)
				}
			})
		})
	}
}

// S-279: a graceful stop hands leadership away first, so the others need no election time-out.
func TestCloseHandsLeadershipAway(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		old := r.Node()
		time.Sleep(time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := c.nodes[old].host.Close(ctx); err != nil {
			t.Error(err)
		}
		c.leader(1, old)
		if d := time.Since(began); d > time.Second {
			t.Errorf("leaderless for %v", d)
		}
	})
}

// R11: peers go on calling a replica that closes.
func TestCloseUnderHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.open(1)
		c.net.SetDelay(100*time.Microsecond, 0)
		for round := range 10 {
			l := c.leader(1).Node()
			follower := c.others(l)[round%2]
			c.crash(follower)
			c.start(follower)
			if err := c.nodes[follower].host.Open(1, c.ids); err != nil {
				t.Fatal(err)
			}
		}
		c.leader(1)
		c.close()
	})
}

// R10: a transfer to a node that does not answer is not begun.
func TestTransferAsksFirst(t *testing.T) {
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		h := c.nodes[r.Node()].host
		for _, id := range c.others(r.Node()) {
			c.net.SetCut(r.Node(), id, true)
		}
		if err := h.TransferLeadership(t.Context(), 1, ""); err == nil {
			t.Error("leadership was handed to nobody")
		}
		if err := h.TransferLeadership(t.Context(), 9, ""); !errors.Is(err, fsm.ErrNotLeader) {
			t.Errorf("unknown partition: %v", err)
		}
	})
}

func TestOpenIsIdempotent(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		h := c.nodes["n1"].host
		if err := h.Open(1, c.ids); err != nil || h.Replica(1) != r {
			t.Errorf("opened twice: %v", err)
		}
		if err := h.Open(2, nil); err != nil { // joins: waits to be added
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if h.Replica(2).Leading() {
			t.Error("a replica without members elected itself")
		}
	})
}

func TestOpenReportsDamage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		n := c.start("n1")
		d := newDisk()
		if err := d.stable.SetUint64([]byte("CurrentTerm"), 1); err != nil {
			t.Fatal(err)
		}
		bad := &holeyStore{InmemStore: raft.NewInmemStore()}
		for i := range uint64(5) {
			if err := bad.StoreLogs([]*raft.Log{{Index: i + 1, Term: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		bad.hide = 3
		d.log = &faultyLog{LogStore: bad}
		n.disks[1] = d
		// Raft panics on a hole in its log; the opener gets an error.
		if err := n.host.Open(1, c.ids); err == nil {
			t.Error("a log with a hole was opened")
		}
		c.close()
		if err := n.host.Open(1, c.ids); !errors.Is(err, fsm.ErrClosed) {
			t.Errorf("open after close: %v", err)
		}
	})
}
