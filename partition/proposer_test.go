package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// lone runs f with the leader of a group of one, in a bubble.
func lone(t *testing.T, f func(t *testing.T, c *testCluster, r *replica.Replica)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.open(1)
		defer c.close()
		f(t, c, c.leader(1))
	})
}

// state returns a copy of what the small machine of a replica holds.
func state(r *replica.Replica) smallState {
	var s smallState
	r.View(func(m replica.Machine, _ uint64) { s = m.(*small).S })
	return s
}

// proposed is a Propose on its own goroutine.
type proposed struct {
	done    chan struct{}
	outcome fsm.Outcome
	err     error
}

// start proposes a request. Each other one is begun, if the group is a replica.
func start(ctx context.Context, g Group, req fsm.Request) *proposed {
	p := &proposed{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if r, here := g.(*replica.Replica); here && req.ID.Pump%2 == 1 {
			p.outcome, p.err = begin(ctx, r, req)
			return
		}
		p.outcome, p.err = g.Propose(ctx, req)
	}()
	return p
}

// begin is Propose by way of Begin.
func begin(ctx context.Context, r *replica.Replica, req fsm.Request) (o fsm.Outcome, err error) {
	done := make(chan struct{})
	b, never := r.Begin(req, func(outcome fsm.Outcome, failure error) {
		o, err = outcome, failure
		close(done)
	})
	if never != nil {
		return fsm.Outcome{}, never
	}
	select {
	case <-done:
	case <-ctx.Done():
		b.Cancel(ctx.Err())
		<-done
	}
	return o, err
}

func (p *proposed) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func bodies(o fsm.Outcome) (out []string) {
	for _, d := range o.Locked {
		out = append(out, string(d.Body))
	}
	return out
}

func TestLoadMakesBatches(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		before := state(r).Index
		release := c.nodes["n1"].disks[1].log.hang()
		first := start(t.Context(), r, enqueue(reqID(1, 1), "first"))
		synctest.Wait() // it is in flight, its write waits
		var rest []*proposed
		for i := range 100 {
			rest = append(rest, start(t.Context(), r, enqueue(reqID(uint64(i+2), 1), "x")))
		}
		synctest.Wait()
		release()
		<-first.done
		for _, p := range rest {
			if <-p.done; p.err != nil {
				t.Fatal(p.err)
			}
		}
		if n := state(r).Index - before; n != 2 {
			t.Errorf("101 requests took %d entries", n)
		}
	})
}

func TestEntriesCloseAtTheirSize(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		release := c.nodes["n1"].disks[1].log.hang()
		big := string(make([]byte, 100<<10))
		huge := string(make([]byte, 2<<20))
		before := state(r).Index
		all := []*proposed{start(t.Context(), r, enqueue(reqID(99, 1), "opener"))}
		synctest.Wait()
		for i := range 5 { // 2, 2 and 1 in an entry of 256 KiB
			all = append(all, start(t.Context(), r, enqueue(reqID(uint64(i+1), 1), big)))
			synctest.Wait()
		}
		all = append(all, start(t.Context(), r, enqueue(reqID(50, 1), huge)))
		synctest.Wait()
		release()
		for _, p := range all {
			if <-p.done; p.err != nil {
				t.Fatal(p.err)
			}
		}
		if n := state(r).Index - before; n != 5 {
			t.Errorf("took %d entries, want opener, 2, 2, 1, huge", n)
		}
		o, err := r.Propose(t.Context(), enqueue(reqID(51, 1), string(make([]byte, 18<<20))))
		if err != nil || o.Refusal != fsm.MessageSizeExceeded {
			t.Errorf("18 MiB: %v, %v", o.Refusal, err)
		}
	})
}

