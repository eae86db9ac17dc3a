package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/busbar-mq/busbar/test/check"
)

// The load: small enough that two processors carry three nodes and the clients.
const (
	sendEvery    = 40 * time.Millisecond // average pause between two sends of one producer
	lifeSends    = 400                   // sends of one connection
	maxDeferred  = 500                   // that are remembered to be fetched
	sessionCount = 12
)

// make returns a new message and what the history says of it.
func (c *client) make(q *check.Queue) (*azservicebus.Message, check.Message) {
	c.serial++
	id := fmt.Sprintf("m%d-%d", c.id, c.serial)
	body := make([]byte, 16+c.rng.IntN(400))
	if c.rng.IntN(50) == 0 {
		body = make([]byte, 100_000) // does not fit one frame
	}
	for i := range body[:16] {
		body[i] = byte(c.rng.Uint32())
	}
	subject := "s" + id
	m := &azservicebus.Message{Body: body, MessageID: &id, Subject: &subject}
	out := check.Message{ID: id}
	if q.Sessions {
		count := sessionCount
		if q.Name == sharedQueue {
			count = sharedSessions
		}
		s := fmt.Sprintf("session-%d", c.rng.IntN(count))
		m.SessionID, out.Session, out.HasSession = &s, s, true
	}
	out.Hash = hashOf(body, id, subject, m.SessionID)
	return m, out
}

// produce sends messages one after the other.
func (c *client) produce(q *check.Queue) {
	c.work(c.w.making, func(ctx context.Context) error {
		tx, err := c.sdk.NewSender(q.Name, nil)
		if err != nil {
			return err
		}
		for range lifeSends/2 + c.rng.IntN(lifeSends) {
			if ctx.Err() != nil {
				return nil
			}
			switch roll := c.rng.IntN(100); {
			case roll < 3 && !q.Sessions:
				err = c.schedule(tx, q)
			case roll < 6 && !q.Partitioned && !q.Sessions:
				err = c.sendBatch(tx, q)
			default:
				err = c.send(tx, q)
			}
			if err != nil {
				return err
			}
			c.pause(ctx, sendEvery)
		}
		if c.rng.IntN(3) == 0 {
			return errGiveUp // a process that dies
		}
		return nil
	})
}

func (c *client) send(tx *azservicebus.Sender, q *check.Queue) error {
	m, said := c.make(q)
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, check.Send, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Message = said })
	c.w.counts.sends.Add(1)
	return c.judge(o, within(ctx, func() error { return tx.SendMessage(ctx, m, nil) }), nil)
}

func (c *client) sendBatch(tx *azservicebus.Sender, q *check.Queue) error {
	ctx, cancel := c.opContext()
	defer cancel()
	b, err := tx.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	var all []check.Message
	for range 2 + c.rng.IntN(6) {
		m, said := c.make(q)
		if b.AddMessage(m, nil) == nil {
			all = append(all, said)
		}
	}
	o := c.w.rec.Begin(c.id, c.number, check.Send, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Messages = all })
	c.w.counts.sends.Add(int64(len(all)))
	return c.judge(o, within(ctx, func() error { return tx.SendMessageBatch(ctx, b, nil) }), nil)
}

// schedule sends a message for later, and takes every other one back.
func (c *client) schedule(tx *azservicebus.Sender, q *check.Queue) error {
	m, said := c.make(q)
	at := time.Now().Add(time.Second + time.Duration(c.rng.IntN(4000))*time.Millisecond).Truncate(time.Millisecond)
	said.ScheduledAt = at.UnixMilli()
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, check.Schedule, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Message = said })
	c.w.counts.sends.Add(1)
	var numbers []int64
	err := within(ctx, func() error {
		all, err := tx.ScheduleMessages(ctx, []*azservicebus.Message{m}, at, nil)
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("%d numbers for one message", len(all))
		}
		if err == nil {
			numbers = all
		}
		return err
	})
	err = c.judge(o, err, func(o *check.Op) { o.Seq = numbers[0] })
	if err != nil || !o.Ok() || c.rng.IntN(2) == 0 {
		return err
	}
	gone := c.w.rec.Begin(c.id, c.number, check.Cancel, q.Name, check.InMain)
	c.w.rec.Set(gone, func(g *check.Op) { g.Seq = numbers[0] })
	return c.judge(gone, within(ctx, func() error { return tx.CancelScheduledMessages(ctx, numbers, nil) }), nil)
}

// receiver is what both kinds of receiver of the SDK can do.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
}

// consume receives from a queue without sessions, or a dead-letter queue, and settles.
func (c *client) consume(q *check.Queue, sub string) {
	c.work(c.w.ctx, func(ctx context.Context) error {
		opt := &azservicebus.ReceiverOptions{}
		if sub != check.InMain {
			opt.SubQueue = azservicebus.SubQueueDeadLetter
		}
		rx, err := c.sdk.NewReceiverForQueue(q.Name, opt)
		if err != nil {
			return err
		}
		var open credit
		for range 40 + c.rng.IntN(200) {
			if ctx.Err() != nil {
				return nil
			}
			want := open.ask(1 + c.rng.IntN(5))
			got, err := c.receive(ctx, rx, q, sub, want, open.since, nil)
			if err != nil {
				return err
			}
			open.got(len(got))
			for _, d := range got {
				if err := c.decide(ctx, rx, q, sub, d); err != nil {
					return err
				}
			}
			if sub == check.InMain && c.rng.IntN(20) == 0 {
				if err := c.fetchDeferred(rx, q); err != nil {
					return err
				}
			}
		}
		if c.rng.IntN(3) == 0 {
			return errGiveUp
		}
		return nil
	})
}

