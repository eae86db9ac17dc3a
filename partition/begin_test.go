package partition

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
)

// begunAt is a request that a router has begun.
type begunAt struct {
	cancel  func(error)
	ended   chan struct{}
	outcome fsm.Outcome
	err     error
	rest    func(context.Context) (fsm.Outcome, error)
}

// beginAt begins a request; nil if the router does not.
func beginAt(r *Router, id fsm.RequestID, k fsm.Key, c fsm.Command) *begunAt {
	b := &begunAt{ended: make(chan struct{})}
	cancel, ok := r.Begin(id, k, c, func(o fsm.Outcome, err error, rest func(context.Context) (fsm.Outcome, error)) {
		b.outcome, b.err, b.rest = o, err, rest
		close(b.ended)
	})
	if b.cancel = cancel; !ok {
		return nil
	}
	return b
}

// wait returns what Propose would.
func (b *begunAt) wait(ctx context.Context) (fsm.Outcome, error) {
	if <-b.ended; b.rest != nil {
		return b.rest(ctx)
	}
	return b.outcome, b.err
}

// S-298, S-307, A6: a request that was begun at a leader that is cut off is finished at the next one, and has one effect.
func TestBegunRequestsHaveOneEffectThroughLeaderCuts(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		b.net.SetDelay(time.Millisecond, 0)
		ctx := shortly(t, 10*time.Minute)
		k, p := fsm.Key{Entity: d.ID, By: fsm.ByShare}, d.Partitions[0]
		type count struct{ begun, away, rests, sent int }
		stop, done := make(chan struct{}), make(chan count)
		for i, node := range b.ids {
			go func() {
				var n count
				defer func() { done <- n }()
				for ; ; n.sent++ {
					select {
					case <-stop:
						return
					default:
					}
					o, err := fsm.Outcome{}, error(nil)
					id, c, r := reqOf(i, 1, n.sent+1), &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m")}}}, b.all[node].r
					if one := beginAt(r, id, k, c); one != nil {
						o, err = one.wait(ctx)
						n.begun++
						if here := b.nodes[node].host.Replica(p); !here.Leading() {
							n.away++
						}
						if one.rest != nil {
							n.rests++
						}
					} else {
						o, err = r.Propose(ctx, id, k, c)
					}
					if err != nil || len(o.Numbers) != 1 {
						t.Errorf("send: %+v, %v", o, err)
						return
					}
					time.Sleep(3 * time.Millisecond)
				}
			}()
		}
		for range 6 {
			l := b.leader(p).Node()
			time.Sleep(time.Second)
			b.net.Isolate(l, true)
			b.leader(p, l)
			time.Sleep(time.Second)
			b.net.Isolate(l, false)
		}
		close(stop)
		var sum count
		for range b.ids {
			n := <-done
			sum = count{sum.begun + n.begun, sum.away + n.away, sum.rests + n.rests, sum.sent + n.sent}
		}
		if sum.away == 0 || sum.away == sum.begun || sum.rests == 0 {
			t.Errorf("the test shows nothing: %+v", sum)
		}
		b.wantActive(b.ids[0], d, sum.sent)
		t.Logf("%+v", sum)
	})
}

// A18: what a caller takes back that waits has no effect. What is in the log is told, so that it can be given back.
func TestABegunRequestIsCancelled(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		k, p := fsm.Key{Entity: d.ID, By: fsm.ByShare}, d.Partitions[0]
		l := b.leader(p)
		r := b.all[l.Node()].r
		parked := beginAt(r, reqOf(1, 1, 1), k, &fsm.Lock{Max: 1, Wait: 60_000})
		time.Sleep(time.Second)
		parked.cancel(context.Canceled)
		select {
		case <-parked.ended:
		default:
			t.Error("the request has not ended when cancel returns")
		}
		if o, err := parked.wait(t.Context()); parked.rest != nil || !errors.Is(err, context.Canceled) || errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("parked: %+v, %v", o, err)
		}
		sendOne(t, r, reqOf(0, 1, 1), k)
		b.wantActive(l.Node(), d, 1)

		b.net.Isolate(l.Node(), true)
		lock := beginAt(r, reqOf(1, 2, 1), k, &fsm.Lock{Max: 1})
		time.Sleep(100 * time.Millisecond)
		send := beginAt(r, reqOf(1, 3, 1), k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m")}}})
		time.Sleep(100 * time.Millisecond) // the lock is in the log, the message is not
		lock.cancel(context.Canceled)
		send.cancel(context.DeadlineExceeded)
		if o, err := send.wait(t.Context()); send.rest != nil || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("not in the log: %+v, %v", o, err)
		}
		b.net.Isolate(l.Node(), false)
		if o, err := lock.wait(t.Context()); err != nil || len(o.Locked) != 1 {
			t.Errorf("in the log: %+v, %v", o, err)
		}
		b.wantActive(l.Node(), d, 1)
	})
}

