package simulation

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/check"
)

// hashOf covers the body and the properties that a sender sets.
func hashOf(m *goamqp.Message) uint64 {
	h := fnv.New64a()
	h.Write(m.GetData())
	if p := m.Properties; p != nil {
		fmt.Fprint(h, p.MessageID)
		if p.Subject != nil {
			fmt.Fprint(h, *p.Subject)
		}
		if p.GroupID != nil {
			fmt.Fprint(h, "group", *p.GroupID)
		}
	}
	fmt.Fprint(h, m.ApplicationProperties["n"])
	return h.Sum64()
}

// make returns a new message and what the history says of it.
func (c *client) make(q *check.Queue) (*goamqp.Message, check.Message) {
	c.serial++
	id := fmt.Sprintf("m%d-%d", c.id, c.serial)
	body := make([]byte, 16+c.rng.IntN(200))
	if c.rng.IntN(50) == 0 {
		body = make([]byte, 20_000) // does not fit one frame with others
	}
	binary.BigEndian.PutUint64(body, c.rng.Uint64())
	m := goamqp.NewMessage(body)
	subject := "s" + id
	m.Properties = &goamqp.MessageProperties{MessageID: id, Subject: &subject}
	m.ApplicationProperties = map[string]any{"n": int64(c.serial)}
	out := check.Message{ID: id}
	if q.Mortal && c.rng.IntN(2) == 0 {
		out.TTL = int64(1000 + c.rng.IntN(8000))
		m.Header = &goamqp.MessageHeader{TTL: time.Duration(out.TTL) * time.Millisecond}
	}
	if q.Sessions {
		out.Session, out.HasSession = c.w.sessionID(c.rng), true
		m.Properties.GroupID = &out.Session
	}
	out.Hash = hashOf(m)
	return m, out
}

// produce sends messages one after the other.
func (c *client) produce(q *check.Queue) {
	c.work(func(ctx context.Context) error {
		open, cancel := context.WithTimeout(ctx, opLimit)
		tx, err := c.session.NewSender(open, q.Name, nil)
		cancel()
		if err != nil {
			return err
		}
		for range 20 + c.rng.IntN(200) {
			if ctx.Err() != nil {
				return nil
			}
			send := c.send
			switch c.rng.IntN(15) {
			case 0:
				send = c.sendBatch
			case 1:
				send = c.sendMany
			}
			if err := send(tx, q); err != nil {
				return err
			}
			c.pause(c.w.cfg.SendEvery)
		}
		if c.rng.IntN(3) == 0 {
			return errGiveUp // a process that dies
		}
		return nil
	})
}

func (c *client) send(tx *goamqp.Sender, q *check.Queue) error {
	m, said := c.make(q)
	ctx, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, check.Send, q.Name, check.InMain)
	c.w.rec.Set(o, func(o *check.Op) { o.Message = said })
	if c.rng.IntN(100) == 0 { // the connection breaks off while the message is under way
		breaks := time.AfterFunc(time.Duration(c.rng.Int64N(int64(20*time.Millisecond))),
			func() { _ = c.raw.Close() })
		defer breaks.Stop()
		c.w.c.add("disconnects in mid-transfer", 1)
	}
	return c.judge(o, tx.Send(ctx, m, nil), nil)
}

// sendMany sends several messages without waiting for answers in between, so that some join the request of an earlier one.
func (c *client) sendMany(tx *goamqp.Sender, q *check.Queue) (fault error) {
	ctx, cancel := c.opContext()
	defer cancel()
	type sent struct {
		o       *check.Op
		receipt goamqp.SendReceipt
	}
	var all []sent
	for range 2 + c.rng.IntN(12) {
		m, said := c.make(q)
		o := c.w.rec.Begin(c.id, c.number, check.Send, q.Name, check.InMain)
		c.w.rec.Set(o, func(o *check.Op) { o.Message = said })
		receipt, err := tx.SendWithReceipt(ctx, m, nil)
		if err != nil {
			fault = c.judge(o, err, nil)
			break
		}
		all = append(all, sent{o, receipt})
	}
	for i := range all {
		state, err := all[i].receipt.Wait(ctx)
		if rejected, is := state.(*goamqp.StateRejected); is && rejected.Error != nil {
			err = rejected.Error
		}
		if err := c.judge(all[i].o, err, nil); err != nil {
			fault = err
		}
	}
	c.w.c.add("sends without waiting", len(all))
	return fault
}
