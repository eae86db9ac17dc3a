package main

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// held is a queue whose only message a receiver has locked.
type held struct {
	queue string
	r     *azservicebus.Receiver
	m     *azservicebus.ReceivedMessage
}

func withOne(e *env, p *admin.QueueProperties) held {
	q := e.queue(p)
	e.send(0, q, &azservicebus.Message{Body: []byte("x"), MessageID: to("id-1")})
	r := e.receiver(1, q)
	return held{q, r, e.one(r)}
}

func settling() map[string]scenario {
	return map[string]scenario{
		"settle-once": func(e *env) {
			h := withOne(e, nil)
			// Another receiver has no delivery of the token, so the library asks the broker.
			e.must("close", h.r.Close(e.ctx))
			other := e.receiver(0, h.queue)
			e.none(other)
			e.complete(other, h.m)
			e.wantCode("abandon what is completed", other.AbandonMessage(e.ctx, h.m, nil), azservicebus.CodeLockLost)
			e.wantCode("complete again", other.CompleteMessage(e.ctx, h.m, nil), azservicebus.CodeLockLost)
			e.none(other)
		},
		// The library settles through $management what another link received, by the lock's token.
		"settle-elsewhere": func(e *env) {
			h := withOne(e, nil)
			e.must("close", h.r.Close(e.ctx))
			other := e.receiver(0, h.queue)
			e.none(other)
			e.must("renew", other.RenewMessageLock(e.ctx, h.m, nil))
			e.complete(other, h.m)
			e.none(other)
			e.wantCode("complete again", other.CompleteMessage(e.ctx, h.m, nil), azservicebus.CodeLockLost)
		},
		"abandon": func(e *env) {
			h := withOne(e, nil)
			e.must("abandon", h.r.AbandonMessage(e.ctx, h.m, nil))
			again := e.one(h.r)
			e.equal("count and number", []any{again.DeliveryCount, *again.SequenceNumber},
				[]any{uint32(2), *h.m.SequenceNumber})
			e.check(again.LockToken != h.m.LockToken, "the same token again")
			e.complete(h.r, again)
			e.none(h.r)
		},
		"abandon-properties": func(e *env) {
			h := withOne(e, nil)
			e.must("abandon", h.r.AbandonMessage(e.ctx, h.m, &azservicebus.AbandonMessageOptions{
				PropertiesToModify: map[string]any{"why": "because", "times": int64(3), "yes": true}}))
			again := e.one(h.r)
			e.equal("properties", again.ApplicationProperties, map[string]any{"why": "because", "times": int64(3), "yes": true})
			e.complete(h.r, again)
		},
		"abandon-delay": func(e *env) {
			h := withOne(e, nil)
			e.must("abandon", h.r.AbandonMessage(e.ctx, h.m, &azservicebus.AbandonMessageOptions{
				PropertiesToModify: map[string]any{"x-busbar-delay": int64(3000), "why": "later"}}))
			e.none(h.r)
			again := e.one(h.r)
			e.equal("count and properties", []any{again.DeliveryCount, again.ApplicationProperties},
				[]any{uint32(2), map[string]any{"why": "later"}})
			e.complete(h.r, again)
		},
		"defer": deferral,
		"defer-properties": func(e *env) {
			h := withOne(e, nil)
			e.must("defer", h.r.DeferMessage(e.ctx, h.m, &azservicebus.DeferMessageOptions{
				PropertiesToModify: map[string]any{"step": "two"}}))
			m := e.deferred(h.r, *h.m.SequenceNumber)
			e.equal("properties", m.ApplicationProperties, map[string]any{"step": "two"})
			e.must("dead-letter", h.r.DeadLetterMessage(e.ctx, m, nil))
		},
		"defer-missing": func(e *env) {
			h := withOne(e, nil)
			for _, n := range []int64{*h.m.SequenceNumber, *h.m.SequenceNumber + 1000} {
				_, err := h.r.ReceiveDeferredMessages(e.ctx, []int64{n}, nil)
				e.told("receive deferred", err, "does not exist")
			}
			e.complete(h.r, h.m)
		},
		"dead-letter":        deadLetter,
		"dead-letter-settle": deadLetterSettle,
		"dead-letter-twice": func(e *env) {
			h := withOne(e, &admin.QueueProperties{LockDuration: to("PT5S")})
			e.must("dead-letter", h.r.DeadLetterMessage(e.ctx, h.m, nil))
			d := e.deadLetters(1, h.queue)
			m := e.one(d)
			e.check(d.DeadLetterMessage(e.ctx, m, nil) != nil, "a dead letter was dead-lettered")
			again := e.one(d) // for the library the message is settled, so its lock runs out
			e.equal("count", again.DeliveryCount, m.DeliveryCount)
			e.complete(d, again)
		},
		"max-delivery": func(e *env) {
			h := withOne(e, &admin.QueueProperties{MaxDeliveryCount: to(int32(3))})
			m := h.m
			for i := range uint32(3) {
				e.equal("count", m.DeliveryCount, i+1)
				e.must("abandon", h.r.AbandonMessage(e.ctx, m, nil))
				if i < 2 {
					m = e.one(h.r)
				}
			}
			e.none(h.r)
			d := e.deadLetters(0, h.queue)
			m = e.one(d)
			e.equal("reason", deref(m.DeadLetterReason), "MaxDeliveryCountExceeded")
			e.complete(d, m)
		},
		"lock-renew": func(e *env) {
			h := withOne(e, &admin.QueueProperties{LockDuration: to("PT10S")})
			other := e.receiver(0, h.queue)
			for range 3 {
				old := *h.m.LockedUntil
				time.Sleep(4 * time.Second) // thrice that is more than the lock
				e.must("renew", h.r.RenewMessageLock(e.ctx, h.m, nil))
				e.check(h.m.LockedUntil.After(old), "locked-until did not move")
			}
			e.none(other)
			e.complete(h.r, h.m)
		},
		"lock-lost": func(e *env) {
			h := withOne(e, &admin.QueueProperties{LockDuration: to("PT5S")})
			other := e.receiver(0, h.queue)
			again := e.one(other) // waits for the expiry
			e.equal("count", again.DeliveryCount, uint32(2))
			e.check(time.Now().After(h.m.LockedUntil.Add(-time.Second)), "delivered while the lock was held")
			e.wantCode("complete", h.r.CompleteMessage(e.ctx, h.m, nil), azservicebus.CodeLockLost)
			e.wantCode("renew", h.r.RenewMessageLock(e.ctx, h.m, nil), azservicebus.CodeLockLost)
			e.complete(other, again)
		},
	}
}

