package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/check"
	"github.com/busbar-mq/busbar/test/cluster"
)

// The demands after the last fault (I26).
const (
	serveLimit = 60 * time.Second // until every node that can answers /readyz
	drainLimit = 3 * time.Minute  // for one look at all messages, and the least time that consumers have to take them
	drainRate  = 250              // messages a second that consumers must take beyond that time
)

// peeker reads what is in the queues with bare requests: the SDK would need a lock of every session
// to look into it.
type peeker struct {
	conn   *goamqp.Conn
	links  map[string]*requests
	serial int
}

type requests struct {
	tx *goamqp.Sender
	rx *goamqp.Receiver
}

// newPeeker asks the first of some nodes that is ready.
func newPeeker(ctx context.Context, nodes []*node) (*peeker, error) {
	var errs []error
	for _, n := range nodes {
		if _, err := n.Get(ctx, "/readyz"); err != nil {
			errs = append(errs, err)
			continue
		}
		amqp, _ := n.Doors()
		conn, err := goamqp.Dial(ctx, "amqp://"+amqp, &goamqp.ConnOptions{
			SASLType: goamqp.SASLTypePlain(cluster.KeyName, cluster.Key), HostName: "localhost",
		})
		if err == nil {
			return &peeker{conn: conn, links: map[string]*requests{}}, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (p *peeker) open(ctx context.Context, address string) (*requests, error) {
	if r := p.links[address]; r != nil {
		return r, nil
	}
	session, err := p.conn.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	r, err := requestLinks(ctx, session, address)
	if err != nil {
		return nil, err
	}
	p.links[address] = r
	return r, nil
}

// page returns up to count messages from a number on.
func (p *peeker) page(ctx context.Context, address string, from int64, count int) ([]check.Message, error) {
	r, err := p.open(ctx, address)
	if err != nil {
		return nil, err
	}
	p.serial++
	id, replyTo := fmt.Sprintf("r%d", p.serial), "answers"
	err = r.tx.Send(ctx, &goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: id, ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"operation": "com.microsoft:peek-message"},
		Value:                 map[string]any{"from-sequence-number": from, "message-count": int32(count)},
	}, nil)
	if err != nil {
		return nil, err
	}
	a, err := r.rx.Receive(ctx, nil)
	if err != nil {
		return nil, err
	}
	switch code, _ := a.ApplicationProperties["statusCode"].(int32); code {
	case 204:
		return nil, nil
	case 200:
	default:
		return nil, fmt.Errorf("peek %s: %d %v", address, code, a.ApplicationProperties["statusDescription"])
	}
	body, _ := a.Value.(map[string]any)
	list, _ := body["messages"].([]any)
	var out []check.Message
	for _, item := range list {
		fields, _ := item.(map[string]any)
		encoded, _ := fields["message"].([]byte)
		m := &goamqp.Message{}
		if err := m.UnmarshalBinary(encoded); err != nil {
			return nil, err
		}
		out = append(out, peeked(m))
	}
	return out, nil
}

func peeked(m *goamqp.Message) check.Message {
	var out check.Message
	var subject string
	if p := m.Properties; p != nil {
		out.ID, _ = p.MessageID.(string)
		subject = text(p.Subject)
		if p.GroupID != nil {
			out.Session, out.HasSession = *p.GroupID, true
		}
		out.Hash = hashOf(m.GetData(), out.ID, subject, p.GroupID)
	}
	out.Seq, _ = m.Annotations["x-opt-sequence-number"].(int64)
	if t, ok := m.Annotations["x-opt-enqueued-time"].(time.Time); ok {
		out.EnqueuedAt = t.UnixMilli()
	}
	if t, ok := m.Annotations["x-opt-scheduled-enqueue-time"].(time.Time); ok {
		out.ScheduledAt = t.UnixMilli()
	}
	if s, ok := m.Annotations["x-opt-message-state"].(int32); ok {
		out.State = int(s)
	}
	if m.Header != nil {
		out.Attempts = m.Header.DeliveryCount
	}
	out.Reason, _ = m.ApplicationProperties["DeadLetterReason"].(string)
	return out
}

// everything lists all that is in all queues.
func (w *world) everything(ctx context.Context) (all []check.Place, err error) {
	return listed(ctx, w.bed.nodes, w.queues)
}

// listed lists all that is in queues of a cluster.
func listed(ctx context.Context, nodes []*node, queues []check.Queue) (all []check.Place, err error) {
	p, err := newPeeker(ctx, nodes)
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.conn.Close() }()
	for i := range queues {
		for _, sub := range []string{check.InMain, check.InDeadLetter} {
			address := queues[i].Name
			if sub != check.InMain {
				address += "/" + sub
			}
			for from := int64(0); ; {
				page, err := p.page(ctx, address, from, 100)
				if err != nil {
					return nil, err
				}
				if len(page) == 0 {
					break
				}
				for _, m := range page {
					all = append(all, check.Place{Entity: queues[i].Name, Sub: sub, Message: m})
				}
				from = page[len(page)-1].Seq + 1
			}
		}
	}
	return all, nil
}

// awaitServing returns when every node but those in quarantine serves.
func (b *bed) awaitServing(limit time.Duration, except map[*node]bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var errs []error
	for _, n := range b.nodes {
		if except[n] {
			continue
		}
		if err := n.WaitReady(ctx); err != nil {
			errs = append(errs, fmt.Errorf("I26: after the faults: %w", err))
		}
	}
	return errors.Join(errs...)
}

// drain waits until the consumers have taken all that is active or scheduled. They have drainLimit for it, and one second more
// for each drainRate messages that the first look finds.
func (w *world) drain(say func(string, ...any)) error {
	const tellEvery = 10 // looks
	at, limit := time.Now(), time.Duration(0)
	for look := 1; ; look++ {
		ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
		left, err := w.everything(ctx)
		cancel()
		open := 0
		var example check.Place
		for _, p := range left {
			if p.Sub == check.InMain && p.Message.State != check.Deferred {
				open++
				example = p
			}
		}
		if err == nil && open == 0 {
			return nil
		}
		if look%tellEvery == 0 {
			say("%d messages are left, such as %s in %s (%s)", open, example.Message.ID, example.Entity,
				shorten(fmt.Sprint(err)))
		}
		if err == nil && limit == 0 {
			limit = drainLimit + time.Duration(open)*time.Second/drainRate
		}
		if time.Since(at) > max(limit, drainLimit) {
			return fmt.Errorf("I26: %d messages are left after %s, such as %+v (%v)", open, max(limit, drainLimit), example, err)
		}
		time.Sleep(time.Second)
	}
}
