package waist

import (
	"context"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
)

// dropBroker notes the pumps that are dropped, and answers nothing else.
type dropBroker struct {
	Broker
	dropped []uint64
}

func (b *dropBroker) Propose(_ context.Context, _ fsm.RequestID, _ fsm.Key, c fsm.Command) (fsm.Outcome, error) {
	if d, ok := c.(*fsm.DropPumps); ok {
		b.dropped = append(b.dropped, d.Pumps...)
	}
	return fsm.Outcome{}, nil
}

// A6: a pump is remembered for an interval after its link is gone, because a request of it that was
// given up may arrive as late as that.
func TestRetiredPumpsAreRememberedForAnInterval(t *testing.T) {
	b := &dropBroker{}
	s := New(Config{Broker: b, Log: hclog.NewNullLogger(), Incarnation: 7})
	s.Retire(&Pump{number: 6}, fsm.Key{Entity: 1}) // it was never used
	s.Retire(&Pump{number: 7, counter: 1}, fsm.Key{Entity: 1})
	s.Flush(t.Context())
	if len(b.dropped) != 0 {
		t.Errorf("%v were dropped at once", b.dropped)
	}
	s.Retire(&Pump{number: 8, counter: 1}, fsm.Key{Entity: 1})
	s.Flush(t.Context())
	if !slices.Equal(b.dropped, []uint64{7}) {
		t.Errorf("%v were dropped after an interval, want 7", b.dropped)
	}
	s.Flush(t.Context())
	if !slices.Equal(b.dropped, []uint64{7, 8}) {
		t.Errorf("%v were dropped after two, want 7 and 8", b.dropped)
	}
}
