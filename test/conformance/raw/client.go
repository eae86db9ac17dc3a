package raw

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/websocket"

	"github.com/busbar-mq/busbar/test/cluster"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// Wire is how a client reaches a node.
type Wire string

// The wires.
const (
	Plain     Wire = "plain"
	TLS       Wire = "TLS"
	WebSocket Wire = "WebSocket"
)

// Frame is one frame of the broker on channel 0.
type Frame struct {
	P       amqp.Performative
	Payload []byte
}

// Client is one connection with one session. Its methods are for one goroutine.
type Client struct {
	conn    net.Conn
	write   sync.Mutex
	in      chan Frame // closed at the end of the stream
	back    []Frame    // frames that nobody has looked at
	id      uint32     // of the next delivery
	handle  uint32     // of the next link
	arrived uint32     // transfers that came
	counts  map[uint32]uint32
	Settled map[uint32]bool // deliveries of the broker that it has settled

	// Edit changes the bytes of what the client writes, if it is set: the encoder writes no text that is not UTF-8.
	Edit func([]byte) []byte
}

var (
	// ErrEnded says that the connection is gone.
	ErrEnded = errors.New("the connection ended")
	// ErrSilent says that nothing came in time.
	ErrSilent = errors.New("no answer")
)

// Refused is an error that the broker gave.
type Refused struct{ Cause *amqp.Error }

func (r *Refused) Error() string {
	if r.Cause == nil {
		return "refused without a reason"
	}
	return string(r.Cause.Condition) + ": " + r.Cause.Description
}

// Condition returns what the broker refused with, "" for another error.
func Condition(err error) string {
	var r *Refused
	if !errors.As(err, &r) || r.Cause == nil {
		return ""
	}
	return string(r.Cause.Condition)
}

// patience is how long a client waits for an answer.
const patience = 60 * time.Second

// Dial connects to a node, authenticates with the well-known key and begins a session.
func Dial(ctx context.Context, n *cluster.Node, wire Wire) (*Client, error) {
	return DialAs(ctx, n, wire, &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + cluster.KeyName + "\x00" + cluster.Key)})
}

// DialAs is Dial with another SASL response. After ANONYMOUS each entity needs a token, which PutToken sends.
func DialAs(ctx context.Context, n *cluster.Node, wire Wire, init *amqp.SASLInit) (*Client, error) {
	conn, err := connect(ctx, n, wire)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, in: make(chan Frame, 1<<16), counts: map[uint32]uint32{}, Settled: map[uint32]bool{}}
	go c.read()
	go c.beat()
	return c, c.open(init)
}

func connect(ctx context.Context, n *cluster.Node, wire Wire) (net.Conn, error) {
	var d net.Dialer
	if wire == Plain {
		return d.DialContext(ctx, "tcp", n.AMQP)
	}
	cfg, err := n.TLSConfig()
	if err != nil {
		return nil, err
	}
	if wire == TLS {
		return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", n.TLS)
	}
	w, err := websocket.NewConfig("wss://"+n.TLS+"/$servicebus/websocket/", "https://"+n.TLS)
	if err != nil {
		return nil, err
	}
	w.Protocol, w.TlsConfig = []string{"AMQPWSB10"}, cfg
	ws, err := w.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	ws.PayloadType = websocket.BinaryFrame
	return ws, nil
}

func (c *Client) read() {
	defer close(c.in)
	head := make([]byte, 8)
	for {
		if _, err := io.ReadFull(c.conn, head); err != nil {
			return
		}
		if string(head[:4]) == "AMQP" {
			continue
		}
		h, err := amqp.ParseFrameHeader(head, 1<<24)
		if err != nil {
			return
		}
		body := make([]byte, h.Size-8)
		if _, err := io.ReadFull(c.conn, body); err != nil {
			return
		}
		if body = body[int(h.DOFF)*4-8:]; len(body) == 0 {
			continue
		}
		p, payload, err := amqp.DecodePerformative(body)
		if err != nil {
			return
		}
		c.in <- Frame{p, payload}
	}
}

// beat gives a sign of life until the connection is gone.
func (c *Client) beat() {
	for range time.Tick(15 * time.Second) {
		if c.put(amqp.AppendEmptyFrame(nil)) != nil {
			return
		}
	}
}

func (c *Client) put(b []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if c.Edit != nil {
		b = c.Edit(b)
	}
	_, err := c.conn.Write(b)
	return err
}

// Send writes a frame; that the broker is gone is seen by whoever reads.
func (c *Client) Send(p amqp.Performative, payload ...[]byte) {
	if tr, ok := p.(*amqp.Transfer); ok {
		_ = c.put(amqp.AppendTransfer(nil, 0, tr, payload...))
		return
	}
	_ = c.put(amqp.AppendFrame(nil, 0, p))
}

// Begin begins another session, on a channel of its own. Nobody waits for the answer.
func (c *Client) Begin(channel uint16) {
	_ = c.put(amqp.AppendFrame(nil, channel, &amqp.Begin{IncomingWindow: 1, OutgoingWindow: 1}))
}

// Close breaks the connection off.
func (c *Client) Close() { _ = c.conn.Close() }

