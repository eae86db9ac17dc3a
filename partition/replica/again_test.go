package replica

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

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
