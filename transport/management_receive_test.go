package transport

import (
	"fmt"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// Deferred messages of two shares are received and deleted by number, and one share does not remove its own. The client gets
// those that were removed, and no other one. S-142, S-181.
func TestWhatIsReceivedByNumberIsWhatWasRemoved(t *testing.T) {
	for _, how := range []string{"no leader", "lock lost"} {
		for failing := range 3 { // the third share is one that is not there
			t.Run(fmt.Sprintf("%s, share %d", how, failing), func(t *testing.T) {
				inBubble(t, func(b *bubble) { receiveOfTwoShares(t, b, how == "lock lost", failing) })
			})
		}
	}
}

func receiveOfTwoShares(t *testing.T, b *bubble, lockLost bool, failing int) {
	d := b.broker.queue("orders", partitioned)
	s := b.server
	var numbers []fsm.SequenceNumber
	for share := range 2 {
		do := func(c fsm.Command) fsm.Outcome {
			out, err := s.waist.ProposeOnce(t.Context(), waist.ShareKey(d, fsm.Main, share), c)
			if err != nil || out.Refusal != fsm.None {
				t.Fatalf("%T: %+v, %v", c, out, err)
			}
			return out
		}
		numbers = append(numbers, do(&fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m")}}}).Numbers...)
		l := do(&fsm.Lock{Max: 1}).Locked[0]
		do(&fsm.Settle{Items: []fsm.SettleItem{{Seq: l.Seq, Token: l.Token, Verdict: fsm.Defer}}})
	}
	fails := func(c fsm.Command) bool {
		settle, is := c.(*fsm.Settle)
		return is && settle.Items[0].Verdict == fsm.Complete && failing < 2 && settle.Items[0].Seq == numbers[failing]
	}
	b.broker.mu.Lock()
	if lockLost {
		b.broker.answer = func(_ fsm.Key, c fsm.Command) (fsm.Outcome, bool) {
			return fsm.Outcome{Refusals: []fsm.Refusal{fsm.MessageLockLost}}, fails(c)
		}
	} else {
		b.broker.fail = func(c fsm.Command) error {
			if fails(c) {
				return fmt.Errorf("no leader: %w", fsm.ErrUnavailable)
			}
			return nil
		}
	}
	b.broker.mu.Unlock()
	k := &call{s: s, desc: d, addr: address{entity: "orders"}, pump: s.waist.Borrow()}
	got, bad := k.receive(t.Context(), fsm.SessionProof{}, numbers, true)
	if bad != nil {
		t.Fatalf("refused: %v", bad.problem)
	}
	for share, n := range numbers {
		a, err := s.broker.Query(t.Context(), waist.ShareKey(d, fsm.Main, share), &fsm.Counts{})
		if err != nil {
			t.Fatal(err)
		}
		if _, given := got[n]; given != (share != failing) || (a.Counts.Deferred == 0) != given {
			t.Errorf("share %d: the client got its message %v, and %d are still there", share, given, a.Counts.Deferred)
		}
	}
}
