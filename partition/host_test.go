package partition

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/control"
	"github.com/busbar-mq/busbar/partition/replica"
)

func TestConfigReportsEveryProblem(t *testing.T) {
	c := Defaults()
	c.Node = "n1"
	if err := c.Validate(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	err := (&Config{}).Validate()
	for _, want := range []string{"node id", "heartbeat", "lease", "commit", "rpc", "entry bytes",
		"append bytes", "append entries", "pending", "parked", "snapshot", "trailing", "StallAfter", "close"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported: %v", want, err)
		}
	}
	if _, err := NewHost(Config{}, Deps{}); err == nil {
		t.Error("a host starts without a configuration")
	}
	if err := (&control.Config{}).Validate(); err == nil {
		t.Error("a supervisor starts without a configuration")
	}
}

// R10: a leader that raft wedges in a transfer is opened anew, and serves.
func TestWedgedReplicaIsOpenedAnew(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil {
			t.Fatal(err)
		}
		r.RestartStuck(errors.New("on purpose"))
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 2), "x")); !errors.Is(err, fsm.ErrNotLeader) {
			t.Errorf("stuck: %v", err)
		}
		time.Sleep(2 * watchdogEvery)
		next := c.leader(1)
		if next == r {
			t.Fatal("not opened anew")
		}
		if s := state(next); s.Enqueues != 1 {
			t.Errorf("%d enqueues", s.Enqueues)
		}
		for range maxRestarts {
			c.leader(1).RestartStuck(errors.New("again"))
			time.Sleep(2 * watchdogEvery)
		}
		select {
		case <-c.fatal:
		default:
			t.Error("a replica that is stuck again and again does not end the process")
		}
	})
}

// The caller of a node that closes is told so, and every goroutine ends (the bubble checks).
func TestCloseAnswersEverybody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.open(1)
		r := c.leader(1)
		parked := start(t.Context(), r, lock(reqID(1, 1), 1, 60_000))
		awaiting := make(chan error, 1)
		go func() { awaiting <- r.Await(t.Context(), fsm.WaitKey{Entity: 1}) }()
		synctest.Wait()
		release := c.nodes["n1"].disks[1].log.hang()
		riding := start(t.Context(), r, enqueue(reqID(2, 1), "x"))
		synctest.Wait()
		pending := start(t.Context(), r, enqueue(reqID(3, 1), "x"))
		synctest.Wait()
		closed := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			closed <- c.nodes["n1"].host.Close(ctx)
		}()
		for _, p := range []*proposed{riding, pending, parked} {
			<-p.done
		}
		if !errors.Is(riding.err, fsm.ErrUnknown) {
			t.Errorf("riding: %v", riding.err)
		}
		if !errors.Is(pending.err, fsm.ErrClosed) {
			t.Errorf("pending: %v", pending.err)
		}
		// The lock rides behind the enqueue that would satisfy it.
		if !errors.Is(parked.err, fsm.ErrUnknown) {
			t.Errorf("parked: %v", parked.err)
		}
		if err := <-awaiting; err != nil {
			t.Errorf("await: %v", err)
		}
		release()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		c.nodes["n1"].port.Kill()
		if _, err := r.Propose(t.Context(), enqueue(reqID(3, 2), "x")); !errors.Is(err, fsm.ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	})
}

// A disk that never answers must not hang the stop of the process.
func TestCloseGivesUpOnAHungDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.open(1)
		r := c.leader(1)
		release := c.nodes["n1"].disks[1].log.hang()
		p := start(t.Context(), r, enqueue(reqID(2, 1), "x"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		began := time.Now()
		if err := c.nodes["n1"].host.Close(ctx); err == nil || time.Since(began) < c.nodes["n1"].host.cfg.CloseTimeout {
			t.Errorf("closed after %v: %v", time.Since(began), err)
		}
		<-p.done
		release() // lets the goroutines of the bubble end
		c.nodes["n1"].port.Kill()
	})
}

func TestHostAnswersHostileCalls(t *testing.T) {
	lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
		other := c.net.Port("n2")
		head := verbHead(1, 0)
		for _, kind := range []uint8{KindRaft, KindPropose, KindQuery, KindAwait, KindUnpark, KindReadIndex} {
			for _, b := range [][]byte{nil, {9}, {1}, {1, 0, 1}, {1, 0, 9, 1}, append(head, 0xff, 0xff),
				append(head, make([]byte, 100)...)} {
				answer, err := other.Call(shortly(t, 100*time.Millisecond), "n1", kind, b)
				if kind == KindReadIndex && len(b) >= 3 && b[2] == 1 {
					continue // takes no content, and answers
				}
				if err == nil && len(answer) > 1 && answer[1] == statusOK {
					t.Errorf("kind %d: %x is answered with %x", kind, b, answer)
				}
			}
		}
		if _, err := other.CallStream(t.Context(), "n1", KindSnapshot, []byte{1, 5, 0, 1, 7},
			strings.NewReader("x")); err == nil {
			t.Error("a malformed snapshot is taken")
		}
		if _, err := r.Propose(t.Context(), enqueue(reqID(1, 1), "x")); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A store call of a process that stood still is as old as the time since; a disk that hangs is found all the same.
func TestAPauseOfTheProcessIsNoFaultOfItsDisk(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	var a awake
	a.waited(at(0), at(1))
	if age := a.age(19*time.Second, at(1)); age != 19*time.Second {
		t.Errorf("without a pause: %v", age)
	}
	a.waited(at(1), at(21))
	for _, step := range []struct{ now, call, want float64 }{
		{21, 20, 0},      // the call began before the pause
		{22, 21, 1},      // and returned not in the second since
		{40, 39, 19},     // it hangs
		{40, 0.25, 0.25}, // another one that began later
	} {
		if got := a.age(at(step.call).Sub(start), at(step.now)); got != at(step.want).Sub(start) {
			t.Errorf("at %v s a call of %v s counts %v, not %v s", step.now, step.call, got, step.want)
		}
	}
	a.waited(at(40), at(42)) // a late tick of a busy machine
	if age := a.age(25*time.Second, at(42)); age != 21*time.Second {
		t.Errorf("after a late tick: %v", age)
	}
}