// Conn is the connection below the frames.
func (c *Client) Conn() net.Conn { return c.conn }

// Next returns the next frame, from before or from now.
func (c *Client) Next(limit time.Duration) (Frame, error) {
	return c.await(limit, func(Frame) bool { return true })
}

// Await returns the next frame that is the one; others are kept.
func (c *Client) Await(is func(Frame) bool) (Frame, error) { return c.await(patience, is) }

func (c *Client) await(limit time.Duration, is func(Frame) bool) (Frame, error) {
	for i, f := range c.back {
		if is(f) {
			c.back = append(c.back[:i:i], c.back[i+1:]...)
			return f, nil
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case f, ok := <-c.in:
			if !ok {
				return f, ErrEnded
			}
			switch p := f.P.(type) {
			case *amqp.Transfer:
				c.arrived++
			case *amqp.Disposition:
				for i := p.First; p.Role == amqp.RoleSender && p.Settled && i != p.Last.Or(p.First)+1; i++ {
					c.Settled[i] = true
				}
			}
			if is(f) {
				return f, nil
			}
			c.back = append(c.back, f)
		case <-timer.C:
			return Frame{}, ErrSilent
		}
	}
}

// Is tells frames of a kind.
func Is[T amqp.Performative](f Frame) bool { _, ok := f.P.(T); return ok }

func (c *Client) open(init *amqp.SASLInit) error {
	_ = c.put(amqp.AppendProtocolHeader(nil, amqp.ProtocolSASL))
	c.Send(init)
	f, err := c.Await(Is[*amqp.SASLOutcome])
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if o := f.P.(*amqp.SASLOutcome); o.Outcome != amqp.SASLOK {
		return fmt.Errorf("authenticate: outcome %d", o.Outcome)
	}
	_ = c.put(amqp.AppendProtocolHeader(nil, amqp.ProtocolAMQP))
	c.Send(&amqp.Open{ContainerID: "endpoint-0123abcd", Hostname: amqp.Some("localhost"), MaxFrameSize: amqp.Some(uint32(65_536)),
		IdleTimeOut: amqp.Some(uint32(60_000))})
	if _, err := c.Await(Is[*amqp.Open]); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	c.Send(&amqp.Begin{IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, HandleMax: amqp.Some(uint32(1 << 20))})
	_, err = c.Await(Is[*amqp.Begin])
	return err
}

// Attach opens a link under a handle of its own and returns the broker's attach; a refusal is an error.
func (c *Client) Attach(a amqp.Attach) (*amqp.Attach, error) {
	a.Handle = c.handle
	c.handle++
	if a.Name == "" {
		a.Name = fmt.Sprintf("link-%d", a.Handle)
	}
	if a.Role == amqp.RoleSender && a.Source == nil {
		a.Source = &amqp.Source{}
	}
	c.Send(&a)
	f, err := c.Await(func(f Frame) bool {
		p, ok := f.P.(*amqp.Attach)
		return ok && p.Handle == a.Handle
	})
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	got := f.P.(*amqp.Attach)
	refused := got.Source == nil
	if a.Role == amqp.RoleSender {
		refused = got.Target == nil && got.Coordinator == nil
	}
	if !refused {
		return got, nil
	}
	f, err = c.Await(func(f Frame) bool {
		p, ok := f.P.(*amqp.Detach)
		return ok && p.Handle == a.Handle
	})
	if err != nil {
		return nil, err
	}
	c.Send(&amqp.Detach{Handle: a.Handle, Closed: true})
	return nil, &Refused{f.P.(*amqp.Detach).Error}
}

// Sender opens a sending link and waits for its first credit.
func (c *Client) Sender(address string) (*amqp.Attach, error) {
	return c.withCredit(amqp.Attach{Role: amqp.RoleSender, Target: &amqp.Target{Address: amqp.Some(address)},
		InitialDeliveryCount: amqp.Some(uint32(0))})
}

// Coordinator opens a link to the coordinator.
func (c *Client) Coordinator() (*amqp.Attach, error) {
	return c.withCredit(amqp.Attach{Role: amqp.RoleSender, Coordinator: &amqp.Coordinator{},
		InitialDeliveryCount: amqp.Some(uint32(0))})
}

func (c *Client) withCredit(a amqp.Attach) (*amqp.Attach, error) {
	got, err := c.Attach(a)
	if err != nil {
		return nil, err
	}
	_, err = c.Await(func(f Frame) bool {
		p, ok := f.P.(*amqp.Flow)
		return ok && p.Handle.Set && p.Handle.Value == got.Handle
	})
	return got, err
}

// Receiver opens a link that receives in peek-lock mode; session, if not nil, is the filter's value.
func (c *Client) Receiver(address string, session any) (*amqp.Attach, error) {
	a := amqp.Attach{Role: amqp.RoleReceiver, SndSettleMode: amqp.Some(amqp.SenderUnsettled),
		RcvSettleMode: amqp.Some(amqp.ReceiverSecond), Target: &amqp.Target{Address: amqp.Some("identifier")},
		Source: &amqp.Source{Address: amqp.Some(address), Filter: emptyMap()}}
	if session != nil {
		w := amqp.BeginSymbolMap(nil)
		if text, ok := session.(string); ok {
			w.String(string(amqp.FilterSession), text)
		} else {
			w.Null(string(amqp.FilterSession))
		}
		a.Source.Filter = w.End()
	}
	return c.Attach(a)
}

