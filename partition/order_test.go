package partition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/partition/replica"
)

// S-316: a Lock that rides in the same entry as a message, but ahead of it, found nothing there and
// is given the message all the same, not when its wait is over.
func TestALockAheadOfTheMessageInTheSameEntryIsServed(t *testing.T) {
	for name, parked := range map[string]bool{"asking only now": false, "parked, and pulled by a wake": true} {
		t.Run(name, func(t *testing.T) {
			lone(t, func(t *testing.T, c *testCluster, r *replica.Replica) {
				var first, second *proposed
				if parked {
					first = start(t.Context(), r, lock(reqID(1, 1), 1, 60_000))
					synctest.Wait()
					second = start(t.Context(), r, lock(reqID(2, 1), 1, 60_000))
					synctest.Wait()
				}
				release := c.nodes["n1"].disks[1].log.hang()
				if parked {
					start(t.Context(), r, enqueue(reqID(3, 1), "one"))
				} else {
					start(t.Context(), r, lock(reqID(3, 1), 1, 0))
				}
				synctest.Wait() // that is in flight
				if !parked {
					second = start(t.Context(), r, lock(reqID(2, 1), 1, 60_000))
					synctest.Wait()
				}
				start(t.Context(), r, enqueue(reqID(4, 1), "two"))
				synctest.Wait()
				began := time.Now()
				release()
				<-second.done
				if got := bodies(second.outcome); len(got) != 1 || time.Since(began) > time.Second {
					t.Errorf("got %q, %v after %v", got, second.err, time.Since(began))
				}
				if first != nil {
					if <-first.done; len(first.outcome.Locked) != 1 {
						t.Errorf("the first got %q", bodies(first.outcome))
					}
				}
			})
		})
	}
}
