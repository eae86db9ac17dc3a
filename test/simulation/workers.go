package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/check"
)

// consume receives from a queue without sessions, or a dead-letter queue, and settles.
func (c *client) consume(q *check.Queue, sub string) {
	address := q.Name
	if sub != check.InMain {
		address += "/" + sub
	}
	c.work(func(ctx context.Context) error {
		open, cancel := context.WithTimeout(ctx, opLimit)
		rx, err := c.session.NewReceiver(open, address, &goamqp.ReceiverOptions{
			Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
		})
		cancel()
		if err != nil {
			return err
		}
		var l credits
		for range 20 + c.rng.IntN(100) {
			if ctx.Err() != nil {
				return nil
			}
			if err := c.batch(ctx, rx, q, sub, &l); err != nil {
				return err
			}
		}
		if c.rng.IntN(3) == 0 {
			return errGiveUp
		}
		return nil
	})
}

// credits is what a receiver has asked for and not got. A message may have been locked for it at any
// time since the first of it was asked for.
type credits struct {
	open  int
	since int64
}

func (l *credits) ask(rx *goamqp.Receiver, n int) error {
	if l.open == 0 {
		l.since = time.Now().UnixNano()
	}
	l.open += n
	return rx.IssueCredit(uint32(n))
}

// batch asks for some messages, takes what comes and decides what happens to each.
func (c *client) batch(ctx context.Context, rx *goamqp.Receiver, q *check.Queue, sub string,
	l *credits) error {
	if l.open == 0 {
		if err := l.ask(rx, 1+c.rng.IntN(5)); err != nil {
			return err
		}
	}
	for l.open > 0 {
		m, o, err := c.receive(ctx, rx, q, sub, l.since)
		if err != nil {
			return err
		}
		if m == nil {
			return nil // nothing came: the credit stays
		}
		l.open--
		if err := c.decide(rx, q, sub, m, o); err != nil {
			return err
		}
	}
	return nil
}

// receive takes one message; nil without an error says that none came. The broker may have locked it
// at any time since asked.
func (c *client) receive(ctx context.Context, rx *goamqp.Receiver, q *check.Queue, sub string,
	asked int64) (*goamqp.Message, *check.Op, error) {
	limit, cancel := context.WithTimeout(ctx, idleReceive)
	m, err := rx.Receive(limit, nil)
	cancel()
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	o := c.w.rec.Begin(c.id, c.number, check.Receive, q.Name, sub)
	c.w.rec.End(o, check.OK, func(o *check.Op) { o.Invoke, o.Message = asked, messageOf(m) })
	return m, o, nil
}

// decide settles a message, or does not.
func (c *client) decide(rx *goamqp.Receiver, q *check.Queue, sub string, m *goamqp.Message,
	got *check.Op) error {
	roll := c.rng.IntN(100)
	lock := time.Duration(q.LockMillis) * time.Millisecond
	switch {
	case roll < 4 && !q.Sessions: // hold it until the lock is surely gone, then try to complete
		c.w.c.add("locks held too long", 1)
		c.pause(lock)
	case roll < 8 && !q.Sessions:
		if err := c.renew(q, sub, got); err != nil {
			return err
		}
	case roll < 10:
		return nil // forgotten: its lock expires
	case roll < 20:
		c.pause(lock / 20)
	}
	kind := check.Complete
	switch roll := c.rng.IntN(100); {
	case sub != check.InMain: // dead-letter queues are drained
	case roll < 12:
		kind = check.Abandon
	case roll < 17:
		kind = check.Kill
	case roll < 22:
		kind = check.Defer
	case roll < 25:
		kind = check.Release
	}
	if c.rng.IntN(8) == 0 && !q.Sessions && kind != check.Release {
		return c.settleByToken(q, sub, got, kind)
	}
	if q.Sessions && sub == check.InMain {
		defer c.w.shared.forget(c.token, got) // whatever comes of it
	}
	return c.settle(rx, q, sub, m, got, kind)
}

func (c *client) begin(kind check.Kind, q *check.Queue, sub string, of *check.Op) *check.Op {
	o := c.w.rec.Begin(c.id, c.number, kind, q.Name, sub)
	c.w.rec.Set(o, func(o *check.Op) {
		o.Message, o.Seq = of.Message, of.Message.Seq
		o.Session, o.Holder = of.Session, of.Holder
	})
	return o
}

