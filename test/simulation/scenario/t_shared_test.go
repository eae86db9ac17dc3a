package scenario

import (
	"fmt"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
)

const (
	sharedFilter = "com.microsoft:non-exclusive-session-filter"
	cannotLock   = "com.microsoft:session-cannot-be-locked"
)

// share accepts a session without exclusion, or with a token takes it over; it returns the session token.
func (c *client) share(entity string, id, token any) (*receiver, goamqp.UUID) {
	c.b.Helper()
	r, err := c.tryShare(entity, id, token)
	c.b.must("accept a shared session", err)
	list, _ := r.LinkSourceFilterValue(sharedFilter).([]any)
	if len(list) != 2 {
		c.b.Fatalf("the reply has the filter %v", list)
	}
	got, _ := list[1].(goamqp.UUID)
	return r, got
}

func (c *client) tryShare(entity string, id, token any) (*receiver, error) {
	return c.tryReceiver(entity, func(o *goamqp.ReceiverOptions) {
		o.Filters = []goamqp.LinkFilter{goamqp.NewLinkFilter(sharedFilter, 0x000000137000000E, []any{id, token})}
		o.Properties = map[string]any{"com.microsoft:timeout": uint32(5000)}
	})
}

// settleHanded settles a message of any receiver over the management link of c.
func (c *client) settleHanded(entity, id, status string, m *got) error {
	_, err := c.tryAsk(entity, "update-disposition", map[string]any{
		"disposition-status": status, "lock-tokens": []goamqp.UUID{m.token}, "session-id": id,
	})
	return err
}

// T-279; S-326, S-328, S-329
func TestT279WhoMayAcceptASharedSession(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		c, other := b.client(), b.clientAt(1)
		r, token := c.share("q", "S", nil)
		want(b, "there is a session token", token != goamqp.UUID{}, true)
		_, err := other.tryAccept("q", "S", 0)
		b.refused("accept exclusively", err, cannotLock)
		_, err = other.tryShare("q", "S", nil)
		b.refused("accept without a token", err, cannotLock)
		_, err = other.tryShare("q", "S", goamqp.UUID{7})
		b.refused("accept with a wrong token", err, cannotLock)
		r.close()
		_, err = other.tryShare("q", "S", token)
		b.refused("accept with an old token", err, cannotLock)
		r, again := other.share("q", "S", nil)
		want(b, "the token is another one", again != token, true)
		r.close()
		c.accept("q", "S", 0)
		_, err = other.tryShare("q", "S", again)
		b.refused("take over what is held exclusively", err, cannotLock)
	})
}

// T-280; S-327, S-330
func TestT280WhoIsTakenOverHearsOfIt(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions, lockFor(5*time.Minute))
		a, other := b.client(), b.clientAt(1)
		r, token := a.share("q", "S", nil)
		b.pass(20 * time.Second) // it asks for nothing
		at := time.Now()
		next, same := other.share("q", "S", token)
		want(b, "session token", same, token)
		_, err := r.Receive(b.ctx, nil)
		b.refused("the old link", err, sessionLost)
		b.about("the detach", time.Now(), at, time.Second)
		body := map[string]any{"session-id": "S"}
		_, err = a.tryAsk("q", "get-session-state", body)
		b.refused("get state", err, sessionLost)
		_, err = a.tryAsk("q", "renew-session-lock", body)
		b.refused("renew", err, sessionLost)
		other.ask("q", "get-session-state", body)
		other.ask("q", "renew-session-lock", body)
		want(b, "nothing comes", len(next.atMost(1, time.Second)), 0)
	})
}

// atMost receives up to n messages in that time.
func (r *receiver) atMost(n int, wait time.Duration) (list []*got) {
	r.c.b.Helper()
	for len(list) < n {
		m, err := r.try(wait)
		r.c.b.must("receive", err)
		if m == nil {
			break
		}
		list = append(list, m)
	}
	return list
}

