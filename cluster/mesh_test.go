package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

func TestCallsAreAnsweredBothWays(t *testing.T) {
	before := runtime.NumGoroutine()
	a, b := duo(t, nil)
	for _, to := range []fsm.NodeID{"a", "b"} {
		if err := a.Connect(testContext(t), to); err != nil {
			t.Fatal(err)
		}
	}
	mustCall(t, a, "b", "hello b")
	mustCall(t, b, "a", "hello a")
	mustCall(t, a, "a", "hello myself")
	mustCall(t, a, "b", "")
	if got := len(a.Peers()); got != 1 {
		t.Errorf("a knows %d peers, want 1", got)
	}
	if err := a.Connect(testContext(t), "nobody"); !errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("connecting to a node without an address: %v, want ErrUnavailable", err)
	}
	if got := linkCount(b); got != 1 {
		t.Errorf("b has %d links, want 1: both directions share it", got)
	}
	a.Close()
	b.Close()
	settleGoroutines(t, before)
}

func TestManyCallsAtOnceKeepTheirAnswers(t *testing.T) {
	a, b := duo(t, nil)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			from, to := a, fsm.NodeID("b")
			if i%2 == 1 {
				from, to = b, "a"
			}
			for j := range 50 {
				text := fmt.Sprintf("%d/%d %s", i, j, strings.Repeat("x", (i*j*131)%5000))
				got, err := from.Call(testContext(t), to, kindEcho, []byte(text))
				if err != nil || string(got) != text {
					t.Errorf("call %d/%d: %d bytes, %v; want %d", i, j, len(got), err, len(text))
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestLargeFrames(t *testing.T) {
	a, _ := duo(t, func(c *Config) { c.MaxFrameBytes = 8 << 20; c.MaxQueueBytes = 9 << 20 })
	big := bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16)
	var wg sync.WaitGroup
	for range 4 { // more than the queue holds: they wait for room
		wg.Go(func() {
			got, err := a.Call(testContext(t), "b", kindEcho, big)
			if err != nil || !bytes.Equal(got, big) {
				t.Errorf("8 MiB: %d bytes came back, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	if _, err := a.Call(testContext(t), "b", kindEcho, append(big, 0)); !errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("a byte more: %v, want ErrUnavailable", err)
	}
	if _, err := a.Call(testContext(t), "b", kindHuge, nil); !errors.Is(err, fsm.ErrUnknown) {
		t.Errorf("an answer that is too large: %v, want ErrUnknown", err)
	}
	mustCall(t, a, "b", "the link is not hurt")
}

func TestStreamOf64MiB(t *testing.T) {
	a, _ := duo(t, nil)
	const size = 64 << 20
	body := io.LimitReader(ones{}, size)
	got, err := a.CallStream(testContext(t), "b", kindDrain, []byte("head"), body)
	if want := drained([]byte("head"), size, size); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %x, %v; want %x", got, err, want)
	}
}

type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}

func TestCancelledCallCancelsItsHandler(t *testing.T) {
	a, b := duo(t, nil)
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := a.Call(ctx, "b", kindPark, nil)
		done <- err
	}()
	<-b.parked
	cancel()
	if err := <-done; !errors.Is(err, fsm.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrUnknown and context.Canceled", err)
	}
	<-b.unparked
	mustCall(t, a, "b", "the link is not hurt")
}

func TestLossOfTheLinkEndsCallsAndHandlers(t *testing.T) {
	a, b := duo(t, nil)
	done := make(chan error, 1)
	go func() {
		_, err := a.Call(testContext(t), "b", kindPark, nil)
		done <- err
	}()
	<-b.parked
	b.Close() // also waits for the handler
	if err := <-done; !errors.Is(err, fsm.ErrUnknown) {
		t.Errorf("a call under way ended %v, want ErrUnknown", err)
	}
	<-b.unparked
	_, err := a.Call(testContext(t), "b", kindEcho, nil)
	if !errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("a call afterwards ended %v, want ErrUnavailable", err)
	}
}
