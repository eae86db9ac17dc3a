package transport

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// countingBroker counts the accepts that are under way at the same time.
type countingBroker struct {
	*singleBroker
	mu        sync.Mutex
	now, most int
	asked     map[uint16]bool // shares that were asked for a session
}

func (b *countingBroker) Propose(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
	fsm.Outcome, error,
) {
	if _, ok := c.(*fsm.AcceptSession); !ok {
		return b.singleBroker.Propose(ctx, id, k, c)
	}
	count := func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.now += n
		b.most = max(b.most, b.now)
		b.asked[k.Share] = true
	}
	count(1)
	defer count(-1)
	return b.singleBroker.Propose(ctx, id, k, c)
}

func testSource(b Broker) *waist.Source {
	return waist.New(waist.Config{Broker: b, Log: hclog.NewNullLogger(), Incarnation: 7, ProposeTimeout: testConfig().ProposeTimeout})
}

// S-42: an accept-next looks at every share and locks in one share at a time, whichever shares get
// their sessions while it waits, and even if several do at once.
func TestAcceptNextLocksInOneShareAtATime(t *testing.T) {
	for name, filled := range map[string][]int{
		"a session before it asks": nil, "one share": {0}, "another share": {1}, "the last share": {2},
		"two shares at once": {2, 0}, "all shares at once": {0, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &countingBroker{singleBroker: newSingleBroker(3), asked: map[uint16]bool{}}
				d := b.queue("orders", withSessions, partitioned)
				s := testSource(b)
				fill := func(share int) {
					m := fsm.Message{Body: []byte("x"), HasSession: true, SessionID: fmt.Sprint("s", share)}
					out, err := b.Propose(t.Context(), fsm.RequestID{}, waist.ShareKey(d, fsm.Main, share),
						&fsm.Enqueue{Messages: []fsm.Message{m}})
					if err != nil || out.Refusal != fsm.None {
						t.Fatal(out, err)
					}
				}
				if filled == nil {
					fill(2)
				}
				taken := make(chan fsm.Outcome, 1)
				go func() {
					out, err := s.NewReceiver(d, fsm.Main, waist.AllShares(d)).
						Receive(t.Context(), &fsm.AcceptSession{Next: true, Wait: 10_000})
					if err != nil {
						t.Error(err)
					}
					taken <- out
				}()
				time.Sleep(time.Second)
				for _, share := range filled {
					fill(share)
				}
				out := <-taken
				if out.Refusal != fsm.None || out.Session.Token.IsZero() {
					t.Fatalf("accepted %+v", out)
				}
				synctest.Wait()
				held := 0
				for i := range d.Partitions {
					other, err := b.singleBroker.Propose(t.Context(), fsm.RequestID{},
						waist.ShareKey(d, fsm.Main, i), &fsm.AcceptSession{ID: fmt.Sprint("s", i)})
					if err != nil {
						t.Fatal(err)
					}
					if other.Refusal == fsm.SessionCannotBeLocked {
						held++
					}
				}
				if held != 1 || b.most != 1 {
					t.Errorf("%d sessions are held, %d accepts were under way at once", held, b.most)
				}
				if filled != nil && len(b.asked) != len(d.Partitions) {
					t.Errorf("only the shares %v were asked", b.asked)
				}
			})
		})
	}
}

