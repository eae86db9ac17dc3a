package transport

import (
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

func ledgerID(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// S-243: an outcome is remembered for ten minutes, and never changes once it is known.
func TestTheLedgerRemembersOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.ledger.begin(ledgerID(1), "client")
		want := func(n int, state string) {
			t.Helper()
			if got := s.Outcome(ledgerID(n)); got != state {
				t.Errorf("transaction %d is %s, want %s", n, got, state)
			}
		}
		want(1, TransactionOpen)
		want(2, TransactionUnknown)
		s.ledger.committing(ledgerID(1))
		want(1, TransactionCommitting)
		s.ledger.end(ledgerID(1), TransactionUnknown, "no answer")
		want(1, TransactionUnknown)
		s.ledger.end(ledgerID(1), TransactionCommitted, "")
		s.ledger.end(ledgerID(1), TransactionAborted, "too late")
		want(1, TransactionCommitted)
		time.Sleep(ledgerTime - time.Second)
		want(1, TransactionCommitted)
		time.Sleep(2 * time.Second)
		want(1, TransactionUnknown)
		s.ledger.begin(ledgerID(3), "client")
		s.ledger.end(ledgerID(3), TransactionAborted, "rolled back")
		if n := len(s.ledger.all); n != 1 {
			t.Errorf("%d transactions are remembered, want only the last", n)
		}
	})
}

func TestTheLedgerIsBounded(t *testing.T) {
	s := &Server{}
	for i := range maxLedger + 100 {
		s.ledger.begin(ledgerID(i), "client")
		s.ledger.end(ledgerID(i), TransactionCommitted, "")
	}
	if n := len(s.ledger.all); n != maxLedger || n != len(s.ledger.ended) {
		t.Errorf("%d and %d transactions are remembered, the bound is %d", n, len(s.ledger.ended), maxLedger)
	}
	if got := s.Outcome(ledgerID(99)); got != TransactionUnknown {
		t.Errorf("the oldest is %s", got)
	}
	if got := s.Outcome(ledgerID(100)); got != TransactionCommitted {
		t.Errorf("a younger one is %s", got)
	}
}

// S-273: a list has what uses the entity, the oldest first, with what it will do.
func TestTransactionsAreListed(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("Orders")
		b.broker.queue("other")
		d := newDeal(t, b)
		defer d.c.close()
		d.fill("orders", 1)
		d.sender(2, "orders")
		d.sender(3, "other")
		first := d.declare()
		d.send(3, first, encoded("x"))
		d.settle(d.take(5, "orders", 1)[0], first, amqp.Accepted{})
		time.Sleep(time.Second)
		second := d.declare()
		d.send(2, second, encoded("y"))
		d.send(2, second, encoded("z"))
		list := b.server.Transactions("orders", false)
		if len(list) != 2 || list[0].Sends != 1 || list[0].Settlements != 1 || list[1].Sends != 2 ||
			!list[1].Since.After(list[0].Since) || list[0].Client != "client" {
			t.Fatalf("%+v", list)
		}
		if list := b.server.Transactions("other", false); len(list) != 1 || len(list[0].Entities) != 2 {
			t.Errorf("of the other: %+v", list)
		}
		d.discharge(first, true)
		d.outcome = fsm.Outcome{Refusal: fsm.TransactionAborted, Detail: "operation 1 of 2"}
		d.discharge(second, false)
		if list := b.server.Transactions("orders", false); len(list) != 0 {
			t.Errorf("still open: %+v", list)
		}
		list = b.server.Transactions("orders", true)
		if len(list) != 2 || list[0].Cause != "rolled back" || list[1].State != TransactionAborted ||
			list[1].Cause != "operation 1 of 2" {
			t.Errorf("ended: %+v", list)
		}
	})
}

// S-243, RUL-16: a commit whose outcome is unknown is asked about under its own request id, and asking
// does nothing that was not done.
func TestACommitInDoubtIsAskedAbout(t *testing.T) {
	for name, done := range map[string]bool{TransactionCommitted: true, TransactionAborted: false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("a")
				d := newDeal(t, b)
				defer d.c.close()
				d.sender(2, "a")
				id := d.declare()
				d.send(2, id, encoded("x"))
				asked := map[fsm.RequestID]int{}
				var first fsm.Request
				b.broker.mu.Lock()
				b.broker.answer = nil
				b.broker.failAs = func(r fsm.RequestID, cmd fsm.Command) error {
					if _, ok := cmd.(*fsm.Commit); !ok {
						return nil
					}
					if asked[r]++; asked[r] == 1 {
						if first = (fsm.Request{ID: r, Command: cmd}); done {
							b.broker.applyLocked(0, first)
						}
					}
					if asked[r] < 3 {
						return fsm.ErrUnknown
					}
					return nil
				}
				b.broker.mu.Unlock()
				if got := d.discharge(id, false); got[:len("com.microsoft:timeout")] != "com.microsoft:timeout" {
					t.Errorf("commit: %s", got)
				}
				if got := b.server.Outcome(id); got != TransactionUnknown {
					t.Errorf("at first it is %s", got)
				}
				time.Sleep(3 * doubtPause)
				b.broker.mu.Lock()
				if got := b.server.Outcome(id); got != name || len(asked) != 1 {
					t.Errorf("then it is %s, asked under %d ids", got, len(asked))
				}
				b.broker.applyLocked(0, first) // a late copy
				b.broker.mu.Unlock()
				if c := b.broker.counts(t, "a"); (c.Active == 1) != done || c.Active > 1 {
					t.Errorf("%d messages", c.Active)
				}
			})
		})
	}
}

// S-243: a share that has moved has left behind what its partition remembers of a commit in doubt. So what nobody knows at its new
// home is not taken for a transaction that was not done.
func TestACommitInDoubtWhoseShareMovesStaysUnknown(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("a")
		d := newDeal(t, b)
		defer d.c.close()
		d.sender(2, "a")
		id := d.declare()
		d.send(2, id, encoded("x"))
		asked := 0
		b.broker.mu.Lock()
		b.broker.failAs = func(_ fsm.RequestID, cmd fsm.Command) error {
			if _, is := cmd.(*fsm.Commit); !is {
				return nil
			}
			if asked++; asked > 2 {
				return nil // nothing is remembered here
			}
			return fsm.ErrUnknown
		}
		b.broker.mu.Unlock()
		if got := d.discharge(id, false); !strings.HasPrefix(got, "com.microsoft:timeout") {
			t.Errorf("commit: %s", got)
		}
		b.broker.update("a", func(d *fsm.Descriptor) { d.Partitions = []fsm.PartitionID{d.Partitions[0] + 1} })
		time.Sleep(5 * doubtPause)
		b.broker.mu.Lock()
		defer b.broker.mu.Unlock()
		if got := b.server.Outcome(id); got != TransactionUnknown || asked != 3 {
			t.Errorf("it is %s, asked %d times", got, asked)
		}
	})
}
