package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// remembering is a state in which there is nothing to receive, and that says of each request that it was answered, and
// whether that answer holds.
type remembering struct {
	*counter
	answered, holds bool
}

func (remembering) Deliverable(fsm.WaitKey) bool { return false }

func (r remembering) Answered(fsm.RequestID) (answered, holds bool) { return r.answered, r.holds }

// A request that was answered before waits for nothing, whether its round is made at once or waits for more. A6, S-308.
func TestARequestWithAnAnswerIsNotParked(t *testing.T) {
	for name, c := range map[string]struct {
		state  remembering
		parked bool
		rides  bool
	}{
		"new":            {remembering{}, true, false},
		"late":           {remembering{answered: true}, false, false},
		"with an answer": {remembering{answered: true, holds: true}, false, true},
	} {
		for _, lingers := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				cfg := Defaults()
				p := newProposer(&cfg, nil, &machine{m: c.state}, newWaiters(1), hclog.NewNullLogger(), nil, nil, nil)
				p.leading = true
				b, err := p.begin(fsm.Request{ID: fsm.RequestID{Node: 1, Pump: 1, Counter: 1}, Entity: 1, Command: &fsm.Lock{Max: 1, Wait: 1000}},
					func(fsm.Outcome, error) {})
				if err != nil {
					t.Fatal(err)
				}
				p.knownEmpty[b.c.key] = struct{}{}
				if lingers {
					p.lingers(true)
				}
				e := p.collect(false)
				if got := p.parking.waiting(b.c.key) == 1; got != c.parked {
					t.Errorf("%s, its round waits %v: parked %v", name, lingers, got)
				}
				if got := e != nil && len(e.Requests) == 1; got != c.rides {
					t.Errorf("%s, its round waits %v: it rides %v", name, lingers, got)
				}
				b.c.overdue.Stop()
			})
		}
	}
}

// A request rides, finds nothing, and was asked again meanwhile over another connection. It is not parked beside the later one,
// and so gets no message that the later one is to have. A6.
func TestOneRequestIsParkedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParked()
		var earlier error
		old := p.receive(t, 1, func(_ fsm.Outcome, err error) { earlier = err })
		p.emptyRound(fsm.Outcome{}, func() {
			p.receive(t, 2, nil)
			p.receive(t, 1, nil)
		})
		p.collect(false)
		if n := p.parking.waiting(old.key); n != 2 || !errors.Is(earlier, errAskedAgain) {
			t.Errorf("%d requests are parked, want 2; the earlier one ended with %v", n, earlier)
		}
		p.parking.pullEntity(1, func(c *call) { c.finish(fsm.Outcome{}, nil) })
	})
}

// An answer that is given again, and in which nothing is, tells nothing of what is there: those that wait are asked still. A5, A6.
func TestARepeatedAnswerTellsNothingOfWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParked()
		answered := false
		c := p.receive(t, 1, func(_ fsm.Outcome, err error) { answered = err == nil })
		p.parking.add(p.receive(t, 2, nil))
		p.pending = p.pending[:1] // the first one alone rides
		p.emptyRound(fsm.Outcome{Repeated: true}, func() {})
		if _, known := p.knownEmpty[c.key]; !answered || known || !slices.Contains(p.pendingWakes, c.key) {
			t.Errorf("answered %v, known to be empty %v, wakes %v", answered, known, p.pendingWakes)
		}
		p.parking.pullEntity(1, func(c *call) { c.finish(fsm.Outcome{}, nil) })
	})
}

// parked is the proposer of a leader without raft.
type parked struct{ *proposer }

func newParked() parked {
	cfg := Defaults()
	p := newProposer(&cfg, nil, &machine{m: remembering{}}, newWaiters(1), hclog.NewNullLogger(), nil, nil, nil)
	p.leading = true
	return parked{p}
}

// receive begins a receive of a pump.
func (p parked) receive(t *testing.T, pump uint64, done func(fsm.Outcome, error)) *call {
	t.Helper()
	if done == nil {
		done = func(fsm.Outcome, error) {}
	}
	b, err := p.begin(fsm.Request{ID: fsm.RequestID{Node: 1, Pump: pump, Counter: 1}, Entity: 1, Command: &fsm.Lock{Max: 1, Wait: 10_000}}, done)
	if err != nil {
		t.Fatal(err)
	}
	return b.c
}

// emptyRound makes a round with what waits, in which each request has an outcome. meanwhile is called while the round is made.
func (p parked) emptyRound(o fsm.Outcome, meanwhile func()) {
	e := p.collect(false)
	meanwhile()
	outcomes := make([]fsm.Outcome, len(e.Requests))
	for i := range outcomes {
		outcomes[i] = o
	}
	p.complete(e, &applied{result: fsm.Result{Outcomes: outcomes}}, time.Now())
}

// A receive whose leadership has ended gives back no place that belongs to the next leadership. S-229.
func TestAPlaceEndsWithItsLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Defaults()
		p := newProposer(&cfg, nil, &machine{m: &counter{}}, newWaiters(1), hclog.NewNullLogger(), nil, nil, nil)
		p.leading = true
		receive := func(pump uint64) fsm.Request {
			return fsm.Request{ID: fsm.RequestID{Node: 1, Pump: pump, Counter: 1}, Entity: 1, Command: &fsm.Lock{Max: 1, Wait: 1000}}
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if _, err := p.propose(t.Context(), receive(1)); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("error %v", err)
			}
		}()
		synctest.Wait()
		p.dismiss(fmt.Errorf("the leadership is over: %w", fsm.ErrUnavailable))
		p.leading, p.ending = true, nil
		b, err := p.begin(receive(2), func(fsm.Outcome, error) {})
		if err != nil {
			t.Fatal(err)
		}
		<-answered
		if n := p.parking.receives[1]; n != 1 {
			t.Errorf("%d receives are counted, want 1", n)
		}
		b.c.overdue.Stop()
	})
}
