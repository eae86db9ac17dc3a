package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/partition"
)

func (b *bench) router() *partition.Router {
	return b.lab.Router(b.node())
}

// node is a node that runs.
func (b *bench) node() int {
	for i := range b.lab.Nodes() {
		if b.lab.Up(i) {
			return i
		}
	}
	b.Fatal("no node runs")
	return -1
}

// client is an application on a machine of its own, with one connection.
type client struct {
	b       *bench
	number  int
	node    int
	raw     net.Conn
	conn    *goamqp.Conn
	session *goamqp.Session
	asks    map[string]*questions
}

// client connects a new client to node 0.
func (b *bench) client() *client { return b.clientAt(0) }

// clientAt connects a new client to a node.
func (b *bench) clientAt(node int) *client {
	b.Helper()
	c := b.hidden(node)
	b.must("connect", c.tryConnect())
	return c
}

// hidden is a client that is not connected yet.
func (b *bench) hidden(node int) *client {
	return &client{b: b, number: int(b.clients.Add(1)), node: node}
}

// survivor connects a new client to a node that runs.
func (b *bench) survivor() *client {
	b.Helper()
	return b.clientAt(b.node())
}

func (c *client) tryConnect() error {
	ctx, cancel := c.b.soon()
	defer cancel()
	raw, err := c.b.lab.Dial(ctx, c.number, c.node)
	if err != nil {
		return err
	}
	c.raw = raw
	name, key := c.b.lab.Policy()
	c.conn, err = goamqp.NewConn(ctx, raw, &goamqp.ConnOptions{
		ContainerID: fmt.Sprintf("client-%d", c.number), HostName: "broker",
		SASLType: goamqp.SASLTypePlain(name, key),
	})
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	c.asks = map[string]*questions{}
	c.session, err = c.conn.NewSession(ctx, nil)
	return err
}

// soon is a context for a step that has to succeed.
func (b *bench) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, patience)
}

// close ends the connection in good order.
func (c *client) close() { c.b.must("close the connection", c.conn.Close()) }

// die breaks the connection off, as a process that ends does.
func (c *client) die() { c.b.must("break the connection off", c.raw.Close()) }

// emptyStored is the stored form of a message without sections.
func emptyStored() []byte { return (&stored.Message{}).AppendHead(nil) }

// message is a message with its text, as scenarios write it.
func message(text string, options ...func(*goamqp.Message)) *goamqp.Message {
	m := goamqp.NewMessage([]byte(text))
	m.Properties = &goamqp.MessageProperties{MessageID: text}
	for _, o := range options {
		o(m)
	}
	return m
}

// Options of messages.
func inSession(id string) func(*goamqp.Message) {
	return func(m *goamqp.Message) { m.Properties.GroupID = &id }
}

func withID(id any) func(*goamqp.Message) {
	return func(m *goamqp.Message) { m.Properties.MessageID = id }
}

// sized makes the body of a message that large.
func sized(bytes int) func(*goamqp.Message) {
	return func(m *goamqp.Message) { m.Data = [][]byte{make([]byte, bytes)} }
}

func living(d time.Duration) func(*goamqp.Message) {
	return func(m *goamqp.Message) { m.Header = &goamqp.MessageHeader{TTL: d} }
}

func annotated(key string, value any) func(*goamqp.Message) {
	return func(m *goamqp.Message) {
		if m.Annotations == nil {
			m.Annotations = goamqp.Annotations{}
		}
		m.Annotations[key] = value
	}
}

func withKey(key string) func(*goamqp.Message) { return annotated("x-opt-partition-key", key) }

func dueAt(t time.Time) func(*goamqp.Message) {
	return annotated("x-opt-scheduled-enqueue-time", t)
}

func with(key string, value any) func(*goamqp.Message) {
	return func(m *goamqp.Message) {
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = map[string]any{}
		}
		m.ApplicationProperties[key] = value
	}
}

// sender is an open sending link.
type sender struct {
	*goamqp.Sender
	c *client
}

