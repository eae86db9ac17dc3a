package partition

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

// Calls to one partition end in any order. The others stay noted, and nothing is kept of those that are over.
func TestCallsToOtherNodesAreForgottenInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var a away
		var calls [3]*awayCall
		var contexts [3]context.Context
		for i := range calls {
			contexts[i], calls[i] = a.begin(t.Context(), 7, "b", "b", news{})
		}
		left := slices.Clone(calls[:])
		for _, i := range order {
			a.over(calls[i])
			left = slices.DeleteFunc(left, func(c *awayCall) bool { return c == calls[i] })
			if !errors.Is(contexts[i].Err(), context.Canceled) {
				t.Errorf("order %v: the context of call %d ended with %v, want canceled", order, i, contexts[i].Err())
			}
			var noted []*awayCall
			for c := a.calls[fsm.PartitionID(7)]; c != nil; c = c.older {
				noted = append(noted, c)
			}
			slices.Reverse(noted)
			if !slices.Equal(noted, left) {
				t.Fatalf("order %v: behind call %d %d calls are noted, want %d", order, i, len(noted), len(left))
			}
		}
		if len(a.calls) != 0 {
			t.Errorf("order %v: %d partitions are kept", order, len(a.calls))
		}
	}
}

// A request asks for the channel of the next news of leaders before each attempt.
func TestNewsOfLeadersCostNoMemory(t *testing.T) {
	var b broadcast
	first := b.wait()
	if n := testing.AllocsPerRun(100, func() { b.wait() }); n != 0 {
		t.Errorf("%v allocations for a channel that is there, want none", n)
	}
	b.fire()
	select {
	case <-first:
	default:
		t.Error("the channel is open behind the news")
	}
	if b.wait() == first {
		t.Error("the closed channel is returned for the next news")
	}
}
