package transport

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
	"github.com/busbar-mq/busbar/transport/refusal"
)

var update = flag.Bool("update", false, "rewrite the golden traces")

// lockedChance is a source of the same numbers in every run.
type lockedChance struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func (l *lockedChance) Read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(b)
}

// clientPatience ends a conversation that hangs, in virtual time.
const clientPatience = 3 * time.Hour

// bubble is a server inside a synctest bubble; its clients come through net.Pipe.
type bubble struct {
	t      *testing.T
	server *Server
	broker *singleBroker
	in     *handoff
	served chan error
	stop   chan struct{}
	ticked chan struct{}
}

func newBubble(t *testing.T, partitions int, edit ...func(*Config)) *bubble {
	t.Helper()
	cfg := testConfig()
	for _, f := range edit {
		f(&cfg)
	}
	b := &bubble{
		t: t, broker: newSingleBroker(partitions), in: &handoff{conns: make(chan net.Conn), done: make(chan struct{})},
		served: make(chan error, 1), stop: make(chan struct{}), ticked: make(chan struct{}),
	}
	var err error
	if b.server, err = New(cfg, Deps{Broker: b.broker, Catalog: b.broker, Policies: testPolicies(t),
		Refusals: refusal.New(7, testLogger(t), time.Now)}, testLogger(t)); err != nil {
		t.Fatal(err)
	}
	b.server.random = &lockedChance{r: rand.NewChaCha8([32]byte{1})}
	go func() { b.served <- b.server.Serve(closedListener{b.in}, nil) }()
	go func() {
		defer close(b.ticked)
		for {
			select {
			case <-time.After(time.Second):
				b.broker.tick()
			case <-b.stop:
				return
			}
		}
	}()
	return b
}

// closedListener gives the error of a closed socket.
type closedListener struct{ *handoff }

func (l closedListener) Accept() (net.Conn, error) {
	c, err := l.handoff.Accept()
	if err != nil {
		err = net.ErrClosed
	}
	return c, err
}

func (b *bubble) close() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := b.server.Close(ctx); err != nil {
		b.t.Errorf("close: %v", err)
	}
	close(b.stop)
	<-b.ticked
	if err := <-b.served; err != nil {
		b.t.Errorf("serve: %v", err)
	}
}

// rawClient speaks frames.
type rawClient struct {
	t       *testing.T
	conn    net.Conn
	in      chan readFrame // what the server has sent
	trace   strings.Builder
	gate    atomic.Pointer[chan struct{}] // until it is closed, the client does not read
	product string                        // what it calls itself in open, nothing if empty
	hold    bool                          // frames are kept back to go out with the next one
	held    []byte

	largest int // bytes of the largest frame that was read by next
}

type readFrame struct {
	header []byte // a protocol header
	frame  amqp.Frame
	err    error
}

func (b *bubble) client() *rawClient {
	near, far := net.Pipe()
	if !b.in.offer(far) {
		b.t.Fatal("server is closed")
	}
	c := &rawClient{t: b.t, conn: near, in: make(chan readFrame, 1<<16)}
	if err := near.SetDeadline(time.Now().Add(clientPatience)); err != nil {
		b.t.Fatal(err)
	}
	go c.read()
	return c
}

// read takes everything that the server sends, so that neither side waits for the other.
func (c *rawClient) read() {
	defer close(c.in)
	head := make([]byte, 8)
	for {
		if _, err := io.ReadFull(c.conn, head); err != nil {
			c.in <- readFrame{err: err}
			return
		}
		if gate := c.gate.Load(); gate != nil {
			<-*gate
		}
		if string(head[:4]) == "AMQP" {
			c.in <- readFrame{header: bytes.Clone(head)}
			continue
		}
		h, err := amqp.ParseFrameHeader(head, 1<<24)
		if err != nil { // an answer in HTTP
			c.in <- readFrame{err: err}
			_, _ = io.Copy(io.Discard, c.conn)
			return
		}
		body := make([]byte, h.Size-8)
		if _, err := io.ReadFull(c.conn, body); err != nil {
			c.in <- readFrame{err: err}
			return
		}
		c.in <- readFrame{frame: amqp.Frame{Type: h.Type, Channel: h.Channel, Body: body[int(h.DOFF)*4-8:]}}
	}
}

