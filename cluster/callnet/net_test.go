package callnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

const (
	kindEcho uint8 = 1 + iota
	kindStream
)

// three returns a network of three nodes that answer with what they were sent, and how often each was asked.
func three(t *testing.T, cfg Config) (n *Net, ports map[fsm.NodeID]*Port, asked map[fsm.NodeID]int) {
	t.Helper()
	n, ports, asked = New(cfg), map[fsm.NodeID]*Port{}, map[fsm.NodeID]int{}
	for _, id := range []fsm.NodeID{"a", "b", "c"} {
		p := n.Port(id)
		p.Handle(kindEcho, func(_ context.Context, from fsm.NodeID, b []byte) ([]byte, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			asked[id]++
			return append([]byte(from+":"), b...), nil
		})
		p.HandleStream(kindStream, func(_ context.Context, _ fsm.NodeID, head []byte, body io.Reader) ([]byte, error) {
			all, err := io.ReadAll(body)
			return append(head, all...), err
		})
		n.Attach(p)
		ports[id] = p
	}
	time.Sleep(time.Second) // links come up
	return n, ports, asked
}

func likeTheMesh() Config {
	return Config{Silence: 1500 * time.Millisecond, Check: 250 * time.Millisecond, Redial: 100 * time.Millisecond,
		Rand: rand.New(rand.NewPCG(1, 2)), Repeats: func(kind uint8) bool { return kind == kindEcho }}
}

func TestCallsAreAnswered(t *testing.T) {
	for name, cfg := range map[string]Config{"a cut breaks": {}, "a cut holds back": likeTheMesh()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, ports, _ := three(t, cfg)
				defer n.Close()
				n.SetDelay(30*time.Millisecond, 0)
				began := time.Now()
				b, err := ports["a"].Call(t.Context(), "b", kindEcho, []byte("x"))
				if took := time.Since(began); err != nil || string(b) != "a:x" || took != 60*time.Millisecond {
					t.Errorf("%q, %v after %v", b, err, took)
				}
				if b, err = ports["a"].Call(t.Context(), "a", kindEcho, nil); err != nil || string(b) != "a:" {
					t.Errorf("the own node: %q, %v", b, err)
				}
				b, err = ports["a"].CallStream(t.Context(), "b", kindStream, []byte("h"), strings.NewReader("ead"))
				if err != nil || string(b) != "head" {
					t.Errorf("a stream: %q, %v", b, err)
				}
				if _, err = ports["a"].Call(t.Context(), "b", 9, nil); err == nil {
					t.Error("a call that nobody handles is answered")
				}
				if got := n.Calls(kindEcho); got != 2 {
					t.Errorf("%d calls were counted, want 2", got)
				}
			})
		})
	}
}

// Without silence a cut ends the calls under way with an unknown ending, and later ones surely do not arrive.
func TestACutBreaksALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ports, asked := three(t, Config{})
		n.SetDelay(time.Second, 0)
		go func() { time.Sleep(500 * time.Millisecond); n.SetCut("b", "a", true) }()
		began := time.Now()
		_, err := ports["a"].Call(t.Context(), "b", kindEcho, nil)
		if took := time.Since(began); !errors.Is(err, fsm.ErrUnknown) || took != 500*time.Millisecond {
			t.Errorf("a call under way: %v after %v", err, took)
		}
		if _, err := ports["b"].Call(t.Context(), "a", kindEcho, nil); !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("a call into the cut: %v", err)
		}
		n.SetDelay(0, 0)
		if _, err := ports["a"].Call(t.Context(), "b", kindEcho, nil); !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("a call whose answer is cut off: %v", err)
		}
		synctest.Wait()
		if asked["b"] == 0 || asked["a"] != 0 {
			t.Errorf("asked %v: b must hear, a must not", asked)
		}
		n.Isolate("b", false)
		if _, err := ports["a"].Call(t.Context(), "b", kindEcho, nil); err != nil {
			t.Errorf("after the cut: %v", err)
		}
		n.Close()
	})
}