// settle decides over the link.
func (c *client) settle(rx *goamqp.Receiver, q *check.Queue, sub string, m *goamqp.Message,
	got *check.Op, kind check.Kind) error {
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.begin(kind, q, sub, got)
	var err error
	switch kind {
	case check.Complete:
		err = rx.AcceptMessage(ctx, m)
	case check.Abandon:
		err = rx.ModifyMessage(ctx, m, &goamqp.ModifyMessageOptions{})
	case check.Defer:
		err = rx.ModifyMessage(ctx, m, &goamqp.ModifyMessageOptions{UndeliverableHere: true})
	case check.Kill:
		err = rx.RejectMessage(ctx, m, &goamqp.Error{
			Condition: "com.microsoft:dead-letter",
			Info:      map[string]any{"DeadLetterReason": "asked"},
		})
	case check.Release:
		err = rx.ReleaseMessage(ctx, m)
	}
	err = c.judge(o, err, nil)
	if o.Ok() && kind == check.Defer {
		c.w.defer_(q.Name, got.Message.Seq, got.Message.Session)
	}
	return err
}

// settleByToken decides with a request, as a client does whose link is gone.
func (c *client) settleByToken(q *check.Queue, sub string, got *check.Op, kind check.Kind) error {
	return c.requestSettlement(q, sub, c.begin(kind, q, sub, got), map[string]any{})
}

// requestSettlement asks for the settlement that o describes.
func (c *client) requestSettlement(q *check.Queue, sub string, o *check.Op, body map[string]any) error {
	ctx, cancel := c.opContext()
	defer cancel()
	body["disposition-status"] = map[check.Kind]string{check.Complete: "completed", check.Abandon: "abandoned",
		check.Defer: "defered", check.Kill: "suspended"}[o.Kind]
	body["lock-tokens"] = []goamqp.UUID{uuidOf(o.Message.Token)}
	if o.Kind == check.Kill {
		body["deadletter-reason"] = "asked"
	}
	_, err := c.ask(ctx, c.address(q, sub), "update-disposition", body)
	err = c.judgeRequest(o, err, nil)
	if o.Ok() && o.Kind == check.Defer {
		c.w.defer_(q.Name, o.Message.Seq, o.Message.Session)
	}
	return err
}

func (c *client) address(q *check.Queue, sub string) string {
	if sub == check.InMain {
		return q.Name
	}
	return q.Name + "/" + sub
}

func (c *client) renew(q *check.Queue, sub string, got *check.Op) error {
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.begin(check.Renew, q, sub, got)
	a, err := c.ask(ctx, c.address(q, sub), "renew-lock", map[string]any{
		"lock-tokens": []goamqp.UUID{uuidOf(got.Message.Token)},
	})
	return c.judgeRequest(o, err, func(o *check.Op) {
		if times, ok := a["expirations"].([]time.Time); ok && len(times) == 1 {
			o.Until = times[0].UnixMilli()
		}
	})
}

