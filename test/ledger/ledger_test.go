package ledger

import (
	"strings"
	"testing"
)

// TestLedgerCatches proves that every check of the ledger can fail.
func TestLedgerCatches(t *testing.T) {
	m := func(n int) Message { return Message{Queue: "q", Series: "s", Number: n} }
	cases := []struct {
		name string
		play func(*Ledger)
		want string
	}{
		{"a good run has no fault", func(l *Ledger) {
			for n := 1; n <= 3; n++ {
				l.Submitted(m(n), Acknowledged)
				l.Received(m(n), int64(n))
				l.Done(m(n))
			}
		}, ""},
		{"a send in doubt may be lost", func(l *Ledger) { l.Submitted(m(1), Unknown) }, ""},
		{"a redelivery before completion is no fault", func(l *Ledger) {
			l.Submitted(m(1), Acknowledged)
			l.Received(m(1), 1)
			l.Received(m(1), 1)
			l.Done(m(1))
		}, ""},
		{"a lost message", func(l *Ledger) { l.Submitted(m(1), Acknowledged) }, "never came"},
		{"a message from nowhere", func(l *Ledger) { l.Received(m(1), 1) }, "nobody sent"},
		{"a delivery after completion", func(l *Ledger) {
			l.Submitted(m(1), Acknowledged)
			l.Received(m(1), 1)
			l.Done(m(1))
			l.Received(m(1), 1)
		}, "came again"},
		{"a second completion", func(l *Ledger) {
			l.Submitted(m(1), Acknowledged)
			l.Received(m(1), 1)
			l.Done(m(1))
			l.Done(m(1))
		}, "completed 2 times"},
		{"a session out of order", func(l *Ledger) {
			for n := 1; n <= 2; n++ {
				l.Submitted(m(n), Acknowledged)
			}
			l.Received(m(2), 2)
			l.Received(m(1), 1)
		}, "out of order"},
		{"numbers that change places", func(l *Ledger) {
			for n := 1; n <= 2; n++ {
				l.Submitted(m(n), Acknowledged)
				l.Received(m(n), int64(3-n))
			}
		}, "behind"},
		{"a gap in the numbers", func(l *Ledger) {
			for n := 1; n <= 2; n++ {
				l.Submitted(m(n), Acknowledged)
			}
			l.Received(m(1), 5<<48+1)
			l.Received(m(2), 5<<48+3)
		}, "from number 1 to 3"},
		{"a number twice", func(l *Ledger) {
			for n := 1; n <= 2; n++ {
				l.Submitted(m(n), Acknowledged)
				l.Received(m(n), 1)
			}
		}, "both carry number 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := New()
			c.play(l)
			got := strings.Join(l.Judge(map[string]bool{"q": true}), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
