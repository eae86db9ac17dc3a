package conformance

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	cannotBeLocked  = "com.microsoft:session-cannot-be-locked"
	sessionLockLost = "com.microsoft:session-lock-lost"
)

// share accepts a session without exclusion, or with its token takes it over.
func (e *rawEnv) share(c *raw.Client, queue string, id any, token *amqp.UUID) *raw.Shared {
	e.Helper()
	s, err := c.Share(queue, id, token)
	e.must("accept a session without exclusion", err)
	return s
}

func (e *rawEnv) askerOf(c *raw.Client, entity string) *raw.Asker {
	e.Helper()
	a, err := c.Asker(entity)
	e.must("attach to $management", err)
	return a
}

// detached waits for the end of a link and returns the reason.
func (e *rawEnv) detached(c *raw.Client, handle uint32) error {
	e.Helper()
	f, err := c.Await(func(f raw.Frame) bool {
		p, ok := f.P.(*amqp.Detach)
		return ok && p.Handle == handle
	})
	e.must("wait for the end of the link", err)
	return &raw.Refused{Cause: f.P.(*amqp.Detach).Error}
}

// handed settles a message over the management link by lock token with session id, as the SDK for .NET does.
func (e *rawEnv) handed(a *raw.Asker, code int64, session, status string, m *raw.Message) *raw.Answer {
	e.Helper()
	return e.ask(a, code, "update-disposition", fields("disposition-status", status, "lock-tokens", []amqp.UUID{m.Token},
		"session-id", session))
}

// S-326, S-328, S-329; T-279
func rawSharedAccept(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true)})
	e.deliver(e.sender(q), encode("1", group("S")))
	other := e.connect(1)
	got := e.share(e.c, q, nil, nil)
	e.check(got.Session == "S" && got.Token != amqp.UUID{}, "the next session is %q with the token %x", got.Session, got.Token)
	v, _ := got.Properties.Get("com.microsoft:locked-until-utc")
	_, isLong := v.Int64()
	e.check(isLong && len(v) == 9, "locked-until-utc is %x, no long", []byte(v))
	_, err := other.Receiver(q, "S")
	e.refused("accept exclusively", err, cannotBeLocked)
	_, err = other.Share(q, "S", nil)
	e.refused("accept without a token", err, cannotBeLocked)
	_, err = other.Share(q, "S", &amqp.UUID{7})
	e.refused("accept with a wrong token", err, cannotBeLocked)
	_, err = other.Share(q, nil, &got.Token)
	e.refused("a token without a session id", err, "amqp:invalid-field")
	e.c.Send(&amqp.Detach{Handle: got.Handle, Closed: true})
	e.detached(e.c, got.Handle)
	_, err = other.Share(q, "S", &got.Token)
	e.refused("accept with a token that has ended", err, cannotBeLocked)
	again := e.share(other, q, "S", nil)
	e.check(again.Token != got.Token, "the token of the next lock is the same")
	e.c.Close()
	other.Send(&amqp.Detach{Handle: again.Handle, Closed: true})
	e.detached(other, again.Handle)
	third := e.connect(2)
	_, err = third.Receiver(q, "S")
	e.must("accept exclusively", err)
	_, err = other.Share(q, "S", &again.Token)
	e.refused("take over what is held exclusively", err, cannotBeLocked)
}