func deferral(e *env) {
	h := withOne(e, nil)
	number := *h.m.SequenceNumber
	e.must("defer", h.r.DeferMessage(e.ctx, h.m, nil))
	e.none(h.r)
	other := e.receiver(0, h.queue)
	m := e.deferred(other, number)
	e.equal("body and number", []any{string(m.Body), *m.SequenceNumber}, []any{"x", number})
	e.must("abandon", other.AbandonMessage(e.ctx, m, nil)) // deferred it stays
	e.none(other)
	again := e.deferred(other, number)
	e.equal("count", again.DeliveryCount, m.DeliveryCount+1)
	e.complete(other, again)
	_, err := other.ReceiveDeferredMessages(e.ctx, []int64{number}, nil)
	e.told("receive deferred", err, "does not exist")
}

func deadLetter(e *env) {
	h := withOne(e, nil)
	e.must("dead-letter", h.r.DeadLetterMessage(e.ctx, h.m, &azservicebus.DeadLetterOptions{Reason: to("reason-x"),
		ErrorDescription: to("description-y"), PropertiesToModify: map[string]any{"added": int64(7)}}))
	e.none(h.r)
	d := e.deadLetters(0, h.queue)
	m := e.one(d)
	e.equal("dead letter", []any{string(m.Body), m.MessageID, deref(m.DeadLetterReason),
		deref(m.DeadLetterErrorDescription), m.ApplicationProperties["added"], *m.SequenceNumber},
		[]any{"x", "id-1", "reason-x", "description-y", int64(7), *h.m.SequenceNumber})
	e.complete(d, m)
	e.none(d)
}