// Credit asks for n messages more than were asked for before; drain says that none is waited for.
func (c *Client) Credit(handle, n uint32, drain bool) {
	c.Send(&amqp.Flow{NextIncomingID: amqp.Some(c.arrived + 1), IncomingWindow: 1 << 20, NextOutgoingID: c.id,
		OutgoingWindow: 1 << 20, Handle: amqp.Some(handle), DeliveryCount: amqp.Some(c.counts[handle]),
		LinkCredit: amqp.Some(n), Drain: drain})
}

// Message is a delivery of the broker.
type Message struct {
	ID    uint32
	Token amqp.UUID
	Parts amqp.Sections
	Body  string
}

// Receive takes one message; a detach is an error.
func (c *Client) Receive(handle uint32) (*Message, error) {
	c.Credit(handle, 1, false)
	f, err := c.Await(func(f Frame) bool {
		switch p := f.P.(type) {
		case *amqp.Transfer:
			return p.Handle == handle
		case *amqp.Detach:
			return p.Handle == handle
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	if p, ok := f.P.(*amqp.Detach); ok {
		return nil, &Refused{p.Error}
	}
	c.counts[handle]++
	p := f.P.(*amqp.Transfer)
	m := &Message{ID: p.DeliveryID.Value}
	m.Token, _ = amqp.TokenFromTag(p.DeliveryTag)
	if m.Parts, err = amqp.ParseMessage(bytes.Clone(f.Payload)); err == nil {
		body, _ := amqp.SectionValue(m.Parts.Body).Binary()
		m.Body = string(body)
	}
	return m, err
}

// Transfer writes a delivery, in frames of at most 60,000 bytes, and returns its id.
func (c *Client) Transfer(handle, format uint32, settled bool, state amqp.DeliveryState, payload []byte) uint32 {
	id := c.id
	c.id++
	for first := true; first || len(payload) > 0; first = false {
		n := min(len(payload), 60_000)
		tr := &amqp.Transfer{Handle: handle, More: n < len(payload)}
		if first {
			tr.DeliveryID, tr.DeliveryTag = amqp.Some(id), binary.BigEndian.AppendUint32(nil, id)
			tr.MessageFormat, tr.Settled, tr.State = amqp.Some(format), amqp.Some(settled), state
		}
		c.Send(tr, payload[:n])
		payload = payload[n:]
	}
	return id
}

// Outcome waits for the answer to a delivery of the client (role receiver) or to its disposition (role sender).
func (c *Client) Outcome(role amqp.Role, id uint32) (*amqp.Disposition, error) {
	f, err := c.Await(func(f Frame) bool {
		p, ok := f.P.(*amqp.Disposition)
		if ok {
			return p.Role == role && id-p.First <= p.Last.Or(p.First)-p.First
		}
		return Is[*amqp.Detach](f)
	})
	if err != nil {
		return nil, err
	}
	if p, ok := f.P.(*amqp.Detach); ok {
		return nil, &Refused{p.Error}
	}
	d := *f.P.(*amqp.Disposition)
	state := d.State
	if t, ok := state.(*amqp.TransactionalState); ok {
		state = t.Outcome
	}
	if r, ok := state.(amqp.Rejected); ok && r.Error != nil {
		return &d, &Refused{r.Error}
	}
	return &d, nil
}

// Deliver sends a message and waits for its outcome.
func (c *Client) Deliver(handle uint32, state amqp.DeliveryState, payload []byte) (*amqp.Disposition, error) {
	return c.Outcome(amqp.RoleReceiver, c.Transfer(handle, amqp.FormatAMQP, false, state, payload))
}

// Settle decides about a message and returns the broker's answer.
func (c *Client) Settle(id uint32, state amqp.DeliveryState) (*amqp.Disposition, error) {
	c.Send(&amqp.Disposition{Role: amqp.RoleReceiver, First: id, State: state})
	return c.Outcome(amqp.RoleSender, id)
}

// Declare begins a transaction.
func (c *Client) Declare(coordinator uint32) ([]byte, error) {
	d, err := c.Deliver(coordinator, nil, amqp.AppendDeclare(nil, amqp.Declare{}))
	if err != nil {
		return nil, err
	}
	declared, ok := d.State.(amqp.Declared)
	if !ok {
		return nil, fmt.Errorf("a declare is answered with %T", d.State)
	}
	return bytes.Clone(declared.TxnID), nil
}

// Discharge ends a transaction.
func (c *Client) Discharge(coordinator uint32, id []byte, fail bool) error {
	_, err := c.Deliver(coordinator, nil, amqp.AppendDischarge(nil, amqp.Discharge{TxnID: id, Fail: fail}))
	return err
}

func emptyMap() []byte {
	w := amqp.BeginSymbolMap(nil)
	return w.End()
}
