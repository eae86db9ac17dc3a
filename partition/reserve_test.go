package partition

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// whenFull runs f with the leader of a group of one whose log hangs and is full for sends, with a reserve of some requests. Once f has
// released the log, all that was proposed must have its place.
func whenFull(t *testing.T, reserve int, f func(t *testing.T, r *replica.Replica, release func()) []*proposed) {
	inBubble(t, func(t *testing.T) {
		c := newTestCluster(t, 1)
		c.cfg = func(c *Config) { c.MaxPendingRequests, c.ReservedRequests = 10, reserve }
		c.open(1)
		defer c.close()
		r := c.leader(1)
		release := c.nodes["n1"].disks[1].log.hang()
		var all []*proposed
		for i := range 11 { // one in flight, ten wait
			all = append(all, start(t.Context(), r, enqueue(reqID(uint64(i+1), 1), "x")))
			synctest.Wait()
		}
		for i, p := range append(all, f(t, r, release)...) {
			if <-p.done; p.err != nil {
				t.Errorf("proposal %d: %v", i, p.err)
			}
		}
	})
}

// A21: when the log is full for sends, settlements still pass.
func TestSettlementsHaveAReserve(t *testing.T) {
	whenFull(t, 5, func(t *testing.T, r *replica.Replica, release func()) (all []*proposed) {
		if _, err := r.Propose(t.Context(), enqueue(reqID(50, 1), "x")); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("send: %v", err)
		}
		for i := range 5 {
			all = append(all, start(t.Context(), r, fsm.Request{ID: reqID(uint64(i+60), 1), Entity: 1,
				Command: &fsm.Settle{}}))
			synctest.Wait()
		}
		if _, err := r.Propose(t.Context(), fsm.Request{ID: reqID(70, 1), Entity: 1,
			Command: &fsm.Settle{}}); !errors.Is(err, fsm.ErrBusy) {
			t.Errorf("settle beyond the reserve: %v", err)
		}
		release()
		return all
	})
}

// A21: when the log is full for sends, a forwarder still gets a place: for what it asks first, and for each Forward.
func TestForwardersHaveAReserve(t *testing.T) {
	whenFull(t, 2, func(t *testing.T, r *replica.Replica, release func()) (all []*proposed) {
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
		return all
	})
}
