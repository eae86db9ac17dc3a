package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/test/check"
)

// batchFormat is the message-format of a transfer that holds several messages.
const batchFormat = 0x80013700

// sendBatch sends some messages in one transfer: all are stored, or none.
func (c *client) sendBatch(tx *goamqp.Sender, q *check.Queue) error {
	var said []check.Message
	envelope := &goamqp.Message{Format: batchFormat}
	for range 2 + c.rng.IntN(4) {
		m, s := c.make(q)
		if q.Sessions && len(said) > 0 { // a batch is of one session
			m.Properties.GroupID = &said[0].Session
			s.Session = said[0].Session
			s.Hash = hashOf(m)
		}
		b, err := m.MarshalBinary()
		if err != nil {
			return err
		}
		if len(said) == 0 {
			envelope.Properties = m.Properties
		}
		envelope.Data = append(envelope.Data, b)
		said = append(said, s)
	}
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, check.Send, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Messages = said })
	c.w.c.add("batches", 1)
	return c.judge(o, tx.Send(ctx, envelope, nil), nil)
}

// plan schedules messages, and cancels some of them again.
func (c *client) plan(q *check.Queue) {
	c.work(func(ctx context.Context) error {
		for range 10 + c.rng.IntN(30) {
			if ctx.Err() != nil {
				return nil
			}
			o, err := c.schedule(q)
			if err != nil {
				return err
			}
			if o.Ok() && c.rng.IntN(3) == 0 {
				c.pause(3 * time.Second)
				if err := c.cancel(q, o.Seq); err != nil {
					return err
				}
			}
			c.pause(2 * time.Second)
		}
		return nil
	})
}

func (c *client) schedule(q *check.Queue) (*check.Op, error) {
	m, said := c.make(q)
	at := time.Now().Add(time.Duration(1+c.rng.IntN(20_000)) * time.Millisecond).Truncate(time.Millisecond)
	m.Annotations = goamqp.Annotations{"x-opt-scheduled-enqueue-time": at}
	said.ScheduledAt = at.UnixMilli()
	encoded, err := m.MarshalBinary()
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, check.Schedule, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Message = said })
	a, err := c.ask(ctx, q.Name, "schedule-message", map[string]any{
		"messages": []any{map[string]any{"message-id": said.ID, "message": encoded}},
	})
	if n, ok := a["sequence-numbers"].([]int64); err == nil && (!ok || len(n) != 1) {
		err = fmt.Errorf("schedule was answered with %v", a)
	}
	c.w.c.add("scheduled", 1)
	return o, c.judgeRequest(o, err, func(o *check.Op) { o.Seq = a["sequence-numbers"].([]int64)[0] })
}

func (c *client) cancel(q *check.Queue, seq int64) error {
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, check.Cancel, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Seq = seq })
	_, err := c.ask(ctx, q.Name, "cancel-scheduled-message", map[string]any{"sequence-numbers": []int64{seq}})
	err = c.judgeRequest(o, err, nil)
	if o.Ok() {
		c.w.c.add("cancelled", 1)
	}
	return err
}

// look peeks, from the beginning or from somewhere.
func (c *client) look(q *check.Queue) {
	c.work(func(ctx context.Context) error {
		for range 20 {
			if ctx.Err() != nil {
				return nil
			}
			sub := check.InMain
			if c.rng.IntN(4) == 0 {
				sub = check.InDeadLetter
			}
			from := int64(1 + c.rng.IntN(3)*c.rng.IntN(200))
			limit, cancel := c.opContext()
			o := c.w.rec.Begin(c.id, c.number, check.Peek, q.Name, sub)
			c.w.rec.Set(o, func(o *check.Op) { o.From, o.Max = from, 50 })
			list, err := c.peekPage(limit, q, sub, from, 50)
			cancel()
			c.w.c.add("peeks", 1)
			if err := c.judgeRequest(o, err, func(o *check.Op) { o.Messages = list }); err != nil {
				return err
			}
			c.pause(3 * time.Second)
		}
		return nil
	})
}