// A5: send to delivery costs one commit.
func TestParkedLockRidesBehindTheEnqueue(t *testing.T) {
	lone(t, func(t *testing.T, _ *testCluster, r *replica.Replica) {
		parked := start(t.Context(), r, lock(reqID(1, 1), 10, 60_000))
		synctest.Wait()
		if parked.over() {
			t.Fatalf("answered with nothing: %+v %v", parked.outcome, parked.err)
		}
		before := state(r).Index
		if _, err := r.Propose(t.Context(), enqueue(reqID(2, 1), "a", "b")); err != nil {
			t.Fatal(err)
		}
		<-parked.done
		if got := bodies(parked.outcome); parked.err != nil || len(got) != 2 || got[0] != "a" {
			t.Errorf("got %q, %v", got, parked.err)
		}
		if n := state(r).Index - before; n != 1 {
			t.Errorf("took %d entries", n)
		}
	})
}

func TestParkedLocksAreServedInOrder(t *testing.T) {
	lone(t, func(t *testing.T, _ *testCluster, r *replica.Replica) {
		var waiting []*proposed
		for i := range 5 {
			waiting = append(waiting, start(t.Context(), r, lock(reqID(uint64(i+1), 1), 1, 60_000)))
			synctest.Wait()
		}
		for i := range 5 {
			body := fmt.Sprint("m", i)
			if _, err := r.Propose(t.Context(), enqueue(reqID(100, uint64(i+1)), body)); err != nil {
				t.Fatal(err)
			}
			<-waiting[i].done
			if got := bodies(waiting[i].outcome); len(got) != 1 || got[0] != body {
				t.Errorf("waiter %d got %q", i, got)
			}
			for j := i + 1; j < 5; j++ {
				if waiting[j].over() {
					t.Fatalf("waiter %d was served before its turn", j)
				}
			}
		}
	})
}

// A wake does not say how much there is: every waiter must be served as long as something is there.
func TestWakeServesAllWaiters(t *testing.T) {
	lone(t, func(t *testing.T, _ *testCluster, r *replica.Replica) {
		const n = 40
		if _, err := r.Propose(t.Context(), enqueue(reqID(900, 1), make([]string, n)...)); err != nil {
			t.Fatal(err)
		}
		o, err := r.Propose(t.Context(), lock(reqID(901, 1), n, 0))
		if err != nil || len(o.Locked) != n {
			t.Fatal(len(o.Locked), err)
		}
		var waiting []*proposed
		for i := range n {
			waiting = append(waiting, start(t.Context(), r, lock(reqID(uint64(i+1), 1), 1, 60_000)))
		}
		synctest.Wait()
		settle := &fsm.Settle{}
		for _, d := range o.Locked { // expiry would wake in the same way, through the result
			settle.Items = append(settle.Items, fsm.SettleItem{Token: d.Token, Verdict: fsm.Defer})
		}
		if _, err := r.Propose(t.Context(), fsm.Request{ID: reqID(901, 2), Entity: 1, Command: settle}); err != nil {
			t.Fatal(err)
		}
		for i, p := range waiting {
			if <-p.done; p.err != nil || len(p.outcome.Locked) != 1 {
				t.Errorf("waiter %d: %d, %v", i, len(p.outcome.Locked), p.err)
			}
		}
	})
}

func TestWaitsEnd(t *testing.T) {
	lone(t, func(t *testing.T, _ *testCluster, r *replica.Replica) {
		began := time.Now()
		o, err := r.Propose(t.Context(), lock(reqID(1, 1), 1, 3000))
		if err != nil || o.Refusal != fsm.None || len(o.Locked) != 0 {
			t.Errorf("lock: %+v, %v", o, err)
		}
		if d := time.Since(began); d < 3*time.Second || d > 3100*time.Millisecond {
			t.Errorf("lock waited %v", d)
		}
		// S-40: an accept of the next session that finds none in its time ends in NoSession.
		o, err = r.Propose(t.Context(), fsm.Request{ID: reqID(2, 1), Entity: 1,
			Command: &fsm.AcceptSession{Next: true, Wait: 500}})
		if err != nil || o.Refusal != fsm.NoSession {
			t.Errorf("accept: %+v, %v", o, err)
		}
		// RUL-18: accept by id answers at once.
		began = time.Now()
		o, err = r.Propose(t.Context(), fsm.Request{ID: reqID(2, 2), Entity: 1,
			Command: &fsm.AcceptSession{ID: "s", Wait: 60_000}})
		if err != nil || o.Refusal != fsm.NoSession || time.Since(began) > time.Second {
			t.Errorf("accept by id: %+v, %v after %v", o, err, time.Since(began))
		}
	})
}