func (c *rawClient) close() {
	c.conn.Close()
	for range c.in {
	}
}

// write sends bytes as they are; a server that has hung up is seen by the next read.
func (c *rawClient) write(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		c.t.Fatalf("write: %v", err)
	}
}

func (c *rawClient) header(id amqp.ProtocolID) {
	b := amqp.AppendProtocolHeader(nil, id)
	c.note(">", "protocol header", b)
	c.write(b)
}

func (c *rawClient) send(channel uint16, p amqp.Performative, payload ...[]byte) {
	c.t.Helper()
	var b []byte
	if tr, ok := p.(*amqp.Transfer); ok {
		b = amqp.AppendTransfer(nil, channel, tr, payload...)
	} else {
		b = amqp.AppendFrame(nil, channel, p)
	}
	c.note(">", describe(channel, p), b)
	if c.hold {
		c.held = append(c.held, b...)
		return
	}
	c.write(append(c.held, b...))
	c.held = nil
}

// next returns the next frame that is no sign of life; nil at the end of the stream.
func (c *rawClient) next() (amqp.Performative, []byte) {
	c.t.Helper()
	for {
		f, ok := <-c.in
		if !ok || f.err != nil {
			c.note("<", "end of stream", nil)
			return nil, nil
		}
		if f.header != nil {
			c.note("<", "protocol header", f.header)
			continue
		}
		if len(f.frame.Body) == 0 {
			continue
		}
		c.largest = max(c.largest, amqp.FrameHeaderBytes+len(f.frame.Body))
		p, payload, err := amqp.DecodePerformative(f.frame.Body)
		if err != nil {
			c.t.Fatalf("server sent %x: %v", f.frame.Body, err)
		}
		c.note("<", describe(f.frame.Channel, p), f.frame.Body)
		return p, payload
	}
}

// expect returns the next frame, which must be a T.
func expect[T amqp.Performative](c *rawClient) (T, []byte) {
	c.t.Helper()
	p, payload := c.next()
	v, ok := p.(T)
	if !ok {
		c.t.Fatalf("got %s, want %T\n%s", describe(0, p), v, c.trace.String())
	}
	return v, payload
}

// describe is the readable half of a line of a trace.
func describe(channel uint16, p amqp.Performative) string {
	s := strings.TrimPrefix(fmt.Sprintf("%T", p), "*amqp.")
	problem := func(e *amqp.Error) {
		if e != nil {
			s += fmt.Sprintf(" error=%s", e.Condition)
		}
	}
	switch p := p.(type) {
	case nil:
		return "end of stream"
	case *amqp.Attach:
		role := map[amqp.Role]string{amqp.RoleSender: "sender", amqp.RoleReceiver: "receiver"}[p.Role]
		s += fmt.Sprintf(" channel=%d handle=%d role=%s name=%q source=%t target=%t", channel, p.Handle, role, p.Name,
			p.Source != nil, p.Target != nil)
	case *amqp.Flow:
		s += fmt.Sprintf(" channel=%d", channel)
		if p.Handle.Set {
			s += fmt.Sprintf(" handle=%d credit=%d count=%d drain=%t", p.Handle.Value, p.LinkCredit.Value, p.DeliveryCount.Value, p.Drain)
		}
	case *amqp.Transfer:
		s += fmt.Sprintf(" channel=%d handle=%d id=%d more=%t settled=%t", channel, p.Handle, p.DeliveryID.Value, p.More, p.Settled.Value)
	case *amqp.Disposition:
		role := map[amqp.Role]string{amqp.RoleSender: "sender", amqp.RoleReceiver: "receiver"}[p.Role]
		s += fmt.Sprintf(" channel=%d role=%s first=%d last=%d settled=%t state=%T", channel, role, p.First, p.Last.Or(p.First), p.Settled, p.State)
		if r, ok := p.State.(amqp.Rejected); ok {
			problem(r.Error)
		}
	case *amqp.Detach:
		s += fmt.Sprintf(" channel=%d handle=%d closed=%t", channel, p.Handle, p.Closed)
		problem(p.Error)
	case *amqp.End:
		s += fmt.Sprintf(" channel=%d", channel)
		problem(p.Error)
	case *amqp.Begin:
		s += fmt.Sprintf(" channel=%d", channel)
	case *amqp.Close:
		problem(p.Error)
	}
	return s
}

