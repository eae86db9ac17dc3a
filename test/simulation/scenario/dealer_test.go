package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// dealer is a client with transactions, which the library of the official Go SDK does not have. It
// speaks frames over one connection with one session, and does one thing after the other.
type dealer struct {
	b    *bench
	conn net.Conn
	// in has what the broker sent; it is closed at the end of the stream.
	in       chan dealt
	write    sync.Mutex
	number   int
	node     int // that it is connected to
	handles  uint32
	delivery uint32
	incoming uint32 // transfers that came
	links    map[string]uint32
	counts   map[uint32]uint32 // deliveries asked for, by handle
	arrived  []dealt           // transfers that nobody has looked at
	serial   int
	settled  map[uint32]bool // deliveries that the broker has settled
}

type dealt struct {
	p       amqp.Performative
	payload []byte
}

// errEnded says that the connection is gone.
var errEnded = errors.New("the connection ended")

// errSilent says that the broker did not answer.
var errSilent = errors.New("no answer")

// unanswered checks that a step has no answer, for the reason that it names.
func (b *bench) unanswered(what string, err, reason error) {
	b.Helper()
	if !errors.Is(err, reason) {
		b.Fatalf("%s: %v, want: %v", what, err, reason)
	}
}

// heartbeat is often enough for a broker that wants a sign of life every minute.
const heartbeat = 15 * time.Second

// dealerAt connects a new client with transactions to a node.
func (b *bench) dealerAt(node int) *dealer {
	b.Helper()
	d, err := b.tryDealer(node)
	b.must("connect", err)
	return d
}

func (b *bench) dealer() *dealer { b.Helper(); return b.dealerAt(0) }

// bystandingDealer connects to a node that does not lead partition 1.
func (b *bench) bystandingDealer() *dealer {
	b.Helper()
	return b.dealerAt((b.lab.Leader(1) + 1) % b.lab.Nodes())
}

func (b *bench) tryDealer(node int) (*dealer, error) {
	d := &dealer{b: b, in: make(chan dealt, 1<<12), number: int(b.clients.Add(1)), node: node,
		links: map[string]uint32{}, counts: map[uint32]uint32{}, settled: map[uint32]bool{}}
	ctx, cancel := b.soon()
	defer cancel()
	var err error
	if d.conn, err = b.lab.Dial(ctx, d.number, node); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		d.read()
		close(ended)
	}()
	go func() {
		for {
			select {
			case <-time.After(heartbeat):
				d.put(amqp.AppendEmptyFrame(nil))
			case <-ended:
				return
			}
		}
	}()
	return d, d.open()
}

// read takes everything that the broker sends, so that neither side waits for the other.
func (d *dealer) read() {
	defer close(d.in)
	head := make([]byte, 8)
	for {
		if _, err := io.ReadFull(d.conn, head); err != nil {
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
		if _, err := io.ReadFull(d.conn, body); err != nil {
			return
		}
		if body = body[int(h.DOFF)*4-8:]; len(body) == 0 {
			continue
		}
		p, payload, err := amqp.DecodePerformative(body)
		if err != nil {
			d.b.Errorf("the broker sent %x: %v", body, err)
			return
		}
		d.in <- dealt{p, payload}
	}
}

// put writes bytes; that the broker is gone is seen by who reads.
func (d *dealer) put(b []byte) {
	d.write.Lock()
	defer d.write.Unlock()
	_, _ = d.conn.Write(b)
}

func (d *dealer) send(p amqp.Performative, payload ...[]byte) {
	if tr, ok := p.(*amqp.Transfer); ok {
		d.put(amqp.AppendTransfer(nil, 0, tr, payload...))
		return
	}
	d.put(amqp.AppendFrame(nil, 0, p))
}

// await reads frames until one is the one; transfers for somebody else are kept.
func (d *dealer) await(what string, is func(f dealt) bool) (dealt, error) {
	for i, f := range d.arrived {
		if is(f) {
			d.arrived = append(d.arrived[:i:i], d.arrived[i+1:]...)
			return f, nil
		}
	}
	limit := time.After(patience)
	for {
		select {
		case f, ok := <-d.in:
			if !ok {
				return f, errEnded
			}
			if _, transfer := f.p.(*amqp.Transfer); transfer {
				d.incoming++
				if !is(f) {
					d.arrived = append(d.arrived, f)
					continue
				}
				return f, nil
			}
			if is(f) {
				return f, nil
			}
		case <-limit:
			return dealt{}, fmt.Errorf("%s: %w within %s", what, errSilent, patience)
		}
	}
}

// of tells frames of a kind.
func of[T amqp.Performative](f dealt) bool { _, ok := f.p.(T); return ok }

func (d *dealer) open() error {
	name, key := d.b.lab.Policy()
	d.put(amqp.AppendProtocolHeader(nil, amqp.ProtocolSASL))
	d.send(&amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + name + "\x00" + key)})
	f, err := d.await("authenticate", of[*amqp.SASLOutcome])
	if err != nil {
		return err
	}
	if o := f.p.(*amqp.SASLOutcome); o.Outcome != amqp.SASLOK {
		return fmt.Errorf("authenticate: %d", o.Outcome)
	}
	d.put(amqp.AppendProtocolHeader(nil, amqp.ProtocolAMQP))
	d.send(&amqp.Open{ContainerID: fmt.Sprintf("dealer-%d", d.number), Hostname: amqp.Some("broker")})
	if _, err := d.await("open", of[*amqp.Open]); err != nil {
		return err
	}
	d.send(&amqp.Begin{IncomingWindow: 2048, OutgoingWindow: 2048})
	_, err = d.await("begin", of[*amqp.Begin])
	return err
}

