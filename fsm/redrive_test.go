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
