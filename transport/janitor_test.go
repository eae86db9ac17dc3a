package transport

import (
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// A6: a pump is remembered for an interval after its link is gone, because a request of it that was
// given up may arrive as late as that.
func TestRetiredPumpsAreRememberedForAnInterval(t *testing.T) {
	ts := startServer(t, 1)
	d := ts.broker.queue("orders")
	dropped := func() []uint64 {
		ts.broker.mu.Lock()
		defer ts.broker.mu.Unlock()
		return slices.Clone(ts.broker.dropped)
	}
	j := newJanitor(ts.Server)
	j.drop(7, fsm.Key{Entity: d.ID})
	j.flush(testContext(t))
	if got := dropped(); len(got) != 0 {
		t.Errorf("%v were dropped at once", got)
	}
	j.drop(8, fsm.Key{Entity: d.ID})
	j.flush(testContext(t))
	if got := dropped(); !slices.Equal(got, []uint64{7}) {
		t.Errorf("%v were dropped after an interval, want 7", got)
	}
	j.flush(testContext(t))
	if got := dropped(); !slices.Equal(got, []uint64{7, 8}) {
		t.Errorf("%v were dropped after two, want 7 and 8", got)
	}
}
