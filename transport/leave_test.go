package transport

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/waist"
)

// sessionReceiverOf asks for a session by its id.
func sessionReceiverOf(handle uint32, address, session string) *amqp.Attach {
	a := receiverOf(handle, address)
	w := amqp.BeginSymbolMap(nil)
	w.String(string(amqp.FilterSession), session)
	a.Source.Filter = w.End()
	return a
}

// A node that stops tells the holder of a session before it gives the session to anybody else, and
// what the holder had asked for is still done. S-295.
func TestSessionsAreGivenBackWhenTheirHoldersKnow(t *testing.T) {
	for name, answers := range map[string]bool{"the client answers": true, "it never does": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				d := b.broker.queue("grouped", withSessions)
				accept := func(counter uint64) fsm.Refusal {
					out, err := b.broker.Propose(context.Background(), fsm.RequestID{Node: 9, Pump: 1, Counter: counter},
						waist.ShareKey(d, fsm.Main, 0), &fsm.AcceptSession{ID: "s1"})
					if err != nil {
						t.Fatal(err)
					}
					return out.Refusal
				}
				c := b.client()
				c.authenticate()
				c.attach(0, sessionReceiverOf(2, "grouped", "s1"))
				closed := make(chan time.Time, 1)
				began := time.Now()
				go func() {
					_ = b.server.Close(context.Background())
					closed <- time.Now()
				}()
				p, _ := expect[*amqp.Close](c)
				if p.Error == nil || p.Error.Condition != amqp.ConditionConnectionForced {
					t.Errorf("told %v", p.Error)
				}
				limit := b.server.cfg.CloseTimeout
				time.Sleep(limit - time.Millisecond)
				if got := accept(1); got != fsm.SessionCannotBeLocked {
					t.Errorf("somebody else asks before the holder has answered: %v", got)
				}
				if answers {
					c.send(0, &amqp.Close{})
				}
				if took := (<-closed).Sub(began); took > limit {
					t.Errorf("closing took %v", took)
				}
				if got := accept(2); got != fsm.None {
					t.Errorf("somebody else asks afterwards: %v", got)
				}
				c.close()
			})
		})
	}
}

// A client holds a message when the node stops. It may settle it over its link for a moment. A client that has not is told
// by a detach first, so that it settles over another connection by the lock token. S-161.
func TestALeavingNodeTakesVerdicts(t *testing.T) {
	cases := []struct {
		name    string
		settles bool // soon
		answers bool // the detach
		took    func(limit time.Duration) time.Duration
	}{
		{"a client that settles soon is answered, and then told", true, true,
			func(time.Duration) time.Duration { return 100 * time.Millisecond }},
		{"a client that keeps the message is detached, answers, and is told", false, true,
			func(limit time.Duration) time.Duration { return limit / 2 }},
		{"a client that does not answer is told at the end", false, false,
			func(limit time.Duration) time.Duration { return limit }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("q")
				d := newDeal(t, b)
				d.fill("q", 1)
				client := b.client()
				client.authenticate()
				client.attach(0, receiverOf(2, "q"))
				client.send(0, credit(2, 0, 1, false))
				got, _ := expect[*amqp.Transfer](client)
				d.c.close()
				began := time.Now()
				go func() { _ = b.server.Close(context.Background()) }()
				time.Sleep(100 * time.Millisecond)
				if c.settles {
					client.send(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: got.DeliveryID.Value, State: amqp.Accepted{}})
					answer, _ := expect[*amqp.Disposition](client)
					if _, accepted := answer.State.(amqp.Accepted); !accepted || !answer.Settled {
						t.Errorf("answered %+v", answer)
					}
				} else {
					detach, _ := expect[*amqp.Detach](client)
					if detach.Error == nil || detach.Error.Condition != amqp.ConditionDetachForced || !detach.Closed {
						t.Errorf("detached with %+v", detach)
					}
					if took, half := time.Since(began), b.server.cfg.CloseTimeout/2; took != half {
						t.Errorf("detached after %s, want %s", took, half)
					}
					if c.answers {
						client.send(0, &amqp.Detach{Handle: 2, Closed: true})
					}
				}
				told, _ := expect[*amqp.Close](client)
				if told.Error == nil || told.Error.Condition != amqp.ConditionConnectionForced {
					t.Errorf("told %v", told.Error)
				}
				if took, want := time.Since(began), c.took(b.server.cfg.CloseTimeout); took != want {
					t.Errorf("told after %s, want %s", took, want)
				}
				client.close()
			})
		})
	}
}

