package replica

import (
	"fmt"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// Requests are counted by the life of the node that they came through, and a list that is full begins anew.
func TestTrafficIsCountedByNode(t *testing.T) {
	var tr traffic
	for _, n := range []fsm.Incarnation{7, 8, 7, 7} {
		tr.count(fsm.RequestID{Node: n, Counter: 1})
	}
	tr.count(fsm.RequestID{})
	if got := fmt.Sprint(tr); got != "[{7 3} {8 1}]" {
		t.Errorf("counted %s", got)
	}
	for n := range fsm.Incarnation(maxAsking - 2) {
		tr.count(fsm.RequestID{Node: 100 + n, Counter: 1})
	}
	tr.count(fsm.RequestID{Node: 7, Counter: 1})
	if len(tr) != maxAsking || tr[0].Requests != 4 {
		t.Errorf("%d nodes, the first %+v", len(tr), tr[0])
	}
	tr.count(fsm.RequestID{Node: 9, Counter: 1})
	if got := fmt.Sprint(tr); got != "[{9 1}]" {
		t.Errorf("a full list became %s", got)
	}
}