func TestSecondParkNeedsNoEntry(t *testing.T) {
	lone(t, func(t *testing.T, _ *testCluster, r *replica.Replica) {
		if _, err := r.Propose(t.Context(), lock(reqID(1, 1), 1, 100)); err != nil {
			t.Fatal(err)
		}
		before := state(r).Index
		for i := range uint64(5) {
			if _, err := r.Propose(t.Context(), lock(reqID(1, i+2), 1, 100)); err != nil {
				t.Fatal(err)
			}
		}
		if n := state(r).Index - before; n != 0 {
			t.Errorf("waiting five times for nothing took %d entries", n)
		}
	})
}

// S-42, A18: cancelling a parked request takes it out; nothing is locked for a caller who is gone.
func TestCancelUnparks(t *testing.T) {
	for _, where := range []string{"here", "on another node"} {
		t.Run(where, func(t *testing.T) {
			lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
				var g Group = r
				if where != "here" {
					other := c.net.Port("n2")
					g = NewRemote(other, "n1", 1)
				}
				ctx, cancel := context.WithCancel(t.Context())
				p := start(ctx, g, lock(reqID(1, 1), 1, 60_000))
				synctest.Wait()
				cancel()
				<-p.done
				if !errors.Is(p.err, context.Canceled) || errors.Is(p.err, fsm.ErrUnknown) {
					t.Errorf("got %+v, %v", p.outcome, p.err)
				}
				if _, err := r.Propose(t.Context(), enqueue(reqID(2, 1), "x")); err != nil {
					t.Fatal(err)
				}
				if s := state(r); len(s.Locked) != 0 || len(s.Ready[1]) != 1 {
					t.Errorf("locked %d, ready %d", len(s.Locked), len(s.Ready[1]))
				}
			})
		})
	}
}

// A18: when the cancelled request is in the log already, its outcome comes back so that the caller
// can return what it took.
func TestCancelInFlightReturnsTheOutcome(t *testing.T) {
	for _, where := range []string{"here", "on another node"} {
		t.Run(where, func(t *testing.T) {
			lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
				var g Group = r
				if where != "here" {
					g = NewRemote(c.net.Port("n2"), "n1", 1)
				}
				if _, err := r.Propose(t.Context(), enqueue(reqID(2, 1), "x")); err != nil {
					t.Fatal(err)
				}
				release := c.nodes["n1"].disks[1].log.hang()
				ctx, cancel := context.WithCancel(t.Context())
				p := start(ctx, g, lock(reqID(1, 1), 1, 60_000))
				synctest.Wait()
				cancel()
				synctest.Wait()
				release()
				<-p.done
				if got := bodies(p.outcome); p.err != nil || len(got) != 1 {
					t.Errorf("got %q, %v", got, p.err)
				}
			})
		})
	}
}

// S-304: a query whose caller is gone while its barrier is under way ends with the caller's error, and the replica
// serves on.
func TestACancelledQueryEnds(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		release := c.nodes["n1"].disks[1].log.hang()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := r.Query(ctx, fsm.QueryRequest{Entity: 1, Query: &fsm.Counts{}})
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		release()
		if a, err := r.Query(t.Context(), fsm.QueryRequest{Entity: 1, Query: &fsm.Counts{}}); err != nil || a.Counts.Active != 0 {
			t.Errorf("the next query: %+v, %v", a, err)
		}
	})
}