// A client that holds a message drains its link before or after the node begins to stop, and detaches it. The node answers the
// drain, and answers the detach without an error. The process of a JavaScript client ends otherwise.
func TestALeavingNodeAnswersADrain(t *testing.T) {
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before the stop %t", before), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("q")
				d := newDeal(t, b)
				d.fill("q", 1)
				client := b.client()
				client.authenticate()
				client.attach(0, receiverOf(2, "q"))
				client.send(0, credit(2, 0, 5, false))
				expect[*amqp.Transfer](client)
				d.c.close()
				answered := make(chan struct{})
				b.broker.mu.Lock()
				b.broker.after = func(c fsm.Command, _ fsm.Outcome) chan struct{} {
					if l, is := c.(*fsm.Lock); is && l.Wait == 0 {
						return answered // the fetch of the drain is under way when the node stops
					}
					return nil
				}
				b.broker.mu.Unlock()
				if before {
					client.send(0, credit(2, 1, 4, true))
					time.Sleep(10 * time.Millisecond)
				}
				time.AfterFunc(200*time.Millisecond, func() { close(answered) })
				go func() { _ = b.server.Close(context.Background()) }()
				time.Sleep(10 * time.Millisecond)
				if !before {
					client.send(0, credit(2, 1, 4, true))
				}
				f, _ := expect[*amqp.Flow](client)
				if !f.Drain || f.LinkCredit.Or(9) != 0 || f.DeliveryCount.Or(9) != 5 {
					t.Errorf("the drain is answered with %+v", f)
				}
				client.send(0, &amqp.Detach{Handle: 2, Closed: true})
				if detach, _ := expect[*amqp.Detach](client); detach.Error != nil || !detach.Closed || detach.Handle != 2 {
					t.Errorf("the detach is answered with %+v", detach)
				}
				told, _ := expect[*amqp.Close](client)
				if told.Error == nil || told.Error.Condition != amqp.ConditionConnectionForced {
					t.Errorf("told %v", told.Error)
				}
				client.close()
			})
		})
	}
}

// S-142: what receive-and-delete has removed when a node begins to stop, or an operator closes the connection, goes onto the
// wire before the close.
func TestWhatIsRemovedWhenANodeStopsIsSent(t *testing.T) {
	for name, ends := range map[string]func(b *bubble){
		"the node stops":      func(b *bubble) { go func() { _ = b.server.Close(context.Background()) }() },
		"an operator says so": func(b *bubble) { b.server.CloseConnections(context.Background(), ConnectionFilter{}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.broker.queue("orders")
				late := b.holdBack(func(cmd fsm.Command) bool { l, ok := cmd.(*fsm.Lock); return ok && l.Delete })
				c := b.client()
				c.authenticate()
				c.fill(2, "orders", 3, 1)
				c.attach(0, removerOf(3, "orders"))
				c.send(0, grantOf(3, 0, 3))
				<-late.there
				ends(b)
				c.silent(100 * time.Millisecond)
				close(late.answer)
				wantArrivals(t, c.receive(3), 0, 1, 2, 3)
				expect[*amqp.Close](c)
				c.close()
			})
		})
	}
}

// AMQP 1.0 §2.7.9: our close is the last frame. What comes for a client that has been told stays where it is, even for
// receive-and-delete (S-142).
func TestNothingGoesOutBehindAClose(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.broker.queue("orders")
		c, other := b.client(), b.client()
		c.authenticate()
		other.authenticate()
		c.attach(0, removerOf(3, "orders"))
		c.send(0, grantOf(3, 0, 3))
		time.Sleep(time.Millisecond)
		c.send(0, &amqp.Open{ContainerID: "a second open"})
		expect[*amqp.Close](c)
		other.fill(2, "orders", 2, 1)
		if p, _ := c.next(); p != nil {
			t.Errorf("behind the close came %s", describe(0, p))
		}
		if n := b.broker.counts(t, "orders").Active; n != 2 {
			t.Errorf("%d of 2 messages are left", n)
		}
		c.close()
		other.close()
	})
}
