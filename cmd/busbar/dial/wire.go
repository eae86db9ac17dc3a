package dial

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/uuid"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// The filter of a link that asks for a session, by name and by descriptor.
const (
	SessionFilter     = "com.microsoft:session-filter"
	SessionFilterCode = 0x000000137000000C
)

// Wire is one AMQP connection of a client command.
type Wire struct {
	t       *Target
	Limit   time.Duration // of one request
	Conn    *amqp.Conn
	Session *amqp.Session
}

// Func opens an AMQP connection to a URL; [amqp.Dial] is one.
type Func func(ctx context.Context, url string, options *amqp.ConnOptions) (*amqp.Conn, error)

// Connect connects and proves the right to use path.
func Connect(ctx context.Context, t *Target, path string, limit time.Duration) (*Wire, error) {
	return ConnectBy(ctx, amqp.Dial, t, path, limit)
}

// ConnectBy is [Connect] over a connection of the caller's own making.
func ConnectBy(ctx context.Context, dial Func, t *Target, path string, limit time.Duration) (*Wire, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := dial(ctx, t.URL("amqp"), &amqp.ConnOptions{
		SASLType: amqp.SASLTypeAnonymous(), TLSConfig: t.tlsConfig(),
		Properties: map[string]any{"product": "busbar-cli", "version": t.Version},
	})
	if err != nil {
		return nil, t.reached(Failure("connect to "+t.Host, err))
	}
	w := &Wire{t: t, Limit: limit, Conn: conn}
	if w.Session, err = conn.NewSession(ctx, nil); err != nil {
		w.Close()
		return nil, Failure("begin", err)
	}
	if err := w.authorise(ctx, path); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the connection. The command has its result by then, so an error changes nothing.
func (w *Wire) Close() { _ = w.Conn.Close() }

// authorise puts a token for path.
func (w *Wire) authorise(ctx context.Context, path string) error {
	r, err := w.OpenRequests(ctx, "$cbs")
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.Call(ctx, &amqp.Message{
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": "servicebus.windows.net:sastoken",
			"name":       w.t.audience(path),
			"expiration": fmt.Sprint(time.Now().Add(tokenLife).Unix()),
		},
		Value: w.t.Token(path, time.Now()),
	})
	return Failure("authorise for "+path, err)
}

// Requests is a pair of links to a node that answers requests.
type Requests struct {
	node    string
	replyTo string
	out     *amqp.Sender
	in      *amqp.Receiver
}

// OpenRequests attaches both links to a node such as "$cbs" or "queue/$management".
func (w *Wire) OpenRequests(ctx context.Context, node string) (*Requests, error) {
	r := &Requests{node: node, replyTo: "reply-" + uuid.NewString()}
	var err error
	if r.in, err = w.Session.NewReceiver(ctx, node, &amqp.ReceiverOptions{
		TargetAddress: r.replyTo, Credit: 10}); err != nil {
		return nil, Failure("open "+node, err)
	}
	if r.out, err = w.Session.NewSender(ctx, node, nil); err != nil {
		return nil, Failure("open "+node, err)
	}
	return r, nil
}

// Close detaches both links. Its failure is the connection's, which the next call reports.
func (r *Requests) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.out.Close(ctx)
	_ = r.in.Close(ctx)
}

// Call sends one request and returns its answer if that is a success. One request is outstanding at
// a time, so the next answer is this one's unless an earlier call was given up.
func (r *Requests) Call(ctx context.Context, m *amqp.Message) (*amqp.Message, error) {
	id := uuid.NewString()
	m.Properties = &amqp.MessageProperties{MessageID: id, ReplyTo: &r.replyTo}
	if err := r.out.Send(ctx, m, nil); err != nil {
		return nil, err
	}
	for {
		answer, err := r.in.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		if err := r.in.AcceptMessage(ctx, answer); err != nil {
			return nil, err
		}
		if answer.Properties == nil || answer.Properties.CorrelationID != id {
			continue
		}
		return answer, answerError(answer)
	}
}

// answerError reads the status of an answer, which follows HTTP.
func answerError(m *amqp.Message) error {
	code, ok := first(m.ApplicationProperties, "status-code", "statusCode").(int32)
	if !ok {
		return fmt.Errorf("the answer has no status")
	}
	if code >= 200 && code < 300 {
		return nil
	}
	text, _ := first(m.ApplicationProperties, "status-description", "statusDescription").(string)
	text, id := shortened(text)
	if id != "" {
		text += " (tracking id " + id + ")"
	}
	return exit.FromHTTP("refused", int(code), text)
}

func first(m map[string]any, names ...string) any {
	for _, n := range names {
		if v, ok := m[n]; ok && v != nil {
			return v
		}
	}
	return nil
}

// ReceiveOne waits for the next message of a link, no longer than wait.
func ReceiveOne(ctx context.Context, in *amqp.Receiver, wait time.Duration) (*amqp.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return in.Receive(ctx, nil)
}
