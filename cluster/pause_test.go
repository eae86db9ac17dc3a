package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// slowTime is how long the handler of kindSlow takes: longer than the pauses of these tests.
const slowTime = time.Minute

// The kernel of a paused process accepts connections that nobody greets. No call to it waits longer than
// silence is borne, and one that is made again at once fails at once: another node may already lead. S-299.
func TestNoCallWaitsForAPausedProcess(t *testing.T) {
	for name, served := range map[string]bool{
		"nothing of the peer is served":   false,
		"a request of the peer is served": true,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *simNet) {
				n1, n2 := s.pair()
				defer n1.stop()
				defer n2.stop()
				mustCall(t, n1.node, "n2", "connect")
				wantEvent(t, n1, "n2 up")
				if served { // the link ends before its handlers do
					go n2.Call(testContext(t), "n1", kindSlow, nil)
					<-n1.parked
				}
				const callers, every, lasts = 50, 20 * time.Millisecond, 6 * time.Second
				longest := make(chan time.Duration, callers)
				call := func(want error) {
					if _, err := n1.Call(testContext(t), "n2", kindEcho, []byte("x")); !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				}
				s.net.Pause(simIP(2))
				paused := time.Now()
				for range callers {
					go func() {
						call(fsm.ErrUnknown) // under way until the silence is noticed
						var most time.Duration
						for time.Since(paused) < lasts {
							began := time.Now()
							call(fsm.ErrUnavailable)
							most = max(most, time.Since(began))
							time.Sleep(every)
						}
						longest <- most
					}()
				}
				wantEvent(t, n1, "n2 down")
				if took := time.Since(paused); took > 1750*time.Millisecond {
					t.Errorf("reported after %v, want 1.75s at most", took)
				}
				for range callers {
					if d := <-longest; d > 0 {
						t.Fatalf("a call that was made again waited %v, want none", d)
					}
				}
				s.net.Resume(simIP(2))
				wantEvent(t, n1, "n2 up")
				mustCall(t, n1.node, "n2", "resumed")
			})
		})
	}
}