// S-327, S-330, S-332, S-334; T-280, T-281, T-284
func rawTakeOver(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true)})
	tx := e.sender(q)
	for i := range 5 {
		e.deliver(tx, encode(fmt.Sprint(i+1), group("S")))
	}
	a := e.share(e.c, q, "S", nil)
	one, two := e.take(a.Handle), e.take(a.Handle)
	e.check(one.Body == "1" && two.Body == "2", "%s and %s came first", one.Body, two.Body)
	old := e.asker(q)
	e.ask(old, 200, "set-session-state", fields("session-id", "S", "session-state", []byte("x")))

	other := e.connect(1)
	b := e.share(other, q, "S", &a.Token)
	e.check(b.Token == a.Token, "the token has changed with the take-over")
	e.refused("the old link", e.detached(e.c, a.Handle), sessionLockLost)
	for _, operation := range []string{"get-session-state", "renew-session-lock"} {
		got := e.ask(old, 410, operation, fields("session-id", "S"))
		e.check(got.Condition == sessionLockLost, "%s of the former holder: %s", operation, got.Condition)
	}
	got := e.handed(old, 410, "S", "completed", one)
	e.check(got.Condition == sessionLockLost, "a settlement of the former holder: %s", got.Condition)

	mine := e.askerOf(other, q)
	state, _ := e.ask(mine, 200, "get-session-state", fields("session-id", "S")).Body.Get("session-state")
	e.check(fmt.Sprintf("%s", state) == "x", "the state is %s", state)
	e.ask(mine, 200, "renew-session-lock", fields("session-id", "S"))
	e.handed(mine, 200, "S", "completed", one)
	e.handed(mine, 200, "S", "abandoned", two)
	for i, want := range []string{"2", "3", "4", "5"} {
		m, err := other.Receive(b.Handle)
		e.must("receive after the take-over", err)
		e.check(m.Body == want, "message %d is %s, want %s", i, m.Body, want)
		h, err := m.Parts.ParseHeader()
		e.must("header", err)
		e.check(h.DeliveryCount == uint32(1-min(i, 1)), "%s has the count %d", m.Body, h.DeliveryCount)
		e.handed(mine, 200, "S", "completed", m)
	}
	p, err := e.admin(0).GetQueueRuntimeProperties(e.ctx, q, nil)
	e.must("count", err)
	e.check(p.TotalMessageCount == 0, "%d messages are left", p.TotalMessageCount)
}

// S-329, S-332: the lock ends, the token with it, and what was handed over goes back in order.
func rawSharedExpiry(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true), LockDuration: to("PT5S")})
	tx := e.sender(q)
	e.deliver(tx, encode("1", group("S")))
	e.deliver(tx, encode("2", group("S")))
	a := e.share(e.c, q, "S", nil)
	e.take(a.Handle)
	other := e.connect(1)
	b := e.share(other, q, "S", &a.Token)
	e.refused("the link whose lock ran out", e.detached(other, b.Handle), sessionLockLost)
	_, err := other.Share(q, "S", &a.Token)
	e.refused("a token whose lock ran out", err, cannotBeLocked)
	e.c = e.connect(2)
	next := e.receiver(q, "S")
	for i, want := range []string{"1", "2"} {
		m := e.take(next)
		h, err := m.Parts.ParseHeader()
		e.must("header", err)
		e.check(m.Body == want && h.DeliveryCount == uint32(1-i), "%s came with the count %d, want %s", m.Body, h.DeliveryCount, want)
	}
}

// S-335: listings show how a session is held, and no answer has the token.
func rawSharedListing(e *rawEnv) {
	q := e.queue(&admin.QueueProperties{RequiresSession: to(true)})
	e.deliver(e.sender(q), encode("1", group("S")))
	a := e.share(e.c, q, "S", nil)
	e.take(a.Handle)
	n := e.node(0)
	bin, err := cluster.Binary()
	e.must("find the binary", err)
	s := &shell{T: e.T, bin: bin, env: []string{"BUSBAR_OPS=http://" + n.Ops, "SERVICEBUS_CONNECTION_STRING=" + n.ConnectionString(false)}}
	wrong, err := e.connect(1).Share(q, "S", &amqp.UUID{7})
	e.check(err != nil && wrong == nil, "a wrong token is taken")
	var refusal *raw.Refused
	e.check(errors.As(err, &refusal), "%v", err)
	for what, text := range map[string]string{
		"locks":   s.do(0, "", "queue", "locks", q, "--json"),
		"table":   s.do(0, "", "queue", "locks", q),
		"show":    s.do(0, "", "queue", "show", q, "-o", "json"),
		"refusal": refusal.Error(),
	} {
		for _, token := range []string{a.Token.String(), strings.ReplaceAll(a.Token.String(), "-", "")} {
			e.check(!strings.Contains(strings.ToLower(text), token), "%s shows the session token: %s", what, text)
		}
		if what == "locks" {
			e.check(strings.Contains(text, `"sessionMode":"shared"`), "the locks do not show the mode: %s", text)
		}
		if what == "table" {
			e.check(strings.Contains(text, "shared"), "the table does not show the mode: %s", text)
		}
	}
}
