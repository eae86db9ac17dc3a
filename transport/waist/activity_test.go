package waist

import (
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

func TestTheMemoryOfTouchesIsBounded(t *testing.T) {
	var tt activity
	now := time.Now()
	for i := range fsm.EntityID(3 * maxTouched) {
		tt.due(i, now)
	}
	if len(tt.last) > maxTouched {
		t.Errorf("%d entities are remembered", len(tt.last))
	}
}