// T-281; S-332, S-58
func TestT281WhatWasDeliveredBelongsToTheNewHolder(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		a, other := b.client(), b.clientAt(1)
		sendTo(a, "q", "S", "1", "2", "3", "4", "5")
		r, token := a.share("q", "S", nil)
		had := r.take(2)
		next, _ := other.share("q", "S", token)
		b.refused("the former holder completes", a.settleHanded("q", "S", "completed", had[0]), sessionLost)
		b.must("complete", other.settleHanded("q", "S", "completed", had[0]))
		b.must("abandon", other.settleHanded("q", "S", "abandoned", had[1]))
		list := next.take(4)
		wantAll(b, "order", texts(list), "2", "3", "4", "5")
		want(b, "count of what was abandoned", list[0].count(), 2)
		last, _ := b.clientAt(2).share("q", "S", token) // hands over 2 to 5, and lets the lock run out
		b.pass(6 * time.Second)
		_, err := last.Receive(b.ctx, nil)
		b.refused("the last holder", err, sessionLost)
		list = b.client().accept("q", "S", 0).take(4)
		wantAll(b, "order after the end of the lock", texts(list), "2", "3", "4", "5")
		want(b, "count after the end of the lock", list[0].count(), 3)
	})
}

// T-282; S-333
func TestT282WhatWasNotSentGoesBackInOrder(t *testing.T) {
	for round := range size("T-282", "take-overs", 40, 8) {
		onThree(t, func(b *bench) {
			b.queue("q", sessions, lockFor(time.Minute))
			a, other, tx := b.client(), b.clientAt(1), b.clientAt(2)
			r, token := a.share("q", "S", nil)
			b.must("give credit", r.IssueCredit(100))
			sent := b.later(func() error { // while the session goes from one to the other
				for i := range 40 {
					sendTo(tx, "q", "S", fmt.Sprint(i))
				}
				return nil
			})
			b.pass(time.Duration(10+5*round) * time.Millisecond)
			next, _ := other.share("q", "S", token)
			b.must("send", <-sent)
			list := next.atMost(40, 5*time.Second)
			with := 0
			for r.Prefetched() != nil {
				with++
			}
			t.Logf("%d of 40 messages were sent to the old receiver", with)
			var rest []string
			for i := with; i < 40; i++ {
				rest = append(rest, fmt.Sprint(i))
			}
			wantAll(b, "what the old receiver was not sent", texts(list), rest...)
			for _, m := range list {
				want(b, "count of "+m.text(), m.count(), 1)
			}
		})
	}
}

// T-283; S-331
func TestT283ALeaderCrashesWhileASessionIsTakenOver(t *testing.T) {
	for round := range size("T-283", "leader crashes", 20, 4) {
		onThree(t, func(b *bench) {
			b.queue("q", sessions, lockFor(5*time.Minute))
			leader := b.lab.Leader(b.home("q"))
			a, other := b.clientAt((leader+1)%3), b.clientAt((leader+2)%3)
			sendTo(a, "q", "S", "1", "2", "3")
			r, token := a.share("q", "S", nil)
			had := r.one()
			taken := b.later(func() error {
				var err error
				r, err = other.tryShare("q", "S", token)
				return err
			})
			b.pass(time.Duration(round) * 300 * time.Microsecond)
			b.lab.Crash(leader, false)
			b.must("take over", <-taken)
			b.refused("the former holder settles", a.settleHanded("q", "S", "completed", had), sessionLost)
			b.must("the new holder settles", other.settleHanded("q", "S", "completed", had))
			wantAll(b, "order", texts(r.take(2)), "2", "3")
		})
	}
}

// T-284; S-334, S-335
func TestT284StateAndDeferredMessagesGoOver(t *testing.T) {
	onThree(t, func(b *bench) {
		b.queue("q", sessions)
		a, other := b.client(), b.clientAt(1)
		sendTo(a, "q", "S", "1", "2")
		r, token := a.share("q", "S", nil)
		had := r.take(2)
		a.ask("q", "set-session-state", map[string]any{"session-id": "S", "session-state": []byte("x")})
		b.must("defer", a.settleHanded("q", "S", "defered", had[0]))
		other.share("q", "S", token)
		state := other.ask("q", "get-session-state", map[string]any{"session-id": "S"})
		want(b, "state", string(state["session-state"].([]byte)), "x")
		other.ask("q", "renew-session-lock", map[string]any{"session-id": "S"})
		answer := other.ask("q", "receive-by-sequence-number", map[string]any{
			"session-id": "S", "sequence-numbers": []int64{had[0].seq()}, "receiver-settle-mode": uint32(1),
		})
		list := answer["messages"].([]any)
		want(b, "deferred messages", len(list), 1)
		deferred := &got{token: list[0].(map[string]any)["lock-token"].(goamqp.UUID)}
		b.must("complete it", other.settleHanded("q", "S", "completed", deferred))
		b.must("complete what was handed over", other.settleHanded("q", "S", "completed", had[1]))
		want(b, "messages that are left", b.counts("q").Active, 0)
	})
}
