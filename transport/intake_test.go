package transport

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// asker sends requests over one request link as soon as it has link credit, and counts what comes back.
type asker struct {
	t       *testing.T
	c       *rawClient
	node    string
	handle  uint32 // of the request link; the next one is that of the answers
	sent    uint32
	credit  uint32
	most    uint32 // the largest sum of link credit and requests without an answer
	codes   map[int64]int
	ended   *amqp.Error
	grants  uint32 // link credit for answers
	settled uint32 // requests that were answered
}

// requestOf is an encoded request.
func requestOf(t *testing.T, node, op string, body any) []byte {
	t.Helper()
	out := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendString(nil, "m"), ReplyTo: []byte(node + "-reply")})
	w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
	w.String("operation", "com.microsoft:"+op)
	out, err := amqp.AppendValueBody(w.End(), body)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// asker attaches a pair of request links on channel 0; grants is the link credit for answers.
func (c *rawClient) asker(node string, handle, grants uint32) *asker {
	c.t.Helper()
	a := &asker{t: c.t, c: c, node: node, handle: handle, codes: map[int64]int{}, grants: grants}
	c.send(0, senderTo(handle, node+"/$management"))
	expect[*amqp.Attach](c)
	f, _ := expect[*amqp.Flow](c)
	a.credit = f.LinkCredit.Value
	in := receiverOf(handle+1, node+"/$management")
	in.SndSettleMode, in.Target.Address = amqp.Some(amqp.SenderSettled), amqp.Some(node+"-reply")
	c.attach(0, in)
	if grants > 0 {
		c.send(0, credit(handle+1, 0, grants, false))
	}
	return a
}

// ask sends one request, whether there is credit or not.
func (a *asker) ask(payload []byte) {
	a.t.Helper()
	tr := transferOf(a.handle, 1_000*a.handle+a.sent)
	tr.Settled = amqp.Some(true)
	a.c.send(0, tr, payload)
	a.sent++
	a.credit -= min(1, a.credit)
}

// take reads one frame.
func (a *asker) take() {
	a.t.Helper()
	p, payload := a.c.next()
	a.see(p, payload)
}

// takeAll reads the frames that are there, and returns how many were no signs of life.
func (a *asker) takeAll() (n int) {
	a.t.Helper()
	for len(a.c.in) > 0 {
		f := <-a.c.in
		if len(f.frame.Body) == 0 {
			continue
		}
		n++
		p, payload, err := amqp.DecodePerformative(f.frame.Body)
		if err != nil {
			a.t.Fatal(err)
		}
		a.see(p, payload)
	}
	return n
}

func (a *asker) see(p amqp.Performative, payload []byte) {
	a.t.Helper()
	switch p := p.(type) {
	case *amqp.Flow:
		if p.Handle.Set && p.Handle.Value == a.handle {
			a.credit = remaining(p.DeliveryCount.Value, p.LinkCredit.Value, a.sent)
			a.most = max(a.most, a.credit+a.sent-a.settled)
		}
	case *amqp.Transfer:
		if p.Handle != a.handle+1 {
			a.t.Fatalf("a transfer on handle %d", p.Handle)
		}
		m, err := amqp.ParseMessage(payload)
		if err != nil {
			a.t.Fatal(err)
		}
		v, _ := m.ApplicationProperty("statusCode")
		code, _ := v.Int64()
		a.codes[code]++
		a.settled++
		if a.grants > 0 && a.settled%1_000 == 0 { // more of the session window
			f := credit(a.handle+1, a.settled, a.grants, false)
			f.NextIncomingID = amqp.Some(a.settled + 1)
			a.c.send(0, f)
		}
	case *amqp.Detach:
		a.ended = p.Error
	case *amqp.Close:
		a.ended = p.Error
	default:
		a.t.Fatalf("got %s", describe(0, p))
	}
}

// slowly has every command of the kind take a while.
func slowly[C fsm.Command](b *bubble, d time.Duration) {
	b.broker.mu.Lock()
	defer b.broker.mu.Unlock()
	b.broker.after = func(c fsm.Command, _ fsm.Outcome) chan struct{} {
		if _, ok := c.(C); !ok {
			return nil
		}
		held := make(chan struct{})
		time.AfterFunc(d, func() { close(held) })
		return held
	}
}

func requestToSchedule(t *testing.T, node, text string) []byte {
	payload := encoded(text, func(*amqp.Properties) {})
	m := amqp.Map{{Key: "message-id", Value: text}, {Key: "message", Value: payload}}
	return requestOf(t, node, "schedule-message", amqp.Map{{Key: "messages", Value: amqp.List{m}}})
}

