package failover

import (
	"strings"
	"testing"
)

// TestLedgerCatches proves that every check of the ledger can fail.
func TestLedgerCatches(t *testing.T) {
	m := func(n int) message { return message{queue: "q", lane: "s", number: n} }
	cases := []struct {
		name string
		play func(*ledger)
		want string
	}{
		{"a good run has no fault", func(l *ledger) {
			for n := 1; n <= 3; n++ {
				l.submitted(m(n), acknowledged)
				l.received(m(n), int64(n))
				l.done(m(n))
			}
		}, ""},
		{"a send in doubt may be lost", func(l *ledger) { l.submitted(m(1), unknown) }, ""},
		{"a redelivery before completion is no fault", func(l *ledger) {
			l.submitted(m(1), acknowledged)
			l.received(m(1), 1)
			l.received(m(1), 1)
			l.done(m(1))
		}, ""},
		{"a lost message", func(l *ledger) { l.submitted(m(1), acknowledged) }, "never came"},
		{"a message from nowhere", func(l *ledger) { l.received(m(1), 1) }, "nobody sent"},
		{"a delivery after completion", func(l *ledger) {
			l.submitted(m(1), acknowledged)
			l.received(m(1), 1)
			l.done(m(1))
			l.received(m(1), 1)
		}, "came again"},
		{"a second completion", func(l *ledger) {
			l.submitted(m(1), acknowledged)
			l.received(m(1), 1)
			l.done(m(1))
			l.done(m(1))
		}, "completed 2 times"},
		{"a session out of order", func(l *ledger) {
			for n := 1; n <= 2; n++ {
				l.submitted(m(n), acknowledged)
			}
			l.received(m(2), 2)
			l.received(m(1), 1)
		}, "out of order"},
		{"a gap in the numbers", func(l *ledger) {
			for n := 1; n <= 2; n++ {
				l.submitted(m(n), acknowledged)
			}
			l.received(m(1), 5<<48+1)
			l.received(m(2), 5<<48+3)
		}, "from number 1 to 3"},
		{"a number twice", func(l *ledger) {
			for n := 1; n <= 2; n++ {
				l.submitted(m(n), acknowledged)
				l.received(m(n), 1)
			}
		}, "both carry number 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			c.play(l)
			got := strings.Join(l.judge(map[string]bool{"q": true}), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
