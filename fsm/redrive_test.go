package fsm

import "testing"

// S-178: one Redrive looks at a bounded number of messages and says where to go on.
func TestARedriveIsBounded(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	const n = maxRedriveScan + 10
	d.ok(7, Main, messages(n))
	for _, m := range d.ok(7, Main, &Lock{Max: n}).Locked {
		c := settle(m.Token, Kill)
		if m.Seq == n {
			c.Items[0].Reason = "rare"
		}
		d.ok(7, Main, c)
	}
	c := &Redrive{HasReason: true, Reason: "rare", Max: 1}
	o := d.ok(7, DeadLetter, c)
	if o.Count != 0 || o.Next != maxRedriveScan {
		t.Fatalf("%+v", o)
	}
	c.After = o.Next
	if o = d.ok(7, DeadLetter, c); o.Count != 1 || o.Next != 0 {
		t.Fatalf("%+v", o)
	}
	if a := d.s.Query(QueryRequest{Entity: 7, Query: &Peek{Max: 9}}); len(a.Messages) != 1 || a.Messages[0].Seq != n+1 {
		t.Fatalf("%+v", a)
	}
}

// S-265: a purge of dead letters takes those that it chooses, of a queue that gives messages out, and what it
// took is gone for good.
func TestSomeDeadLettersAreDiscarded(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, messages(5))
	for i, m := range d.ok(7, Main, &Lock{Max: 5}).Locked {
		c := settle(m.Token, Kill)
		c.Items[0].Reason = []string{"bad", "worse"}[i%2]
		d.ok(7, Main, c)
	}
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.Version, d.Status = 2, SendDisabled }))
	c := &Redrive{HasReason: true, Reason: "bad", Max: 2, Discard: true}
	o := d.ok(7, DeadLetter, c)
	if o.Count != 2 || o.Next == 0 || len(d.last.Freed) != 2 {
		t.Fatalf("%+v, %d bodies freed", o, len(d.last.Freed))
	}
	c.After = o.Next
	if o = d.ok(7, DeadLetter, c); o.Count != 1 || o.Next != 0 {
		t.Fatalf("%+v", o)
	}
	a := d.s.Query(QueryRequest{Entity: 7, Query: &Counts{}})
	if a.Counts.DeadLetter != 2 || a.Counts.Active != 0 {
		t.Fatalf("%+v", a.Counts)
	}
	if o := d.do(7, Main, c); o.Refusal != InvalidOperation {
		t.Errorf("of the main queue: %+v", o)
	}
	d.ok(0, Main, queue(7, func(d *Descriptor) { d.Version, d.Status = 3, ReceiveDisabled }))
	if o := d.do(7, DeadLetter, c); o.Refusal != EntityDisabled {
		t.Errorf("of a queue that gives nothing out: %+v", o)
	}
}
