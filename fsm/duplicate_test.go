package fsm

import (
	"strconv"
	"testing"
)

func identified(ids ...string) *Enqueue {
	c := &Enqueue{}
	for _, id := range ids {
		c.Messages = append(c.Messages, Message{MessageID: id, Body: []byte(id)})
	}
	return c
}

// S-189: the memory for ids is bounded and gets smaller by itself, also without traffic.
func TestRememberedIDsAreBoundedAndForgotten(t *testing.T) {
	d := newDriver(t)
	d.s.maxSeen, d.s.maxDue = 50, 20
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.DetectDuplicates, d.DuplicateWindow = true, 20_000 }))
	for i := range 50 {
		d.ok(7, Main, identified(strconv.Itoa(i)))
	}
	if o := d.do(7, Main, identified("new")); o.Refusal != Busy {
		t.Fatalf("%+v", o)
	}
	if o := d.ok(7, Main, identified("3")); !o.Duplicate[0] {
		t.Fatalf("%+v", o)
	}
	d.ok(7, Main, message1("without an id"))
	if wall, _ := d.s.NextDeadline(); wall != d.wall.After(20_000+forgetSlack) {
		t.Errorf("next deadline %d", wall-d.wall)
	}
	d.after(20_000)
	if o := d.ok(7, Main, identified("3")); o.Duplicate[0] { // T-175
		t.Fatalf("%+v", o)
	}
	if n := d.s.write(7).seen.Len(); n >= 50 {
		t.Errorf("%d ids are remembered", n)
	}
	d.after(forgetSlack)
	for range 3 {
		d.apply(Request{Command: &Tick{}})
		if err := d.s.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.s.write(7).seen.Len(); n != 1 { // that of the last send
		t.Errorf("%d ids are remembered", n)
	}
}

// T-217 // S-259: an entity that is dropped takes its ids with it.
func TestADroppedEntityForgetsItsIDs(t *testing.T) {
	d := newDriver(t)
	with := func(d *Descriptor) { d.DetectDuplicates = true }
	d.ok(0, Main, queue(7, with))
	d.ok(7, Main, identified("x"))
	d.ok(7, Main, &DropEntity{})
	d.ok(0, Main, queue(8, with))
	if o := d.ok(8, Main, identified("x")); o.Duplicate[0] || o.Numbers[0] != 1 {
		t.Errorf("%+v", o)
	}
	if wall, _ := d.s.NextDeadline(); wall != d.wall.After(defaultDuplicateWindow+forgetSlack) {
		t.Errorf("next deadline %d", wall-d.wall)
	}
}

// One operation is a message sent with an id that is new, while 100,000 are remembered.
func BenchmarkEnqueueDetectingDuplicates(b *testing.B) {
	d := newDriver(b)
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.DetectDuplicates, d.DuplicateWindow = true, 100_000 }))
	b.ReportAllocs()
	for n := range b.N {
		d.after(1)
		d.ok(7, Main, identified(strconv.Itoa(n)))
		d.ok(7, Main, &Lock{Max: 1, Delete: true})
	}
}
