package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// S-36, S-56, S-60; T-132
func sessionNamed(e *env) {
	q := e.sessionQueue("PT1M")
	s := e.sender(e.client(0), q)
	for i := range 4 {
		e.send(s, inSession("A", fmt.Sprint("a", i)), inSession("B", fmt.Sprint("b", i)))
	}
	for i, session := range []string{"B", "A"} {
		r := e.accept(e.client(i), q, session)
		e.check(r.SessionID() == session && r.LockedUntil().After(time.Now()),
			"session %q locked until %s", r.SessionID(), r.LockedUntil())
		low := strings.ToLower(session)
		ms := e.take(r, 4)
		e.check(slices.Equal(bodies(ms), []string{low + "0", low + "1", low + "2", low + "3"}),
			"session %s gave %v", session, bodies(ms))
		e.complete(r, ms...)
		e.none(r)
		e.must("close", r.Close(e.ctx))
	}
	// A session without message or state can be held: it reserves the id.
	r := e.accept(e.client(2), q, "C")
	e.send(s, inSession("C", "c"))
	e.complete(r, e.one(r))
}

// S-38
func sessionNext(e *env) {
	q := e.sessionQueue("PT1M")
	e.send(e.sender(e.client(0), q), inSession("one", "1"), inSession("two", "2"))
	var held []string
	for i := range 2 {
		r, err := e.client(i).AcceptNextSessionForQueue(e.ctx, q, nil)
		e.must("accept next", err)
		m := e.one(r)
		e.check(deref(m.SessionID) == r.SessionID(), "a message of %s in session %s", deref(m.SessionID), r.SessionID())
		e.complete(r, m)
		held = append(held, r.SessionID())
	}
	slices.Sort(held)
	e.check(slices.Equal(held, []string{"one", "two"}), "accepted %v", held)
}

// S-40; T-117
func sessionNone(e *env) {
	q := e.sessionQueue("PT1M")
	ctx, cancel := context.WithTimeout(e.ctx, 4*time.Second)
	defer cancel()
	_, err := e.client(0).AcceptNextSessionForQueue(ctx, q, nil)
	var se *azservicebus.Error
	timedOut := errors.As(err, &se) && se.Code == azservicebus.CodeTimeout
	e.check(timedOut || errors.Is(err, context.DeadlineExceeded), "accept next where nothing is: %v", err)
	// Whoever waits gets the session that turns up.
	c := e.client(1)
	got := make(chan error, 1)
	go func() {
		r, err := c.AcceptNextSessionForQueue(e.ctx, q, nil)
		if err == nil && r.SessionID() != "late" {
			err = fmt.Errorf("accepted %q", r.SessionID())
		}
		got <- err
	}()
	e.send(e.sender(e.client(2), q), inSession("late", "x"))
	e.must("accept next while waiting", <-got)
}

// S-37, S-43; T-113, T-119; RUL-18
func sessionHeld(e *env) {
	q := e.sessionQueue("PT1M")
	e.send(e.sender(e.client(0), q), inSession("S", "x"))
	r := e.accept(e.client(0), q, "S")
	ctx, cancel := context.WithTimeout(e.ctx, 15*time.Second)
	defer cancel()
	_, err := e.client(1).AcceptSessionForQueue(ctx, q, "S", nil)
	e.check(err != nil && !errors.Is(err, context.DeadlineExceeded) &&
		strings.Contains(err.Error(), "session-cannot-be-locked"),
		"accept of a held session: %v, want session-cannot-be-locked", err)
	short, cancelShort := context.WithTimeout(e.ctx, 3*time.Second)
	defer cancelShort()
	_, err = e.client(2).AcceptNextSessionForQueue(short, q, nil)
	e.check(err != nil, "accept next gave a session that is held")
	e.complete(r, e.one(r))
	e.must("close", r.Close(e.ctx))
	e.accept(e.client(1), q, "S")
}

// S-48, S-49, S-51, S-59; T-125
func sessionClose(e *env) {
	q := e.sessionQueue("PT1M")
	s := e.sender(e.client(0), q)
	e.send(s, inSession("S", "1"), inSession("S", "2"), inSession("S", "3"))
	r := e.accept(e.client(1), q, "S")
	first := e.take(r, 3)
	e.complete(r, first[0])
	e.must("close", r.Close(e.ctx))
	r = e.accept(e.client(2), q, "S")
	ms := e.take(r, 2)
	e.check(slices.Equal(bodies(ms), []string{"2", "3"}), "the next holder got %v", bodies(ms))
	for _, m := range ms {
		e.check(m.DeliveryCount == 1, "close raised the count of %q to %d", m.Body, m.DeliveryCount)
	}
	e.complete(r, ms...)
}

