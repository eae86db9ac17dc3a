package partition

import (
	"bytes"
	"fmt"
	"sync"
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

// caught returns what a node says to another one for a request, which arrives as well.
func (b *brokers) caught(from, to fsm.NodeID, ask func()) (late []byte) {
	b.t.Helper()
	b.net.Swallow(func(f, t fsm.NodeID, kind uint8, msg []byte) bool {
		if f == from && t == to && kind == KindPropose {
			late = bytes.Clone(msg)
		}
		return false
	})
	ask()
	b.net.Swallow(nil)
	if late == nil {
		b.t.Fatal("the request went to another node: nothing is shown")
	}
	return late
}

// comesLate has a request arrive that was given up on its way, and fails if it takes anything.
func (b *brokers) comesLate(from, to fsm.NodeID, late []byte) {
	b.t.Helper()
	answer, err := b.nodes[to].port.Deliver(b.t.Context(), from, KindPropose, late)
	if err == nil {
		answer, err = openResult(answer)
	}
	if o, err := decodeOutcome(answer, err); err != nil || o.Refusal != fsm.Busy || len(o.Locked) > 0 || !o.Session.Token.IsZero() {
		b.t.Errorf("the late request: %+v, %v", o, err)
	}
}

// A receive whose first attempt was given up on its way got its message by the second, and the message is settled. The first attempt, when it
// arrives after all, must take nothing: nobody waits for that, and those behind it would overtake it. A6, S-308.
func TestALateReceiveTakesNothing(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		l := b.leader(d.Partitions[0]).Node()
		via := b.others(l)[0]
		r, k := b.all[via].r, fsm.Key{Entity: d.ID, By: fsm.ByShare}
		propose := func(id fsm.RequestID, c fsm.Command) fsm.Outcome {
			t.Helper()
			o, err := r.Propose(shortly(t, time.Minute), id, k, c)
			if err != nil || o.Refusal != fsm.None {
				t.Fatalf("%T: %+v, %v", c, o, err)
			}
			return o
		}
		settle := func(counter uint64, m fsm.Delivery) {
			propose(fsm.RequestID{Node: 9, Pump: 2, Counter: counter}, &fsm.Settle{Items: []fsm.SettleItem{{Token: m.Token, Verdict: fsm.Complete}}})
		}
		for i, text := range []string{"a", "b", "c"} {
			propose(fsm.RequestID{Node: 9, Pump: 3, Counter: uint64(i + 1)}, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte(text)}}})
		}
		var o fsm.Outcome
		receive := func(counter uint64, want string) (late []byte) {
			t.Helper()
			late = b.caught(via, l, func() {
				o = propose(fsm.RequestID{Node: 9, Pump: 1, Counter: counter}, &fsm.Lock{Max: 1, Wait: 60_000})
			})
			if got := bodies(o); len(got) != 1 || got[0] != want {
				t.Fatalf("received %q, want %q", got, want)
			}
			return late
		}
		late := receive(1, "a")
		settle(1, o.Locked[0])
		b.comesLate(via, l, late)

		// The settlement and the late attempt wait for the same entry.
		late = receive(2, "b")
		for _, id := range b.ids {
			b.nodes[id].delay.Store(int64(100 * time.Millisecond))
		}
		var all sync.WaitGroup
		all.Go(func() {
			propose(fsm.RequestID{Node: 9, Pump: 3, Counter: 4}, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("d")}}})
		})
		time.Sleep(20 * time.Millisecond) // its entry is under way
		all.Go(func() { settle(2, o.Locked[0]) })
		time.Sleep(20 * time.Millisecond)
		all.Go(func() { b.comesLate(via, l, late) })
		all.Wait()
		for _, id := range b.ids {
			b.nodes[id].delay.Store(0)
		}
		receive(3, "c")
		if o.Locked[0].Attempts != 0 {
			t.Errorf("%d attempts were counted", o.Locked[0].Attempts)
		}
	})
}

