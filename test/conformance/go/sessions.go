package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// sessionWith is a queue with those messages in session S.
func sessionWith(e *env, lock string, all ...string) string {
	q := e.sessionQueue(lock)
	var messages []*azservicebus.Message
	for _, body := range all {
		messages = append(messages, inSession("S", body))
	}
	e.together(0, q, messages...)
	return q
}

func sessions() map[string]scenario {
	return map[string]scenario{
		"session-named": sessionNamed,
		"session-next": func(e *env) {
			q := e.sessionQueue("PT1M")
			e.send(0, q, inSession("one", "1"), inSession("two", "2"))
			var held []string
			for i := range 2 {
				r := e.next(i, q)
				m := e.one(r)
				e.equal("session", deref(m.SessionID), r.SessionID())
				e.complete(r, m)
				held = append(held, r.SessionID())
			}
			slices.Sort(held)
			e.equal("held", held, []string{"one", "two"})
		},
		"session-none": func(e *env) {
			e.noSession(e.client(0), e.sessionQueue("PT1M"))
		},
		"session-waits": func(e *env) {
			q := e.sessionQueue("PT1M")
			late := make(chan error, 1)
			s := e.sender(0, q)
			go func() {
				time.Sleep(500 * time.Millisecond)
				late <- s.SendMessage(e.ctx, inSession("late", "x"), nil)
			}()
			r := e.next(1, q)
			e.must("send", <-late)
			e.equal("session", r.SessionID(), "late")
			e.complete(r, e.one(r))
		},
		"session-held": func(e *env) {
			q := sessionWith(e, "PT1M", "x")
			r := e.accept(0, q, "S")
			_, err := e.client(1).AcceptSessionForQueue(e.ctx, q, "S", nil)
			e.told("accept what another holds", err, "session-cannot-be-locked")
			e.noSession(e.client(2), q)
			e.complete(r, e.one(r))
			e.must("close", r.Close(e.ctx))
			e.must("close", e.accept(1, q, "S").Close(e.ctx))
		},
		"session-close": func(e *env) {
			q := sessionWith(e, "PT1M", "1", "2", "3")
			r := e.accept(1, q, "S")
			e.complete(r, e.take(r, 3)[0])
			e.must("close", r.Close(e.ctx))
			next := e.accept(2, q, "S")
			got := e.take(next, 2)
			e.equal("bodies", bodies(got), []string{"2", "3"})
			for _, m := range got {
				e.equal("count after a close", m.DeliveryCount, uint32(1))
			}
			e.complete(next, got...)
		},
		"session-abandon": func(e *env) {
			q := sessionWith(e, "PT1M", "1", "2", "3", "4")
			r := e.accept(1, q, "S")
			got := e.take(r, 3)
			e.must("abandon", r.AbandonMessage(e.ctx, got[1], nil))
			again := e.one(r)
			e.equal("body and count", []any{string(again.Body), again.DeliveryCount}, []any{"2", uint32(2)})
			last := e.one(r)
			e.equal("body", string(last.Body), "4")
			e.complete(r, got[2], got[0], last, again)
			e.none(r)
		},
		"session-defer": sessionDefer,
		"session-dead-letter": func(e *env) {
			q := sessionWith(e, "PT1M", "bad", "good")
			r := e.accept(1, q, "S")
			e.must("dead-letter", r.DeadLetterMessage(e.ctx, e.one(r), &azservicebus.DeadLetterOptions{Reason: to("why")}))
			m := e.one(r)
			e.equal("body", string(m.Body), "good")
			e.complete(r, m)
			d := e.deadLetters(0, q)
			m = e.one(d)
			e.equal("dead letter", []string{string(m.Body), deref(m.SessionID), deref(m.DeadLetterReason)},
				[]string{"bad", "S", "why"})
			e.complete(d, m)
		},
		"session-peek": func(e *env) {
			q := e.sessionQueue("PT1M")
			e.together(0, q, inSession("A", "a1"), inSession("B", "b1"), inSession("A", "a2"))
			e.equal("peeked in A", bodies(e.peek(e.accept(1, q, "A"))), []string{"a1", "a2"})
		},
		"session-schedule": func(e *env) {
			q := e.sessionQueue("PT1M")
			_, err := e.sender(0, q).ScheduleMessages(e.ctx, []*azservicebus.Message{inSession("S", "later")},
				time.Now().Add(2*time.Second), nil)
			e.must("schedule", err)
			r := e.next(1, q)
			m := e.one(r)
			e.equal("arrived", []string{r.SessionID(), string(m.Body), deref(m.SessionID)}, []string{"S", "later", "S"})
			e.complete(r, m)
		},
		"session-receive-delete": func(e *env) {
			q := sessionWith(e, "PT1M", "a", "b")
			r, err := e.client(1).AcceptSessionForQueue(e.ctx, q, "S", &azservicebus.SessionReceiverOptions{
				ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
			e.must("accept", err)
			e.equal("bodies", bodies(e.take(r, 2)), []string{"a", "b"})
			e.must("close", r.Close(e.ctx))
			e.none(e.accept(0, q, "S"))
		},
		"session-guard": func(e *env) {
			q, plain := e.sessionQueue("PT1M"), e.queue(nil)
			_, err := e.receiver(0, q).ReceiveMessages(e.ctx, 1, nil)
			e.told("receive without a session", err, "requires sessions")
			e.told("send without a session", e.sender(0, q).SendMessage(e.ctx, text("x"), nil), "amqp:not-allowed")
			_, err = e.client(0).AcceptSessionForQueue(e.ctx, plain, "S", nil)
			e.told("accept where there are none", err, "amqp:not-allowed")
		},
		"session-list": sessionList,
	}
}

func (e *env) next(i int, queue string) *azservicebus.SessionReceiver {
	r, err := e.client(i).AcceptNextSessionForQueue(e.ctx, queue, nil)
	e.must("accept the next session", err)
	return r
}

// noSession expects that no session comes. The library tells how long it waits by its context only.
func (e *env) noSession(c *azservicebus.Client, queue string) {
	ctx, cancel := context.WithTimeout(e.ctx, 4*time.Second)
	defer cancel()
	_, err := c.AcceptNextSessionForQueue(ctx, queue, nil)
	var told *azservicebus.Error
	timedOut := errors.As(err, &told) && told.Code == azservicebus.CodeTimeout // newer versions tell the broker
	e.check(timedOut || errors.Is(err, context.DeadlineExceeded), "accept where no session is: %v", err)
}

func sessionNamed(e *env) {
	q := e.sessionQueue("PT1M")
	for i := range 4 {
		e.send(0, q, inSession("A", fmt.Sprintf("A%d", i)), inSession("B", fmt.Sprintf("B%d", i)))
	}
	for i, session := range []string{"B", "A"} {
		r := e.accept(i, q, session)
		e.equal("session", r.SessionID(), session)
		e.check(r.LockedUntil().After(time.Now()), "the session is locked until %s", r.LockedUntil())
		got := e.take(r, 4)
		e.equal("bodies", bodies(got), []string{session + "0", session + "1", session + "2", session + "3"})
		e.complete(r, got...)
		e.none(r)
		e.must("close", r.Close(e.ctx))
	}
	r := e.accept(2, q, "C") // a session without message or state can be held
	e.send(0, q, inSession("C", "c"))
	e.complete(r, e.one(r))
}

func sessionDefer(e *env) {
	q := sessionWith(e, "PT1M", "a", "b")
	r := e.accept(1, q, "S")
	m := e.one(r)
	e.must("defer", r.DeferMessage(e.ctx, m, nil))
	b := e.one(r)
	e.equal("body", string(b.Body), "b")
	e.complete(r, b)
	e.must("close", r.Close(e.ctx))
	next := e.accept(0, q, "S")
	e.none(next)
	got := e.deferred(next, *m.SequenceNumber)
	e.equal("body", string(got.Body), "a")
	e.complete(next, got)
	_, err := next.ReceiveDeferredMessages(e.ctx, []int64{*m.SequenceNumber}, nil)
	e.told("receive deferred", err, "does not exist")
}

func sessionLocks() map[string]scenario {
	return map[string]scenario{
		"session-state": func(e *env) {
			q := e.sessionQueue("PT1M")
			r := e.accept(0, q, "S")
			e.state(r, nil)
			want := []byte("step one, ü")
			e.must("set the state", r.SetSessionState(e.ctx, want, nil))
			e.must("close", r.Close(e.ctx))
			next := e.accept(1, q, "S")
			e.state(next, want)
			e.must("set the state", next.SetSessionState(e.ctx, []byte("two"), nil))
			e.state(next, []byte("two"))
			e.must("clear the state", next.SetSessionState(e.ctx, nil, nil))
			e.state(next, nil)
		},
		"session-renew": func(e *env) {
			q := sessionWith(e, "PT10S", "x")
			r := e.accept(1, q, "S")
			m := e.one(r)
			for range 3 {
				old := r.LockedUntil()
				time.Sleep(4 * time.Second) // thrice that is more than the lock
				e.must("renew", r.RenewSessionLock(e.ctx, nil))
				e.check(r.LockedUntil().After(old), "locked-until did not move")
			}
			e.complete(r, m) // the message's lock is the session's
		},
		"session-lost": func(e *env) {
			q := sessionWith(e, "PT15S", "1", "2")
			r := e.accept(1, q, "S")
			m := e.one(r)
			time.Sleep(16500 * time.Millisecond) // the lock's time, and a margin for its expiry
			next := e.accept(0, q, "S")
			// The library attaches the lost link again, which another holds.
			e.check(r.CompleteMessage(e.ctx, m, nil) != nil, "a lost message was completed")
			e.check(r.RenewSessionLock(e.ctx, nil) != nil, "a lost session was renewed")
			got := e.take(next, 2)
			e.equal("bodies and counts", []any{bodies(got), got[0].DeliveryCount, got[1].DeliveryCount},
				[]any{[]string{"1", "2"}, uint32(2), uint32(1)})
			e.complete(next, got...)
		},
	}
}

// state expects a session to have that state.
func (e *env) state(r *azservicebus.SessionReceiver, want []byte) {
	got, err := r.GetSessionState(e.ctx, nil)
	e.must("get the state", err)
	e.equal("state", string(got), string(want))
}
