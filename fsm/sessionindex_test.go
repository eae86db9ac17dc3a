package fsm

import (
	"hash/maphash"
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
	d.ok(7, Main, send("other").Command) // has the number that the undone one had
	for _, id := range []string{"undone", "other", "third"} {
		d.ok(7, Main, send(id).Command)
	}
	x := d.s.write(7).sessionHints
	x.nos[maphash.String(x.seed, "third")] = 1 // as if it collided
	delete(x.nos, maphash.String(x.seed, "other"))
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

func TestAnIndexOfSessionsThatWasLargeGivesItsMemoryBack(t *testing.T) {
	x := newSessionIndex()
	for i := range shrinkHints {
		x.add(strconv.Itoa(i), uint32(i))
	}
	for i := range shrinkHints {
		x.remove(strconv.Itoa(i))
	}
	if x.most != 0 || len(x.nos) != 0 {
		t.Errorf("%d of at most %d entries", len(x.nos), x.most)
	}
}
