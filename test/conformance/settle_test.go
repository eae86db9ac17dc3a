package conformance

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// S-22, S-141, S-142; T-16
func receiveAndDelete(e *env) {
	q := e.queue(nil)
	c := e.client(0)
	e.send(e.sender(c, q), text("a"), text("b"))
	r := e.receiver(c, q, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	m := e.take(r, 2)[0]
	for what, err := range map[string]error{"complete": r.CompleteMessage(e.ctx, m, nil),
		"abandon": r.AbandonMessage(e.ctx, m, nil), "defer": r.DeferMessage(e.ctx, m, nil),
		"dead-letter": r.DeadLetterMessage(e.ctx, m, nil), "renew": r.RenewMessageLock(e.ctx, m, nil)} {
		e.check(err != nil, "%s worked on what was received and deleted", what)
	}
	e.must("close", r.Close(e.ctx))
	e.none(e.receiver(e.client(1), q, nil))
}

// S-9, S-13, S-153, S-154; T-2, T-22
func abandon(e *env) {
	q := e.queue(nil)
	e.send(e.sender(e.client(0), q), text("1"), text("2"))
	r := e.receiver(e.client(1), q, nil)
	m := e.one(r)
	e.must("abandon", r.AbandonMessage(e.ctx, m, &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"why": "because"}}))
	again := e.one(r)
	e.check(string(again.Body) == "1", "after abandon came %q", again.Body)
	e.check(again.DeliveryCount == 2, "delivery count %d, want 2", again.DeliveryCount)
	e.check(again.ApplicationProperties["why"] == "because", "properties %v", again.ApplicationProperties)
	e.check(*again.SequenceNumber == *m.SequenceNumber, "abandon changed the number")
	e.check(again.LockToken != m.LockToken, "the second delivery has the first one's token")
	next := e.one(r)
	e.check(string(next.Body) == "2", "then came %q", next.Body)
	e.complete(r, again, next)
}

// S-153
func abandonWithDelay(e *env) {
	q := e.queue(nil)
	e.send(e.sender(e.client(0), q), text("1"), text("2"))
	r := e.receiver(e.client(1), q, nil)
	m := e.one(r)
	e.must("abandon", r.AbandonMessage(e.ctx, m, &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"x-busbar-delay": int64(4_000)}}))
	next := e.one(r)
	e.check(string(next.Body) == "2", "while the first rests came %q", next.Body)
	e.none(r)
	again := e.one(r)
	e.check(string(again.Body) == "1" && again.DeliveryCount == 2 && len(again.ApplicationProperties) == 0,
		"after the rest came %q with count %d and %v", again.Body, again.DeliveryCount, again.ApplicationProperties)
	e.complete(r, next, again)
}

// S-11, S-155; T-24
func deadLetter(e *env) {
	q := e.queue(nil)
	e.send(e.sender(e.client(0), q), &azservicebus.Message{Body: []byte("bad"), MessageID: to("dl-1")})
	r := e.receiver(e.client(1), q, nil)
	m := e.one(r)
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, m, &azservicebus.DeadLetterOptions{
		Reason: to("reason-x"), ErrorDescription: to("description-y"),
		PropertiesToModify: map[string]any{"added": int64(1)}}))
	e.none(r)
	d := e.deadLetters(e.client(2), q)
	g := e.one(d)
	e.check(string(g.Body) == "bad" && g.MessageID == "dl-1", "the dead-letter queue holds %q", g.Body)
	e.check(deref(g.DeadLetterReason) == "reason-x" && deref(g.DeadLetterErrorDescription) == "description-y",
		"reason %s, description %s", deref(g.DeadLetterReason), deref(g.DeadLetterErrorDescription))
	e.check(g.ApplicationProperties["added"] == int64(1), "properties %v", g.ApplicationProperties)
	e.check(*g.SequenceNumber == *m.SequenceNumber, "the number changed from %d to %d",
		*m.SequenceNumber, *g.SequenceNumber)
	e.complete(d, g)
	e.none(d)
}

// S-15, S-170, S-172; T-9; RUL-4, RUL-11
func deadLetterTwice(e *env) {
	q := e.queue(nil)
	c := e.client(0)
	e.send(e.sender(c, q), text("bad"))
	r := e.receiver(c, q, nil)
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), nil))
	d := e.deadLetters(c, q)
	m := e.one(d)
	count := m.DeliveryCount
	for range 3 {
		e.must("abandon", d.AbandonMessage(e.ctx, m, nil))
		m = e.one(d)
		e.check(m.DeliveryCount == count, "the count rose to %d in the dead-letter queue", m.DeliveryCount)
	}
	e.check(d.DeadLetterMessage(e.ctx, m, nil) != nil, "a dead letter was dead-lettered again")
	e.complete(d, m)
	e.none(d)
}

