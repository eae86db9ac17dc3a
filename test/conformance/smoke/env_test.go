package smoke

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/busbar-mq/busbar/test/cluster"
)

// wait is how long a message that must come may take.
const wait = 10 * time.Second

type scenario struct {
	name  string
	limit time.Duration
	run   func(*env)
}

// env is one scenario's private world.
type env struct {
	t      *testing.T
	ctx    context.Context
	c      *azservicebus.Client
	a      *admin.Client
	prefix string
	n      int
	queues []string
	topics []string
}

// target is the broker that the scenarios speak to.
type target struct {
	connection string
	admin      string // base URL of the management API; empty: https at the connection's host
}

func TestSmoke(t *testing.T) {
	at := target{os.Getenv("SERVICEBUS_CONNECTION_STRING"), os.Getenv("SERVICEBUS_ADMIN_ENDPOINT")}
	if at.connection == "" {
		n, err := cluster.StartSingle(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			n.Stop()
			if t.Failed() {
				t.Logf("the broker printed at last:\n%s", n.Log(4000))
			}
		})
		at = target{n.Plain(), "http://" + n.Ops}
	}
	for _, s := range scenarios {
		at.play(t, s)
	}
}

// TestEveryScenarioIsListedOnce keeps a scenario from being lost.
func TestEveryScenarioIsListedOnce(t *testing.T) {
	const all = 43
	seen := map[string]bool{}
	for _, s := range scenarios {
		seen[s.name] = true
	}
	if got := len(scenarios); got != all || len(seen) != all {
		t.Errorf("%d scenarios with %d names, want %d", got, len(seen), all)
	}
}

func (at target) play(t *testing.T, s scenario) {
	t.Run(s.name, func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 2*s.limit) // the machine may be busy
		defer cancel()
		e := at.newEnv(t, ctx, s.name)
		defer e.cleanup()
		s.run(e)
	})
}

// rewrite sends management requests to base whatever host the SDK computed.
type rewrite struct {
	base *url.URL
	rt   http.RoundTripper
}

func (r rewrite) Do(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = r.base.Scheme, r.base.Host
	req.Host = r.base.Host
	return r.rt.RoundTrip(req)
}

func (at target) newEnv(t *testing.T, ctx context.Context, name string) *env {
	e := &env{t: t, ctx: ctx}
	e.prefix = fmt.Sprintf("smk-%08x-%s", rand.Uint32(), strings.ReplaceAll(name, "_", "-"))
	var err error
	e.c, err = azservicebus.NewClientFromConnectionString(at.connection, &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{
			MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: time.Second}})
	e.must("new client", err)
	opt := &admin.ClientOptions{}
	if at.admin != "" {
		base, err := url.Parse(at.admin)
		e.must("admin endpoint", err)
		opt.ClientOptions = azcore.ClientOptions{Transport: rewrite{base: base, rt: &http.Transport{}}}
	}
	opt.Retry.MaxRetries = 1
	opt.Retry.RetryDelay = 200 * time.Millisecond
	e.a, err = admin.NewClientFromConnectionString(at.connection, opt)
	e.must("new admin client", err)
	return e
}

func (e *env) cleanup() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = e.c.Close(ctx)
	for _, q := range e.queues {
		_, _ = e.a.DeleteQueue(ctx, q, nil)
	}
	for _, t := range e.topics {
		_, _ = e.a.DeleteTopic(ctx, t, nil)
	}
}

func p[T any](v T) *T { return &v }

func (e *env) must(what string, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%s: %v", what, err)
	}
}

func (e *env) check(ok bool, format string, args ...any) {
	e.t.Helper()
	if !ok {
		e.t.Fatalf(format, args...)
	}
}

func (e *env) queue(props *admin.QueueProperties) string {
	e.t.Helper()
	e.n++
	name := fmt.Sprintf("%s-q%d", e.prefix, e.n)
	_, err := e.a.CreateQueue(e.ctx, name, &admin.CreateQueueOptions{Properties: props})
	e.must("create queue", err)
	e.queues = append(e.queues, name)
	return name
}

