package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/check"
)

const (
	opLimit     = 30 * time.Second // of one operation
	dialLimit   = 5 * time.Second
	closeLimit  = 2 * time.Second
	idleReceive = time.Second // a receive that finds nothing
)

// errGiveUp ends the work on a connection; the client starts anew.
var errGiveUp = errors.New("give up the connection")

// once makes the SDK try every operation a single time: what the broker cannot hide is seen.
var once = azservicebus.RetryOptions{MaxRetries: -1}

// world is what all clients share.
type world struct {
	bed    *bed
	rec    *check.Recorder
	queues []check.Queue
	ctx    context.Context // ends when consumers end
	making context.Context // ends when producers end
	gate   atomic.Int64    // highest client number
	homes  sync.Map        // connection number -> node number
	counts counters
	shared sharedCounts
	board  board

	mu       sync.Mutex
	deferred map[string][]int64 // by queue
}

// counters are what the report adds up.
type counters struct {
	sends, deliveries, redeliveries, unknown, connections, sessions atomic.Int64
}

// client is one worker with one connection of the official SDK at a time.
type client struct {
	w      *world
	id     int
	rng    *rand.Rand
	at     int // index of the node
	serial int

	raw    bool // it speaks without the SDK
	bare   *bare
	sdk    *azservicebus.Client
	sock   *socket
	number int // of the connection in the history
}

func (w *world) newClient(at int, seed uint64) *client {
	id := int(w.gate.Add(1))
	return &client{w: w, id: id, at: at % len(w.bed.nodes), rng: rand.New(rand.NewPCG(seed, uint64(id)))}
}

// socket notes when its connection was last known to be good.
type socket struct {
	net.Conn
	rec      *check.Recorder
	client   int
	number   int
	lastRead atomic.Int64
	once     sync.Once
	broken   atomic.Bool
	alive    context.Context // ends with the connection
	end      context.CancelFunc
}

// over notes the end of the connection. The broker may have known earlier: from the last byte on that
// came from it, nobody can tell.
func (s *socket) over() {
	s.once.Do(func() {
		s.broken.Store(true)
		s.end()
		o := s.rec.Begin(s.client, s.number, check.Lost, "", "")
		s.rec.Set(o, func(o *check.Op) { o.Invoke = min(o.Invoke, s.lastRead.Load()) })
		s.rec.End(o, check.OK, nil)
	})
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 {
		s.lastRead.Store(time.Now().UnixNano())
	}
	if err != nil {
		s.over()
	}
	return n, err
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
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

// connect makes an SDK client whose only connection is this socket: the SDK takes a function that
// dials, and this one works once. So a connection that was lost is never hidden.
func (c *client) connect(ctx context.Context) error {
	n := c.w.bed.nodes[c.at]
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	amqp, _ := n.Doors()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", amqp)
	if err != nil {
		return err
	}
	s := &socket{Conn: raw, rec: c.w.rec, client: c.id, number: c.w.rec.NewConn()}
	s.alive, s.end = context.WithCancel(context.Background())
	s.lastRead.Store(time.Now().UnixNano())
	if c.raw {
		if c.bare, err = newBare(ctx, s); err != nil {
			return err
		}
		c.connected(s, n)
		return nil
	}
	var used atomic.Bool
	dial := func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errors.New("the connection is lost")
		}
		return s, nil
	}
	sdk, err := azservicebus.NewClientFromConnectionString(n.Plain(),
		&azservicebus.ClientOptions{RetryOptions: once, NewWebSocketConn: dial})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	c.sdk = sdk
	c.connected(s, n)
	return nil
}

func (c *client) connected(s *socket, n *node) {
	c.sock, c.number = s, s.number
	c.w.homes.Store(s.number, n.number)
	c.w.counts.connections.Add(1)
}

// disconnect ends the connection: in good order, or as a process that dies.
func (c *client) disconnect(orderly bool) {
	if c.sdk == nil && c.bare == nil {
		return
	}
	c.sock.over()
	if !orderly {
		_ = c.sock.Close()
	}
	if c.bare != nil {
		_, _ = c.bare.conn.Close(), c.sock.Close() // of no use any more
		c.bare = nil
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	sdk := c.sdk
	_ = within(ctx, func() error { return sdk.Close(ctx) })
	_ = c.sock.Close()
	c.sdk = nil
}

// work connects and runs f until it returns errGiveUp, over and over, until ctx ends.
func (c *client) work(ctx context.Context, f func(ctx context.Context) error) {
	for ctx.Err() == nil {
		if err := c.connect(ctx); err != nil {
			c.at = (c.at + 1) % len(c.w.bed.nodes)
			c.pause(ctx, 100*time.Millisecond)
			continue
		}
		err := f(ctx)
		orderly := err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled)
		c.disconnect(orderly)
		if !orderly {
			c.at = (c.at + 1) % len(c.w.bed.nodes)
			c.pause(ctx, 100*time.Millisecond)
		}
	}
}