// The unpark and the enqueue race; whichever wins, the message is either in the outcome or ready.
func TestUnparkRace(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		g := NewRemote(c.net.Port("n2"), "n1", 1)
		got, ready := 0, 0
		for i := range uint64(200) {
			ctx, cancel := context.WithCancel(t.Context())
			p := start(ctx, g, lock(reqID(1, i+1), 1, 60_000))
			synctest.Wait()
			var wg sync.WaitGroup
			wg.Add(2)
			go func() { defer wg.Done(); cancel() }()
			go func() {
				defer wg.Done()
				if _, err := r.Propose(t.Context(), enqueue(reqID(2, i+1), "x")); err != nil {
					t.Error(err)
				}
			}()
			wg.Wait()
			<-p.done
			s := state(r)
			switch {
			case p.err == nil && len(p.outcome.Locked) == 1 && len(s.Ready[1]) == 0:
				got++
			case errors.Is(p.err, context.Canceled) && len(s.Locked) == got && len(s.Ready[1]) == 1:
				ready++
				o, err := r.Propose(t.Context(), lock(reqID(3, i+1), 1, 0))
				if err != nil || len(o.Locked) != 1 {
					t.Fatal(o, err)
				}
				got++
			default:
				t.Fatalf("round %d: %d locked for caller, %v; state: %d locked of %d, %d ready",
					i, len(p.outcome.Locked), p.err, len(s.Locked), got, len(s.Ready[1]))
			}
		}
		t.Logf("the enqueue won %d times, the cancel %d times", 200-ready, ready)
	})
}

// A6: a retry parks in the place of the first attempt, whose connection is gone.
func TestRetryTakesOverTheParkingSlot(t *testing.T) {
	lone(t, func(t *testing.T, _ *testCluster, r *replica.Replica) {
		first := start(t.Context(), r, lock(reqID(1, 1), 1, 60_000))
		synctest.Wait()
		second := start(t.Context(), r, lock(reqID(1, 1), 1, 60_000))
		synctest.Wait()
		if <-first.done; !errors.Is(first.err, fsm.ErrUnknown) {
			t.Errorf("first attempt: %v", first.err)
		}
		if _, err := r.Propose(t.Context(), enqueue(reqID(2, 1), "x")); err != nil {
			t.Fatal(err)
		}
		if <-second.done; second.err != nil || len(second.outcome.Locked) != 1 {
			t.Errorf("second attempt: %+v, %v", second.outcome, second.err)
		}
	})
}

// S-288: a deadline is met on time without traffic; T-248: without one the log is silent.
func TestTicks(t *testing.T) {
	lone(t, func(t *testing.T, _ *testCluster, r *replica.Replica) {
		if _, err := r.Propose(t.Context(), fsm.Request{ID: reqID(1, 1), Entity: 1,
			Command: &fsm.Renew{}}); err != nil {
			t.Fatal(err)
		}
		due := state(r).Due
		time.Sleep(4900 * time.Millisecond)
		if s := state(r); s.Due == 0 || s.Ticks < 4 {
			t.Errorf("after 4.9 s: %d ticks, deadline %d", s.Ticks, s.Due)
		}
		time.Sleep(200 * time.Millisecond)
		s := state(r)
		if s.Due != 0 {
			t.Errorf("deadline %d is not met at lease %d", due, s.Lease)
		}
		time.Sleep(time.Minute)
		if now := state(r); now.Index != s.Index {
			t.Errorf("idle for a minute took %d entries", now.Index-s.Index)
		}
	})
}