// credit is what a receiver of the SDK has asked for and not been given. A message may be locked for its client at any
// time since it was asked for. The SDK gives back such a message. But after a call whose time was up when its first
// message came, it keeps the others for the next call.
type credit struct {
	left  int
	since int64 // when the first of them was asked for
}

// ask returns for how many messages to ask: the SDK adds credit up to that number, so at least for those left.
func (c *credit) ask(want int) int {
	if c.left == 0 {
		c.since = time.Now().UnixNano()
	}
	c.left = max(c.left, want)
	return c.left
}

// got takes the messages of one call into account.
func (c *credit) got(n int) { c.left -= n }

// delivery is a message and its operation in the history.
type delivery struct {
	m  *azservicebus.ReceivedMessage
	op *check.Op
}

func (c *client) receive(ctx context.Context, rx receiver, q *check.Queue, sub string, want int,
	since int64, held *check.Op) (out []delivery, err error) {
	limit, cancel := context.WithTimeout(ctx, idleReceive)
	got, err := rx.ReceiveMessages(limit, want, nil)
	cancel()
	for _, m := range got {
		o := c.w.rec.Begin(c.id, c.number, check.Receive, q.Name, sub)
		c.w.rec.End(o, check.OK, func(o *check.Op) {
			o.Invoke, o.Message = since, messageOf(m)
			if held != nil {
				o.Session, o.Holder = held.Session, held.Holder
			}
		})
		c.w.counts.deliveries.Add(1)
		if m.DeliveryCount > 1 {
			c.w.counts.redeliveries.Add(1)
		}
		out = append(out, delivery{m, o})
	}
	if err != nil && (!nothing(err) || c.sock.broken.Load()) {
		return out, fmt.Errorf("%w: %w", errGiveUp, err)
	}
	return out, nil
}

// decide settles a message, or does not.
func (c *client) decide(ctx context.Context, rx receiver, q *check.Queue, sub string, d delivery) error {
	lock := time.Duration(q.LockMillis) * time.Millisecond
	switch roll := c.rng.IntN(200); {
	case c.w.making.Err() != nil: // what is left is drained
	case roll < 2 && !q.Sessions: // hold it until the lock is surely gone, then try to complete
		c.pause(ctx, lock)
	case roll < 8 && !q.Sessions:
		if err := c.renew(rx, q, sub, d); err != nil {
			return err
		}
	case roll < 10:
		return nil // forgotten: its lock expires
	case roll < 14:
		c.pause(ctx, lock/20)
	}
	kind := check.Complete
	switch roll := c.rng.IntN(100); {
	case sub != check.InMain || c.w.making.Err() != nil:
	case roll < 8:
		kind = check.Abandon
	case roll < 11:
		kind = check.Kill
	case roll < 14 && !q.Sessions:
		kind = check.Defer
	}
	return c.settle(rx, q, sub, d, kind)
}

func (c *client) begin(kind check.Kind, q *check.Queue, sub string, of *check.Op) *check.Op {
	o := c.w.rec.Begin(c.id, c.number, kind, q.Name, sub)
	c.w.rec.Set(o, func(o *check.Op) {
		o.Message, o.Seq = of.Message, of.Message.Seq
		o.Session, o.Holder = of.Session, of.Holder
	})
	return o
}

func (c *client) settle(rx receiver, q *check.Queue, sub string, d delivery, kind check.Kind) error {
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.begin(kind, q, sub, d.op)
	var err error
	switch kind {
	case check.Complete:
		err = rx.CompleteMessage(ctx, d.m, nil)
	case check.Abandon:
		err = rx.AbandonMessage(ctx, d.m, nil)
	case check.Defer:
		err = rx.DeferMessage(ctx, d.m, nil)
	case check.Kill:
		reason := "asked"
		err = rx.DeadLetterMessage(ctx, d.m, &azservicebus.DeadLetterOptions{Reason: &reason})
	}
	err = c.judge(o, err, nil)
	if o.Ok() && kind == check.Defer && sub == check.InMain {
		c.w.mu.Lock()
		if list := c.w.deferred[q.Name]; len(list) < maxDeferred {
			c.w.deferred[q.Name] = append(list, d.op.Message.Seq)
		}
		c.w.mu.Unlock()
	}
	return err
}

func (c *client) renew(rx receiver, q *check.Queue, sub string, d delivery) error {
	r, ok := rx.(*azservicebus.Receiver)
	if !ok {
		return nil
	}
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.begin(check.Renew, q, sub, d.op)
	return c.judge(o, r.RenewMessageLock(ctx, d.m, nil), func(o *check.Op) { o.Until = millis(d.m.LockedUntil) })
}