func deadLetterSettle(e *env) {
	h := withOne(e, nil)
	e.must("dead-letter", h.r.DeadLetterMessage(e.ctx, h.m, nil))
	d := e.deadLetters(0, h.queue)
	first := e.one(d)
	e.equal("reason", deref(first.DeadLetterReason), "")
	e.must("abandon", d.AbandonMessage(e.ctx, first, nil))
	second := e.one(d)
	e.must("renew", d.RenewMessageLock(e.ctx, second, nil))
	e.must("defer", d.DeferMessage(e.ctx, second, nil))
	e.none(d)
	e.complete(d, e.deferred(d, *second.SequenceNumber))
	e.equal("left", bodies(e.peek(d)), []string(nil))
}

func peeking() map[string]scenario {
	return map[string]scenario{
		"peek": func(e *env) {
			q, want := filled(e, 5)
			r := e.receiver(1, q)
			locked := e.one(r)
			var seen []*azservicebus.ReceivedMessage
			for range 2 {
				page, err := r.PeekMessages(e.ctx, 3, nil)
				e.must("peek", err)
				seen = append(seen, page...)
			}
			e.equal("peeked", bodies(seen), want)
			for _, m := range seen {
				e.equal("state", m.State, azservicebus.MessageStateActive)
			}
			rest := e.take(r, 4)
			for _, m := range rest {
				e.equal("count after peek", m.DeliveryCount, uint32(1))
			}
			e.complete(r, append(rest, locked)...)
		},
		"peek-from": func(e *env) {
			q, _ := filled(e, 4)
			r := e.receiver(1, q)
			for _, p := range []struct {
				count int
				from  *int64
				want  []string
			}{{2, to(int64(2)), []string{"m1", "m2"}}, {9, to(int64(4)), []string{"m3"}}, {1, to(int64(99)), nil}} {
				got, err := r.PeekMessages(e.ctx, p.count, &azservicebus.PeekMessagesOptions{FromSequenceNumber: p.from})
				e.must("peek", err)
				e.equal("peeked", bodies(got), p.want)
			}
		},
		"peek-states": func(e *env) {
			q := e.queue(nil)
			e.together(0, q, text("defer"), text("stay"))
			e.schedule(q, time.Now().Add(time.Minute), "wait")
			r := e.receiver(1, q)
			e.must("defer", r.DeferMessage(e.ctx, e.one(r), nil))
			var states []azservicebus.MessageState
			got := e.peek(r)
			for _, m := range got {
				states = append(states, m.State)
			}
			e.equal("peeked", bodies(got), []string{"defer", "stay", "wait"})
			e.equal("states", states, []azservicebus.MessageState{azservicebus.MessageStateDeferred,
				azservicebus.MessageStateActive, azservicebus.MessageStateScheduled})
		},
		"peek-dead-letters": func(e *env) {
			q := e.queue(nil)
			e.together(0, q, text("bad"), text("good"))
			r := e.receiver(1, q)
			e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), &azservicebus.DeadLetterOptions{Reason: to("why")}))
			got := e.peek(e.deadLetters(0, q))
			e.equal("dead letters", bodies(got), []string{"bad"})
			e.equal("reason", deref(got[0].DeadLetterReason), "why")
			e.equal("peeked", bodies(e.peek(r)), []string{"good"})
		},
		"peek-empty": func(e *env) {
			e.equal("peeked", bodies(e.peek(e.receiver(0, e.queue(nil)))), []string(nil))
		},
	}
}