// S-340, RUL-36: link credit is what there is room for, less what waits. A client that keeps to it sends as
// much as it likes; its link is never ended, and each request is answered.
func TestRequestsWithinCreditAreAllAnswered(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		slowly[*fsm.Enqueue](b, 10*time.Millisecond)
		c := b.client()
		c.authenticate()
		a := c.asker("orders", 2, 10_000)
		const all = 2_000
		for a.settled < all && a.ended == nil {
			for a.credit > 0 && a.sent < all {
				a.ask(requestToSchedule(t, "orders", fmt.Sprint(a.sent)))
			}
			a.take()
		}
		if a.ended != nil {
			t.Fatalf("the link was ended after %d requests: %v", a.sent, a.ended)
		}
		if a.codes[codeOK] != all {
			t.Errorf("answers: %v", a.codes)
		}
		if a.most > requestCredit {
			t.Errorf("link credit and waiting requests were %d, want at most %d", a.most, requestCredit)
		}
		if n := b.broker.counts(t, "orders").Active; n != all {
			t.Errorf("%d are stored, want %d", n, all)
		}
		c.close()
	})
}

// S-340: Python's SDK believes that it has 10,000 credits (amqp-protocol.md 4.1). What it sends without credit
// waits and is answered, too, and answers wait for the credit of the link that takes them, all of them.
func TestRequestsBeyondCreditWait(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		a := c.asker("orders", 2, 0)
		const all = 2_500
		for range all {
			a.ask(requestOf(t, "orders", "cancel-scheduled-message", mapOf("sequence-numbers", []int64{77})))
		}
		time.Sleep(time.Minute)
		a.grants = 10_000
		c.send(0, credit(3, 0, 10_000, false))
		for a.settled < all && a.ended == nil {
			a.take()
		}
		if a.ended != nil || a.codes[404] != all {
			t.Errorf("answers: %v, ended by %v", a.codes, a.ended)
		}
		c.close()
	})
}

// S-340: an answer that waits for the client's credit takes a place of the request link's credit.
func TestAnswersThatWaitTakeCredit(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c := b.client()
		c.authenticate()
		a := c.asker("orders", 2, 0)
		for a.credit > 0 {
			a.ask(requestOf(t, "orders", "peek-message", mapOf("message-count", int32(1))))
		}
		time.Sleep(time.Minute)
		if n := a.takeAll(); n != 0 {
			t.Fatalf("%d frames came though no answer could", n)
		}
		if n := a.sent; n != requestCredit {
			t.Fatalf("the first credit was %d", n)
		}
		c.send(0, credit(3, 0, 30, false))
		for a.settled < 30 {
			a.take()
		}
		time.Sleep(time.Minute)
		a.takeAll()
		if a.credit == 0 || a.credit > 30 {
			t.Errorf("after 30 answers the credit is %d", a.credit)
		}
		c.close()
	})
}

// S-341: requests wait, they are not refused. A link runs at most MaxRequests at a time, a connection
// MaxConnRequests; the links of a connection take turns, and other connections are served meanwhile.
func TestRequestsRunInTurns(t *testing.T) {
	inBubble(t, func(b *bubble) {
		const links, each = 20, 40
		running := map[fsm.EntityID]int{}
		release := make(chan struct{})
		c := b.client()
		c.authenticate()
		var askers []*asker
		for i := range links {
			name := fmt.Sprintf("q%d", i)
			b.broker.queue(name)
			askers = append(askers, c.asker(name, uint32(10+2*i), 1_000))
		}
		b.broker.queue("quick")
		other := b.client()
		other.authenticate()
		quick := other.asker("quick", 2, 1_000)
		b.broker.mu.Lock()
		b.broker.answer = func(k fsm.Key, cmd fsm.Command) (fsm.Outcome, bool) {
			if _, ok := cmd.(*fsm.Enqueue); ok {
				running[k.Entity]++
			}
			return fsm.Outcome{}, false
		}
		b.broker.after = func(cmd fsm.Command, _ fsm.Outcome) chan struct{} {
			if _, ok := cmd.(*fsm.Enqueue); ok {
				return release
			}
			return nil
		}
		b.broker.mu.Unlock()
		for _, a := range askers {
			for range each {
				a.ask(requestToSchedule(t, a.node, "x"))
			}
		}
		synctest.Wait()
		b.broker.mu.Lock()
		sum := 0
		for id, n := range running {
			if sum += n; n > b.server.cfg.MaxRequests {
				t.Errorf("%d requests of entity %d run at a time, want at most %d", n, id, b.server.cfg.MaxRequests)
			}
		}
		if sum != b.server.cfg.MaxConnRequests {
			t.Errorf("%d requests of the connection run at a time, want %d", sum, b.server.cfg.MaxConnRequests)
		}
		b.broker.mu.Unlock()
		began := time.Now()
		quick.ask(requestOf(t, "quick", "peek-message", mapOf("message-count", int32(1))))
		quick.take()
		if took := time.Since(began); quick.codes[codeNoContent] != 1 || took > 0 {
			t.Errorf("another connection: %v after %v", quick.codes, took)
		}
		close(release)
		for done := 0; done < links*each; {
			p, payload := c.next()
			for _, a := range askers {
				switch p := p.(type) {
				case *amqp.Transfer:
					if p.Handle == a.handle+1 {
						a.see(p, payload)
						done++
					}
				case *amqp.Flow:
				default:
					t.Fatalf("got %s", describe(0, p))
				}
			}
		}
		for _, a := range askers {
			if a.codes[codeOK] != each {
				t.Errorf("%s: %v", a.node, a.codes)
			}
		}
		c.close()
		other.close()
	})
}

