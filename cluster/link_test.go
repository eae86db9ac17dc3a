package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// Two nodes that dial each other at the same moment keep one link, and no call is lost over it.
func TestBothDialAtOnce(t *testing.T) {
	for round := range 20 {
		a, b := duo(t, nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { mustCall(t, a, "b", "over") })
			wg.Go(func() { mustCall(t, b, "a", "and back") })
		}
		wg.Wait()
		waitFor(t, func() bool { return linkCount(a) == 1 && linkCount(b) == 1 })
		if !a.Peers()[0].Up || !b.Peers()[0].Up {
			t.Errorf("round %d: not up", round)
		}
		mustCall(t, a, "b", "afterwards")
		a.Close()
		b.Close()
	}
}

func linkCount(n *node) int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return len(n.links)
}

func linkOf(n *node, to fsm.NodeID) *link {
	n.mu.RLock()
	defer n.mu.RUnlock()
	p := n.peers[to]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link
}

// waitFor polls what no channel tells; it is bounded by the test's time.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it did not come to be")
		}
	}
}

func (l *link) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// A drained link ends when its last call is answered, and the call gets its answer.
func TestADrainedLinkFinishesItsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n1.node, "n2", "connect")
		old := linkOf(n1.node, "n2")
		ctx, cancel := context.WithCancel(testContext(t))
		done := make(chan error, 1)
		go func() {
			_, err := n1.Call(ctx, "n2", kindPark, nil)
			done <- err
		}()
		<-n2.parked
		old.drain()
		time.Sleep(10 * time.Second)
		if old.ended() {
			t.Fatal("the link ended under a call")
		}
		mustCall(t, n1.node, "n2", "by a new link")
		mustCall(t, n2.node, "n1", "and back")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the parked call ended %v", err)
		}
		synctest.Wait()
		if !old.ended() {
			t.Error("the link did not end with its last call")
		}
		if len(n1.events) != 1 {
			t.Errorf("watchers heard %d events, want 1: the drained link is no loss", len(n1.events))
		}
	})
}

func TestARestartedNodeIsLostAndFound(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		mustCall(t, n2.node, "n1", "connect")
		wantEvent(t, n1, "n2 up")
		// The machine loses power and is back within a second: no reset ever comes.
		s.net.Cut(simIP(1), simIP(2))
		n2.kill()
		time.Sleep(500 * time.Millisecond)
		s.net.Heal()
		again := s.start(s.config(2, 3), simIP(2))
		defer again.stop()
		again.wantStates(t, "n1=alive n2=alive ", 5*time.Second)
		mustCall(t, again.node, "n1", "a new life")
		wantEvent(t, n1, "n2 down")
		wantEvent(t, n1, "n2 up")
		if got := n1.Peers()[0].Incarnation; got != 3 {
			t.Errorf("incarnation %d, want 3", got)
		}
	})
}

// A call that was still in the queue when the link broke was surely not delivered.
func TestWhatWasNotWrittenIsUnavailable(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		// If both ends gave the link up at the same instant, the end of the other would let go what is stuck.
		patient := s.config(2, 2)
		patient.SilentPings *= 10
		n1, n2 := s.start(s.config(1, 1), simIP(1)), s.start(patient, simIP(2))
		defer n1.stop()
		defer n2.stop()
		n1.wantStates(t, "n1=alive n2=alive ", 20*time.Second)
		mustCall(t, n1.node, "n2", "connect")
		s.net.Cut(simIP(1), simIP(2))
		stuck, queued := make(chan error, 1), make(chan error, 1)
		go func() { // fills every buffer on the way
			_, err := n1.Call(testContext(t), "n2", kindEcho, make([]byte, 16<<20))
			stuck <- err
		}()
		time.Sleep(100 * time.Millisecond)
		go func() {
			_, err := n1.Call(testContext(t), "n2", kindEcho, []byte("behind it"))
			queued <- err
		}()
		if err := <-stuck; !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("the call on its way ended %v, want ErrUnknown", err)
		}
		if err := <-queued; !errors.Is(err, fsm.ErrUnavailable) || errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("the call behind it ended %v, want ErrUnavailable", err)
		}
	})
}