// note adds a line and its bytes to the trace.
func (c *rawClient) note(dir, text string, b []byte) {
	fmt.Fprintf(&c.trace, "%s %s\n", dir, text)
	for len(b) > 0 {
		n := min(len(b), 32)
		fmt.Fprintf(&c.trace, "    % x\n", b[:n])
		b = b[n:]
	}
}

// golden compares the trace with its file.
func (c *rawClient) golden(name string) {
	c.t.Helper()
	path := filepath.Join("testdata", name+".trace")
	got := c.trace.String()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			c.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	if got != string(want) {
		gl, wl := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range gl {
			if i >= len(wl) || gl[i] != wl[i] {
				c.t.Fatalf("%s, line %d:\n got %s\nwant %s", path, i+1, gl[i], append(wl, make([]string, len(gl))...)[i])
			}
		}
		c.t.Fatalf("%s: the trace ends early", path)
	}
}

// openWith does the handshake up to open.
func (c *rawClient) open(mechanism amqp.Symbol) {
	c.t.Helper()
	if mechanism != "" {
		c.header(amqp.ProtocolSASL)
		expect[*amqp.SASLMechanisms](c)
		c.send(0, &amqp.SASLInit{Mechanism: mechanism})
		if o, _ := expect[*amqp.SASLOutcome](c); o.Outcome != amqp.SASLOK {
			c.t.Fatalf("SASL outcome %d", o.Outcome)
		}
	}
	c.header(amqp.ProtocolAMQP)
	o := &amqp.Open{ContainerID: "client", Hostname: amqp.Some("localhost"), IdleTimeOut: amqp.Some(uint32(60_000))}
	if c.product != "" {
		w := amqp.BeginSymbolMap(nil)
		w.String("product", c.product)
		o.Properties = w.End()
	}
	c.send(0, o)
	expect[*amqp.Open](c)
}

func (c *rawClient) begin(channel uint16) {
	c.t.Helper()
	c.send(channel, &amqp.Begin{NextOutgoingID: 0, IncomingWindow: 2048, OutgoingWindow: 2048})
	expect[*amqp.Begin](c)
}

// attachPair opens the two links of a request node.
func (c *rawClient) attachPair(channel uint16, first uint32, node, replyTo string) {
	c.t.Helper()
	c.send(channel, &amqp.Attach{
		Name: node + "-out", Handle: first, Role: amqp.RoleSender,
		Source: &amqp.Source{}, Target: &amqp.Target{Address: amqp.Some(node)}, InitialDeliveryCount: amqp.Some(uint32(0)),
	})
	expect[*amqp.Attach](c)
	expect[*amqp.Flow](c)
	target := &amqp.Target{}
	if replyTo != "" {
		target.Address = amqp.Some(replyTo)
	}
	c.send(channel, &amqp.Attach{
		Name: node + "-in", Handle: first + 1, Role: amqp.RoleReceiver, SndSettleMode: amqp.Some(amqp.SenderSettled),
		Source: &amqp.Source{Address: amqp.Some(node)}, Target: target,
	})
	expect[*amqp.Attach](c)
	c.send(channel, &amqp.Flow{
		NextIncomingID: amqp.Some(uint32(1)), IncomingWindow: 2048, OutgoingWindow: 2048,
		Handle: amqp.Some(first + 1), DeliveryCount: amqp.Some(uint32(0)), LinkCredit: amqp.Some(uint32(100)),
	})
}