// S-42, S-316: a receiver asks the shares of an entity in rotation, so a long one does not hide the others,
// and hears of an empty entity only when every share is empty, wherever it begins.
func TestAReceiverTakesTheSharesInRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSingleBroker(3)
		d := b.queue("orders", partitioned)
		s := testSource(b)
		fill := func(share, n int) {
			for range n {
				m := fsm.Message{Body: []byte(fmt.Sprint(share))}
				out, err := b.Propose(t.Context(), fsm.RequestID{}, waist.ShareKey(d, fsm.Main, share), &fsm.Enqueue{Messages: []fsm.Message{m}})
				if err != nil || out.Refusal != fsm.None {
					t.Fatal(out, err)
				}
			}
		}
		one := func(r *waist.Receiver) string {
			t.Helper()
			out, err := r.Receive(t.Context(), &fsm.Lock{Max: 1, Delete: true})
			if err != nil || out.Refusal != fsm.None {
				t.Fatal(out, err)
			}
			if len(out.Locked) == 0 {
				return ""
			}
			return string(out.Locked[0].Body)
		}
		fill(0, 30)
		fill(1, 4)
		fill(2, 4)
		r := s.NewReceiver(d, fsm.Main, waist.AllShares(d))
		for round := range 4 {
			seen := map[string]bool{}
			for range 3 {
				seen[one(r)] = true
			}
			if len(seen) != 3 {
				t.Errorf("round %d: only the shares %v", round, seen)
			}
		}
		for range 26 {
			if got := one(r); got != "0" {
				t.Fatalf("%q came while share 0 holds messages", got)
			}
		}
		if got := one(r); got != "" {
			t.Errorf("%q came of an empty entity", got)
		}
		for share := range 3 {
			for range 3 { // whichever share is asked first
				fill(share, 1)
				if got := one(r); got != fmt.Sprint(share) {
					t.Errorf("share %d holds a message, and %q came", share, got)
				}
			}
		}
	})
}

// darkBroker has shares that nobody leads.
type darkBroker struct {
	*singleBroker
	shares atomic.Pointer[[]uint16]
}

func (b *darkBroker) dark(share uint16) bool { return slices.Contains(*b.shares.Load(), share) }

func (b *darkBroker) Propose(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (fsm.Outcome, error) {
	if !b.dark(k.Share) {
		return b.singleBroker.Propose(ctx, id, k, c)
	}
	if fsm.WaitOf(c) > 0 {
		<-ctx.Done()
	}
	return fsm.Outcome{}, fmt.Errorf("share %d: %w", k.Share, fsm.ErrUnavailable)
}

func (b *darkBroker) Await(ctx context.Context, k fsm.Key) error {
	if !b.dark(k.Share) {
		return b.singleBroker.Await(ctx, k)
	}
	if !waist.Sleep(ctx, 30*time.Second) {
		return ctx.Err()
	}
	return nil
}

// S-316, T-268: a share that nobody leads keeps no receiver from the others. What they say counts, and while none is led
// the receiver waits.
func TestAShareThatNobodyLeadsHoldsUpNoReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := &darkBroker{singleBroker: newSingleBroker(3)}
		d := b.queue("orders", partitioned)
		down := func(which ...uint16) { b.shares.Store(&which) }
		fill := func(share int) {
			out, err := b.singleBroker.Propose(t.Context(), fsm.RequestID{}, waist.ShareKey(d, fsm.Main, share),
				&fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("x")}}})
			if err != nil || out.Refusal != fsm.None {
				t.Fatal(out, err)
			}
		}
		r := testSource(b).NewReceiver(d, fsm.Main, waist.AllShares(d))
		receive := func(wait fsm.Millis, want int) {
			t.Helper()
			if out, err := r.Receive(t.Context(), &fsm.Lock{Max: 1, Delete: true, Wait: wait}); err != nil || len(out.Locked) != want {
				t.Errorf("after %v: %+v, %v", time.Since(began), out, err)
			}
		}
		down(1)
		for range 3 { // whichever share is asked first
			fill(2)
			receive(0, 1)
			receive(0, 0)
		}
		for range 3 {
			late := time.AfterFunc(45*time.Second, func() { fill(0) })
			receive(60_000, 1)
			late.Stop()
		}
		if took := time.Since(began); took != 3*45*time.Second {
			t.Errorf("it took %v", took)
		}
		down(0, 1, 2)
		fill(1)
		time.AfterFunc(5*time.Second, func() { down() })
		receive(0, 1)
	})
}