// A receive whose first attempt was given up on its way got nothing by the second, and its client has gone. The first attempt, when
// it arrives after all, takes nothing of what has come since. A6, A18.
func TestALateReceiveTakesNothingWhereNothingWas(t *testing.T) {
	for _, wait := range []fsm.Millis{0, 500} {
		t.Run(fmt.Sprintf("a wait of %d ms", wait), func(t *testing.T) {
			cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) { lateBehindNothing(t, b, d, wait) })
		})
	}
}

func lateBehindNothing(t *testing.T, b *brokers, d *fsm.Descriptor, wait fsm.Millis) {
	ctx := shortly(t, time.Minute)
	l := b.leader(d.Partitions[0]).Node()
	via := b.others(l)[0]
	k := fsm.Key{Entity: d.ID, By: fsm.ByShare}
	propose := func(id fsm.RequestID, c fsm.Command) fsm.Outcome {
		t.Helper()
		o, err := b.all[via].r.Propose(ctx, id, k, c)
		if err != nil || o.Refusal != fsm.None {
			t.Fatalf("%T: %+v, %v", c, o, err)
		}
		return o
	}
	var late []byte
	b.net.Swallow(func(from, to fsm.NodeID, kind uint8, msg []byte) bool {
		if late == nil && from == via && to == l && kind == KindPropose {
			late = bytes.Clone(msg)
		}
		return false
	})
	b.net.SetDelay(20*time.Millisecond, 0)
	go func() {
		time.Sleep(5 * time.Millisecond) // the first attempt is on its way
		b.net.SetCut(via, l, true)
		time.Sleep(time.Millisecond)
		b.net.SetCut(via, l, false)
	}()
	if o := propose(fsm.RequestID{Node: 9, Pump: 1, Counter: 1}, &fsm.Lock{Max: 1, Delete: true, Wait: wait}); len(o.Locked) != 0 || late == nil {
		t.Fatalf("received %q", bodies(o))
	}
	propose(fsm.RequestID{Node: 9, Pump: 2, Counter: 1}, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("a")}}})
	if answer, err := b.nodes[l].port.Deliver(ctx, via, KindPropose, late); err == nil {
		if answer, err = openResult(answer); err == nil {
			if o, err := decodeOutcome(answer, nil); err != nil || len(o.Locked) != 0 {
				t.Errorf("the late attempt takes %q, %v", bodies(o), err)
			}
		}
	}
	if got := bodies(propose(fsm.RequestID{Node: 9, Pump: 3, Counter: 1}, &fsm.Lock{Max: 1})); len(got) != 1 || got[0] != "a" {
		t.Errorf("another client receives %q", got)
	}
}

// The same of an accept: the session is free, and stays so. A6, S-308.
func TestALateAcceptTakesNoSession(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, _ *fsm.Descriptor) {
		q := queue("sessions", false)
		q.RequiresSession = true
		d := b.createQueue(shortly(t, time.Minute), "n1", q)
		l := b.leader(d.Partitions[0]).Node()
		via := b.others(l)[0]
		k := fsm.Key{Entity: d.ID, By: fsm.ByShare}
		propose := func(pump uint64, c fsm.Command) fsm.Outcome {
			t.Helper()
			o, err := b.all[via].r.Propose(shortly(t, time.Minute), fsm.RequestID{Node: 9, Pump: pump, Counter: 1}, k, c)
			if err != nil || o.Refusal != fsm.None {
				t.Fatalf("%T: %+v, %v", c, o, err)
			}
			return o
		}
		propose(1, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m"), HasSession: true, SessionID: "s"}}})
		accept := &fsm.AcceptSession{ID: "s"}
		var o fsm.Outcome
		late := b.caught(via, l, func() { o = propose(2, accept) })
		propose(3, &fsm.ReleaseSession{Session: o.Session, Orderly: true})
		b.comesLate(via, l, late)
		if o = propose(4, accept); o.Session.ID != "s" {
			t.Errorf("accepted %+v", o.Session)
		}
	})
}