// S-57, S-58; T-133
func sessionAbandon(e *env) {
	q := e.sessionQueue("PT1M")
	c := e.client(0)
	s := e.sender(c, q)
	for i := 1; i <= 4; i++ {
		e.send(s, inSession("S", fmt.Sprint(i)))
	}
	r := e.accept(e.client(1), q, "S")
	ms := e.take(r, 3)
	e.must("abandon", r.AbandonMessage(e.ctx, ms[1], nil))
	again := e.one(r)
	e.check(string(again.Body) == "2" && again.DeliveryCount == 2, "got %q with count %d, want 2 with 2",
		again.Body, again.DeliveryCount)
	last := e.one(r)
	e.check(string(last.Body) == "4", "then came %q", last.Body)
	e.complete(r, ms[2], ms[0], last, again)
	e.none(r)
}

// S-74, S-181; T-147; RUL-29: the SDK names its link and no session when it asks for deferred messages.
func sessionDefer(e *env) {
	q := e.sessionQueue("PT1M")
	e.send(e.sender(e.client(0), q), inSession("A", "a1"), inSession("A", "a2"), inSession("B", "b1"))
	a, b := e.accept(e.client(1), q, "A"), e.accept(e.client(1), q, "B")
	later, next := e.one(a), e.one(a)
	other := e.one(b)
	e.must("defer", a.DeferMessage(e.ctx, later, nil))
	e.must("defer", b.DeferMessage(e.ctx, other, nil))
	e.complete(a, next)
	for name, r := range map[string]*azservicebus.SessionReceiver{"a1": a, "b1": b} {
		seen, err := r.PeekMessages(e.ctx, 10, nil)
		e.must("peek", err)
		e.check(slices.Equal(bodies(seen), []string{name}), "session %s shows %v", r.SessionID(), bodies(seen))
	}
	_, err := a.ReceiveDeferredMessages(e.ctx, []int64{*other.SequenceNumber}, nil)
	e.wantCode("another session's message", err, azservicebus.CodeNotFound)
	back, err := a.ReceiveDeferredMessages(e.ctx, []int64{*later.SequenceNumber}, nil)
	e.must("receive deferred", err)
	e.check(slices.Equal(bodies(back), []string{"a1"}), "deferred messages %v", bodies(back))
	e.must("renew", a.RenewSessionLock(e.ctx, nil))
	e.complete(a, back...)
	mine, err := b.ReceiveDeferredMessages(e.ctx, []int64{*other.SequenceNumber}, nil)
	e.must("receive deferred", err)
	e.complete(b, mine...)
	for _, r := range []*azservicebus.SessionReceiver{a, b} {
		left, err := r.PeekMessages(e.ctx, 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: to(int64(0))})
		e.must("peek", err)
		e.check(len(left) == 0, "session %s keeps %v", r.SessionID(), bodies(left))
	}
}

// S-44, S-45, S-46; T-121
func sessionRenew(e *env) {
	q := e.sessionQueue("PT5S")
	e.send(e.sender(e.client(0), q), inSession("S", "x"))
	r := e.accept(e.client(1), q, "S")
	m := e.one(r)
	for range 3 {
		old := r.LockedUntil()
		time.Sleep(3 * time.Second) // three fifths of the lock
		e.must("renew", r.RenewSessionLock(e.ctx, nil))
		e.check(r.LockedUntil().After(old), "locked-until did not move")
	}
	e.complete(r, m) // the message's lock is the session's
}