// S-12, S-156; T-18, T-19
func renewLock(e *env) {
	q := e.queue(&admin.QueueProperties{LockDuration: to("PT5S")})
	e.send(e.sender(e.client(0), q), text("x"))
	r := e.receiver(e.client(1), q, nil)
	m := e.one(r)
	for range 3 {
		old := *m.LockedUntil
		time.Sleep(3 * time.Second) // three fifths of the lock
		e.must("renew", r.RenewMessageLock(e.ctx, m, nil))
		e.check(m.LockedUntil.After(old), "locked-until did not move")
	}
	e.complete(r, m)
	bogus := *m
	bogus.LockToken = azservicebus.ReceivedMessage{}.LockToken
	bogus.LockToken[3] = 9
	e.wantCode("renew a bogus token", r.RenewMessageLock(e.ctx, &bogus, nil), azservicebus.CodeLockLost)
}

// S-18, S-159; T-5
func lockExpiry(e *env) {
	q := e.queue(&admin.QueueProperties{LockDuration: to("PT5S")})
	e.send(e.sender(e.client(0), q), text("x"))
	r := e.receiver(e.client(1), q, nil)
	m := e.one(r)
	again := e.one(e.receiver(e.client(2), q, nil)) // waits for the expiry
	e.check(again.DeliveryCount == 2, "delivery count %d, want 2", again.DeliveryCount)
	e.check(!time.Now().Before(m.LockedUntil.Add(-time.Second)), "delivered while the lock was held")
	e.wantCode("complete after expiry", r.CompleteMessage(e.ctx, m, nil), azservicebus.CodeLockLost)
	e.complete(e.receiver(e.client(2), q, nil), again)
}

// S-14, S-165; T-7
func maxDeliveries(e *env) {
	q := e.queue(&admin.QueueProperties{MaxDeliveryCount: to(int32(3))})
	c := e.client(0)
	e.send(e.sender(c, q), text("poison"))
	r := e.receiver(e.client(1), q, nil)
	for i := uint32(1); i <= 3; i++ {
		m := e.one(r)
		e.check(m.DeliveryCount == i, "delivery %d has count %d", i, m.DeliveryCount)
		e.must("abandon", r.AbandonMessage(e.ctx, m, nil))
	}
	e.none(r)
	d := e.deadLetters(c, q)
	m := e.one(d)
	e.check(deref(m.DeadLetterReason) == "MaxDeliveryCountExceeded", "reason %s", deref(m.DeadLetterReason))
	e.complete(d, m)
}

// S-21; T-15
func settleElsewhere(e *env) {
	q := e.queue(nil)
	e.send(e.sender(e.client(0), q), text("done"), text("again"))
	ms := e.take(e.receiver(e.client(1), q, nil), 2)
	other := e.receiver(e.client(2), q, nil)
	e.none(other)
	e.must("complete by token", other.CompleteMessage(e.ctx,
		&azservicebus.ReceivedMessage{LockToken: ms[0].LockToken}, nil))
	e.must("abandon by token", other.AbandonMessage(e.ctx,
		&azservicebus.ReceivedMessage{LockToken: ms[1].LockToken}, nil))
	m := e.one(other)
	e.check(string(m.Body) == "again" && m.DeliveryCount == 2, "got %q with count %d", m.Body, m.DeliveryCount)
	e.complete(other, m)
	e.none(other)
}

// S-17, S-152; T-11
func settleOnce(e *env) {
	q := e.queue(nil)
	c := e.client(0)
	e.send(e.sender(c, q), text("x"))
	r := e.receiver(c, q, nil)
	first := e.one(r)
	e.must("abandon", r.AbandonMessage(e.ctx, first, nil))
	second := e.one(r)
	// Another receiver has no delivery of that token, so it must ask the broker by token.
	other := e.receiver(e.client(1), q, nil)
	old := &azservicebus.ReceivedMessage{LockToken: first.LockToken}
	e.wantCode("complete with the old token", other.CompleteMessage(e.ctx, old, nil), azservicebus.CodeLockLost)
	e.complete(r, second)
	used := &azservicebus.ReceivedMessage{LockToken: second.LockToken}
	e.wantCode("complete once more", other.CompleteMessage(e.ctx, used, nil), azservicebus.CodeLockLost)
}

// S-161; T-26; RUL-2
func closedLinkKeepsLocks(e *env) {
	q := e.queue(&admin.QueueProperties{LockDuration: to("PT30S")})
	c := e.client(0)
	e.send(e.sender(c, q), text("x"))
	r := e.receiver(c, q, nil)
	m := e.one(r)
	e.must("close the receiver", r.Close(e.ctx))
	other := e.receiver(c, q, nil)
	e.none(other)
	e.must("renew", other.RenewMessageLock(e.ctx, m, nil))
	e.must("complete", other.CompleteMessage(e.ctx, &azservicebus.ReceivedMessage{LockToken: m.LockToken}, nil))
	e.none(other)
}
