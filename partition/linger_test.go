package partition

import (
	"sync"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// Messages of clients that do not wait for answers share rounds, and settlements ride with them. Each has its answer within a
// linger. What joins a request is its second message. A client that waits for each answer has a round for each request, and is
// not slowed.
func TestRoundsWaitForASecondMessageWhereNothingIsLost(t *testing.T) {
	simulatesLong(t)
	three(t, func(t *testing.T, c *testCluster) {
		r := c.leader(1)
		ctx := shortly(t, time.Hour)
		const perSecond, waiting = 1600, 400 * time.Microsecond
		seconds, alone := 10, 20*perSecond // one after the other
		if testing.Short() {
			seconds, alone = 4, 6*perSecond
		}
		count := uint64(0)
		ask := func(command fsm.Command) fsm.Outcome {
			count++
			o, err := c.sendVia(ctx, r.Node(), fsm.Request{ID: reqID(1, count), Entity: 1, Command: command})
			if err != nil || o.Refusal != fsm.None {
				t.Fatalf("%T: %+v, %v", command, o, err)
			}
			return o
		}
		take := func(n int) (all []fsm.Delivery) {
			for len(all) < n {
				ask(&fsm.Enqueue{Messages: make([]fsm.Message, 500)})
				all = append(all, ask(&fsm.Lock{Max: 500}).Locked...)
			}
			return all[:n]
		}
		var mu sync.Mutex
		var longest time.Duration
		settled := 0
		settles := func(pump uint64, d fsm.Delivery) {
			began := time.Now()
			o, err := c.sendVia(ctx, r.Node(), fsm.Request{ID: reqID(pump, uint64(d.Seq)), Entity: 1, Command: settle(d, fsm.Complete)})
			if err != nil || len(o.Refusals) != 1 || o.Refusals[0] != fsm.None {
				t.Errorf("message %d: %+v, %v", d.Seq, o, err)
			}
			mu.Lock()
			settled, longest = settled+1, max(longest, time.Since(began))
			mu.Unlock()
		}
		// atRate sends and settles without waiting for answers.
		atRate := func(pump uint64, all []fsm.Delivery) (rounds uint64) {
			var work sync.WaitGroup
			before, began := r.Applied(), time.Now()
			longest, settled = 0, 0
			for i, d := range all {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / perSecond)))
				work.Go(func() { settles(pump, d) })
				work.Go(func() {
					time.Sleep(time.Second / perSecond / 2)
					if _, err := c.sendVia(ctx, r.Node(), enqueue(reqID(pump+1, uint64(i+1)), "x")); err != nil {
						t.Errorf("message %d: %v", i, err)
					}
				})
			}
			work.Wait()
			return r.Applied() - before
		}
		joins := func(i uint64) {
			late := &lateBodies{}
			began, answered := time.Now(), make(chan error, 1)
			go func() {
				_, err := c.sendVia(ctx, r.Node(), open(reqID(8, i+1), late, "first"))
				answered <- err
			}()
			time.Sleep(replica.Defaults().RoundLinger / 4)
			late.add("second")
			if err := <-answered; err != nil || time.Since(began) >= replica.Defaults().RoundLinger {
				t.Errorf("a request that another message joined took %v: %v", time.Since(began), err)
			}
		}
		atRate(2, take(2*perSecond))
		all := take(seconds * perSecond)
		rounds := atRate(4, all)
		if most := 2 * replica.Defaults().RoundLinger; rounds > uint64(seconds*perSecond*7/10) || settled != len(all) || longest > most {
			t.Errorf("%d rounds for as many sends as the %d settlements, one of which took %v", rounds, settled, longest)
		}
		for i := range uint64(8) {
			joins(i)
		}
		most := time.Duration(alone) * waiting * 21 / 20 // a round takes no virtual time
		before, began := r.Applied(), time.Now()
		for range alone {
			ask(&fsm.Enqueue{Messages: make([]fsm.Message, 1)})
			time.Sleep(waiting)
		}
		if took, rounds := time.Since(began), r.Applied()-before; rounds < uint64(alone) || took > most {
			t.Errorf("sends, one after the other: %d rounds in %v, want %v at most", rounds, took, most)
		}
		all = take(alone)
		before, began = r.Applied(), time.Now()
		for _, d := range all {
			settles(6, d)
			time.Sleep(waiting)
		}
		if took, rounds := time.Since(began), r.Applied()-before; rounds < uint64(alone) || took > most {
			t.Errorf("settlements, one after the other: %d rounds in %v, want %v at most", rounds, took, most)
		}
	})
}
