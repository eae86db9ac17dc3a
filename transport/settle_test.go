package transport

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// A4: verdicts do not wait for those that are on their way to the disks, if they are worth a request of
// their own, and no more requests than settleSteps has are under way.
func TestVerdictsRideInTheNextEntry(t *testing.T) {
	ts := startServer(t, 1)
	ts.broker.queue("orders")
	gate, arrived := make(chan struct{}), make(chan int, 32)
	opened := sync.OnceFunc(func() { close(gate) })
	defer opened()
	ts.broker.mu.Lock()
	ts.broker.answer = func(_ fsm.Key, c fsm.Command) (fsm.Outcome, bool) {
		if c, ok := c.(*fsm.Settle); ok {
			arrived <- len(c.Items)
			ts.broker.mu.Unlock()
			<-gate
			ts.broker.mu.Lock()
		}
		return fsm.Outcome{}, false
	}
	ts.broker.mu.Unlock()
	session := newSession(t, dial(t, ts))
	tx := newSender(t, session, "orders")
	const last = 5 // of which only the others' return makes a request
	total := last
	for _, n := range settleSteps {
		total += n
	}
	for range total {
		if err := tx.Send(testContext(t), goamqp.NewMessage([]byte("x")), nil); err != nil {
			t.Fatal(err)
		}
	}
	rx, err := session.NewReceiver(testContext(t), "orders", &goamqp.ReceiverOptions{
		Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
	})
	if err != nil {
		t.Fatal(err)
	}
	messages := receive(t, rx, total)
	settled := make(chan error, total)
	settle := func(n int) {
		for _, m := range messages[:n] {
			go func() { settled <- rx.AcceptMessage(testContext(t), m) }()
		}
		messages = messages[n:]
	}
	for _, n := range settleSteps {
		settle(n)
		if got := <-arrived; got != n {
			t.Errorf("a Settle of %d verdicts, want %d", got, n)
		}
	}
	settle(last)
	opened()
	var all []error
	for range total {
		all = append(all, <-settled)
	}
	if err := errors.Join(all...); err != nil {
		t.Error(err)
	}
	rest := 0
	for rest < last {
		rest += <-arrived
	}
	if c := ts.broker.counts(t, "orders"); c.Active != 0 || rest != last {
		t.Errorf("%d messages are left, %d verdicts came last", c.Active, rest)
	}
}

// A settler has a pump for each Settle under way and uses the idle ones again.
func TestLanesOfASettlerAreUsedAgain(t *testing.T) {
	ts := startServer(t, 1)
	s := &settler{e: &egress{c: &conn{s: ts.Server}}}
	var taken []*pump
	for _, n := range settleSteps {
		s.pending, s.awaited = make([]settlement, n-1), n-1
		if s.idlePump() != nil {
			t.Errorf("%d verdicts are worth a request beside %d", n-1, len(taken))
		}
		if s.pending, s.awaited = make([]settlement, 1000), 0; len(taken) > 0 && s.idlePump() != nil {
			t.Error("verdicts whose answer nobody waits for are worth a second request")
		}
		s.pending, s.awaited = make([]settlement, n), n
		l := s.idlePump()
		if l == nil || slices.Contains(taken, l) {
			t.Fatalf("%d verdicts beside %d requests: pump %v", n, len(taken), l)
		}
		l.busy = true
		taken = append(taken, l)
	}
	s.pending, s.awaited = make([]settlement, 10_000), 10_000
	if s.idlePump() != nil {
		t.Error("more requests than steps")
	}
	taken[0].busy = false
	if s.idlePump() != taken[0] || len(s.pumps) != len(settleSteps) {
		t.Errorf("%d pumps", len(s.pumps))
	}
}

// A settlement that is applied after its connection is lost is timed until then, and not until the one before.
func TestSettlementsAreTimedAfterTheirConnection(t *testing.T) {
	var mu sync.Mutex
	var took []time.Duration
	inBubble(t, func(b *bubble) {
		wait := time.Duration(0)
		b.broker.after = func(c fsm.Command, _ fsm.Outcome) chan struct{} {
			if _, ok := c.(*fsm.Settle); !ok {
				return nil
			}
			applied := make(chan struct{})
			wait += time.Second
			time.AfterFunc(wait, func() { close(applied) })
			return applied
		}
		c := b.client()
		c.authenticate()
		for i, name := range []string{"first", "second"} {
			b.broker.queue(name)
			handle := uint32(2 + 2*i)
			c.attach(0, senderTo(handle, name))
			expect[*amqp.Flow](c)
			c.send(0, transferOf(handle, uint32(1+i)), amqp.AppendData(nil, []byte("x")))
			expect[*amqp.Disposition](c)
			c.attach(0, receiverOf(handle+1, name))
			c.send(0, credit(handle+1, 0, 1, false))
			tr, _ := expect[*amqp.Transfer](c)
			c.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID.Value, State: amqp.Accepted{}})
		}
		synctest.Wait()
		c.close()
		time.Sleep(10 * time.Second) // virtual
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{time.Second, 2 * time.Second}; !slices.Equal(took, want) {
			t.Errorf("the settlements took %v, want %v", took, want)
		}
	}, func(cfg *Config) {
		cfg.OnSettled = func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			took = append(took, d)
		}
	})
}
