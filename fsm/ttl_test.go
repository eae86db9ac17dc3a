package fsm

import (
	"bytes"
	"slices"
	"testing"
)

// T-185 // S-201, S-288: what expires is bounded per entry; until it is gone nobody is given what lies
// behind, and who asked is woken then.
func TestExpiryIsBounded(t *testing.T) {
	d := newDriver(t)
	d.s.maxDue = 3
	d.ok(0, Main, queue(7))
	for range 8 {
		d.ok(7, Main, &Enqueue{Messages: []Message{{TTL: 1000, Body: []byte("x")}}})
	}
	d.ok(7, Main, message1("alive"))
	d.after(1000)
	if wall, _ := d.s.NextDeadline(); wall != 0 {
		t.Errorf("something is due at %d without a listener", wall)
	}
	if got := d.ok(7, Main, &Lock{Max: 1}).Locked; len(got) != 0 || len(d.last.Freed) != 3 {
		t.Fatalf("locked %+v, freed %v", got, d.last.Freed)
	}
	if wall, _ := d.s.NextDeadline(); wall == 0 || wall > d.wall {
		t.Errorf("the rest is due at %d", wall)
	}
	r := d.apply(Request{Command: &Tick{Listeners: []EntityID{7}}})
	if len(r.Freed) != 3 || len(r.Wake) != 0 {
		t.Fatalf("%+v", r)
	}
	r = d.apply(Request{Command: &Tick{Listeners: []EntityID{7}}})
	if len(r.Freed) != 2 || len(r.Wake) == 0 || r.Wake[0] != (WaitKey{Entity: 7}) {
		t.Fatalf("%+v", r)
	}
	if got := d.ok(7, Main, &Lock{Max: 9}).Locked; len(got) != 1 {
		t.Fatalf("locked %+v", got)
	}
	if wall, _ := d.s.NextDeadline(); wall != 0 {
		t.Errorf("something is due at %d", wall)
	}
}

// T-152, T-154, T-155 // S-79, S-81, S-82: a session that expires in several entries spares what was
// in flight when it began and what came later, also over a restart.
func TestASessionExpiresInPartsAsAWhole(t *testing.T) {
	d := newDriver(t)
	d.s.maxDue = 2
	d.ok(0, Main, queue(7, withSessions))
	in := func(id string, ttl Millis) SequenceNumber {
		return d.ok(7, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: id, TTL: ttl}}}).Numbers[0]
	}
	for range 30 {
		in("s", 0)
	}
	flying := []SequenceNumber{in("s", 0), in("s", 0)}
	p := d.ok(7, Main, &AcceptSession{ID: "s"}).Session
	got := d.ok(7, Main, &Lock{Max: 32, Session: p}).Locked
	for _, m := range got[:30] {
		c := settle(m.Token, Return)
		c.Session = p
		d.ok(7, Main, c)
	}
	in("s", 1000)
	for range 40 {
		in("s", 0)
	}
	other := d.ok(7, Main, &AcceptSession{ID: "o"}).Session
	d.after(1000)
	d.apply(Request{Command: &Tick{}}) // held sessions are listeners
	late := in("s", 0)
	in("o", 0)
	if l := d.ok(7, Main, &Lock{Max: 1, Session: other}).Locked; len(l) != 0 {
		t.Fatalf("served among expired messages: %+v", l)
	}
	if o := d.do(7, Main, &AcceptSession{Next: true}); o.Refusal != NoSession {
		t.Fatalf("%+v", o)
	}
	c := settle(got[30].Token, Return)
	c.Session = p
	d.ok(7, Main, c)
	if d.s.write(7).spared.Len() != 1 {
		t.Fatal("nothing is spared")
	}
	if err := d.s.Restore(bytes.NewReader(imageOf(t, d.s))); err != nil {
		t.Fatal(err)
	}
	var woken []WaitKey
	for range 25 {
		woken = append(woken, d.apply(Request{Command: &Tick{}}).Wake...)
		if err := d.s.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	held := map[string]bool{}
	for _, k := range woken {
		held[k.Session] = true
	}
	if !held["s"] || !held["o"] {
		t.Errorf("woken: %+v", woken)
	}
	a := d.s.Query(QueryRequest{Entity: 7, Query: &Peek{Max: 99, HasSession: true, Session: "s"}})
	want := append(flying, late)
	if len(a.Messages) != len(want) {
		t.Fatalf("left: %+v", a.Messages)
	}
	for i := range want {
		if a.Messages[i].Seq != want[i] {
			t.Errorf("message %d is left, want %d", a.Messages[i].Seq, want[i])
		}
	}
	if d.s.write(7).spared.Len() != 0 || d.s.write(7).starved {
		t.Error("the expiry left something over")
	}
}

// Found by the model, seed 1114: a session lock that had ended before an update made the session expire
// by the new description. What is due comes before the command (S-290).
func TestWhatWasDueBeforeAnUpdateExpiresByTheOldDescription(t *testing.T) {
	d := newDriver(t)
	dead := func(d *Descriptor) { d.DeadLetterOnExpiration = true }
	d.ok(0, Main, queue(7, withSessions, dead))
	for _, ttl := range []Millis{1000, 0} {
		d.ok(7, Main, &Enqueue{Messages: []Message{{HasSession: true, SessionID: "s", TTL: ttl}}})
	}
	p := d.ok(7, Main, &AcceptSession{ID: "s"}).Session
	d.ok(7, Main, &Lock{Max: 1, Session: p})
	d.after(5000)
	d.ok(0, Main, queue(7, withSessions, func(d *Descriptor) { d.Version = 2 }))
	if a := d.s.Query(QueryRequest{Entity: 7, Query: &Counts{}}); a.Counts.DeadLetter != 2 {
		t.Errorf("%+v", a.Counts)
	}
}

// S-200, S-203: what has expired in a queue that forwards dies there and is not forwarded, also if it is more than one entry
// may let expire. The forwarder is woken when all of it is gone.
func TestWhatHasExpiredIsNotForwarded(t *testing.T) {
	d := newDriver(t)
	d.s.TickAtMost(2)
	d.ok(0, Main, queue(1, forwardTo("e2"), func(d *Descriptor) { d.DeadLetterOnExpiration = true }))
	for range 5 {
		d.ok(1, Main, &Enqueue{Messages: []Message{{Body: []byte("late"), TTL: 1000}}})
	}
	d.ok(1, Main, message1("lives"))
	d.after(2000)
	forward := &Forward{Epoch: d.epoch, To: 2, Max: 10}
	if o := d.ok(1, Main, forward); len(o.Moves) > 0 {
		t.Errorf("%d messages are in transit, and 3 that have expired are still there", len(o.Moves))
	}
	d.apply(Request{Command: &Tick{}})
	d.apply(Request{Command: &Tick{}})
	if !slices.Contains(d.last.Wake, WaitKey{Entity: 1, Sub: Main, Kind: WaitMessage}) {
		t.Error("the forwarder is not woken")
	}
	if o := d.ok(1, Main, forward); len(o.Moves) != 1 || d.held(1, DeadLetter) != 5 {
		t.Errorf("%d messages are in transit and %d are dead letters, want 1 and 5", len(o.Moves), d.held(1, DeadLetter))
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}
