package fsm

import (
	"slices"
	"testing"
)

// S-267: whoever asked ahead of what wakes it has not seen what there is. What wakes need not look as if
// it did: here receivers, each of which lets one more expired message go, until the one behind can be had.
func TestAWakeNamesTheLastRequestThatWoke(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, &Enqueue{Messages: []Message{{TTL: 1000}, {TTL: 1000}, {TTL: 1000}, {Body: []byte("left")}}})
	d.after(2000)
	d.s.maxDue = 1
	ask := Request{Entity: 7, Command: &Lock{Max: 1}}
	dead := Request{Entity: 7, Sub: DeadLetter, Command: &Lock{Max: 1}}
	r := d.apply(ask, dead, dead, Request{Command: &Barrier{}})
	for i := range 3 {
		if o := r.Outcomes[i]; len(o.Locked) != 0 {
			t.Fatalf("request %d got %+v", i, o.Locked)
		}
	}
	at := slices.Index(r.Wake, WaitKey{Entity: 7})
	if at < 0 || len(r.WokenBy) != len(r.Wake) || r.WokenBy[at] == 0 {
		t.Fatalf("woken: %+v by %v", r.Wake, r.WokenBy)
	}
	if got := d.apply(ask).Outcomes[0].Locked; len(got) != 1 {
		t.Fatalf("got %+v", got)
	}
	// Of several it is the last one.
	r = d.apply(Request{Entity: 7, Command: message1("y")}, Request{Entity: 7, Command: &Lock{Max: 9}},
		Request{Entity: 7, Command: message1("z")})
	if at = slices.Index(r.Wake, WaitKey{Entity: 7}); at < 0 || r.WokenBy[at] != 2 {
		t.Errorf("woken: %+v by %v", r.Wake, r.WokenBy)
	}
}
