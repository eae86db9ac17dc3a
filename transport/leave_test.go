package transport

import (
	"context"
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