// S-47, S-50, S-53; T-126, T-130
func sessionExpiry(e *env) {
	q := e.sessionQueue("PT5S")
	e.send(e.sender(e.client(0), q), inSession("S", "1"), inSession("S", "2"))
	r := e.accept(e.client(1), q, "S")
	m := e.one(r)
	var next *azservicebus.SessionReceiver
	for next == nil {
		var err error
		next, err = e.client(2).AcceptSessionForQueue(e.ctx, q, "S", nil)
		if err != nil {
			e.check(strings.Contains(err.Error(), "session-cannot-be-locked"), "accept: %v", err)
			time.Sleep(500 * time.Millisecond)
		}
	}
	e.check(!time.Now().Before(r.LockedUntil().Add(-time.Second)), "accepted while the lock was held")
	// What a late settlement reports is up to the library: it takes a message whose settlement was refused
	// for a settled one, and its second attempt, if it makes one, asks nobody; later attempts lock the
	// session anew as soon as it is free. The refusal itself is T-130 of the scenarios. What holds whatever
	// the library says: a renewal by the former holder is refused, or the session that the library asks
	// for anew, and nothing of what it does changes what the new one has.
	ctx, cancel := context.WithTimeout(e.ctx, 2*time.Second)
	defer cancel()
	e.Logf("settled late: %v", r.CompleteMessage(ctx, m, nil))
	err := r.RenewSessionLock(e.ctx, nil)
	e.check(err != nil && (strings.Contains(err.Error(), "session-lock-lost") ||
		strings.Contains(err.Error(), "session-cannot-be-locked")), "renewed by the former holder: %v", err)
	e.must("renew by the new holder", next.RenewSessionLock(e.ctx, nil))
	ms := e.take(next, 2)
	e.check(string(ms[0].Body) == "1" && ms[0].DeliveryCount == 2, "%q has count %d, want 1 with 2",
		ms[0].Body, ms[0].DeliveryCount)
	e.check(string(ms[1].Body) == "2" && ms[1].DeliveryCount == 1, "%q has count %d, want 2 with 1",
		ms[1].Body, ms[1].DeliveryCount)
	e.complete(next, ms...)
	left, err := next.PeekMessages(e.ctx, 5, nil)
	e.must("peek behind the end", err)
	e.check(len(left) == 0, "%d messages are left", len(left))
}

// S-64, S-65, S-66, S-70; T-138
func sessionState(e *env) {
	q := e.sessionQueue("PT1M")
	r := e.accept(e.client(0), q, "S")
	get := func(r *azservicebus.SessionReceiver) []byte {
		b, err := r.GetSessionState(e.ctx, nil)
		e.must("get state", err)
		return b
	}
	e.check(get(r) == nil, "a fresh session has state")
	e.must("set", r.SetSessionState(e.ctx, []byte("state-1"), nil))
	e.must("close", r.Close(e.ctx))
	r = e.accept(e.client(1), q, "S")
	e.check(string(get(r)) == "state-1", "state %q", get(r))
	e.must("replace", r.SetSessionState(e.ctx, []byte("state-2"), nil))
	e.check(string(get(r)) == "state-2", "state %q", get(r))
	e.must("clear", r.SetSessionState(e.ctx, nil, nil))
	e.check(get(r) == nil, "the state was not cleared")
}

// S-30, S-33, S-34; T-106, T-109
func sessionGuard(e *env) {
	q, plain := e.sessionQueue("PT1M"), e.queue(nil)
	c := e.client(0)
	_, err := e.receiver(c, q, nil).ReceiveMessages(e.ctx, 1, nil)
	e.check(err != nil && strings.Contains(err.Error(), "not-allowed"), "a plain receiver on a session queue: %v", err)
	err = e.sender(c, q).SendMessage(e.ctx, text("no session"), nil)
	e.check(err != nil, "a session queue took a message without a session")
	ctx, cancel := context.WithTimeout(e.ctx, 15*time.Second)
	defer cancel()
	_, err = c.AcceptSessionForQueue(ctx, plain, "S", nil)
	e.check(err != nil && !errors.Is(err, context.DeadlineExceeded), "a session of a plain queue: %v", err)
}

// S-61, S-78; T-136
func sessionDeadLetter(e *env) {
	q := e.sessionQueue("PT1M")
	c := e.client(0)
	e.send(e.sender(c, q), inSession("S", "bad"), inSession("S", "good"))
	r := e.accept(c, q, "S")
	e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), &azservicebus.DeadLetterOptions{Reason: to("why")}))
	m := e.one(r)
	e.check(string(m.Body) == "good", "the session went on with %q", m.Body)
	e.complete(r, m)
	d := e.deadLetters(e.client(1), q)
	g := e.one(d)
	e.check(string(g.Body) == "bad" && deref(g.SessionID) == "S" && deref(g.DeadLetterReason) == "why",
		"dead letter %q of session %s for %s", g.Body, deref(g.SessionID), deref(g.DeadLetterReason))
	e.complete(d, g)
}
