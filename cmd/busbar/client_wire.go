package main

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/uuid"
)

// wire is one AMQP connection of a client command.
type wire struct {
	t       *target
	limit   time.Duration // of one request
	conn    *amqp.Conn
	session *amqp.Session
}

// dialFunc opens an AMQP connection to a URL; [amqp.Dial] is one.
type dialFunc func(ctx context.Context, url string, options *amqp.ConnOptions) (*amqp.Conn, error)

// dialWire connects and proves the right to use path.
func dialWire(ctx context.Context, t *target, path string, limit time.Duration) (*wire, error) {
	return dialWireBy(ctx, amqp.Dial, t, path, limit)
}

// dialWireBy is [dialWire] over a connection of the caller's own making.
func dialWireBy(ctx context.Context, dial dialFunc, t *target, path string, limit time.Duration) (*wire, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := dial(ctx, t.url("amqp"), &amqp.ConnOptions{
		SASLType: amqp.SASLTypeAnonymous(), TLSConfig: t.tlsConfig(),
		Properties: map[string]any{"product": "busbar-cli", "version": version},
	})
	if err != nil {
		return nil, wireError("connect to "+t.host, err)
	}
	w := &wire{t: t, limit: limit, conn: conn}
	if w.session, err = conn.NewSession(ctx, nil); err != nil {
		w.close()
		return nil, wireError("begin", err)
	}
	if err := w.authorise(ctx, path); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *wire) close() { _ = w.conn.Close() }

// authorise puts a token for path.
func (w *wire) authorise(ctx context.Context, path string) error {
	r, err := w.openRequests(ctx, "$cbs")
	if err != nil {
		return err
	}
	defer r.close()
	_, err = r.call(ctx, &amqp.Message{
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": "servicebus.windows.net:sastoken",
			"name":       w.t.audience(path),
			"expiration": fmt.Sprint(time.Now().Add(tokenLife).Unix()),
		},
		Value: w.t.token(path, time.Now()),
	})
	return wireError("authorise for "+path, err)
}

// requests is a pair of links to a node that answers requests.
type requests struct {
	node    string
	replyTo string
	out     *amqp.Sender
	in      *amqp.Receiver
}

func (w *wire) openRequests(ctx context.Context, node string) (*requests, error) {
	r := &requests{node: node, replyTo: "reply-" + uuid.NewString()}
	var err error
	if r.in, err = w.session.NewReceiver(ctx, node, &amqp.ReceiverOptions{
		TargetAddress: r.replyTo, Credit: 10}); err != nil {
		return nil, wireError("open "+node, err)
	}
	if r.out, err = w.session.NewSender(ctx, node, nil); err != nil {
		return nil, wireError("open "+node, err)
	}
	return r, nil
}

// close detaches both links. Its failure is the connection's, which the next call reports.
func (r *requests) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.out.Close(ctx)
	_ = r.in.Close(ctx)
}

// call sends one request and returns its answer if that is a success. One request is outstanding at
// a time, so the next answer is this one's unless an earlier call was given up.
func (r *requests) call(ctx context.Context, m *amqp.Message) (*amqp.Message, error) {
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
	return statusError("refused", int(code), text)
}

func first(m map[string]any, names ...string) any {
	for _, n := range names {
		if v, ok := m[n]; ok && v != nil {
			return v
		}
	}
	return nil
}