// A slow network is not a silent one: bytes count while a large frame is on its way.
func TestALargeFrameOverASlowNetworkKeepsTheLink(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		s.net.SetDelay(300 * time.Millisecond) // a window of 1 MiB takes 0.6 s: 32 MiB take 20 s
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		got, err := n1.Call(testContext2(t, 2*time.Minute), "n2", kindEcho, make([]byte, 16<<20))
		if err != nil || len(got) != 16<<20 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if len(n1.events) != 1 {
			t.Errorf("%d events, want one", len(n1.events))
		}
	})
}

func testContext2(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestStreams(t *testing.T) {
	a, b := duo(t, func(c *Config) { c.MaxStreams = 2 })
	ctx := testContext(t)
	t.Run("an empty body", func(t *testing.T) {
		got, err := a.CallStream(ctx, "b", kindDrain, nil, bytes.NewReader(nil))
		if want := drained(nil, 0, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%x, %v; want %x", got, err, want)
		}
	})
	t.Run("bodies around the size of a chunk", func(t *testing.T) {
		for _, n := range []int{1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 2 * chunkBytes} {
			got, err := b.CallStream(ctx, "a", kindDrain, []byte("h"), io.LimitReader(ones{}, int64(n)))
			if want := drained([]byte("h"), uint64(n), uint64(n)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: %x, %v; want %x", n, got, err, want)
			}
		}
	})
	t.Run("to itself", func(t *testing.T) {
		got, err := a.CallStream(ctx, "a", kindDrain, nil, io.LimitReader(ones{}, 9))
		if want := drained(nil, 9, 9); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%x, %v; want %x", got, err, want)
		}
	})
	t.Run("an answer before the end of the body", func(t *testing.T) {
		got, err := a.CallStream(ctx, "b", kindLazy, nil, io.LimitReader(ones{}, 1<<40))
		if err != nil || string(got) != "no thanks" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("a body that breaks is not taken for a whole one", func(t *testing.T) {
		broken := io.MultiReader(io.LimitReader(ones{}, 100_000), failing{})
		_, err := a.CallStream(ctx, "b", kindDrain, nil, broken)
		if !errors.Is(err, fsm.ErrUnknown) || !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%v, want ErrUnknown and the body's error", err)
		}
	})
	t.Run("more than are served at once", func(t *testing.T) {
		parking, cancel := context.WithCancel(ctx)
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				err := fsm.ErrBusy
				for errors.Is(err, fsm.ErrBusy) { // b may still be at the stream that broke
					_, err = a.CallStream(parking, "b", kindStall, nil, bytes.NewReader(nil))
				}
				ended <- err
			}()
			<-b.parked
		}
		if _, err := a.CallStream(ctx, "b", kindLazy, nil, bytes.NewReader(nil)); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("the third: %v, want ErrBusy", err)
		}
		cancel()
		for range 2 {
			<-b.unparked // the handler's context ends with the caller's
			if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, fsm.ErrUnknown) {
				t.Errorf("%v, want ErrUnknown and Canceled", err)
			}
		}
	})
	mustCall(t, a, "b", "the link is not hurt")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrNoProgress }

// R12: a stream on which nothing moves ends, whoever stopped.
func TestIdleStreamsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, s *simNet) {
		n1, n2 := s.pair()
		defer n1.stop()
		defer n2.stop()
		begun := time.Now()
		// The receiver does not read on: the sender gives up.
		_, err := n1.CallStream(context.Background(), "n2", kindStall, nil, ones{})
		if took := time.Since(begun); !errors.Is(err, fsm.ErrUnknown) || took != n1.cfg.StreamIdle {
			t.Errorf("a stalled receiver: %v after %v, want ErrUnknown after %v", err, took, n1.cfg.StreamIdle)
		}
		<-n2.parked
		<-n2.unparked
		// The sender does not send on: the receiver gives up.
		hang, let := io.Pipe()
		result := make(chan error, 1)
		go func() {
			_, err := n1.CallStream(context.Background(), "n2", kindDrain, nil, hang)
			result <- err
		}()
		time.Sleep(n2.cfg.StreamIdle + time.Second)
		let.Close()
		if err := <-result; !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("a stalled sender: %v, want ErrUnknown", err)
		}
		mustCall(t, n1.node, "n2", "the link is not hurt")
	})
}