func (c *client) sender(entity string) *sender {
	c.b.Helper()
	s, err := c.trySender(entity)
	c.b.must("open a sender to "+entity, err)
	return s
}

func (c *client) trySender(entity string) (*sender, error) {
	ctx, cancel := c.b.soon()
	defer cancel()
	s, err := c.session.NewSender(ctx, entity, nil)
	return &sender{s, c}, err
}

// send sends messages one after the other.
func (s *sender) send(messages ...*goamqp.Message) {
	s.c.b.Helper()
	for _, m := range messages {
		s.c.b.must("send", s.try(m))
	}
}

func (s *sender) try(m *goamqp.Message) error {
	ctx, cancel := s.c.b.soon()
	defer cancel()
	return s.Send(ctx, m, nil)
}

// send sends texts over a link of its own.
func (c *client) send(entity string, texts ...string) {
	c.b.Helper()
	s := c.sender(entity)
	for _, t := range texts {
		s.send(message(t))
	}
	ctx, cancel := c.b.soon()
	defer cancel()
	c.b.must("close the sender", s.Close(ctx))
}

// batch packs messages into one transfer.
func batch(messages ...*goamqp.Message) (*goamqp.Message, error) {
	out := &goamqp.Message{Format: 0x80013700}
	for i, m := range messages {
		encoded, err := m.MarshalBinary()
		if err != nil {
			return nil, err
		}
		if i == 0 {
			out.Properties, out.Annotations = m.Properties, m.Annotations
		}
		out.Data = append(out.Data, encoded)
	}
	return out, nil
}

// askError is a refusal of a request to $management.
type askError struct {
	code      int32
	condition string
	text      string
}

func (e *askError) Error() string { return fmt.Sprintf("%d %s: %s", e.code, e.condition, e.text) }

// questions are the links to an entity's $management.
type questions struct {
	tx     *goamqp.Sender
	rx     *goamqp.Receiver
	serial int
}

func (c *client) questionsTo(ctx context.Context, entity string) (*questions, error) {
	if q := c.asks[entity]; q != nil {
		return q, nil
	}
	reply := fmt.Sprintf("reply-%d-%s", c.number, entity)
	rx, err := c.session.NewReceiver(ctx, entity+"/$management", &goamqp.ReceiverOptions{
		TargetAddress: reply, Credit: 100,
		RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr(),
	})
	if err != nil {
		return nil, err
	}
	tx, err := c.session.NewSender(ctx, entity+"/$management", nil)
	if err != nil {
		return nil, err
	}
	c.asks[entity] = &questions{tx: tx, rx: rx}
	return c.asks[entity], nil
}

// ask makes a request to $management that has to succeed.
func (c *client) ask(entity, operation string, body map[string]any) map[string]any {
	c.b.Helper()
	a, err := c.tryAsk(entity, operation, body)
	c.b.must(operation, err)
	return a
}

func (c *client) tryAsk(entity, operation string, body map[string]any) (map[string]any, error) {
	ctx, cancel := c.b.soon()
	defer cancel()
	q, err := c.questionsTo(ctx, entity)
	if err != nil {
		return nil, err
	}
	q.serial++
	id, reply := fmt.Sprintf("r%d", q.serial), fmt.Sprintf("reply-%d-%s", c.number, entity)
	err = q.tx.Send(ctx, &goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: id, ReplyTo: &reply},
		ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation},
		Value:                 body,
	}, nil)
	if err != nil {
		return nil, err
	}
	for {
		r, err := q.rx.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		if r.Properties == nil || r.Properties.CorrelationID != id {
			continue
		}
		code, _ := r.ApplicationProperties["statusCode"].(int32)
		if code >= 200 && code < 300 {
			v, _ := r.Value.(map[string]any)
			return v, nil
		}
		condition, _ := r.ApplicationProperties["errorCondition"].(string) // a symbol, to the library
		text, _ := r.ApplicationProperties["statusDescription"].(string)
		return nil, &askError{code, condition, text}
	}
}