// A request that takes nothing ends as unknown at once if it is in the log.
func TestABegunSendIsGivenUp(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		k, p := fsm.Key{Entity: d.ID, By: fsm.ByShare}, d.Partitions[0]
		l := b.leader(p)
		r := b.all[l.Node()].r
		b.net.Isolate(l.Node(), true)
		began := time.Now()
		send := beginAt(r, reqOf(1, 1, 1), k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m")}}})
		time.Sleep(100 * time.Millisecond)
		send.cancel(context.DeadlineExceeded)
		<-send.ended
		if took := time.Since(began); !errors.Is(send.err, fsm.ErrUnknown) || took > 101*time.Millisecond {
			t.Errorf("%v after %v", send.err, took)
		}
		b.net.Isolate(l.Node(), false)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if o, err := send.wait(ended); !errors.Is(err, fsm.ErrUnknown) {
			t.Errorf("the rest of a caller that is gone: %+v, %v", o, err)
		}
		b.wantActive(l.Node(), d, 1)
	})
}

// A wait ends, and a message of many parts is whole when the rest returns it.
func TestBegunReceives(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, _ *fsm.Descriptor) {
		large := queue("large", false)
		large.MaxMessageBytes = 100 << 20
		d := b.createQueue(shortly(t, time.Minute), "n1", large)
		k, p := fsm.Key{Entity: d.ID, By: fsm.ByShare}, d.Partitions[0]
		l := b.leader(p)
		r := b.all[l.Node()].r
		began := time.Now()
		o, err := beginAt(r, reqOf(1, 1, 1), k, &fsm.Lock{Max: 1, Wait: 3_000}).wait(t.Context())
		if took := time.Since(began); err != nil || len(o.Locked) != 0 || took < 3*time.Second || took > 3100*time.Millisecond {
			t.Errorf("nothing to receive: %+v, %v, after %v", o, err, took)
		}
		body := bytes.Repeat([]byte("0123456789abcdef"), (fsm.WholeBytes+100)/16)
		big := &fsm.Enqueue{Messages: []fsm.Message{{Body: body}}}
		if beginAt(r, reqOf(1, 2, 1), k, big) != nil {
			t.Error("a large message was begun, which goes in several requests")
		}
		waits := beginAt(r, reqOf(1, 3, 1), k, &fsm.Lock{Max: 1, Wait: 60_000})
		if o, err := r.Propose(shortly(t, time.Minute), reqOf(1, 2, 1), k, big); err != nil || o.Refusal != fsm.None {
			t.Fatalf("%+v, %v", o, err)
		}
		o, err = waits.wait(shortly(t, time.Minute))
		if err != nil || waits.rest == nil || len(o.Locked) != 1 || !bytes.Equal(o.Locked[0].Body, body) {
			t.Errorf("%d messages, %+v, %v, want one of %d bytes", len(o.Locked), o, err, len(body))
		}
		if beginAt(r, reqOf(1, 4, 1), fsm.Key{Entity: d.ID + 100}, &fsm.Lock{Max: 1}) != nil {
			t.Error("a request to no entity was begun")
		}
		waits = beginAt(r, reqOf(1, 5, 1), k, &fsm.Lock{Max: 1, Wait: 60_000})
		if err := b.all[l.Node()].dir.Delete(shortly(t, time.Minute), d.Name); err != nil {
			t.Fatal(err)
		}
		if o, err := waits.wait(shortly(t, time.Minute)); err != nil || o.Refusal != fsm.EntityNotFound {
			t.Errorf("the entity is gone: %+v, %v", o, err)
		}
	})
}

// A life of a node that the cluster has declared over is told so, and begins another one.
func TestABegunRequestOfALostLife(t *testing.T) {
	cluster3(t, func(t *testing.T, b *brokers, d *fsm.Descriptor) {
		k, p := fsm.Key{Entity: d.ID, By: fsm.ByShare}, d.Partitions[0]
		l := b.leader(p)
		r := b.all[l.Node()].r
		id := reqOf(1, 1, 1)
		lost := fsm.Key{By: fsm.ByShare, Share: uint16(p)}
		if o, err := r.Propose(t.Context(), fsm.RequestID{}, lost, &fsm.NodeLost{Node: id.Node}); err != nil || o.Refusal != fsm.None {
			t.Fatalf("%+v, %v", o, err)
		}
		send := beginAt(r, id, k, &fsm.Enqueue{Messages: []fsm.Message{{Body: []byte("m")}}})
		if o, err := send.wait(t.Context()); send.rest == nil || err != nil || o.Refusal != fsm.NodeExpired {
			t.Errorf("%+v, %v", o, err)
		}
		b.wantActive(l.Node(), d, 0)
	})
}
