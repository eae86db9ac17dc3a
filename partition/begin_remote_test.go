package partition

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/partition/replica"
)

// fromAfar runs f with a node that does not lead the queue's partition, and with the node that does.
func fromAfar(t *testing.T, f func(t *testing.T, b *brokers, d *fsm.Descriptor, k fsm.Key, leader, at fsm.NodeID)) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		leader := b.leader(d.Partitions[0]).Node()
		f(t, b, d, fsm.Key{Entity: d.ID, By: fsm.ByShare}, leader, b.others(leader)[0])
	})
}

// within fails if a request has not ended after that time, or ended before it.
func (b *begunAt) within(t *testing.T, least, most time.Duration) {
	t.Helper()
	began := time.Now()
	<-b.ended
	if took := time.Since(began); took < least || took > most {
		t.Errorf("it ended after %v, want %v to %v", took, least, most)
	}
}

// What is begun at another node gives what Propose gives.
func TestRequestsAreBegunAtOtherNodes(t *testing.T) {
	fromAfar(t, func(t *testing.T, b *brokers, d *fsm.Descriptor, k fsm.Key, leader, at fsm.NodeID) {
		r := b.all[at].r
		before := b.net.Calls(KindPropose)
		waits := beginAt(r, reqOf(1, 1, 1), k, &fsm.Lock{Max: 2, Wait: 60_000})
		time.Sleep(time.Second)
		body := bytes.Repeat([]byte("0123456789abcdef"), 1000)
		o, err := beginAt(r, reqOf(1, 2, 1), k, &fsm.Enqueue{Messages: []fsm.Message{{Body: body}}}).wait(t.Context())
		if err != nil || o.Refusal != fsm.None || len(o.Numbers) != 1 {
			t.Errorf("send: %+v, %v", o, err)
		}
		if o, err = waits.wait(t.Context()); err != nil || waits.rest != nil || len(o.Locked) != 1 || !bytes.Equal(o.Locked[0].Body, body) {
			t.Fatalf("receive: %d messages, %v", len(o.Locked), err)
		}
		settle := &fsm.Settle{Items: []fsm.SettleItem{{Token: o.Locked[0].Token, Verdict: fsm.Complete}}}
		if o, err = beginAt(r, reqOf(1, 1, 2), k, settle).wait(t.Context()); err != nil || o.Refusal != fsm.None {
			t.Errorf("settle: %+v, %v", o, err)
		}
		began := time.Now()
		o, err = beginAt(r, reqOf(1, 1, 3), k, &fsm.Lock{Max: 1, Wait: 3_000}).wait(t.Context())
		if took := time.Since(began); err != nil || len(o.Locked) != 0 || took < 3*time.Second || took > 3100*time.Millisecond {
			t.Errorf("nothing to receive: %+v, %v, after %v", o, err, took)
		}
		if n := b.net.Calls(KindPropose) - before; n != 4 {
			t.Errorf("%d requests went to %s, want 4", n, leader)
		}
		whole := &fsm.Enqueue{Messages: []fsm.Message{{Body: make([]byte, maxBegunBytes)}}}
		if beginAt(r, reqOf(1, 2, 2), k, whole) != nil {
			t.Error("a request was begun that is worth a goroutine")
		}
		b.wantActive(leader, d, 0)
	})
}

// A18: what a caller takes back that waits at another node has no effect. What is in the log there is told.
func TestARequestAtAnotherNodeIsCancelled(t *testing.T) {
	fromAfar(t, func(t *testing.T, b *brokers, d *fsm.Descriptor, k fsm.Key, leader, at fsm.NodeID) {
		r := b.all[at].r
		parked := beginAt(r, reqOf(1, 1, 1), k, &fsm.Lock{Max: 1, Wait: 60_000})
		time.Sleep(time.Second)
		parked.cancel(context.Canceled)
		parked.within(t, 0, 100*time.Millisecond)
		if parked.rest != nil || !errors.Is(parked.err, context.Canceled) || errors.Is(parked.err, fsm.ErrUnknown) {
			t.Errorf("parked: %+v, %v", parked.outcome, parked.err)
		}
		sendOne(t, r, reqOf(0, 1, 1), k)
		b.wantActive(leader, d, 1)

		for _, id := range b.ids {
			b.nodes[id].delay.Store(int64(time.Second))
		}
		lock := beginAt(r, reqOf(1, 2, 1), k, &fsm.Lock{Max: 1})
		time.Sleep(100 * time.Millisecond) // the lock is in the log
		lock.cancel(context.Canceled)
		lock.within(t, time.Second/2, 4*time.Second)
		if lock.rest != nil || lock.err != nil || len(lock.outcome.Locked) != 1 {
			t.Errorf("in the log: %+v, %v", lock.outcome, lock.err)
		}
		lock.cancel(context.Canceled) // too late to mean anything
	})
}

// A18: a leader that does not answer is waited for as long as GoneWait, if the request takes something, and otherwise not at all.
func TestARequestAtASilentNodeIsGivenUp(t *testing.T) {
	fromAfar(t, func(t *testing.T, b *brokers, d *fsm.Descriptor, k fsm.Key, leader, at fsm.NodeID) {
		r := b.all[at].r
		b.net.Swallow(func(from, to fsm.NodeID, kind uint8, _ []byte) bool {
			return from == at && to == leader && (kind == KindPropose || kind == KindUnpark)
		})
		lock := beginAt(r, reqOf(1, 1, 1), k, &fsm.Lock{Max: 1})
		send := beginAt(r, reqOf(1, 2, 1), k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m")}}})
		time.Sleep(100 * time.Millisecond)
		send.cancel(context.DeadlineExceeded)
		lock.cancel(context.Canceled)
		send.within(t, 0, 0)
		if send.rest == nil || !errors.Is(send.err, fsm.ErrUnknown) || !errors.Is(send.err, context.DeadlineExceeded) {
			t.Errorf("send: %v", send.err)
		}
		lock.within(t, replica.GoneWait, replica.GoneWait+time.Millisecond)
		if lock.rest == nil || !errors.Is(lock.err, fsm.ErrUnknown) || !errors.Is(lock.err, context.Canceled) {
			t.Errorf("lock: %v", lock.err)
		}
		b.net.Swallow(nil)
		b.wantActive(leader, d, 0)
	})
}

// S-298, A6: a request at a leader that does not answer ends when another node leads, and its rest is one effect there.
func TestARequestAtAnotherNodeMovesWithTheLeader(t *testing.T) {
	fromAfar(t, func(t *testing.T, b *brokers, d *fsm.Descriptor, k fsm.Key, leader, at fsm.NodeID) {
		r := b.all[at].r
		b.net.Swallow(func(from, to fsm.NodeID, kind uint8, _ []byte) bool {
			return from == at && to == leader && kind == KindPropose
		})
		send := beginAt(r, reqOf(1, 1, 1), k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m")}}})
		time.Sleep(time.Second)
		select {
		case <-send.ended:
			t.Fatalf("it ended %v", send.err)
		default:
		}
		b.net.Isolate(leader, true)
		next := b.leader(d.Partitions[0], leader)
		send.within(t, 0, 100*time.Millisecond)
		if o, err := send.wait(shortly(t, time.Minute)); send.rest == nil || err != nil || len(o.Numbers) != 1 {
			t.Errorf("%+v, %v", o, err)
		}
		b.net.Isolate(leader, false)
		b.wantActive(next.Node(), d, 1)
		away := &b.nodes[at].host.away
		away.mu.Lock()
		defer away.mu.Unlock()
		if n := len(away.calls); n != 0 {
			t.Errorf("%d partitions have calls that are over", n)
		}
	})
}
