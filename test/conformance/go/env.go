package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"golang.org/x/net/websocket"
)

// soon bounds the wait for a message that must come, quiet the wait for one that must not.
const (
	soon  = 20 * time.Second
	quiet = 1200 * time.Millisecond
)

// env is what a scenario gets: clients and entities of its own.
type env struct {
	ctx     context.Context
	index   int // of the scenario: the scenarios spread over the nodes
	prefix  string
	made    int
	closers []func(context.Context)
}

func newEnv(id string, index int) (*env, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	return &env{ctx: ctx, index: index, prefix: fmt.Sprintf("go-%s-%08x", id, rand.Uint32())}, cancel
}

func (e *env) later(f func(context.Context)) { e.closers = append(e.closers, f) }

// close undoes what the scenario made. Errors are of no interest: the scenario has done it itself,
// or has failed already.
func (e *env) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, f := range slices.Backward(e.closers) {
		f(ctx)
	}
}

func (e *env) must(what string, err error) {
	if err != nil {
		panic(failure(what + ": " + err.Error()))
	}
}

func (e *env) check(ok bool, format string, args ...any) {
	if !ok {
		panic(failure(fmt.Sprintf(format, args...)))
	}
}

// equal compares slices and values by what they print as.
func (e *env) equal(what string, got, want any) {
	if g, w := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want); g != w {
		panic(failure(what + " " + g + ", want " + w))
	}
}

// wantCode expects the SDK's own error code.
func (e *env) wantCode(what string, err error, want azservicebus.Code) {
	var told *azservicebus.Error
	if !errors.As(err, &told) || told.Code != want {
		panic(failure(fmt.Sprintf("%s: %v, want the SDK's code %s", what, err, want)))
	}
}

// missing expects what the service says of an entity that is not there. Old versions have no code of
// their own for it.
func (e *env) missing(what string, err error) { e.told(what, err, "could not be found") }

// told expects an error with a word in its text.
func (e *env) told(what string, err error, word string) {
	// by text: some versions of the SDK give no code, and what they say to people is their users' interface.
	e.check(err != nil && strings.Contains(err.Error(), word), "%s: %v, want %s", what, err, word)
}

func line(name string, i int) string {
	all := strings.Split(os.Getenv(name), "\n")
	return all[i%len(all)]
}

func (e *env) dataString(i int) string  { return line("BUSBAR_DATA", e.index+i) }
func (e *env) adminString(i int) string { return line("BUSBAR_ADMIN", e.index+i) }

// trust is the authority of the nodes and no other.
func (e *env) trust() *tls.Config {
	pem, err := os.ReadFile(os.Getenv("BUSBAR_CA"))
	e.must("read the authority", err)
	pool := x509.NewCertPool()
	e.check(pool.AppendCertsFromPEM(pem), "BUSBAR_CA holds no certificate")
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

func (e *env) client(i int) *azservicebus.Client { return e.clientFor(e.dataString(i)) }

func (e *env) clientFor(connectionString string) *azservicebus.Client {
	o := &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{
		MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: time.Second,
	}}
	switch os.Getenv("BUSBAR_WIRE") {
	case "tls":
		o.TLSConfig = e.trust()
	case "websocket":
		o.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return dialWebSocket(ctx, args.Host, e.trust())
		}
	}
	c, err := azservicebus.NewClientFromConnectionString(connectionString, o)
	e.must("new client", err)
	e.later(func(ctx context.Context) { _ = c.Close(ctx) })
	return c
}

func dialWebSocket(ctx context.Context, url string, trust *tls.Config) (net.Conn, error) {
	c, err := websocket.NewConfig(url, "https://localhost/")
	if err != nil {
		return nil, err
	}
	c.Protocol, c.TlsConfig = []string{"amqp"}, trust
	conn, err := c.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	conn.PayloadType = websocket.BinaryFrame
	return conn, nil
}

func (e *env) admin(i int) *admin.Client { return e.adminFor(e.adminString(i)) }

func (e *env) adminFor(connectionString string) *admin.Client {
	a, err := admin.NewClientFromConnectionString(connectionString, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			Retry:     policy.RetryOptions{MaxRetries: 1, RetryDelay: 100 * time.Millisecond},
			Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: e.trust(), DisableKeepAlives: true}},
		},
	})
	e.must("new management client", err)
	return a
}

// name makes the name of an entity that no other scenario uses.
func (e *env) name(kind string) string {
	e.made++
	return fmt.Sprintf("%s-%s%d", e.prefix, kind, e.made)
}

// queue creates a queue and deletes it when the scenario is over.
func (e *env) queue(p *admin.QueueProperties) string {
	name := e.name("q")
	e.queueOf(name, p)
	return name
}

func (e *env) queueOf(name string, p *admin.QueueProperties) {
	a := e.admin(0)
	_, err := a.CreateQueue(e.ctx, name, &admin.CreateQueueOptions{Properties: p})
	e.must("create queue", err)
	e.later(func(ctx context.Context) { _, _ = a.DeleteQueue(ctx, name, nil) })
}

