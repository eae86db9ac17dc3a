package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cluster/simnet"
	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/check"
	"github.com/busbar-mq/busbar/transport/amqp"
)

const (
	// dialLimit, opLimit and idleReceive are the patience of clients, in virtual time.
	dialLimit   = 20 * time.Second
	opLimit     = 70 * time.Second
	idleReceive = 15 * time.Second
	closeLimit  = 5 * time.Second
)

// client is one sequential process that speaks AMQP with the cluster, through the library that the
// official SDK is made of.
type client struct {
	w    *world
	id   int
	host *simnet.Host
	rng  *rand.Rand

	conn    *goamqp.Conn
	raw     *socket // to be broken off
	session *goamqp.Session
	number  int // of the connection
	manage  map[string]*management
	serial  int // of message ids
	calm    bool
	token   goamqp.UUID     // of the session that it holds, or held last, without exclusion
	old     *fsm.Descriptor // what the last question about an entity was answered
}

// socket notes when it ended: from then on the broker may take the client for gone.
type socket struct {
	net.Conn
	rec            *check.Recorder
	client, number int
	once           sync.Once
}

func (s *socket) over() {
	s.once.Do(func() { s.rec.End(s.rec.Begin(s.client, s.number, check.Lost, "", ""), check.OK, nil) })
}

// watch notes the end of a connection that the broker has closed, or whose node was killed, while the client cannot hear of
// it. The client may read an answer after a cut that the node sent before, and that is over by then.
func (s *socket) watch() {
	simnet.AwaitEnd(s.Conn)
	s.over()
}

// Read implements net.Conn. The library reads all the time, so it hears of the end at once.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err != nil {
		s.over()
	}
	return n, err
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.over()
	return s.Conn.Close()
}

// errGiveUp ends the work on a connection; the client starts anew.
var errGiveUp = errors.New("give up the connection")

// work connects and runs f until it returns errGiveUp, over and over.
func (c *client) work(f func(ctx context.Context) error) {
	for c.w.ctx.Err() == nil {
		if err := c.connect(c.w.ctx); err != nil {
			c.pause(time.Second)
			continue
		}
		err := f(c.w.ctx)
		if errors.Is(err, context.Canceled) && c.w.ctx.Err() != nil {
			err = nil
		}
		c.disconnect(err == nil)
		if err != nil {
			c.pause(200 * time.Millisecond)
		}
	}
}

// pause sleeps up to twice d, or until the world ends.
func (c *client) pause(d time.Duration) {
	t := time.NewTimer(time.Duration(c.rng.Int64N(int64(2*d) + 1)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.w.ctx.Done():
	}
}

func (c *client) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	there := c.w.there()
	m := there[c.rng.IntN(len(there))]
	for c.calm && m == c.w.avoid {
		m = there[c.rng.IntN(len(there))]
	}
	raw, err := c.host.Dial(ctx, m.ip+clientPort)
	if err != nil {
		return err
	}
	s := &socket{Conn: raw, rec: c.w.rec, client: c.id, number: c.w.rec.NewConn()}
	go s.watch()
	conn, err := goamqp.NewConn(ctx, s, &goamqp.ConnOptions{
		ContainerID: fmt.Sprintf("c%d-%d", c.id, c.serial), HostName: "broker",
		SASLType: goamqp.SASLTypePlain(policyName, policyKey),
	})
	if err != nil {
		_ = s.Close() // the connection was never made
		return err
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		_, _ = s.Close(), conn.Close() // of no use any more
		return err
	}
	c.conn, c.raw, c.session, c.number = conn, s, session, s.number
	c.manage = map[string]*management{}
	c.w.c.add("connections", 1)
	return nil
}

// disconnect ends the connection: in good order, or as a process that dies.
func (c *client) disconnect(orderly bool) {
	if c.conn == nil {
		return
	}
	c.raw.over()
	if !orderly {
		_ = c.raw.Close() // a process that dies looks at no error
	}
	_, _ = c.conn.Close(), c.raw.Close() // nor is there anything to do about one here
	c.conn, c.session, c.manage = nil, nil, nil
}

// opContext bounds one operation. It does not end with the world, so that what has begun is finished.
func (c *client) opContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), opLimit)
}

// definite are the conditions that say that nothing happened.
var definite = []goamqp.ErrCond{
	"com.microsoft:message-lock-lost", "com.microsoft:session-lock-lost",
	"com.microsoft:session-cannot-be-locked", "com.microsoft:message-not-found", "amqp:not-found",
	"amqp:not-allowed", "com.microsoft:entity-disabled", "amqp:link:message-size-exceeded",
	"amqp:resource-limit-exceeded", "com.microsoft:argument-error",
}

// judge turns the end of an operation into an outcome. The error is not nil if the connection, or the
// link that it came over, is of no use any more.
func (c *client) judge(o *check.Op, err error, fill func(*check.Op)) error {
	if err == nil {
		c.w.rec.End(o, check.OK, fill)
		return nil
	}
	var refused *goamqp.Error
	var ended *goamqp.LinkError
	over := true
	switch {
	case errors.As(err, &ended):
		refused = ended.RemoteErr
	case errors.As(err, &refused):
		over = false
	}
	outcome, condition := check.Unknown, ""
	if refused != nil {
		condition = string(refused.Condition)
		if slices.Contains(definite, refused.Condition) && !over {
			outcome = check.Failed
		}
	}
	c.w.rec.End(o, outcome, func(o *check.Op) {
		o.Error, o.Condition = err.Error(), condition
		if outcome == check.Unknown && over {
			o.Return = 0
		}
	})
	if over {
		return fmt.Errorf("%w: %w", errGiveUp, err)
	}
	return nil
}

