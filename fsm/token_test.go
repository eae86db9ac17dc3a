package fsm

import (
	"bytes"
	"testing"
)

// S-232, S-18: a lock that runs out inside a transaction which is refused has run out for good only
// when something else finds it so.
func TestTokensOfARefusedTransactionAreAsBefore(t *testing.T) {
	d, locked, _, _ := transacted(t)
	d.after(d.s.write(7).d.LockDuration)
	before := d.s.Digest()
	for range 2 { // the second finds what the first undid
		o := d.do(0, Main, &Commit{Ops: []Op{
			{Entity: 7, Command: &Cancel{Numbers: []SequenceNumber{3}}},
			{Entity: 7, Command: settle(locked[0].Token, Complete)},
		}})
		if o.Refusal != TransactionAborted {
			t.Fatalf("%+v", o)
		}
		if err := d.s.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
		if n := len(d.s.run.tokens); n != 0 || d.s.run.undoable {
			t.Errorf("%d changes of tokens are kept", n)
		}
	}
	if n := len(d.s.write(7).tokens.refs); n != 2 {
		t.Errorf("%d tokens, want 2", n)
	}
	if d.s.Digest() == before {
		t.Error("the digest does not see the clocks")
	}
	if o := d.ok(7, Main, settle(locked[1].Token, Complete)); o.Refusals[0] != MessageLockLost {
		t.Errorf("settle: %v", o.Refusals)
	}
	if got := d.ok(7, Main, &Lock{Max: 9}).Locked; len(got) != 2 || got[0].Attempts != 1 {
		t.Errorf("%+v", got)
	}
}

// A8: all generations of a share have one index of tokens, and an image does not look at it.
func TestAnImageHasTheTokensOfItsMoment(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, messages(3))
	locked := d.ok(7, Main, &Lock{Max: 2}).Locked
	image := d.s.Capture()
	d.ok(7, Main, settle(locked[0].Token, Complete))
	third := d.ok(7, Main, &Lock{Max: 1}).Locked[0]
	var b bytes.Buffer
	if _, err := image.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	old := New(d.s.id)
	if err := old.Restore(&b); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*State{old, d.s} {
		if err := s.CheckInvariants(); err != nil {
			t.Error(err)
		}
	}
	for token, want := range map[LockToken]bool{locked[0].Token: true, locked[1].Token: true, third.Token: false} {
		if _, ok := old.write(7).tokens.get(token); ok != want {
			t.Errorf("the image has token %x: %v", token, ok)
		}
	}
}

func TestAnIndexOfTokensThatWasLargeGivesItsMemoryBack(t *testing.T) {
	x := newTokenIndex()
	for round := range 2 {
		for i := range uint64(shrinkHints) {
			x.add(i, tokenRef{arrival: i})
		}
		for i := range uint64(shrinkHints) {
			x.remove(i)
		}
		if x.most != 0 || len(x.refs) != 0 {
			t.Errorf("round %d: %d of at most %d entries", round, len(x.refs), x.most)
		}
	}
	x.add(1, tokenRef{})
	if x.remove(1); x.most != 1 {
		t.Error("a small index is made anew")
	}
}

// A token that differs from that of a lock in any byte proves nothing. S-150
func TestAllOfATokenCounts(t *testing.T) {
	d := newDriver(t)
	d.ok(0, Main, queue(7))
	d.ok(7, Main, message1("a"))
	token := d.ok(7, Main, &Lock{Max: 1}).Locked[0].Token
	for i := range token {
		forged := token
		forged[i] ^= 1
		if r := d.ok(7, Main, settle(forged, Complete)).Refusals[0]; r != MessageLockLost {
			t.Errorf("byte %d: refusal %d", i, r)
		}
		if o := d.do(7, Main, &Renew{Tokens: []LockToken{forged}}); o.Refusal != MessageLockLost {
			t.Errorf("byte %d: renewed with refusal %d", i, o.Refusal)
		}
	}
	if r := d.ok(7, Main, settle(token, Complete)).Refusals[0]; r != None {
		t.Errorf("refusal %d", r)
	}
}
