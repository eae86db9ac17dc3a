package conformance

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/test/conformance/raw"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

const unauthorized = "amqp:unauthorized-access"

// guarded is a queue with sessions and two access policies of its own, sender and listener.
func (e *rawEnv) guarded() (queue, sender, listener string) {
	e.Helper()
	sender, listener = randomKey(e.env), randomKey(e.env)
	second := func() *string { return to(randomKey(e.env)) }
	queue = e.queue(&admin.QueueProperties{RequiresSession: to(true), AuthorizationRules: []admin.AuthorizationRule{
		{KeyName: to("sender"), PrimaryKey: &sender, SecondaryKey: second(), AccessRights: []admin.AccessRight{admin.AccessRightSend}},
		{KeyName: to("listener"), PrimaryKey: &listener, SecondaryKey: second(), AccessRights: []admin.AccessRight{admin.AccessRightListen}},
	}})
	for i := range e.cluster.Nodes {
		e.check(e.opensAs(i, "sender", sender, queue), "node %d does not know the policies of %s", i, queue)
	}
	return queue, sender, listener
}

// opensAs waits until node i takes a token of the policy, and reports whether it did in time.
func (e *rawEnv) opensAs(i int, policy, key, queue string) bool {
	c, tokens := e.anonymous(i)
	defer c.Close()
	for end := time.Now().Add(keysSoon); ; time.Sleep(10 * time.Millisecond) {
		got, err := tokens.PutToken(audience(queue), auth.NewToken(audience(queue), policy, key, time.Now().Add(time.Hour)))
		e.must("put-token", err)
		if got.Code == 202 {
			return true
		}
		if time.Now().After(end) {
			e.Logf("put-token: %+v", got)
			return false
		}
	}
}

func audience(queue string) string { return "sb://localhost/" + queue }

// anonymous is a connection without a key, and its links to $cbs.
func (e *rawEnv) anonymous(i int) (*raw.Client, *raw.Asker) {
	e.Helper()
	c, err := raw.DialAs(e.ctx, e.node(i), e.wire, raw.Anonymous())
	e.must("connect without a key", err)
	e.Cleanup(c.Close)
	tokens, err := c.Tokens()
	e.must("attach to $cbs", err)
	return c, tokens
}

// put sends a token that lives for a time and checks the code of the answer.
func (e *rawEnv) put(tokens *raw.Asker, code int64, queue, policy, key string, live time.Duration) {
	e.Helper()
	got, err := tokens.PutToken(audience(queue), auth.NewToken(audience(queue), policy, key, time.Now().Add(live)))
	e.must("put-token", err)
	e.check(got.Code == code, "put-token of %s: %d %s, want %d", policy, got.Code, got.Text, code)
}

// S-335: whoever may not listen on the queue can neither accept a session without exclusion nor take one over.
func rawTakeOverRights(e *rawEnv) {
	q, sender, listener := e.guarded()
	e.deliver(e.sender(q), encode("1", group("S")))
	e.deliver(e.sender(q), encode("1", group("T")))
	held, other := e.share(e.c, q, "S", nil), e.share(e.connect(2), q, "T", nil)
	refuse := func(what string, c *raw.Client, condition string) {
		_, err := c.Share(q, "U", nil)
		e.refused("accept "+what, err, condition)
		_, err = c.Share(q, nil, nil)
		e.refused("accept the next session "+what, err, condition)
		_, err = c.Share(q, "S", &held.Token)
		e.refused("take a session over "+what, err, condition)
	}
	c, tokens := e.anonymous(1)
	refuse("without a token of $cbs", c, unauthorized)
	e.put(tokens, 202, q, "sender", sender, time.Hour)
	refuse("with Send only", c, unauthorized)

	c, tokens = e.anonymous(1)
	e.put(tokens, 401, e.queue(nil), "listener", listener, time.Hour)
	another := e.queue(nil)
	e.must("put a token of another queue", putOther(tokens, another))
	refuse("with a token of another queue", c, unauthorized)

	c, tokens = e.anonymous(1)
	e.put(tokens, 401, q, "listener", listener, -time.Hour)
	refuse("with a token that has expired", c, unauthorized)

	e.put(tokens, 202, q, "listener", listener, time.Hour)
	_, err := c.Share(q, "S", &other.Token)
	e.refused("the token of another session", err, cannotBeLocked)
	_, err = c.Share(q, "U", &held.Token)
	e.refused("a token for a session that nobody holds", err, cannotBeLocked)
	got := e.share(c, q, "S", &held.Token)
	e.check(got.Token == held.Token, "the token has changed with the take-over")
	e.refused("the link of the former holder", e.detached(e.c, held.Handle), sessionLockLost)
}

// putOther sends a token that the namespace's key signs for one queue alone.
func putOther(tokens *raw.Asker, queue string) error {
	got, err := tokens.PutToken(audience(queue), auth.NewToken(audience(queue), cluster.KeyName, cluster.Key, time.Now().Add(time.Hour)))
	if err == nil && got.Code != 202 {
		return &raw.Refused{Cause: &amqp.Error{Condition: amqp.Symbol(got.Condition), Description: got.Text}}
	}
	return err
}

// Section 3 of what newer SDKs do: a token is renewed on the open links of $cbs, and the links that it opened stay. Without a
// renewal they end with amqp:unauthorized-access when the token does, and the connection stays.
func rawRenewedToken(e *rawEnv) {
	q, sender, listener := e.guarded()
	c, tokens := e.anonymous(1)
	const short, renewals = 4 * time.Second, 3
	const live = short - auth.DefaultExpiryTolerance // a token counts for so long after its expiry
	e.put(tokens, 202, q, "listener", listener, live)
	held := e.share(c, q, "S", nil)
	for i := range renewals {
		time.Sleep(short / 2)
		e.put(tokens, 202, q, "listener", listener, live)
		e.deliver(e.sender(q), encode("x", group("S")))
		m, err := c.Receive(held.Handle)
		e.must("receive after a renewal", err)
		mine, err := c.Asker(q)
		e.must("attach to $management", err)
		e.handed(mine, 200, "S", "completed", m)
		e.check(m.Body == "x", "message %d is %q", i, m.Body)
	}
	e.refused("the link whose token has expired", e.detached(c, held.Handle), unauthorized)
	c.Send(&amqp.Detach{Handle: held.Handle, Closed: true})
	e.put(tokens, 202, q, "sender", sender, time.Hour)
	_, err := c.Sender(q)
	e.must("send with another token over the same connection", err)
	_, err = c.Share(q, "S", nil)
	e.refused("accept with Send only", err, unauthorized)
}