// managementError is a refusal of a request.
type managementError struct {
	code      int32
	condition string
	text      string
}

func (e *managementError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.code, e.condition, e.text)
}

// judgeRequest is judge for requests to $management.
func (c *client) judgeRequest(o *check.Op, err error, fill func(*check.Op)) error {
	var refused *managementError
	if !errors.As(err, &refused) {
		return c.judge(o, err, fill)
	}
	outcome := check.Unknown
	switch refused.code {
	case 400, 401, 403, 404, 409, 410, 501:
		outcome = check.Failed
	}
	c.w.rec.End(o, outcome, func(o *check.Op) {
		o.Error, o.Condition = err.Error(), refused.condition
	})
	return nil
}

// management is the pair of links to an entity's $management.
type management struct {
	tx     *goamqp.Sender
	rx     *goamqp.Receiver
	serial int
}

func (c *client) managementOf(ctx context.Context, entity string) (*management, error) {
	if m := c.manage[entity]; m != nil {
		return m, nil
	}
	node := entity + "/$management"
	replyTo := fmt.Sprintf("reply-%d", c.number)
	rx, err := c.session.NewReceiver(ctx, node, &goamqp.ReceiverOptions{
		TargetAddress: replyTo, Credit: 10,
		RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr(),
		SettlementMode:            goamqp.ReceiverSettleModeFirst.Ptr(),
	})
	if err != nil {
		return nil, err
	}
	tx, err := c.session.NewSender(ctx, node, nil)
	if err != nil {
		return nil, err
	}
	c.manage[entity] = &management{tx: tx, rx: rx}
	return c.manage[entity], nil
}

// ask sends one request and waits for its answer.
func (c *client) ask(ctx context.Context, entity, operation string, body map[string]any) (
	map[string]any, error) {
	m, err := c.managementOf(ctx, entity)
	if err != nil {
		return nil, err
	}
	m.serial++
	id, replyTo := fmt.Sprintf("r%d", m.serial), fmt.Sprintf("reply-%d", c.number)
	err = m.tx.Send(ctx, &goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: id, ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation},
		Value:                 body,
	}, nil)
	if err != nil {
		return nil, c.plain(err)
	}
	for {
		r, err := m.rx.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		if r.Properties == nil || r.Properties.CorrelationID != id {
			continue
		}
		code, _ := r.ApplicationProperties["statusCode"].(int32)
		if code == 200 || code == 204 || code == 202 {
			v, _ := r.Value.(map[string]any)
			return v, nil
		}
		condition, _ := r.ApplicationProperties["errorCondition"].(string) // a symbol, to the library
		text, _ := r.ApplicationProperties["statusDescription"].(string)
		return nil, &managementError{code, condition, text}
	}
}

// plain hides the type of a refusal of the request message itself: of the operation nothing is known.
func (c *client) plain(err error) error { return fmt.Errorf("request: %v", err) }

// messageOf reads what a receiver was given.
func messageOf(m *goamqp.Message) check.Message {
	out := check.Message{Hash: hashOf(m)}
	if p := m.Properties; p != nil {
		out.ID, _ = p.MessageID.(string)
		if p.GroupID != nil {
			out.Session, out.HasSession = *p.GroupID, true
		}
	}
	number := func(name string) int64 { v, _ := m.Annotations[name].(int64); return v }
	at := func(name string) int64 {
		if t, ok := m.Annotations[name].(time.Time); ok {
			return t.UnixMilli()
		}
		return 0
	}
	out.Seq = number("x-opt-sequence-number")
	out.EnqueuedSeq = number("x-opt-enqueue-sequence-number")
	out.EnqueuedAt = at("x-opt-enqueued-time")
	out.LockedUntil = at("x-opt-locked-until")
	out.ScheduledAt = at("x-opt-scheduled-enqueue-time")
	if s, ok := m.Annotations["x-opt-message-state"].(int32); ok {
		out.State = int(s)
	}
	if m.Header != nil {
		out.Attempts = m.Header.DeliveryCount
	}
	if p := m.Properties; p != nil && p.AbsoluteExpiryTime != nil {
		out.ExpiresAt = p.AbsoluteExpiryTime.UnixMilli()
	}
	out.Reason, _ = m.ApplicationProperties["DeadLetterReason"].(string)
	if token, ok := amqp.TokenFromTag(m.DeliveryTag); ok {
		out.Token = token.String()
	}
	return out
}

// uuidOf is the token as requests carry it.
func uuidOf(token string) goamqp.UUID {
	var u goamqp.UUID
	n := 0
	for i := 0; i+1 < len(token) && n < len(u); {
		if token[i] == '-' {
			i++
			continue
		}
		if _, err := fmt.Sscanf(token[i:i+2], "%02x", &u[n]); err != nil {
			return goamqp.UUID{} // no token: the broker says so
		}
		i, n = i+2, n+1
	}
	return u
}
