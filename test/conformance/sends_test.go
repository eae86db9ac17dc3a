package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/cluster"
)

// alone starts a node for one test, which may stop it or send it more than others would like.
func alone(t *testing.T) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	n, err := cluster.StartSingle(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Nodes: []*cluster.Node{n}}
	t.Cleanup(func() { end(t, c) })
	return newEnv(t, c, false, 0)
}

// stall freezes the only node; the function that it returns lets it go on, and may be called twice.
func (e *env) stall() (goOn func()) {
	e.Helper()
	n := e.node(0)
	e.must("stop the broker", n.Freeze())
	goOn = func() { e.must("let the broker go on", n.Thaw()) }
	e.Cleanup(goOn) // a frozen process does not end in good order
	return goOn
}

// liveObjects counts what this process holds on its heap.
func liveObjects() uint64 {
	runtime.GC()
	runtime.GC() // the first one's finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapObjects
}

// settled waits for the outcome of one send.
func (e *env) settled(r amqp.SendReceipt) {
	e.Helper()
	state, err := r.Wait(e.ctx)
	e.must("wait for the outcome", err)
	_, accepted := state.(*amqp.StateAccepted)
	e.check(accepted, "the outcome is %T, want accepted", state)
}

// S-135: the bound on unacknowledged sends is the credit that the broker gives, 1,000 at most; the
// client counts it.
func TestT53AStalledBrokerHoldsSendersAtTheirWindow(t *testing.T) {
	const window, attempts = 1_000, 1_000_000
	e := alone(t)
	q := e.queue(nil)
	s, err := e.dial(0, 0).NewSender(e.ctx, q, nil)
	e.must("attach", err)
	first, err := s.SendWithReceipt(e.ctx, amqp.NewMessage([]byte("first")), nil)
	e.must("send", err)
	e.settled(first)

	goOn := e.stall()
	var flying []amqp.SendReceipt
	for {
		ctx, cancel := context.WithTimeout(e.ctx, quiet)
		r, err := s.SendWithReceipt(ctx, amqp.NewMessage([]byte(fmt.Sprint(len(flying)))), nil)
		cancel()
		if err != nil {
			var full *amqp.Error
			e.check(errors.As(err, &full) && full.Condition == amqp.ErrCondTransferLimitExceeded,
				"send %d: %v, want that the credit is used up", len(flying), err)
			break
		}
		flying = append(flying, r)
		e.check(len(flying) <= window, "%d sends are under way, the window is %d", len(flying), window)
	}
	e.check(len(flying) >= window/2, "the window holds only %d sends", len(flying))

	// Whoever does not wait fails at once, and leaves nothing behind.
	over, cancel := context.WithCancel(e.ctx)
	cancel()
	m := amqp.NewMessage([]byte("never"))
	before := liveObjects()
	for range attempts {
		if _, err := s.SendWithReceipt(over, m, nil); err == nil {
			e.Fatal("a send went out beyond the window")
		}
	}
	if after := liveObjects(); after > before+attempts/100 {
		e.Errorf("%d sends that failed at once left %d objects", attempts, after-before)
	}

	late := make(chan error, 1)
	go func() { late <- s.Send(e.ctx, amqp.NewMessage([]byte("late")), nil) }()
	select {
	case err := <-late:
		e.Fatalf("a send beyond the window ended with %v", err)
	default:
	}
	goOn()
	e.must("the send that waited", <-late)
	for _, r := range flying {
		e.settled(r)
	}
	e.holds(q, len(flying)+2)
}

// S-136: an outcome that nobody waits for is not kept, neither by the client nor for its sake.
func TestT54OutcomesThatNobodyTakesDoNotPileUp(t *testing.T) {
	const sends = 100_000
	e := alone(t)
	q := e.queue(nil)
	s, err := e.dial(0, 0).NewSender(e.ctx, q, nil)
	e.must("attach", err)
	e.must("send", s.Send(e.ctx, amqp.NewMessage([]byte("first")), nil))
	before := liveObjects()
	for i := range sends {
		_, err := s.SendWithReceipt(e.ctx, amqp.NewMessage([]byte(fmt.Sprint(i))), nil)
		e.must("send", err)
	}
	e.must("send the last one", s.Send(e.ctx, amqp.NewMessage([]byte("last")), nil))
	if after := liveObjects(); after > before+sends/100 {
		e.Errorf("%d outcomes that nobody took left %d objects", sends, after-before)
	}
	e.holds(q, sends+2)
}

// holds checks how many messages a queue has.
func (e *env) holds(queue string, want int) {
	e.Helper()
	p, err := e.admin(0).GetQueueRuntimeProperties(e.ctx, queue, nil)
	e.must("read the counts", err)
	e.check(p != nil && p.ActiveMessageCount == int32(want), "the queue's counts are %+v, want %d messages", p, want)
}

// mixedOf is how many messages of each state stillMixed has: scheduled, deferred, dead, abandoned once, and ready.
func mixedOf() int { return max(5, *backedUp/100) }

// mixed fills stillMixed. Several receivers settle, for a settlement waits for an answer.
func (b *backupCase) mixed(c *azservicebus.Client) {
	b.Helper()
	n := mixedOf()
	b.batches(c, stillMixed, 4*n, func(int) *string { return nil })
	s := b.sender(c, stillMixed)
	later := time.Now().Add(6 * time.Hour)
	for i := 0; i < n; i += 50 {
		var page []*azservicebus.Message
		for k := i; k < min(n, i+50); k++ {
			page = append(page, &azservicebus.Message{Body: fmt.Appendf(nil, "later %d", k)})
		}
		_, err := s.ScheduleMessages(b.ctx, page, later.Add(time.Duration(i)*time.Second), nil)
		b.must("schedule", err)
	}
	r := b.receiver(c, stillMixed, nil)
	for _, f := range []func(*azservicebus.ReceivedMessage) error{
		func(m *azservicebus.ReceivedMessage) error { return r.DeferMessage(b.ctx, m, nil) },
		func(m *azservicebus.ReceivedMessage) error {
			return r.DeadLetterMessage(b.ctx, m, &azservicebus.DeadLetterOptions{Reason: to("reason of " + m.MessageID)})
		},
		func(m *azservicebus.ReceivedMessage) error {
			return r.AbandonMessage(b.ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tries": int64(1)}})
		},
	} {
		var all []*azservicebus.ReceivedMessage
		for len(all) < n {
			all = append(all, b.take(r, min(200, n-len(all)))...)
		}
		b.settleAll(all, f)
	}
	b.must("close", r.Close(b.ctx))
}

// settleAll settles messages, some at a time.
func (b *backupCase) settleAll(all []*azservicebus.ReceivedMessage, f func(*azservicebus.ReceivedMessage) error) {
	b.Helper()
	const atOnce = 16
	var wg sync.WaitGroup
	for part := range slices.Chunk(all, (len(all)+atOnce-1)/atOnce) {
		wg.Go(func() {
			for _, m := range part {
				if err := f(m); err != nil {
					b.Errorf("settle %s: %v", m.MessageID, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
