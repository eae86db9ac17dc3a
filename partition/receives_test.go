package partition

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

const fewReceives = 3

// withFew runs f with three nodes whose entities have few places for receives.
func withFew(t *testing.T, f func(t *testing.T, c *testCluster)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		c.cfg = func(cfg *Config) { cfg.MaxReceives = fewReceives }
		c.open(1)
		defer c.close()
		f(t, c)
	})
}

// underWay returns how many receives a leader counts.
func underWay(r *replica.Replica) int {
	receives, _ := r.Waiting()
	return receives
}

// S-229: one more than may be under way at an entity is refused at once, through any node; other entities
// and what does not wait are not counted.
func TestAnEntityHasSoManyReceives(t *testing.T) {
	withFew(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error, fewReceives)
		for i := range fewReceives {
			via := c.ids[i%len(c.ids)]
			go func() {
				_, err := c.sendVia(ctx, via, lock(reqID(uint64(i+1), 1), 1, 60_000))
				waiting <- err
			}()
		}
		time.Sleep(time.Second)
		for i, via := range c.ids {
			began := time.Now()
			_, err := c.sendVia(t.Context(), via, lock(reqID(uint64(10+i), 1), 1, 60_000))
			if !errors.Is(err, fsm.ErrCrowded) || !errors.Is(err, fsm.ErrBusy) || time.Since(began) > 100*time.Millisecond {
				t.Errorf("one more through %s: %v after %v", via, err, time.Since(began))
			}
			if _, err := c.sendVia(t.Context(), via, lock(reqID(uint64(20+i), 1), 1, 0)); err != nil {
				t.Errorf("one that does not wait through %s: %v", via, err)
			}
		}
		other := lock(reqID(30, 1), 1, 1000)
		other.Entity = 2
		if _, err := l.Propose(t.Context(), other); err != nil {
			t.Errorf("of another entity: %v", err)
		}
		if n := underWay(l); n != fewReceives {
			t.Errorf("%d are counted", n)
		}
		cancel()
		for range fewReceives {
			<-waiting
		}
		synctest.Wait()
		if n := underWay(l); n != 0 {
			t.Errorf("%d are counted when all are gone", n)
		}
	})
}

// S-229: a place is free again however a receive ends.
func TestAPlaceIsFreeWhenItsReceiveEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *testCluster, l *replica.Replica, cancel func()){
		"it gets a message": func(t *testing.T, c *testCluster, l *replica.Replica, _ func()) {
			for i := range fewReceives {
				if _, err := l.Propose(t.Context(), enqueue(reqID(90, uint64(i+1)), "x")); err != nil {
					t.Error(err)
				}
			}
		},
		"its time is over":    func(*testing.T, *testCluster, *replica.Replica, func()) { time.Sleep(time.Minute) },
		"its caller has gone": func(_ *testing.T, _ *testCluster, _ *replica.Replica, cancel func()) { cancel() },
		"its leader hands over": func(t *testing.T, c *testCluster, l *replica.Replica, cancel func()) {
			next := c.others(l.Node())[0]
			if err := c.nodes[l.Node()].host.TransferLeadership(t.Context(), 1, next); err != nil {
				t.Error(err)
			}
			now := c.leader(1, l.Node())
			time.Sleep(time.Second)
			if n := underWay(now); n != fewReceives {
				t.Errorf("the next leader counts %d", n)
			}
			cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFew(t, func(t *testing.T, c *testCluster) {
				l := c.leader(1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				waiting := make(chan struct{}, fewReceives)
				for i := range fewReceives {
					via := c.others(l.Node())[i%2]
					go func() {
						_, _ = c.sendVia(ctx, via, lock(reqID(uint64(i+1), 1), 1, 50_000))
						waiting <- struct{}{}
					}()
				}
				time.Sleep(time.Second)
				if n := underWay(l); n != fewReceives {
					t.Fatalf("%d are counted", n)
				}
				end(t, c, l, cancel)
				for range fewReceives {
					<-waiting
				}
				time.Sleep(time.Second)
				for _, id := range c.ids {
					if n := underWay(c.nodes[id].host.Replica(1)); n != 0 {
						t.Errorf("%s counts %d", id, n)
					}
				}
				if o, err := c.sendVia(t.Context(), c.ids[0], lock(reqID(50, 1), 1, 100)); err != nil {
					t.Errorf("another one: %+v, %v", o, err)
				}
			})
		})
	}
}

// S-229: a receive that is asked again over another connection keeps its place.
func TestAReceiveThatIsAskedAgainKeepsItsPlace(t *testing.T) {
	withFew(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1)
		var earlier, later []*proposed
		for i := range fewReceives {
			earlier = append(earlier, start(t.Context(), l, lock(reqID(uint64(i+1), 1), 1, 50_000)))
		}
		synctest.Wait()
		for i := range fewReceives {
			later = append(later, start(t.Context(), l, lock(reqID(uint64(i+1), 1), 1, 10_000)))
		}
		synctest.Wait()
		for i, p := range earlier {
			if !p.over() || !errors.Is(p.err, fsm.ErrUnknown) || later[i].over() {
				t.Errorf("receive %d: %v, %v", i, p.err, later[i].err)
			}
		}
		if n := underWay(l); n != fewReceives {
			t.Errorf("%d are counted", n)
		}
		for _, p := range later {
			if <-p.done; p.err != nil {
				t.Error(p.err)
			}
		}
		if n := underWay(l); n != 0 {
			t.Errorf("%d are counted when all are over", n)
		}
	})
}

// S-229: who awaits the share of a partitioned entity is counted like who is parked there.
func TestAwaitsCountAsReceives(t *testing.T) {
	withFew(t, func(t *testing.T, c *testCluster) {
		l := c.leader(1)
		for i := range fewReceives {
			k := fsm.WaitKey{Entity: 1, Sub: []fsm.SubQueue{fsm.Main, fsm.DeadLetter, fsm.Main}[i]}
			go func() { _ = l.Await(shortly(t, 10*time.Second), k) }()
		}
		synctest.Wait()
		_, err := l.Propose(t.Context(), lock(reqID(1, 1), 1, 1000))
		if !errors.Is(err, fsm.ErrCrowded) {
			t.Errorf("beside those that await: %v", err)
		}
		time.Sleep(11 * time.Second)
		if _, err := l.Propose(t.Context(), lock(reqID(1, 1), 1, 1000)); err != nil {
			t.Errorf("when they have gone: %v", err)
		}
		if _, awaits := l.Waiting(); awaits != 0 {
			t.Errorf("left behind: %d", awaits)
		}
	})
}

func TestCrowdedIsNotTheEndOfWhatMayHaveHappened(t *testing.T) {
	var a attempts
	if a.note(fsm.ErrCrowded) {
		t.Error("asked again")
	}
	a.note(fmt.Errorf("gone: %w", fsm.ErrUnknown))
	if !a.note(fsm.ErrCrowded) {
		t.Error("a request that may be in the log is given up")
	}
	if _, err := openResult(failure(fmt.Errorf("full: %w", fsm.ErrCrowded))); !errors.Is(err, fsm.ErrCrowded) {
		t.Errorf("from another node: %v", err)
	}
}
