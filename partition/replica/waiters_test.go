package replica

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// A message wakes the request that is parked for it. If that one goes before it is asked again, those that await the message
// hear of it. S-316.
func TestAWakeOfARequestThatHasGoneIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParked()
		c := p.receive(t, 1, nil)
		p.emptyRound(fsm.Outcome{}, func() {}) // it is parked
		began, heard := time.Now(), make(chan time.Duration, 1)
		go func() {
			if err := p.waits.await(t.Context(), c.key, func() bool { return false }); err != nil {
				t.Error(err)
			}
			heard <- time.Since(began)
		}()
		synctest.Wait()
		tick := &fsm.Entry{Requests: []fsm.Request{{Command: &fsm.Tick{}}}}
		p.complete(tick, &applied{result: fsm.Result{Wake: []fsm.WaitKey{c.key}, WokenBy: []int{0}}}, time.Now())
		(&Begun{p.proposer, c}).Cancel(errors.New("its client has gone"))
		p.collect(false)
		if took := <-heard; took > 0 {
			t.Errorf("who awaits the message heard of it after %v", took)
		}
		if n := len(p.parking.burst); n > 0 {
			t.Errorf("%d bursts are kept for nobody", n)
		}
	})
}