// tokenRequest is an encoded put-token for the whole namespace.
func tokenRequest(t *testing.T, id any, replyTo string) []byte {
	t.Helper()
	raw, err := amqp.AppendValue(nil, id)
	if err != nil {
		t.Fatal(err)
	}
	p := &amqp.Properties{MessageID: raw}
	if replyTo != "" {
		p.ReplyTo = []byte(replyTo)
	}
	out := amqp.AppendProperties(nil, p)
	w := amqp.BeginMapSection(out, amqp.CodeApplicationProperties)
	w.String("operation", "put-token")
	w.String("type", "servicebus.windows.net:sastoken")
	w.String("name", "amqp://localhost/")
	out = w.End()
	out, err = amqp.AppendValueBody(out, auth.NewToken("amqp://localhost/", testPolicy, testKey, time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// authenticate opens a connection that may do everything, on channel 0.
func (c *rawClient) authenticate() {
	c.t.Helper()
	c.open("ANONYMOUS")
	c.begin(0)
	c.attachPair(0, 0, "$cbs", "reply")
	c.send(0, &amqp.Transfer{
		Handle: 0, DeliveryID: amqp.Some(uint32(0)), DeliveryTag: []byte("t"), Settled: amqp.Some(true),
	}, tokenRequest(c.t, "1", "reply"))
	_, payload := expect[*amqp.Transfer](c)
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		c.t.Fatal(err)
	}
	if v, ok := s.ApplicationProperty("status-code"); !ok {
		c.t.Fatal("no status code")
	} else if code, _ := v.Int64(); code != 202 {
		c.t.Fatalf("put-token: %d", code)
	}
}

// attach opens one link of channel and returns the server's attach.
func (c *rawClient) attach(channel uint16, a *amqp.Attach) *amqp.Attach {
	c.t.Helper()
	c.send(channel, a)
	got, _ := expect[*amqp.Attach](c)
	return got
}

func senderTo(handle uint32, address string) *amqp.Attach {
	return &amqp.Attach{
		Name: fmt.Sprintf("tx-%d", handle), Handle: handle, Role: amqp.RoleSender,
		Source: &amqp.Source{}, Target: &amqp.Target{Address: amqp.Some(address)}, InitialDeliveryCount: amqp.Some(uint32(0)),
	}
}

func receiverOf(handle uint32, address string) *amqp.Attach {
	return &amqp.Attach{
		Name: fmt.Sprintf("rx-%d", handle), Handle: handle, Role: amqp.RoleReceiver,
		SndSettleMode: amqp.Some(amqp.SenderUnsettled), RcvSettleMode: amqp.Some(amqp.ReceiverSecond),
		Source: &amqp.Source{Address: amqp.Some(address)}, Target: &amqp.Target{},
	}
}

func credit(handle, count, credit uint32, drain bool) *amqp.Flow {
	return &amqp.Flow{
		NextIncomingID: amqp.Some(uint32(1)), IncomingWindow: 2048, OutgoingWindow: 2048, Handle: amqp.Some(handle),
		DeliveryCount: amqp.Some(count), LinkCredit: amqp.Some(credit), Drain: drain,
	}
}

func transferOf(handle, id uint32) *amqp.Transfer {
	return &amqp.Transfer{
		Handle: handle, DeliveryID: amqp.Some(id), DeliveryTag: []byte{byte(id)}, MessageFormat: amqp.Some(amqp.FormatAMQP),
	}
}

// inBubble runs f with a server in a bubble.
func inBubble(t *testing.T, f func(b *bubble), edit ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 3, edit...)
		t.Cleanup(b.close)
		f(b)
	})
}
