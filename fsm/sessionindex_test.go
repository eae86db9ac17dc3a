package fsm

import (
	"bytes"
	"hash/maphash"
	"io"
	"strconv"
	"testing"
)

// The index of sessions is a hint: what a refused transaction left in it, what collides and what it does
// not know leads to the same sessions. S-36, S-232
func TestSessionsAreFoundWhateverTheIndexSays(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, withSessions))
	send := func(id string) Op { return Op{Entity: 7, Command: &Enqueue{Messages: []Message{inSession(id)}}} }
	o := d.do(0, Main, &Commit{Ops: []Op{send("undone"), {Entity: 7, Command: settle(LockToken{1}, Complete)}}})
	if o.Refusal != TransactionAborted {
		t.Fatalf("%+v", o)
	}
	if n := len(d.s.write(7).sessionHints.at); n != 0 {
		t.Errorf("a refused transaction left %d ids in the index", n)
	}
	d.ok(7, Main, send("other").Command) // has the number that the undone one had
	for _, id := range []string{"undone", "other", "third"} {
		d.ok(7, Main, send(id).Command)
	}
	x := d.s.write(7).sessionHints
	x.at[maphash.String(x.seed, "third")] = d.s.write(7).lookup("undone") // as if it collided
	delete(x.at, maphash.String(x.seed, "other"))
	for id, want := range map[string]int{"undone": 1, "other": 2, "third": 1} {
		p := d.ok(7, Main, &AcceptSession{ID: id}).Session
		if got := d.ok(7, Main, &Lock{Max: 9, Session: p}).Locked; len(got) != want {
			t.Errorf("session %s has %d messages, want %d", id, len(got), want)
		}
	}
	if err := d.s.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// What an image shows of a session is not changed by what comes after it, and what a refused transaction
// did to one is undone. S-232, S-304
func TestSessionsOfAnImageStayAsTheyWere(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7, withSessions))
	send := Op{Entity: 7, Command: &Enqueue{Messages: []Message{inSession("a")}}}
	d.ok(7, Main, send.Command)
	image := func(w io.WriterTo) string {
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	frozen := d.s.Capture()
	before, digest := image(frozen), d.s.Digest()
	if o := d.do(0, Main, &Commit{Ops: []Op{send, send, {Entity: 7, Command: settle(LockToken{1}, Complete)}}}); o.Refusal != TransactionAborted {
		t.Fatalf("%+v", o)
	}
	if d.s.Digest() != digest {
		t.Error("a refused transaction changed the state")
	}
	p := d.ok(7, Main, &AcceptSession{ID: "a"}).Session
	d.ok(7, Main, &Lock{Max: 1, Session: p})
	d.ok(7, Main, send.Command)
	if se := d.s.write(7).lookup("a"); se.messages != 2 || se.ready != 1 || se.locked() != 1 || se.ticket != 0 {
		t.Errorf("%+v", se)
	}
	if image(frozen) != before {
		t.Error("the image changed")
	}
}

func TestAnIndexOfSessionsThatWasLargeGivesItsMemoryBack(t *testing.T) {
	x := newSessionIndex()
	for i := range shrinkHints {
		x.add(&session{id: strconv.Itoa(i)})
	}
	for i := range shrinkHints {
		x.remove(strconv.Itoa(i))
	}
	if x.most != 0 || len(x.at) != 0 {
		t.Errorf("%d of at most %d entries", len(x.at), x.most)
	}
}
