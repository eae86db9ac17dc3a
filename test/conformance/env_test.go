package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

// caseLimit bounds one case; the longest waits for two lock durations of five seconds.
const caseLimit = 90 * time.Second

// soon bounds the wait for a message that must come.
const soon = 20 * time.Second

// quiet is how long a test listens to be sure that nothing comes.
const quiet = 1200 * time.Millisecond

// env is one case's private world: its own connections, its own queues, and the nodes to reach.
type env struct {
	*testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	secure  bool
	first   int // the node that At(0) means, so that the cases spread over the cluster
	queues  int
	prefix  string
}

func newEnv(t *testing.T, c *cluster.Cluster, secure bool, first int) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseLimit)
	t.Cleanup(cancel)
	return &env{T: t, ctx: ctx, cluster: c, secure: secure, first: first,
		prefix: fmt.Sprintf("conf-%08x", rand.Uint32())}
}

// node returns the i-th node as this case counts; with one node it is always the same.
func (e *env) node(i int) *cluster.Node { return e.cluster.Pick(e.first + i) }

// client opens a connection of its own to node i.
func (e *env) client(i int) *azservicebus.Client {
	e.Helper()
	c, err := e.node(i).Client(e.secure, cluster.Retry)
	e.must("new client", err)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func (e *env) admin(i int) *admin.Client {
	e.Helper()
	a, err := e.node(i).Admin(e.secure)
	e.must("new admin client", err)
	return a
}

func (e *env) must(what string, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

func (e *env) check(ok bool, format string, args ...any) {
	e.Helper()
	if !ok {
		e.Fatalf(format, args...)
	}
}

// name makes the name of an entity that no other case uses.
func (e *env) name() string {
	e.queues++
	return fmt.Sprintf("%s-q%d", e.prefix, e.queues)
}

// queue creates a queue through node 0 and deletes it when the case is over.
func (e *env) queue(p *admin.QueueProperties) string {
	e.Helper()
	name, a := e.name(), e.admin(0)
	_, err := a.CreateQueue(e.ctx, name, &admin.CreateQueueOptions{Properties: p})
	e.must("create queue", err)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = a.DeleteQueue(ctx, name, nil)
	})
	return name
}

// sessionQueue creates a queue with sessions and the given lock duration.
func (e *env) sessionQueue(lock string) string {
	e.Helper()
	return e.queue(&admin.QueueProperties{RequiresSession: to(true), LockDuration: &lock})
}

func (e *env) sender(c *azservicebus.Client, queue string) *azservicebus.Sender {
	e.Helper()
	s, err := c.NewSender(queue, nil)
	e.must("new sender", err)
	return s
}

func (e *env) receiver(c *azservicebus.Client, queue string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	e.Helper()
	r, err := c.NewReceiverForQueue(queue, o)
	e.must("new receiver", err)
	return r
}

func (e *env) deadLetters(c *azservicebus.Client, queue string) *azservicebus.Receiver {
	e.Helper()
	return e.receiver(c, queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (e *env) send(s *azservicebus.Sender, msgs ...*azservicebus.Message) {
	e.Helper()
	for _, m := range msgs {
		e.must("send", s.SendMessage(e.ctx, m, nil))
	}
}

func (e *env) accept(c *azservicebus.Client, queue, session string) *azservicebus.SessionReceiver {
	e.Helper()
	r, err := c.AcceptSessionForQueue(e.ctx, queue, session, nil)
	e.must("accept "+session, err)
	return r
}

type receiving interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

type completing interface {
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
}

// take receives exactly n messages.
func (e *env) take(r receiving, n int) []*azservicebus.ReceivedMessage {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, soon)
	defer cancel()
	var all []*azservicebus.ReceivedMessage
	for len(all) < n {
		got, err := r.ReceiveMessages(ctx, n-len(all), nil)
		all = append(all, got...)
		if err != nil && len(all) < n {
			e.Fatalf("received %d of %d: %v", len(all), n, err)
		}
	}
	return all
}

// takeAtOnce receives n messages in one call, so that their order is that of the broker. The SDK releases what comes between
// two calls, and may hand over the message behind it. Only sessions are spared that (decision 0042).
func (e *env) takeAtOnce(r receiving, n int) []*azservicebus.ReceivedMessage {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, soon)
	defer cancel()
	all, err := r.ReceiveMessages(ctx, n, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: soon})
	if len(all) < n {
		e.Fatalf("received %d of %d in one call: %v", len(all), n, err)
	}
	return all
}

func (e *env) one(r receiving) *azservicebus.ReceivedMessage {
	e.Helper()
	return e.take(r, 1)[0]
}

// none fails when a message comes within the quiet time.
func (e *env) none(r receiving) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, quiet)
	defer cancel()
	got, err := r.ReceiveMessages(ctx, 1, nil)
	if len(got) > 0 {
		e.Fatalf("unexpected message %q, delivery count %d", got[0].Body, got[0].DeliveryCount)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		e.Fatalf("receive where nothing is: %v", err)
	}
}

func (e *env) complete(r completing, msgs ...*azservicebus.ReceivedMessage) {
	e.Helper()
	for _, m := range msgs {
		e.must("complete", r.CompleteMessage(e.ctx, m, nil))
	}
}

// wantCode checks the SDK's own error code.
func (e *env) wantCode(what string, err error, want azservicebus.Code) {
	e.Helper()
	var se *azservicebus.Error
	if !errors.As(err, &se) || se.Code != want {
		e.Fatalf("%s: got %v, want the SDK's code %s", what, err, want)
	}
}

func to[T any](v T) *T { return &v }

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func inSession(session, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: &session}
}

func bodies(ms []*azservicebus.ReceivedMessage) []string {
	var out []string
	for _, m := range ms {
		out = append(out, string(m.Body))
	}
	return out
}

func deref(s *string) string {
	if s == nil {
		return "<nil>"
	}
	return *s
}