// What a stream keeps is bounded by its window, however small the pieces are that it comes in.
func TestSmallPiecesOfAStreamAreJoined(t *testing.T) {
	s := &stream{}
	for range 3 * smallPieceBytes {
		s.keepLocked([]byte("x"))
	}
	if len(s.in) != 1 || s.unread != 3*smallPieceBytes || cap(s.in[0]) > 2*s.unread {
		t.Errorf("%d pieces of %d bytes in all, room for %d; want 1 of %d",
			len(s.in), s.unread, cap(s.in[0]), 3*smallPieceBytes)
	}
}

// Small calls do not wait for a snapshot: a stream that nobody reads, and one that keeps the socket
// busy, let them pass.
func TestCallsPassBulkStreams(t *testing.T) {
	a, b := duo(t, nil)
	ctx, cancel := context.WithCancel(testContext(t))
	var streams sync.WaitGroup
	for _, kind := range []uint8{kindStall, kindDrain} {
		streams.Go(func() {
			a.CallStream(ctx, "b", kind, nil, ones{}) // ends with ctx
		})
	}
	for i := range 200 {
		mustCall(t, a, "b", "call")
		mustCall(t, b, "a", "and back")
		if i == 100 && linkCount(a) != 1 {
			t.Errorf("%d links, want 1", linkCount(a))
		}
	}
	cancel()
	streams.Wait()
	waitFor(t, func() bool { return bulkCount(a, "b") == 0 && bulkCount(b, "a") == 0 })
}

func bulkCount(n *node, to fsm.NodeID) int {
	l := linkOf(n, to)
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.bulk)
}

// Two nodes may dial each other at the same moment, and one of the links is given up. A call that had chosen it takes the
// other one, whether the first is closed by then or not.
func TestACallLeavesALinkThatWasGivenUp(t *testing.T) {
	a, _ := duo(t, nil)
	mustCall(t, a, "b", "connect")
	l, err := a.linkTo(testContext(t), "b")
	if err != nil {
		t.Fatal(err)
	}
	l.drain()
	for _, closed := range []bool{false, true} {
		if closed {
			l.close(errFinished)
		}
		if _, _, err := l.begin(testContext(t), kindEcho, nil); !errors.Is(err, errDraining) {
			t.Errorf("a call, closed %v: %v, want another link to be taken", closed, err)
		}
		if _, err := l.beginStream(testContext(t)); !errors.Is(err, errDraining) {
			t.Errorf("a stream, closed %v: %v, want another link to be taken", closed, err)
		}
	}
	mustCall(t, a, "b", "by another link")
}

// A node that was silent is dialled while calls fail at once. A link is made meanwhile, by one node or the other, and it is
// given up before the goroutine that dials has heard of it. Calls wait then for what that does next.
func TestCallsWaitForTheAttemptBehindALinkThatWasGivenUp(t *testing.T) {
	for _, dialled := range []bool{false, true} {
		a, _ := duo(t, nil)
		mustCall(t, a, "b", "connect")
		p, err := a.peer("b")
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.attempt == nil })
		attempt := make(chan struct{})
		p.mu.Lock()
		first, incarnation := p.link, p.incarnation
		p.dialler++
		number := p.dialler
		p.attempt, p.failing, p.tried = attempt, true, false
		p.triedLocked()
		p.mu.Unlock()
		first.drain()
		ours, theirs := net.Pipe()
		defer theirs.Close()
		l := newLink(a.Mesh, ours, &meteredConn{Conn: ours}, identity{node: "b", incarnation: incarnation}, dialled)
		if _, err := a.enrol(l); err != nil {
			t.Fatal(err)
		}
		p.prefer(l)
		l.drain()
		l.close(errFinished)
		p.mu.Lock()
		if p.attempt == attempt || p.tried {
			t.Errorf("dialled here %v: calls wait for an attempt that has ended", dialled)
		}
		p.mu.Unlock()
		p.ended(l)
		if !dialled {
			go p.dial(number) // it goes on
		}
		mustCall(t, a, "b", "by another link")
	}
}