// hold accepts sessions, one after the other, and works on what they have.
func (c *client) hold(q *check.Queue) {
	c.work(func(ctx context.Context) error {
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
	filter := c.wish(q, o)
	limit, cancel := context.WithTimeout(ctx, opLimit)
	rx, err := c.session.NewReceiver(limit, q.Name, &goamqp.ReceiverOptions{
		Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
		Filters:    []goamqp.LinkFilter{filter},
		Properties: map[string]any{"com.microsoft:timeout": uint32(10_000)},
	})
	cancel()
	if err != nil {
		var refused *goamqp.Error
		if err := c.judge(o, err, nil); err != nil && !errors.As(err, &refused) {
			return err
		}
		c.pause(time.Second)
		return nil
	}
	ticks, _ := rx.Properties()["com.microsoft:locked-until-utc"].(int64)
	holder := c.w.rec.NewHolder()
	id := c.granted(rx, q, o, holder)
	c.w.rec.End(o, check.OK, func(o *check.Op) {
		o.Session, o.Holder, o.Until = id, holder, (ticks-621355968000000000)/10_000
	})
	c.w.c.add("sessions accepted", 1)
	err = c.workOn(ctx, rx, q, o)
	var lost *goamqp.LinkError
	if o.Shared && errors.As(err, &lost) && lost.RemoteErr != nil {
		if err := c.settleLate(q, o); err != nil {
			return err
		}
	}
	closing := c.w.rec.Begin(c.id, c.number, check.CloseSession, q.Name, check.InMain)
	c.w.rec.Set(closing, func(o *check.Op) { o.Session, o.Holder = id, holder })
	if err == nil {
		limit, cancel := context.WithTimeout(context.Background(), closeLimit)
		err = rx.Close(limit)
		cancel()
	}
	c.w.rec.End(closing, check.OK, nil)
	if errors.As(err, &lost) && lost.RemoteErr != nil {
		c.w.c.add("session links detached", 1)
		return nil
	}
	return err
}

// workOn receives and settles in a session, and keeps its state.
func (c *client) workOn(ctx context.Context, rx *goamqp.Receiver, q *check.Queue, held *check.Op) error {
	if held.Over != 0 {
		if err := c.settleHanded(q, held); err != nil {
			return err
		}
	}
	if err := c.getState(q, held); err != nil {
		return err
	}
	for range 1 + c.rng.IntN(12) {
		if ctx.Err() != nil {
			return nil
		}
		switch c.rng.IntN(12) {
		case 0:
			if err := c.setState(q, held); err != nil {
				return err
			}
		case 1:
			if err := c.getState(q, held); err != nil {
				return err
			}
		case 2:
			if err := c.renewSession(q, held); err != nil {
				return err
			}
		case 3:
			if c.rng.IntN(4) == 0 { // until the session is surely lost
				c.pause(time.Duration(q.LockMillis) * time.Millisecond)
			}
		}
		asked := time.Now().UnixNano()
		if err := rx.IssueCredit(1); err != nil {
			return err
		}
		limit, cancel := context.WithTimeout(ctx, 3*time.Second)
		m, got, err := c.receive(limit, rx, q, check.InMain, asked)
		cancel()
		if err != nil {
			return err
		}
		if m == nil {
			return nil
		}
		c.w.rec.Set(got, func(o *check.Op) { o.Session, o.Holder = held.Session, held.Holder })
		if held.Shared {
			c.w.shared.deliver(c.token, got)
		}
		if err := c.decide(rx, q, check.InMain, m, got); err != nil {
			return err
		}
	}
	if c.rng.IntN(8) == 0 {
		return errGiveUp
	}
	return nil
}

func (c *client) sessionOp(kind check.Kind, q *check.Queue, held *check.Op, operation string,
	body map[string]any, fill func(o *check.Op, a map[string]any)) error {
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, kind, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Session, o.Holder = held.Session, held.Holder })
	if s, ok := body["session-state"].([]byte); ok {
		c.w.rec.Set(o, func(o *check.Op) { o.State = string(s) })
	}
	body["session-id"] = held.Session
	a, err := c.ask(ctx, q.Name, operation, body)
	return c.judgeRequest(o, err, func(o *check.Op) {
		if fill != nil {
			fill(o, a)
		}
	})
}

func (c *client) setState(q *check.Queue, held *check.Op) error {
	c.serial++
	return c.sessionOp(check.SetState, q, held, "set-session-state", map[string]any{
		"session-state": fmt.Appendf(nil, "v%d-%d", c.id, c.serial),
	}, nil)
}

func (c *client) getState(q *check.Queue, held *check.Op) error {
	return c.sessionOp(check.GetState, q, held, "get-session-state", map[string]any{},
		func(o *check.Op, a map[string]any) {
			o.State = "-"
			if s, ok := a["session-state"].([]byte); ok {
				o.State = string(s)
			}
		})
}

func (c *client) renewSession(q *check.Queue, held *check.Op) error {
	return c.sessionOp(check.RenewSession, q, held, "renew-session-lock", map[string]any{},
		func(o *check.Op, a map[string]any) {
			if t, ok := a["expiration"].(time.Time); ok {
				o.Until = t.UnixMilli()
			}
		})
}