// sessionQueue creates a queue with sessions and a lock of that duration.
func (e *env) sessionQueue(lock string) string {
	return e.queue(&admin.QueueProperties{RequiresSession: to(true), LockDuration: &lock})
}

func (e *env) topic() string {
	name, a := e.name("t"), e.admin(0)
	_, err := a.CreateTopic(e.ctx, name, nil)
	e.must("create topic", err)
	e.later(func(ctx context.Context) { _, _ = a.DeleteTopic(ctx, name, nil) })
	return name
}

func (e *env) subscribe(topic, name string, p *admin.SubscriptionProperties) {
	_, err := e.admin(0).CreateSubscription(e.ctx, topic, name, &admin.CreateSubscriptionOptions{Properties: p})
	e.must("create subscription", err)
}

func (e *env) sender(i int, entity string) *azservicebus.Sender {
	s, err := e.client(i).NewSender(entity, nil)
	e.must("new sender", err)
	return s
}

func (e *env) send(i int, entity string, messages ...*azservicebus.Message) {
	s := e.sender(i, entity)
	for _, m := range messages {
		e.must("send", s.SendMessage(e.ctx, m, nil))
	}
}

func (e *env) receiver(i int, queue string) *azservicebus.Receiver {
	return e.receiverOf(i, queue, nil)
}

func (e *env) receiverOf(i int, queue string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	r, err := e.client(i).NewReceiverForQueue(queue, o)
	e.must("new receiver", err)
	return r
}

func (e *env) deadLetters(i int, queue string) *azservicebus.Receiver {
	return e.receiverOf(i, queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (e *env) subscription(i int, topic, name string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	r, err := e.client(i).NewReceiverForSubscription(topic, name, o)
	e.must("new receiver", err)
	return r
}

func (e *env) accept(i int, queue, session string) *azservicebus.SessionReceiver {
	r, err := e.client(i).AcceptSessionForQueue(e.ctx, queue, session, nil)
	e.must("accept "+session, err)
	return r
}

// receiver and session receiver have these in common.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	ReceiveDeferredMessages(context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// take receives exactly n messages, as applications do: by default options, until there are enough.
func (e *env) take(r receiver, n int) []*azservicebus.ReceivedMessage {
	ctx, cancel := context.WithTimeout(e.ctx, soon)
	defer cancel()
	var all []*azservicebus.ReceivedMessage
	for len(all) < n {
		ask := n - len(all)
		if holdsBack() {
			ask = 1 // leaves no credit behind, so that nothing comes between two calls
		}
		got, err := r.ReceiveMessages(ctx, ask, nil)
		all = append(all, got...)
		if err != nil && len(all) < n {
			panic(failure(fmt.Sprintf("received %v of %d: %v", bodies(all), n, err)))
		}
	}
	return all
}

// holdsBack tells whether the library may keep a message that comes between two receives. Up to 1.7 the next receive
// breaks its release off, and the message is locked until its lock ends (the SDK's newReleaserFunc).
func holdsBack() bool {
	return strings.HasPrefix(version(), "1.4.") || strings.HasPrefix(version(), "1.7.")
}

func (e *env) one(r receiver) *azservicebus.ReceivedMessage { return e.take(r, 1)[0] }

// none fails when a message comes within the quiet time.
func (e *env) none(r receiver) { e.equal("received", e.within(r, quiet), []string(nil)) }

// within receives one message at most, in that time, and returns its body.
func (e *env) within(r receiver, d time.Duration) []string {
	ctx, cancel := context.WithTimeout(e.ctx, d)
	defer cancel()
	got, err := r.ReceiveMessages(ctx, 1, nil)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		e.must("receive", err)
	}
	return bodies(got)
}

func (e *env) complete(r receiver, messages ...*azservicebus.ReceivedMessage) {
	for _, m := range messages {
		e.must("complete", r.CompleteMessage(e.ctx, m, nil))
	}
}

// peek shows up to ten messages from the first.
func (e *env) peek(r receiver) []*azservicebus.ReceivedMessage {
	got, err := r.PeekMessages(e.ctx, 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: to(int64(0))})
	e.must("peek", err)
	return got
}

func (e *env) deferred(r receiver, number int64) *azservicebus.ReceivedMessage {
	got, err := r.ReceiveDeferredMessages(e.ctx, []int64{number}, nil)
	e.must("receive deferred", err)
	e.equal("deferred messages", len(got), 1)
	return got[0]
}

// until polls for what the broker does at a time of its own.
func (e *env) until(what string, done func() bool) {
	for end := time.Now().Add(soon); !done(); time.Sleep(100 * time.Millisecond) {
		e.check(time.Now().Before(end), "waited in vain: %s", what)
	}
}

func to[T any](v T) *T { return &v }

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func inSession(session, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: &session}
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	var out []string
	for _, m := range messages {
		out = append(out, string(m.Body))
	}
	return out
}

func deref[T any](p *T) T {
	var none T
	if p == nil {
		return none
	}
	return *p
}