// attach opens a link, once for each name.
func (d *dealer) attach(name string, a amqp.Attach) (uint32, error) {
	if h, ok := d.links[name]; ok {
		return h, nil
	}
	a.Name, a.Handle = name, d.handles
	d.handles++
	if a.Role == amqp.RoleSender {
		a.InitialDeliveryCount = amqp.Some(uint32(0))
		a.Source = &amqp.Source{}
	}
	d.send(&a)
	f, err := d.await("attach "+name, of[*amqp.Attach])
	if err != nil {
		return 0, err
	}
	got := f.p.(*amqp.Attach)
	refused := got.Target == nil && got.Coordinator == nil
	if a.Role == amqp.RoleReceiver {
		refused = got.Source == nil
	}
	if refused {
		f, err := d.await("the refusal of "+name, of[*amqp.Detach])
		if err != nil {
			return 0, err
		}
		d.send(&amqp.Detach{Handle: a.Handle, Closed: true})
		return 0, refusal(f.p.(*amqp.Detach).Error)
	}
	if a.Role == amqp.RoleSender {
		if _, err := d.await("credit for "+name, of[*amqp.Flow]); err != nil {
			return 0, err
		}
	}
	d.links[name] = a.Handle
	return a.Handle, nil
}

// refusal is an error of the broker as the other clients of the scenarios know it.
func refusal(e *amqp.Error) error {
	if e == nil {
		return errors.New("refused without a reason")
	}
	return &goamqp.Error{Condition: goamqp.ErrCond(e.Condition), Description: e.Description}
}

// transfer sends a delivery and returns its outcome; a refusal is an error.
func (d *dealer) transfer(handle uint32, state amqp.DeliveryState, payload []byte) (amqp.DeliveryState, error) {
	return d.disposed(amqp.RoleReceiver, d.write1(handle, state, payload), true)
}

// write1 sends a delivery and returns its number.
func (d *dealer) write1(handle uint32, state amqp.DeliveryState, payload []byte) uint32 {
	id := d.delivery
	d.delivery++
	d.send(&amqp.Transfer{Handle: handle, DeliveryID: amqp.Some(id),
		DeliveryTag: binary.BigEndian.AppendUint32(nil, id), MessageFormat: amqp.Some(amqp.FormatAMQP),
		State: state}, payload)
	return id
}