// pause sleeps up to twice d, or until ctx ends.
func (c *client) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(time.Duration(c.rng.Int64N(int64(2*d) + 1)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// opContext bounds one operation. It does not end with the run, so that what has begun is finished. It ends with the
// connection: the SDK would wait for the answer of a broker that is gone.
func (c *client) opContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.sock.alive, opLimit)
}

// stuckAfter is for how long a call may go on when its time is up.
const stuckAfter = 10 * time.Second

// errStuck is the end of a call that does not end.
var errStuck = errors.New("the SDK does not return from a send whose time is up")

// within makes a call that sends, and leaves it alone when it does not end with its context. go-amqp 1.7.0 waits for ever
// in (*Sender).send if a write fails while the link ends with its connection. The outcome of the call is unknown then.
func within(ctx context.Context, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(stuckAfter)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return errStuck
	}
}

// nothing reports whether an error only says that nothing came in time.
func nothing(err error) bool {
	var se *azservicebus.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &se) && se.Code == azservicebus.CodeTimeout
}

// judge turns the end of an operation into an outcome. The error is not nil if the client has to
// start anew.
func (c *client) judge(o *check.Op, err error, fill func(*check.Op)) error {
	if err == nil {
		c.w.rec.End(o, check.OK, fill)
		return nil
	}
	var se *azservicebus.Error
	condition := ""
	if errors.As(err, &se) && !c.sock.broken.Load() {
		condition = conditionOf(se.Code, err.Error())
	}
	if condition != "" {
		c.w.rec.End(o, check.Failed, func(o *check.Op) { o.Error, o.Condition = err.Error(), condition })
		return nil
	}
	c.w.counts.unknown.Add(1)
	c.w.rec.End(o, check.Unknown, func(o *check.Op) { o.Error, o.Return = err.Error(), 0 })
	return fmt.Errorf("%w: %w", errGiveUp, err)
}

// conditionOf returns the condition of a refusal after which a client goes on, "" for any other error. The SDK has one code for
// both locks. The text tells them apart: that of a link has the condition, that of an answer the description.
func conditionOf(code azservicebus.Code, text string) string {
	switch {
	case code == azservicebus.CodeNotFound:
		return "com.microsoft:message-not-found"
	case code != azservicebus.CodeLockLost:
		return ""
	case strings.Contains(text, "session-lock-lost"), strings.Contains(text, "The session lock has expired"):
		return "com.microsoft:session-lock-lost"
	}
	return "com.microsoft:message-lock-lost"
}

func hashOf(body []byte, id, subject string, session *string) uint64 {
	h := fnv.New64a()
	h.Write(body)
	fmt.Fprint(h, id, "/", subject)
	if session != nil {
		fmt.Fprint(h, "/", *session)
	}
	return h.Sum64()
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func millis(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}

// messageOf reads what a receiver was given. The SDK counts the delivery under way, the history only
// those before it.
func messageOf(m *azservicebus.ReceivedMessage) check.Message {
	out := check.Message{
		ID: m.MessageID, Hash: hashOf(m.Body, m.MessageID, text(m.Subject), m.SessionID),
		Session: text(m.SessionID), HasSession: m.SessionID != nil,
		Token: fmt.Sprintf("%x", m.LockToken), Attempts: max(m.DeliveryCount, 1) - 1, State: int(m.State),
		LockedUntil: millis(m.LockedUntil), EnqueuedAt: millis(m.EnqueuedTime),
		ExpiresAt: millis(m.ExpiresAt), ScheduledAt: millis(m.ScheduledEnqueueTime),
		Reason: text(m.DeadLetterReason),
	}
	if m.SequenceNumber != nil {
		out.Seq = *m.SequenceNumber
	}
	if m.EnqueuedSequenceNumber != nil {
		out.EnqueuedSeq = *m.EnqueuedSequenceNumber
	}
	return out
}