// fetchDeferred takes one deferred message by its number and completes it.
func (c *client) fetchDeferred(rx *azservicebus.Receiver, q *check.Queue) error {
	c.w.mu.Lock()
	list := c.w.deferred[q.Name]
	if len(list) == 0 {
		c.w.mu.Unlock()
		return nil
	}
	number := list[0]
	c.w.deferred[q.Name] = list[1:]
	c.w.mu.Unlock()
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, check.ReceiveDeferred, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Seq = number })
	got, err := rx.ReceiveDeferredMessages(ctx, []int64{number}, nil)
	if err == nil && len(got) != 1 {
		err = fmt.Errorf("%d messages for one number", len(got))
	}
	err = c.judge(o, err, func(o *check.Op) { o.Message = messageOf(got[0]) })
	if err != nil || !o.Ok() {
		return err
	}
	return c.settle(rx, q, check.InMain, delivery{got[0], o}, check.Complete)
}

// hold accepts sessions, one after the other, and works on what they have.
func (c *client) hold(q *check.Queue) {
	c.work(c.w.ctx, func(ctx context.Context) error {
		for range 1 + c.rng.IntN(10) {
			if ctx.Err() != nil {
				return nil
			}
			if err := c.holdOne(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *client) holdOne(ctx context.Context, q *check.Queue) error {
	o := c.w.rec.Begin(c.id, c.number, check.Accept, q.Name, check.InMain)
	limit, cancel := context.WithTimeout(ctx, 2*idleReceive)
	rx, err := c.sdk.AcceptNextSessionForQueue(limit, q.Name, nil)
	cancel()
	if err != nil {
		if nothing(err) && !c.sock.broken.Load() {
			c.w.rec.End(o, check.Unknown, func(o *check.Op) { o.Error = err.Error() })
			return nil
		}
		return c.judge(o, err, nil)
	}
	holder := c.w.rec.NewHolder()
	c.w.rec.End(o, check.OK, func(o *check.Op) {
		o.Session, o.Holder, o.Until = rx.SessionID(), holder, rx.LockedUntil().UnixMilli()
	})
	c.w.counts.sessions.Add(1)
	err = c.workOn(ctx, rx, q, o)
	closing := c.w.rec.Begin(c.id, c.number, check.CloseSession, q.Name, check.InMain)
	c.w.rec.Set(closing, func(x *check.Op) { x.Session, x.Holder = o.Session, holder })
	if err == nil {
		limit, cancel := c.opContext()
		err = rx.Close(limit)
		cancel()
		if err != nil {
			err = fmt.Errorf("%w: %w", errGiveUp, err)
		}
	}
	c.w.rec.End(closing, check.OK, nil)
	return err
}

// workOn receives and settles in a session, and keeps its state. One message at a time is asked for. With more, the
// SDK gives back what comes after it has returned, and takes it again behind its successors.
func (c *client) workOn(ctx context.Context, rx *azservicebus.SessionReceiver, q *check.Queue,
	held *check.Op) error {
	op := func(kind check.Kind, f func(context.Context, *check.Op) error) error {
		limit, cancel := c.opContext()
		defer cancel()
		o := c.w.rec.Begin(c.id, c.number, kind, q.Name, check.InMain)
		c.w.rec.Set(o, func(o *check.Op) { o.Session, o.Holder = held.Session, held.Holder })
		return c.judge(o, f(limit, o), nil)
	}
	get := func(limit context.Context, o *check.Op) error {
		s, err := rx.GetSessionState(limit, nil)
		c.w.rec.Set(o, func(o *check.Op) {
			if o.State = "-"; len(s) > 0 {
				o.State = string(s)
			}
		})
		return err
	}
	set := func(limit context.Context, o *check.Op) error {
		c.serial++
		s := fmt.Sprintf("v%d-%d", c.id, c.serial)
		c.w.rec.Set(o, func(o *check.Op) { o.State = s })
		return rx.SetSessionState(limit, []byte(s), nil)
	}
	renew := func(limit context.Context, o *check.Op) error {
		err := rx.RenewSessionLock(limit, nil)
		c.w.rec.Set(o, func(o *check.Op) { o.Until = rx.LockedUntil().UnixMilli() })
		return err
	}
	err := op(check.GetState, get)
	since := time.Now().UnixNano()
	for range 1 + c.rng.IntN(25) {
		if err != nil || ctx.Err() != nil {
			return err
		}
		switch c.rng.IntN(16) {
		case 0:
			err = op(check.SetState, set)
		case 1:
			err = op(check.GetState, get)
		case 2:
			err = op(check.RenewSession, renew)
		}
		if err != nil {
			return err
		}
		got, failed := c.receive(ctx, rx, q, check.InMain, 1, since, held)
		err = failed
		for _, d := range got {
			err = errors.Join(err, c.decide(ctx, rx, q, check.InMain, d))
		}
		if len(got) == 0 {
			return err
		}
		since = time.Now().UnixNano()
	}
	if err == nil && c.rng.IntN(8) == 0 {
		return errGiveUp
	}
	return err
}