// fetch receives what others deferred, by number, and settles it.
func (c *client) fetch(q *check.Queue) {
	c.work(func(ctx context.Context) error {
		for range 20 {
			if ctx.Err() != nil {
				return nil
			}
			m, ok := c.w.nextDeferred(q.Name)
			if !ok {
				c.pause(2 * time.Second)
				continue
			}
			if err := c.fetchOne(q, m.Seq); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *client) fetchOne(q *check.Queue, seq int64) error {
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, check.ReceiveDeferred, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Seq = seq })
	a, err := c.ask(ctx, q.Name, "receive-by-sequence-number", map[string]any{
		"sequence-numbers": []int64{seq}, "receiver-settle-mode": uint32(1),
	})
	var m *goamqp.Message
	var token goamqp.UUID
	if err == nil {
		list, _ := a["messages"].([]any)
		if len(list) != 1 {
			err = fmt.Errorf("one number was answered with %d messages", len(list))
		} else if m, err = unpack(list[0]); err == nil {
			token, _ = list[0].(map[string]any)["lock-token"].(goamqp.UUID)
		}
	}
	err = c.judgeRequest(o, err, func(o *check.Op) {
		o.Message = messageOf(m)
		o.Message.Token = textOf(token)
	})
	if err != nil || !o.Ok() {
		return err
	}
	c.w.c.add("deferred received", 1)
	switch c.rng.IntN(6) {
	case 0:
		c.w.defer_(q.Name, seq, "")
		return c.settleByToken(q, check.InMain, o, check.Abandon)
	case 1:
		return c.settleByToken(q, check.InMain, o, check.Kill)
	}
	return c.settleByToken(q, check.InMain, o, check.Complete)
}

// textOf is the inverse of uuidOf, in the form that the history uses.
func textOf(u goamqp.UUID) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// nextDeferred takes one of the deferred messages.
func (w *world) nextDeferred(queue string) (check.Message, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.deferred[queue]
	if len(list) == 0 {
		return check.Message{}, false
	}
	w.deferred[queue] = list[1:]
	return list[0], true
}

// rule creates, changes, asks for and deletes an entity, through any node's directory as the
// management API does.
func (c *client) rule(name string) {
	for c.w.ctx.Err() == nil {
		c.pause(2 * time.Second)
		there := c.w.there()
		node := there[c.rng.IntN(len(there))].node
		if node == nil {
			continue
		}
		c.serial++
		label := fmt.Sprintf("l%d-%d", c.id, c.serial)
		kind := []check.Kind{check.Create, check.Update, check.Delete, check.Get, check.Get}[c.rng.IntN(5)]
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		o := c.w.rec.Begin(c.id, 0, kind, name, "")
		c.w.rec.Set(o, func(o *check.Op) { o.Label = label })
		c.w.c.add("management", 1)
		d := descriptorOf(&check.Queue{Name: name, LockMillis: 5_000, MaxDelivery: 4})
		d.UserMetadata = label
		var made *fsm.Descriptor
		var err error
		switch kind {
		case check.Create:
			made, err = node.directory.Create(ctx, d)
		case check.Update:
			made, err = node.directory.Update(ctx, d)
		case check.Delete:
			err = node.directory.Delete(ctx, name)
		case check.Get:
			// The directory answers from the copy of its node, which may lag behind; a list does not.
			made, err = find(ctx, node, name)
			if c.w.cfg.OldNews {
				made, c.old = c.old, made
			}
		}
		cancel()
		c.judgeChange(o, made, err)
	}
}

// find asks for an entity so that the answer is as of now.
func find(ctx context.Context, n *node, name string) (*fsm.Descriptor, error) {
	all, err := n.directory.List(ctx, fsm.Queue, 0, -1)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.Name == name {
			return d, nil
		}
	}
	return nil, nil
}

func (c *client) judgeChange(o *check.Op, made *fsm.Descriptor, err error) {
	var refused *fsm.RefusedError
	outcome := check.OK
	switch {
	case err == nil:
	case errors.Is(err, fsm.ErrNoEntity) && (o.Kind != check.Update || made == nil),
		errors.As(err, &refused) && refused.Refusal == fsm.EntityExists:
		outcome = check.Failed
	default:
		outcome = check.Unknown
	}
	c.w.rec.End(o, outcome, func(o *check.Op) {
		if err != nil {
			o.Error = err.Error()
		}
		if made != nil {
			o.EntityID = uint64(made.ID)
		}
		if o.Kind == check.Get {
			o.Label = ""
			if made != nil {
				o.Label = made.UserMetadata
			}
		}
	})
}