func (e *env) topic(props *admin.TopicProperties) string {
	e.t.Helper()
	e.n++
	name := fmt.Sprintf("%s-t%d", e.prefix, e.n)
	_, err := e.a.CreateTopic(e.ctx, name, &admin.CreateTopicOptions{Properties: props})
	e.must("create topic", err)
	e.topics = append(e.topics, name)
	return name
}

func (e *env) sub(topic, name string, props *admin.SubscriptionProperties) {
	e.t.Helper()
	_, err := e.a.CreateSubscription(e.ctx, topic, name, &admin.CreateSubscriptionOptions{Properties: props})
	e.must("create subscription "+name, err)
}

func (e *env) rule(topic, sub, name string, f admin.RuleFilter, act admin.RuleAction) {
	e.t.Helper()
	_, err := e.a.CreateRule(e.ctx, topic, sub, &admin.CreateRuleOptions{Name: &name, Filter: f, Action: act})
	e.must("create rule "+name, err)
}

func (e *env) sender(entity string) *azservicebus.Sender {
	e.t.Helper()
	s, err := e.c.NewSender(entity, nil)
	e.must("new sender", err)
	return s
}

func (e *env) receiver(queue string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	e.t.Helper()
	r, err := e.c.NewReceiverForQueue(queue, o)
	e.must("new receiver", err)
	return r
}

func (e *env) subReceiver(topic, sub string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	e.t.Helper()
	r, err := e.c.NewReceiverForSubscription(topic, sub, o)
	e.must("new receiver", err)
	return r
}

func (e *env) dlq(queue string) *azservicebus.Receiver {
	e.t.Helper()
	return e.receiver(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (e *env) send(s *azservicebus.Sender, msgs ...*azservicebus.Message) {
	e.t.Helper()
	for _, m := range msgs {
		e.must("send", s.SendMessage(e.ctx, m, nil))
	}
}

func msg(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

type receiving interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

type completing interface {
	receiving
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
}

// take receives exactly n messages within d or fails.
func (e *env) take(r receiving, n int, d time.Duration) []*azservicebus.ReceivedMessage {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, d)
	defer cancel()
	var all []*azservicebus.ReceivedMessage
	for len(all) < n {
		got, err := r.ReceiveMessages(ctx, n-len(all), nil)
		all = append(all, got...)
		if err != nil && len(all) < n {
			e.t.Fatalf("receive: %d of %d within %s: %v", len(all), n, d, err)
		}
	}
	e.check(len(all) == n, "received %d messages, want %d", len(all), n)
	return all
}

func (e *env) one(r receiving, d time.Duration) *azservicebus.ReceivedMessage {
	e.t.Helper()
	return e.take(r, 1, d)[0]
}

// none fails if any message shows up within d.
func (e *env) none(r receiving, d time.Duration) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, d)
	defer cancel()
	got, err := r.ReceiveMessages(ctx, 1, nil)
	if len(got) > 0 {
		e.t.Fatalf("unexpected message %q (delivery count %d)", got[0].Body, got[0].DeliveryCount)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		e.t.Fatalf("receive on an empty entity: %v", err)
	}
}

func (e *env) complete(r completing, msgs ...*azservicebus.ReceivedMessage) {
	e.t.Helper()
	for _, m := range msgs {
		e.must("complete", r.CompleteMessage(e.ctx, m, nil))
	}
}

func code(err error) azservicebus.Code {
	var se *azservicebus.Error
	if errors.As(err, &se) {
		return se.Code
	}
	return ""
}

func str(s *string) string {
	if s == nil {
		return "<nil>"
	}
	return *s
}

func bodies(ms []*azservicebus.ReceivedMessage) []string {
	var out []string
	for _, m := range ms {
		out = append(out, string(m.Body))
	}
	return out
}