// S-341: a client that sends on and takes no answers is told so before the broker has no room for either.
func TestAClientThatTakesNoAnswersIsTold(t *testing.T) {
	inBubble(t, func(b *bubble) {
		orders := b.broker.queue("orders")
		s := &scene{t: t, b: b, number: map[string]fsm.SequenceNumber{}}
		s.enqueue(orders, fsm.Main, "x")
		c := b.client()
		c.authenticate()
		a := c.asker("orders", 2, 0)
		peek := requestOf(t, "orders", "peek-message", mapOf("message-count", int32(1), "pad", make([]byte, 1_000)))
		for range 100 {
			a.ask(peek)
		}
		for a.ended == nil {
			a.take()
		}
		if a.ended.Condition != amqp.ConditionResourceLimitExceeded {
			t.Errorf("ended by %v", a.ended)
		}
		c.close()
	}, func(c *Config) { c.MaxConnBytes = 5_000 })
}

// S-340: the same holds for a link to the coordinator.
func TestACoordinatorsCreditIsWhatThereIsRoomFor(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		slowly[*fsm.Commit](b, time.Second)
		c := b.client()
		c.authenticate()
		c.send(0, senderTo(2, "orders"))
		expect[*amqp.Attach](c)
		expect[*amqp.Flow](c)
		c.send(0, &amqp.Attach{Name: "coordinator", Handle: 3, Role: amqp.RoleSender, Source: &amqp.Source{},
			Coordinator: &amqp.Coordinator{}, InitialDeliveryCount: amqp.Some(uint32(0))})
		expect[*amqp.Attach](c)
		f, _ := expect[*amqp.Flow](c)
		k := &asker{t: t, c: c, handle: 3, credit: f.LinkCredit.Value}
		id := uint32(100)
		var flying, committed int
		see := func() amqp.DeliveryState {
			t.Helper()
			for {
				switch p, _ := c.next(); p := p.(type) {
				case *amqp.Flow:
					if p.Handle.Set && p.Handle.Value == 3 {
						k.credit = remaining(p.DeliveryCount.Value, p.LinkCredit.Value, k.sent)
						k.most = max(k.most, k.credit+uint32(flying))
					}
				case *amqp.Disposition:
					if _, ok := p.State.(amqp.Accepted); ok {
						n := int(p.Last.Or(p.First)-p.First) + 1
						committed, flying = committed+n, flying-n
					}
					return p.State
				default:
					t.Fatalf("got %s", describe(0, p))
				}
			}
		}
		tell := func(payload []byte) {
			t.Helper()
			for k.credit == 0 {
				see()
			}
			id++
			c.send(0, transferOf(3, id), payload)
			k.sent++
			k.credit--
		}
		const all = 400
		for range all {
			tell(amqp.AppendDeclare(nil, amqp.Declare{}))
			var txn []byte
			for txn == nil {
				if d, ok := see().(amqp.Declared); ok {
					txn = d.TxnID
				}
			}
			id++
			tr := transferOf(2, id)
			tr.State = &amqp.TransactionalState{TxnID: txn}
			c.send(0, tr, encoded("x", func(*amqp.Properties) {}))
			for inside := false; !inside; {
				_, inside = see().(*amqp.TransactionalState)
			}
			tell(amqp.AppendDischarge(nil, amqp.Discharge{TxnID: txn}))
			flying++
			for flying >= 80 { // below the limit of open transactions
				see()
			}
		}
		for committed < all {
			see()
		}
		if k.most > requestCredit {
			t.Errorf("link credit and commits under way were %d, want at most %d", k.most, requestCredit)
		}
		if n := b.broker.counts(t, "orders").Active; n != all {
			t.Errorf("%d messages, want %d", n, all)
		}
		c.close()
	})
}