// With silence a cut holds calls back until it heals, or until the link is given up; then its ends learn of it.
func TestACutHoldsCallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ports, _ := three(t, likeTheMesh())
		defer n.Close()
		var lost []fsm.NodeID
		ports["a"].OnLost(func(peer fsm.NodeID) { lost = append(lost, peer) })
		n.SetCut("a", "b", true)
		go func() { time.Sleep(time.Second); n.Heal() }()
		began := time.Now()
		_, err := ports["a"].Call(t.Context(), "b", kindEcho, nil)
		if took := time.Since(began); err != nil || took != time.Second {
			t.Errorf("a short cut: %v after %v", err, took)
		}
		time.Sleep(time.Second) // the link is heard again
		n.Isolate("b", true)
		began = time.Now()
		_, err = ports["a"].Call(t.Context(), "b", kindEcho, nil)
		if took := time.Since(began); !errors.Is(err, fsm.ErrUnknown) || took < 1500*time.Millisecond || took > 2*time.Second {
			t.Errorf("a long cut: %v after %v", err, took)
		}
		synctest.Wait()
		if len(lost) != 1 || lost[0] != "b" {
			t.Errorf("a was told that it lost %v", lost)
		}
		if _, err := ports["a"].Call(t.Context(), "b", kindEcho, nil); !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("a link that is down: %v", err)
		}
		n.Heal()
		time.Sleep(time.Second)
		if _, err := ports["a"].Call(t.Context(), "b", kindEcho, nil); err != nil {
			t.Errorf("after the cut: %v", err)
		}
	})
}

// A call that was given up may still arrive, and a call that may be repeated arrives twice.
func TestChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noted := make(chan string, 10)
		cfg := likeTheMesh()
		cfg.Note = func(what string) { noted <- what }
		n, ports, asked := three(t, cfg)
		defer n.Close()
		n.SetChances(0, 1)
		if _, err := ports["a"].Call(t.Context(), "b", kindEcho, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lateWithin)
		synctest.Wait()
		if asked["b"] != 2 {
			t.Errorf("b was asked %d times, want the call and its copy", asked["b"])
		}
		n.SetChances(1, 0)
		n.SetCut("a", "c", true)
		if _, err := ports["a"].Call(t.Context(), "c", kindEcho, nil); !errors.Is(err, fsm.ErrUnknown) {
			t.Fatal(err)
		}
		time.Sleep(lateWithin)
		synctest.Wait()
		if asked["c"] != 1 {
			t.Errorf("c was asked %d times, want the call that was given up", asked["c"])
		}
		if first, second := <-noted, <-noted; first != "calls copied" || second != "calls delivered late" {
			t.Errorf("noted %q and %q", first, second)
		}
	})
}

// A paused process neither hears nor answers. A process that ended is known to be gone, and its next life is another.
func TestProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ports, _ := three(t, Config{})
		defer n.Close()
		n.Freeze("b", true)
		go func() { time.Sleep(time.Hour); n.Freeze("b", false) }()
		began := time.Now()
		_, err := ports["a"].Call(t.Context(), "b", kindEcho, nil)
		if took := time.Since(began); err != nil || took != time.Hour {
			t.Errorf("a paused process: %v after %v", err, took)
		}
		n.SetDelay(time.Second, 0)
		go func() { time.Sleep(time.Second / 2); ports["b"].Kill() }()
		if _, err := ports["a"].Call(t.Context(), "b", kindEcho, nil); !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("a process that ends meanwhile: %v", err)
		}
		if _, err := ports["a"].Call(t.Context(), "b", kindEcho, nil); !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("a process that ended: %v", err)
		}
		next := n.Port("b")
		next.Handle(kindEcho, func(context.Context, fsm.NodeID, []byte) ([]byte, error) { return []byte("next"), nil })
		n.Attach(next)
		if b, err := ports["a"].Call(t.Context(), "b", kindEcho, nil); err != nil || string(b) != "next" {
			t.Errorf("the next life: %q, %v", b, err)
		}
	})
}

// A call that is swallowed ends with its caller, and a lost link ends a stream in the middle.
func TestCallsThatNeverEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ports, asked := three(t, Config{})
		defer n.Close()
		n.Swallow(func(from, to fsm.NodeID, kind uint8, b []byte) bool {
			return from == "a" && to == "b" && kind == kindEcho && bytes.Equal(b, []byte("x"))
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := ports["a"].Call(ctx, "b", kindEcho, []byte("x")); !errors.Is(err, context.DeadlineExceeded) || asked["b"] != 0 {
			t.Errorf("swallowed: %v, b was asked %d times", err, asked["b"])
		}
		n.Swallow(nil)
		r, w := io.Pipe()
		defer func() { _ = r.Close() }() // the call may end before it has read "end"
		go func() {
			_, _ = w.Write([]byte("beginning"))
			n.SetCut("a", "b", true)
			_, _ = w.Write([]byte("end"))
			_ = w.Close()
		}()
		if _, err := ports["a"].CallStream(t.Context(), "b", kindStream, nil, r); !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("a stream over a lost link: %v", err)
		}
	})
}
