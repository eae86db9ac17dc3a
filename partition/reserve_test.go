package partition

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/busbar-mq/busbar/fsm"
)

// A21: when the log is full for sends, a forwarder still gets a place: for what it asks first, and for each Forward.
func TestForwardersHaveAReserve(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.cfg = func(c *Config) { c.MaxPendingRequests, c.ReservedRequests = 10, 2 }
		c.open(1)
		defer c.close()
		r := c.leader(1)
		release := c.nodes["n1"].disks[1].log.hang()
		var all []*proposed
		for i := range 11 { // one in flight, ten wait
			all = append(all, start(t.Context(), r, enqueue(reqID(uint64(i+1), 1), "x")))
			synctest.Wait()
		}
		if _, err := r.Query(t.Context(), fsm.QueryRequest{Entity: 1, Query: &fsm.Counts{}}); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("a client's question: %v", err)
		}
		asked := make(chan error, 1)
		go func() {
			_, err := r.Query(t.Context(), fsm.QueryRequest{Entity: 1, Query: &fsm.Moving{Max: 1}})
			asked <- err
		}()
		all = append(all, start(t.Context(), r, fsm.Request{Entity: 1, Command: &fsm.Forward{Max: 1}}))
		synctest.Wait()
		if _, err := r.Propose(t.Context(), fsm.Request{Entity: 1, Command: &fsm.Forward{Max: 1}}); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("a forward beyond the reserve: %v", err)
		}
		release()
		if err := <-asked; err != nil {
			t.Errorf("what is in transit: %v", err)
		}
		for i, p := range all {
			if <-p.done; p.err != nil {
				t.Errorf("proposal %d: %v", i, p.err)
			}
		}
	})
}
