package smoke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func (e *env) sq() string { return e.queue(&admin.QueueProperties{RequiresSession: p(true)}) }

func smsg(session, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: &session}
}

func sessionSpecific(e *env) {
	q := e.sq()
	s := e.sender(q)
	for i := range 4 {
		e.send(s, smsg("A", fmt.Sprintf("a%d", i)), smsg("B", fmt.Sprintf("b%d", i)))
	}
	r, err := e.c.AcceptSessionForQueue(e.ctx, q, "B", nil)
	e.must("accept B", err)
	e.check(r.SessionID() == "B" && r.LockedUntil().After(time.Now()), "session %q until %s", r.SessionID(), r.LockedUntil())
	ms := e.take(r, 4, wait)
	e.check(slices.Equal(bodies(ms), []string{"b0", "b1", "b2", "b3"}), "got %v", bodies(ms))
	e.complete(r, ms...)
	e.none(r, time.Second)
	e.must("close", r.Close(e.ctx))
	r, err = e.c.AcceptSessionForQueue(e.ctx, q, "A", nil)
	e.must("accept A", err)
	ms = e.take(r, 4, wait)
	e.check(slices.Equal(bodies(ms), []string{"a0", "a1", "a2", "a3"}), "got %v", bodies(ms))
	e.complete(r, ms...)
}

func sessionNext(e *env) {
	q := e.sq()
	s := e.sender(q)
	e.send(s, smsg("one", "1"), smsg("two", "2"))
	r1, err := e.c.AcceptNextSessionForQueue(e.ctx, q, nil)
	e.must("accept next", err)
	r2, err := e.c.AcceptNextSessionForQueue(e.ctx, q, nil)
	e.must("accept next", err)
	e.check(r1.SessionID() != r2.SessionID(), "both receivers hold %q", r1.SessionID())
	for _, r := range []*azservicebus.SessionReceiver{r1, r2} {
		m := e.one(r, wait)
		e.check(str(m.SessionID) == r.SessionID(), "message of %q on %q", str(m.SessionID), r.SessionID())
		e.complete(r, m)
		e.must("close", r.Close(e.ctx))
	}
	ctx, cancel := context.WithTimeout(e.ctx, 3*time.Second)
	defer cancel()
	_, err = e.c.AcceptNextSessionForQueue(ctx, q, nil)
	e.check(errors.Is(err, context.DeadlineExceeded) || code(err) == azservicebus.CodeTimeout, "accept next with nothing there: %v", err)
}

func sessionExclusive(e *env) {
	q := e.sq()
	r, err := e.c.AcceptSessionForQueue(e.ctx, q, "S", nil)
	e.must("accept", err)
	ctx, cancel := context.WithTimeout(e.ctx, 10*time.Second)
	defer cancel()
	_, err = e.c.AcceptSessionForQueue(ctx, q, "S", nil)
	e.check(err != nil && !errors.Is(err, context.DeadlineExceeded), "second accept of a locked session: %v (want session-cannot-be-locked)", err)
	e.must("close", r.Close(e.ctx))
	r, err = e.c.AcceptSessionForQueue(e.ctx, q, "S", nil)
	e.must("accept after close", err)
	e.must("close", r.Close(e.ctx))
}

func sessionState(e *env) {
	q := e.sq()
	r, err := e.c.AcceptSessionForQueue(e.ctx, q, "S", nil)
	e.must("accept", err)
	b, err := r.GetSessionState(e.ctx, nil)
	e.must("get", err)
	e.check(b == nil, "fresh state %q", b)
	e.must("set", r.SetSessionState(e.ctx, []byte("state-1"), nil))
	e.must("close", r.Close(e.ctx))
	r, err = e.c.AcceptSessionForQueue(e.ctx, q, "S", nil)
	e.must("accept again", err)
	b, err = r.GetSessionState(e.ctx, nil)
	e.must("get", err)
	e.check(string(b) == "state-1", "state %q", b)
	e.must("clear", r.SetSessionState(e.ctx, nil, nil))
	b, err = r.GetSessionState(e.ctx, nil)
	e.must("get", err)
	e.check(b == nil, "cleared state %q", b)
}

func sessionRenew(e *env) {
	q := e.sq()
	r, err := e.c.AcceptSessionForQueue(e.ctx, q, "S", nil)
	e.must("accept", err)
	old := r.LockedUntil()
	time.Sleep(1500 * time.Millisecond)
	e.must("renew", r.RenewSessionLock(e.ctx, nil))
	e.check(r.LockedUntil().After(old), "locked-until did not move")
}

func sessionExpiry(e *env) {
	q := e.queue(&admin.QueueProperties{RequiresSession: p(true), LockDuration: p("PT5S")})
	e.send(e.sender(q), smsg("S", "x"))
	r, err := e.c.AcceptSessionForQueue(e.ctx, q, "S", nil)
	e.must("accept", err)
	m := e.one(r, wait)
	time.Sleep(7 * time.Second)
	// The SDK's first retry, after 3 s at the earliest, would lock the session anew for this receiver.
	ctx, cancel := context.WithTimeout(e.ctx, 2*time.Second)
	defer cancel()
	err = r.CompleteMessage(ctx, m, nil)
	e.check(err != nil, "settled a message after its session lock expired")
	r2, err := e.c.AcceptSessionForQueue(e.ctx, q, "S", nil)
	e.must("accept after expiry", err)
	m2 := e.one(r2, wait)
	e.check(string(m2.Body) == "x", "got %q", m2.Body)
	e.complete(r2, m2)
}

func sessionGuard(e *env) {
	q := e.sq()
	_, err := e.receiver(q, nil).ReceiveMessages(e.ctx, 1, nil)
	e.check(err != nil && strings.Contains(err.Error(), "not-allowed"), "plain receiver on a session queue: %v", err)
	err = e.sender(q).SendMessage(e.ctx, msg("no session id"), nil)
	e.check(err != nil, "a message without a session id was accepted by a session queue")
}