func TestAwait(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		k := fsm.WaitKey{Entity: 1}
		for name, g := range map[string]Group{"here": r, "elsewhere": NewRemote(c.net.Port("n2"), "n1", 1)} {
			began := time.Now()
			if err := g.Await(t.Context(), k); err != nil || time.Since(began) < replica.AwaitLimit {
				t.Errorf("%s: nothing happened, yet %v after %v", name, err, time.Since(began))
			}
			woken := make(chan error, 2)
			for range 2 {
				go func() { woken <- g.Await(t.Context(), k) }()
			}
			synctest.Wait()
			began = time.Now()
			if _, err := r.Propose(t.Context(), enqueue(fsm.RequestID{}, "x")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := <-woken; err != nil {
					t.Error(err)
				}
			}
			if err := g.Await(t.Context(), k); err != nil || time.Since(began) > time.Second {
				t.Errorf("%s: something is there: %v after %v", name, err, time.Since(began))
			}
			if _, err := r.Propose(t.Context(), lock(fsm.RequestID{}, 10, 0)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A16: a query sees everything that was answered before it; queries alone share one barrier.
func TestQueriesRideTheLog(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 1), "x", "y")); err != nil {
			t.Fatal(err)
		}
		a, err := NewRemote(c.net.Port("n2"), "n1", 1).Query(t.Context(), // S-304
			fsm.QueryRequest{Entity: 1, Query: &fsm.Peek{Max: 10}})
		if err != nil || len(a.Messages) != 2 || string(a.Messages[1].Body) != "y" {
			t.Fatalf("peek: %+v, %v", a, err)
		}
		before := state(r).Index
		release := c.nodes["n1"].disks[1].log.hang()
		var wg sync.WaitGroup
		for range 50 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				a, err := r.Query(t.Context(), fsm.QueryRequest{Entity: 1, Query: &fsm.Counts{}})
				if err != nil || a.Counts.Active != 2 {
					t.Error(a, err)
				}
			}()
		}
		synctest.Wait()
		release()
		wg.Wait()
		if n := state(r).Index - before; n > 2 {
			t.Errorf("50 queries took %d entries", n)
		}
		// RUL-20: a probe uses a barrier that is young enough.
		before = state(r).Index
		if err := c.nodes["n1"].host.Ready(t.Context()); err != nil || state(r).Index != before {
			t.Errorf("ready: %v, %d entries", err, state(r).Index-before)
		}
		time.Sleep(2 * time.Second)
		if err := c.nodes["n1"].host.Ready(t.Context()); err != nil || state(r).Index != before+1 {
			t.Errorf("ready later: %v, %d entries", err, state(r).Index-before)
		}
	})
}

func TestDropTellsWhoeverWaits(t *testing.T) {
	lone(t, func(t *testing.T, _ *testCluster, r *replica.Replica) {
		p := start(t.Context(), r, lock(reqID(1, 1), 1, 60_000))
		woken := make(chan error, 1)
		go func() { woken <- r.Await(t.Context(), fsm.WaitKey{Entity: 1}) }()
		synctest.Wait()
		began := time.Now()
		if _, err := r.Propose(t.Context(), fsm.Request{Entity: 1, Command: &fsm.DropEntity{}}); err != nil {
			t.Fatal(err)
		}
		// S-259: the entity is gone; the small machine answers its lock with nothing, and then the
		// drop itself answers those who still wait.
		<-p.done
		if err := <-woken; err != nil || p.err != nil || p.outcome.Refusal != fsm.EntityNotFound {
			t.Errorf("%v; %+v, %v", err, p.outcome, p.err)
		}
		if time.Since(began) > time.Second {
			t.Errorf("after %v", time.Since(began))
		}
	})
}

// A9: an entry's bytes are kept as long as a body in it is wanted, and no longer.
func TestBodiesAreFreed(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		kept := c.nodes["n1"].disks[1].bodies
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 1), "one", "", "three")); err != nil {
			t.Fatal(err)
		}
		for left := 3; left > 0; left-- {
			if len(kept.entries) != 1 {
				t.Fatalf("%d entries are kept with %d messages left", len(kept.entries), left)
			}
			o, err := r.Propose(t.Context(), lock(reqID(1, uint64(10-2*left)), 1, 0))
			if err != nil || len(o.Locked) != 1 {
				t.Fatal(o, err)
			}
			done := &fsm.Settle{Items: []fsm.SettleItem{{Token: o.Locked[0].Token, Verdict: fsm.Complete}}}
			if _, err := r.Propose(t.Context(), fsm.Request{ID: reqID(1, uint64(11-2*left)), Entity: 1,
				Command: done}); err != nil {
				t.Fatal(err)
			}
		}
		if len(kept.entries) != 0 {
			t.Errorf("%d entries are kept for nothing", len(kept.entries))
		}
	})
}
