package fsm

import "testing"

// S-249: one Browse looks at a bounded number of messages; it may find nothing and still go on.
func TestABrowseIsBounded(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, messages(maxBrowseScan))
	d.ok(7, Main, &Enqueue{Messages: []Message{{ScheduledAt: d.wall + 1}}})
	q := &Browse{States: 1 << StateScheduled, Max: 10}
	a := d.s.Query(QueryRequest{Entity: 7, Query: q})
	if len(a.Messages) != 0 || a.Next != maxBrowseScan {
		t.Fatalf("%d messages, next %d", len(a.Messages), a.Next)
	}
	q.After = a.Next
	if a = d.s.Query(QueryRequest{Entity: 7, Query: q}); len(a.Messages) != 1 || a.Next != 0 {
		t.Fatalf("%d messages, next %d", len(a.Messages), a.Next)
	}
}

// What a question may not ask.
func TestQuestionsOutOfBounds(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	for _, c := range []struct {
		q    Query
		want Refusal
	}{
		{&History{Kind: Releases + 1}, InvalidArgument},
		{&History{After: 1<<64 - 1}, None},
		{&ListLocks{After: 1<<64 - 1}, None},
		{&Browse{After: 1<<64 - 1}, None},
		{&Browse{HasSession: true}, SessionNotSupported},
	} {
		if a := d.s.Query(QueryRequest{Entity: 7, Query: c.q}); a.Refusal != c.want {
			t.Errorf("%+v: %s, want %s", c.q, refusalNames[a.Refusal], refusalNames[c.want])
		}
	}
}
