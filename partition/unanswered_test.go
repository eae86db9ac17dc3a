package partition

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// A send whose first attempt went unanswered was stored by the second, its client has gone, and its pump
// is dropped: the first attempt, when it arrives after all, must not be stored, too. A6, S-307.
func TestLateCopyOfARetiredPumpIsNotAppliedAgain(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		p := d.Partitions[0]
		l := b.leader(p)
		via := b.others(l.Node())[0]
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare}
		send := func(id fsm.RequestID) fsm.Outcome {
			t.Helper()
			o, err := b.all[via].r.Propose(shortly(t, time.Minute), id, k,
				&fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("x")}}})
			if err != nil || o.Refusal != fsm.None {
				t.Fatal(o, err)
			}
			return o
		}
		drop := func(pump uint64) {
			t.Helper()
			time.Sleep(30 * time.Second) // as the front end does
			if _, err := b.all[via].r.Propose(shortly(t, time.Minute), fsm.RequestID{}, k,
				&fsm.DropPumps{Node: 9, Pumps: []uint64{pump}}); err != nil {
				t.Fatal(err)
			}
		}
		b.net.SetDelay(10*time.Millisecond, 0)
		var late []byte
		var tries atomic.Int32
		b.net.Swallow(func(from, to fsm.NodeID, kind uint8, msg []byte) bool {
			if from == via && to == l.Node() && kind == KindPropose && tries.Add(1) == 1 {
				late = bytes.Clone(msg)
				go func() { // the connection breaks with the request in it
					time.Sleep(time.Millisecond)
					b.net.SetCut(from, to, true)
					time.Sleep(time.Millisecond)
					b.net.SetCut(from, to, false)
				}()
			}
			return false
		})
		first := send(fsm.RequestID{Node: 9, Pump: 1, Counter: 1})
		if tries.Load() < 2 {
			t.Fatal("the first attempt was answered: nothing is shown")
		}
		drop(1)
		answer, err := b.nodes[l.Node()].port.Deliver(t.Context(), via, KindPropose, late)
		if err == nil {
			answer, err = openResult(answer)
		}
		o, err := decodeOutcome(answer, err)
		if err != nil || !o.Repeated || o.Numbers[0] != first.Numbers[0] {
			t.Errorf("the late copy: %+v, %v", o, err)
		}
		// A pump that was heard every time is forgotten.
		again := fsm.RequestID{Node: 9, Pump: 2, Counter: 1}
		send(again)
		drop(2)
		if o := send(again); o.Repeated {
			t.Error("a pump without an open attempt is still remembered after its drop")
		}
	})
}

func TestUnheardPumpsAreNotDropped(t *testing.T) {
	id := func(pump uint64) fsm.RequestID { return fsm.RequestID{Node: 7, Pump: pump, Counter: 3} }
	all := &fsm.DropPumps{Node: 7, Pumps: []uint64{1, 2, 3}}
	inBubble(t, func(t *testing.T) {
		var u unansweredPumps
		u.note(id(2))
		u.note(fsm.RequestID{Node: 8, Pump: 3, Counter: 1}) // another life
		u.note(fsm.RequestID{})
		if got := u.droppable(all); got == nil || len(got.Pumps) != 2 || got.Pumps[0] != 1 || got.Pumps[1] != 3 {
			t.Errorf("droppable: %+v", got)
		}
		if got := u.droppable(&fsm.DropPumps{Node: 7, Pumps: []uint64{2}}); got != nil {
			t.Errorf("droppable: %+v", got)
		}
		time.Sleep(unansweredTime)
		if got := u.droppable(all); len(got.Pumps) != 3 {
			t.Errorf("after %v: %+v", unansweredTime, got)
		}
		for i := range uint64(maxUnanswered) {
			u.note(id(100 + i))
		}
		if len(u.pumps) != maxUnanswered {
			t.Errorf("%d are noted", len(u.pumps))
		}
		u.note(id(1))
		if got := u.droppable(all); len(u.pumps) != maxUnanswered || got != nil {
			t.Errorf("%d are noted; droppable: %+v", len(u.pumps), got)
		}
		time.Sleep(unansweredTime)
		if got := u.droppable(all); got == nil || len(got.Pumps) != 3 {
			t.Errorf("when it is over: %+v", got)
		}
	})
}
