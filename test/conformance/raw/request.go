package raw

import (
	"bytes"
	"fmt"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// Asker is a pair of links to a $management node, over which any number of requests may be under way.
type Asker struct {
	c       *Client
	replyTo string
	tracked bool // answers have the tracking id of their request
	out, in uint32
	count   uint32 // requests sent
	credit  uint32
	next    uint64
	Ended   error // why the broker ended a link, nil while both are there
}

// Answer is what the broker said to a request.
type Answer struct {
	ID        uint64
	Code      int64
	Condition string
	Text      string
	Body      amqp.Map
}

// repliesAtOnce is the credit of the link that takes the answers, as .NET has it.
const repliesAtOnce = 50

// Asker opens a pair.
func (c *Client) Asker(entity string) (*Asker, error) {
	a, err := c.askerAt(entity+"/$management", entity+"-replies")
	if a != nil {
		a.tracked = true
	}
	return a, err
}

// askerAt opens a pair of links to a request node.
func (c *Client) askerAt(node, replyTo string) (*Asker, error) {
	a := &Asker{c: c, replyTo: replyTo}
	out, err := c.Attach(amqp.Attach{Role: amqp.RoleSender, Target: &amqp.Target{Address: amqp.Some(node)},
		InitialDeliveryCount: amqp.Some(uint32(0))})
	if err != nil {
		return nil, err
	}
	a.out = out.Handle
	in, err := c.Attach(amqp.Attach{Role: amqp.RoleReceiver, SndSettleMode: amqp.Some(amqp.SenderSettled),
		Source: &amqp.Source{Address: amqp.Some(node)}, Target: &amqp.Target{Address: amqp.Some(replyTo)}})
	if err != nil {
		return nil, err
	}
	a.in = in.Handle
	c.Credit(a.in, repliesAtOnce, false)
	return a, nil
}

// Send sends a request, if there is link credit, and returns its id.
func (a *Asker) Send(operation string, state amqp.DeliveryState, body any) (id uint64, sent bool, err error) {
	return a.send("com.microsoft:"+operation, nil, state, body)
}

// send sends a request with further application properties, name and value in turns.
func (a *Asker) send(operation string, more []string, state amqp.DeliveryState, body any) (id uint64, sent bool, err error) {
	if a.credit == 0 {
		return 0, false, nil
	}
	id = a.next
	a.next++
	payload := amqp.AppendProperties(nil, &amqp.Properties{MessageID: amqp.AppendUlong(nil, id), ReplyTo: []byte(a.replyTo)})
	w := amqp.BeginMapSection(payload, amqp.CodeApplicationProperties)
	w.String("operation", operation)
	for i := 0; i < len(more); i += 2 {
		w.String(more[i], more[i+1])
	}
	w.String("com.microsoft:tracking-id", fmt.Sprint("request-", id))
	if payload, err = amqp.AppendValueBody(w.End(), body); err != nil {
		return 0, false, err
	}
	a.c.Transfer(a.out, amqp.FormatAMQP, true, state, payload)
	a.count++
	a.credit--
	return id, true, nil
}

// Take reads frames until one is an answer of the pair; nil says that credit came instead.
func (a *Asker) Take() (*Answer, error) {
	f, err := a.c.Await(func(f Frame) bool {
		switch p := f.P.(type) {
		case *amqp.Flow:
			return p.Handle.Set && p.Handle.Value == a.out
		case *amqp.Transfer:
			return p.Handle == a.in
		case *amqp.Detach:
			return p.Handle == a.in || p.Handle == a.out
		case *amqp.End, *amqp.Close:
			return true
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	switch p := f.P.(type) {
	case *amqp.Flow:
		a.credit = max(0, p.LinkCredit.Value-(a.count-p.DeliveryCount.Value))
		return nil, nil
	case *amqp.Detach:
		a.Ended = &Refused{p.Error}
	case *amqp.End:
		a.Ended = &Refused{p.Error}
	case *amqp.Close:
		a.Ended = &Refused{p.Error}
	case *amqp.Transfer:
		return a.answer(p, f.Payload)
	}
	return nil, a.Ended
}

func (a *Asker) answer(p *amqp.Transfer, part []byte) (*Answer, error) {
	payload := bytes.Clone(part)
	for p.More {
		f, err := a.c.Await(func(f Frame) bool {
			t, ok := f.P.(*amqp.Transfer)
			return ok && t.Handle == a.in
		})
		if err != nil {
			return nil, err
		}
		p = f.P.(*amqp.Transfer)
		payload = append(payload, f.Payload...)
	}
	if a.c.counts[a.in]++; a.c.counts[a.in]%(repliesAtOnce/2) == 0 {
		a.c.Credit(a.in, repliesAtOnce, false)
	}
	m, err := amqp.ParseMessage(payload)
	if err != nil {
		return nil, err
	}
	props, err := m.ParseProperties()
	if err != nil {
		return nil, err
	}
	out := &Answer{}
	id, _ := props.CorrelationID.Int64()
	out.ID = uint64(id)
	v, _ := m.ApplicationProperty("com.microsoft:tracking-id")
	if text, _ := v.Text(); a.tracked && text != fmt.Sprint("request-", out.ID) { // S-347
		return nil, fmt.Errorf("the answer to request %d has the tracking id %q", out.ID, text)
	}
	v, _ = m.ApplicationProperty("statusCode")
	out.Code, _ = v.Int64()
	v, _ = m.ApplicationProperty("errorCondition")
	out.Condition, _ = v.Text()
	v, _ = m.ApplicationProperty("statusDescription")
	out.Text, _ = v.Text()
	if m.BodyCode == amqp.CodeAMQPValue {
		v, err := amqp.SectionValue(m.Body).Value()
		if err != nil {
			return nil, err
		}
		out.Body, _ = v.(amqp.Map)
	}
	return out, nil
}

// Ask sends one request and waits for its answer.
func (a *Asker) Ask(operation string, state amqp.DeliveryState, body any) (*Answer, error) {
	return a.ask("com.microsoft:"+operation, nil, state, body)
}

func (a *Asker) ask(operation string, more []string, state amqp.DeliveryState, body any) (*Answer, error) {
	for {
		_, sent, err := a.send(operation, more, state, body)
		if err != nil {
			return nil, err
		}
		if sent {
			break
		}
		if _, err := a.Take(); err != nil {
			return nil, err
		}
	}
	for {
		if got, err := a.Take(); got != nil || err != nil {
			return got, err
		}
	}
}

// Credit is the link credit that the pair has for requests.
func (a *Asker) Credit() uint32 { return a.credit }
