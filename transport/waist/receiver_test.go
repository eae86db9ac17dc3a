package waist

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// lossyBroker has one message, and remembers the last answer of each pump. The first answers are lost.
type lossyBroker struct {
	Broker
	lost     int // answers that are still to be lost
	message  bool
	answered map[uint64]fsm.RequestID
	answer   map[uint64]fsm.Outcome
	begins   bool
	asked    []uint64 // counters
}

func (b *lossyBroker) Propose(_ context.Context, id fsm.RequestID, _ fsm.Key, _ fsm.Command) (fsm.Outcome, error) {
	b.asked = append(b.asked, id.Counter)
	again := b.answered[id.Pump] == id
	if !again {
		b.answered[id.Pump], b.answer[id.Pump] = id, fsm.Outcome{}
		if b.message {
			b.message, b.answer[id.Pump] = false, fsm.Outcome{Locked: []fsm.Delivery{{Seq: 1}}}
		}
	}
	if b.lost > 0 {
		b.lost--
		return fsm.Outcome{}, fmt.Errorf("the link is lost: %w", fsm.ErrUnknown)
	}
	o := b.answer[id.Pump]
	o.Repeated = again
	return o, nil
}

func (b *lossyBroker) Begin(id fsm.RequestID, k fsm.Key, c fsm.Command, done func(fsm.Outcome, error, Rest)) (Cancel, bool) {
	if !b.begins {
		return nil, false
	}
	o, err := b.Propose(context.Background(), id, k, c)
	done(o, err, nil)
	return func(error) {}, true
}

// The answer to a receive is lost, and its time is over before there is another one. The next receive gets what the first one
// took: it has the same id, so the partition does not forget the answer. A6, A18.
func TestTheNextReceiveGetsWhatTheLastOneTook(t *testing.T) {
	for _, begins := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := &lossyBroker{lost: 1, message: true, answered: map[uint64]fsm.RequestID{}, answer: map[uint64]fsm.Outcome{}, begins: begins}
			s := New(Config{Broker: b, Log: hclog.NewNullLogger(), Incarnation: 7, ProposeTimeout: time.Second})
			r := s.NewReceiver(&fsm.Descriptor{ID: 1, Partitions: []fsm.PartitionID{1}}, fsm.Main, []int{0})
			receive := func() fsm.Outcome {
				ended := make(chan fsm.Outcome, 1)
				lock := &fsm.Lock{Max: 1, Delete: true}
				if _, ok := r.Begin(lock, func(o fsm.Outcome, err error, rest Rest) {
					if rest != nil {
						o, _ = rest(t.Context())
					}
					ended <- o
				}); !ok {
					o, _ := r.Receive(t.Context(), lock)
					ended <- o
				}
				return <-ended
			}
			if o := receive(); len(o.Locked) != 0 {
				t.Errorf("begun %v: the answer was not lost: this test shows nothing", begins)
			}
			if o := receive(); len(o.Locked) != 1 || o.Locked[0].Seq != 1 {
				t.Errorf("begun %v: the next receive gets %+v", begins, o.Locked)
			}
			receive()
			if !slices.Equal(b.asked, []uint64{1, 1, 2}) {
				t.Errorf("begun %v: requests %v", begins, b.asked)
			}
		})
	}
}

// The answer that was lost is that there was nothing. The next receive does not take that for its own. A6.
func TestTheNextReceiveAsksForMore(t *testing.T) {
	b := &lossyBroker{lost: 1, answered: map[uint64]fsm.RequestID{}, answer: map[uint64]fsm.Outcome{}}
	s := New(Config{Broker: b, Log: hclog.NewNullLogger(), Incarnation: 7, ProposeTimeout: time.Second})
	r := s.NewReceiver(&fsm.Descriptor{ID: 1, Partitions: []fsm.PartitionID{1}}, fsm.Main, []int{0})
	if _, err := r.Receive(t.Context(), &fsm.Lock{Max: 1}); err == nil {
		t.Fatal("the answer was not lost: this test shows nothing")
	}
	b.message = true
	if o, err := r.Receive(t.Context(), &fsm.Lock{Max: 1}); err != nil || len(o.Locked) != 1 || !slices.Equal(b.asked, []uint64{1, 1, 2}) {
		t.Errorf("received %+v, %v, with the requests %v", o.Locked, err, b.asked)
	}
}

// busyBroker refuses everything for the moment, at once.
type busyBroker struct {
	Broker
	asked int
	stop  func()
}

func (b *busyBroker) Propose(context.Context, fsm.RequestID, fsm.Key, fsm.Command) (fsm.Outcome, error) {
	if b.asked++; b.asked > 10_000 {
		b.stop()
	}
	return fsm.Outcome{Refusal: fsm.Busy}, nil
}

func (b *busyBroker) Await(ctx context.Context, _ fsm.Key) error {
	<-ctx.Done()
	return ctx.Err()
}

// S-230: a receive from several shares that refuse for the moment pauses between its attempts, as one from a single share does.
func TestAReceiveFromBusySharesPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, shares := range [][]int{{0}, {0, 1, 2}} {
			ctx, cancel := context.WithCancel(t.Context())
			b := &busyBroker{stop: cancel}
			s := New(Config{Broker: b, Log: hclog.NewNullLogger(), Incarnation: 7, ProposeTimeout: time.Second})
			d := &fsm.Descriptor{ID: 1, Partitioned: true, Partitions: []fsm.PartitionID{1, 2, 3}[:len(shares)]}
			out, err := s.NewReceiver(d, fsm.Main, shares).Receive(ctx, &fsm.Lock{Max: 1, Wait: 60_000})
			if err != nil || out.Refusal != fsm.Busy || b.asked > 100 {
				t.Errorf("%d shares: %v, %v, after %d attempts in a minute", len(shares), out.Refusal, err, b.asked)
			}
			cancel()
		}
	})
}
