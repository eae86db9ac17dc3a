package transport

import "testing"

// A link that writes one message goes to the end of the channel's list of senders for the next one.
func TestALinkGetsItsNextTurnWithoutMemory(t *testing.T) {
	ch := &channel{c: &conn{}}
	o := &outgoing{}
	ch.line(o)
	if n := testing.AllocsPerRun(100, func() {
		ch.sender = ch.sender[1:]
		ch.line(o)
	}); n != 0 {
		t.Errorf("%v allocations for a turn, want none", n)
	}
	other := &outgoing{}
	ch.line(other)
	if len(ch.sender) != 2 || ch.sender[0] != o || ch.sender[1] != other {
		t.Error("links are not served in the order in which they came")
	}
}