// disposed waits for the answer to a delivery, which is settled or not; role says who of us received it.
func (d *dealer) disposed(role amqp.Role, id uint32, settled bool) (amqp.DeliveryState, error) {
	f, err := d.await("an outcome", func(f dealt) bool {
		switch p := f.p.(type) {
		case *amqp.Disposition:
			if p.Role == amqp.RoleSender && p.Settled {
				for i := p.First; i <= p.Last.Or(p.First); i++ {
					d.settled[i] = true
				}
			}
			return p.Role == role && p.Settled == settled && p.First <= id && id <= p.Last.Or(p.First)
		case *amqp.Detach:
			return true
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	if p, ok := f.p.(*amqp.Detach); ok {
		return nil, refusal(p.Error)
	}
	state := f.p.(*amqp.Disposition).State
	if t, ok := state.(*amqp.TransactionalState); ok {
		state = t.Outcome
	}
	if r, ok := state.(amqp.Rejected); ok {
		// A dead-lettering answers like this, too, but then without an error of ours.
		if r.Error != nil && r.Error.Condition != "com.microsoft:dead-letter" {
			return nil, refusal(r.Error)
		}
	}
	return state, nil
}

// sender opens a sending link to an entity; through names another one on the way (S-236).
func (d *dealer) sender(entity, through string) (uint32, error) {
	a := amqp.Attach{Role: amqp.RoleSender, Target: &amqp.Target{Address: amqp.Some(entity)}}
	if through != "" {
		a.Target.Address = amqp.Some(through)
		w := amqp.BeginSymbolMap(nil)
		w.String("com.microsoft:transfer-destination-address", entity)
		a.Properties = w.End()
	}
	return d.attach("to "+entity+" "+through, a)
}

// receive takes one message of an entity; session, if it is not nil, is the one to accept.
func (d *dealer) receive(entity string, session *string) (*deal, error) {
	name := "from " + entity
	a := amqp.Attach{Role: amqp.RoleReceiver, SndSettleMode: amqp.Some(amqp.SenderUnsettled),
		RcvSettleMode: amqp.Some(amqp.ReceiverSecond), Target: &amqp.Target{},
		Source: &amqp.Source{Address: amqp.Some(entity)}}
	if session != nil {
		name += " " + *session
		w := amqp.BeginSymbolMap(nil)
		w.String(string(amqp.FilterSession), *session)
		a.Source.Filter = w.End()
	}
	h, err := d.attach(name, a)
	if err != nil {
		return nil, err
	}
	d.credit(h)
	f, err := d.await("a message of "+entity, func(f dealt) bool {
		switch p := f.p.(type) {
		case *amqp.Transfer:
			return p.Handle == h
		case *amqp.Detach:
			return p.Handle == h
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	if p, ok := f.p.(*amqp.Detach); ok {
		return nil, refusal(p.Error)
	}
	p := f.p.(*amqp.Transfer)
	g := &got{Message: &goamqp.Message{DeliveryTag: p.DeliveryTag}, token: tokenOf(p.DeliveryTag)}
	return &deal{g, d, p.DeliveryID.Value}, g.UnmarshalBinary(f.payload)
}

// credit asks for one more message over a link.
func (d *dealer) credit(handle uint32) {
	d.send(&amqp.Flow{NextIncomingID: amqp.Some(d.incoming + 1), IncomingWindow: 2048,
		NextOutgoingID: d.delivery, OutgoingWindow: 2048, Handle: amqp.Some(handle),
		DeliveryCount: amqp.Some(d.counts[handle]), LinkCredit: amqp.Some(uint32(1))})
	d.counts[handle]++
}

// deal is a message that a dealer received.
type deal struct {
	*got
	d  *dealer
	id uint32
}

// settle settles it, in a transaction if there is one. The broker answers the latter unsettled (RUL-30).
func (m *deal) settle(t *transaction, outcome amqp.DeliveryState) error {
	if t != nil {
		outcome = &amqp.TransactionalState{TxnID: t.id, Outcome: outcome}
	}
	m.d.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: m.id, State: outcome})
	_, err := m.d.disposed(amqp.RoleSender, m.id, t == nil)
	if t != nil && err == nil {
		t.settles = append(t.settles, m.id)
	}
	return err
}

// close ends the connection in good order; die breaks it off.
func (d *dealer) close() {
	d.b.Helper()
	d.send(&amqp.Close{})
	_, err := d.await("close", of[*amqp.Close])
	d.b.must("close", err)
	d.die()
}

func (d *dealer) die() { _ = d.conn.Close() }
