package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// transits are the messages of a subqueue that are on their way elsewhere.
type transits struct {
	last uint64
	list []transit
}

type transit struct {
	number uint64
	x      *message
	to     fsm.EntityID
}

func (q *queue) receives() bool {
	return q.d.Status == fsm.Active || q.d.Status == fsm.SendDisabled
}

// forwards reports whether what is in a subqueue goes elsewhere.
func (q *queue) forwards(sub fsm.SubQueue) bool {
	switch sub {
	case fsm.Main:
		return q.d.ForwardTo != "" && !q.d.RequiresSession && q.d.Kind != fsm.Topic
	case fsm.DeadLetter:
		return q.d.ForwardDeadLettersTo != "" && q.d.Kind != fsm.Topic
	}
	return sub == fsm.TransferQueue
}

// here reports whether nobody has the message and nothing keeps it.
func (x *message) here() bool { return x.idle() && !x.rests() }

// idle reports whether nobody has the message; it may be at rest.
func (x *message) idle() bool { return x.state == fsm.StateActive && x.token.IsZero() && !x.moving }

// goes reports whether a forwarder may take the message.
func (q *queue) goes(x *message) bool { return x.here() && !x.stuck }

// transfer stores messages for other entities.
func (m *Model) transfer(q *queue, sub fsm.SubQueue, c *fsm.Transfer) fsm.Outcome {
	total := 0
	for _, in := range c.Messages {
		if in.TTL < 0 {
			return refused(fsm.InvalidArgument)
		}
		total += sizeOf(&in)
	}
	switch {
	case sub != fsm.Main:
		return refused(fsm.InvalidOperation)
	case c.To == 0 || len(c.Messages) == 0:
		return refused(fsm.InvalidArgument)
	case total > int(q.d.MaxMessageBytes)+512*len(c.Messages):
		return refused(fsm.MessageSizeExceeded)
	case q.full(uint64(total)):
		return refused(fsm.QuotaExceeded)
	}
	for i := range c.Messages {
		in := &c.Messages[i]
		m.sendAway(q, &message{ttl: in.TTL, scheduled: in.ScheduledAt, body: m.ref(in), parts: m.parts[m.ref(in)], to: c.To,
			reserved: in.Reserved})
	}
	q.touched = m.wall
	return fsm.Outcome{EnqueuedAt: m.wall}
}

func (m *Model) sendAway(q *queue, x *message) {
	x.sub, x.enqueued = fsm.TransferQueue, m.wall
	q.sentAway++
	q.away = append(q.away, x)
}

// redirect takes a message out of its place and sends it to another entity.
func (m *Model) redirect(q *queue, x *message, to fsm.EntityID) {
	y := &message{body: x.body, parts: x.parts, props: x.props, to: to}
	if x.expires != 0 {
		y.ttl = x.expires.Since(x.enqueued)
	}
	m.left(q, x, fsm.Forwarded)
	q.delete(x)
	m.sendAway(q, y)
}

// contents are the messages of a subqueue in their order.
func (q *queue) contents(sub fsm.SubQueue) []*message {
	if sub == fsm.TransferQueue {
		return slices.Clone(q.away)
	}
	return slices.DeleteFunc(slices.Clone(q.messages), func(x *message) bool { return x.sub != sub })
}

// forward ends moves and takes further messages.
func (m *Model) forward(q *queue, sub fsm.SubQueue, c *fsm.Forward) fsm.Outcome {
	m.holdEnds()
	switch {
	case c.Epoch != m.epoch:
		return refused(fsm.NotLeader)
	case m.holding != 0:
		return refused(fsm.Busy)
	case sub == fsm.TransferDeadLetter:
		return refused(fsm.InvalidOperation)
	}
	for _, d := range c.Done {
		m.ended(q, sub, d)
	}
	var o fsm.Outcome
	t := &q.moves[sub]
	if c.Max > 0 && q.forwards(sub) && (sub == fsm.TransferQueue || q.receives()) {
		if sub == fsm.Main {
			m.outlive(q)
		}
		bytes := uint32(0)
		var worn []*message
		for _, x := range q.contents(sub) {
			if !q.goes(x) {
				continue
			}
			over := len(o.Moves) > 0 && c.MaxBytes > 0 && bytes+x.size() > c.MaxBytes
			if len(o.Moves) == int(c.Max) || over {
				break
			}
			if sub != fsm.TransferQueue && x.hops >= 4 {
				worn = append(worn, x)
				continue
			}
			bytes += x.size()
			to := c.To
			if sub == fsm.TransferQueue {
				to = x.to
			}
			t.last++
			x.moving = true
			t.list = append(t.list, transit{t.last, x, to})
			o.Locked = append(o.Locked, m.inTransit(q, sub, x))
			o.Moves = append(o.Moves, m.move(sub, t.list[len(t.list)-1]))
		}
		circle := c.To == q.d.ID || q.d.Kind == fsm.Subscription && c.To == q.d.Parent
		for _, x := range worn {
			const reason, text = "MaxTransferHopCountExceeded", "The message was moved 4 times, the maximum."
			if !circle || q.d.NoDeadLetter {
				m.unwanted(q, sub, x, reason, text)
				continue
			}
			if sub == fsm.Main {
				m.left(q, x, fsm.DeadLettered)
			}
			deadLetter(x, reason, text)
			x.sub = fsm.TransferDeadLetter
		}
	}
	o.Next = t.last + 1
	if len(t.list) > 0 {
		o.Next = t.list[0].number
	}
	return o
}

// ended ends one move.
func (m *Model) ended(q *queue, sub fsm.SubQueue, d fsm.Moved) {
	t := &q.moves[sub]
	i := slices.IndexFunc(t.list, func(y transit) bool { return y.number == d.Number })
	switch d.Refusal {
	case fsm.Stale, fsm.NotLeader, fsm.Busy, fsm.NodeExpired, fsm.NoSession:
		return
	}
	if i < 0 {
		return
	}
	x := t.list[i].x
	t.list = slices.Delete(t.list, i, i+1)
	x.moving = false
	reason := d.Refusal.String()
	if d.Refusal == fsm.SessionRequired {
		reason = "Session ID is null."
	}
	switch {
	case sub == fsm.TransferQueue:
		q.away = slices.DeleteFunc(q.away, func(y *message) bool { return y == x })
		if d.Refusal != fsm.None && !q.d.NoDeadLetter {
			x.sub, x.reason, x.text, x.to, x.ttl = fsm.TransferDeadLetter, reason, d.Detail, 0, 0
			q.append(x)
		} else if d.Refusal != fsm.None {
			q.drops[fsm.DropForward]++
		}
	case d.Refusal == fsm.None:
		m.left(q, x, fsm.Forwarded)
		q.delete(x)
	default:
		m.unwanted(q, sub, x, reason, d.Detail)
	}
}

// unwanted dead-letters what cannot be moved; a dead letter stays.
func (m *Model) unwanted(q *queue, sub fsm.SubQueue, x *message, reason, text string) {
	switch {
	case sub == fsm.DeadLetter:
		x.stuck = true
	case q.d.NoDeadLetter:
		q.drops[fsm.DropForward]++
		m.left(q, x, fsm.Deleted)
		q.delete(x)
	default:
		m.left(q, x, fsm.DeadLettered)
		deadLetter(x, reason, text)
	}
}

// inTransit describes a message to whoever carries it.
func (m *Model) inTransit(q *queue, sub fsm.SubQueue, x *message) fsm.Delivery {
	d := m.delivery(x)
	switch sub {
	case fsm.TransferQueue:
		d.Seq, d.EnqueuedSeq, d.ExpiresAt = x.reserved, 0, 0
	case fsm.DeadLetter:
		if d.Source == "" {
			d.Source = q.d.Name
		}
	}
	return d
}

func (m *Model) move(sub fsm.SubQueue, t transit) fsm.Move {
	v := fsm.Move{Number: t.number, To: t.to}
	if sub != fsm.TransferQueue {
		v.Hops = t.x.hops
	}
	switch {
	case sub == fsm.TransferQueue:
		v.TTL = t.x.ttl
	case sub == fsm.Main && t.x.expires != 0:
		v.TTL = max(1, t.x.expires.Since(m.wall))
	}
	return v
}

// movingNow lists what is in transit.
func (m *Model) movingNow(q *queue, sub fsm.SubQueue, c *fsm.Moving) (a fsm.Answer) {
	bytes := uint32(0)
	for _, t := range q.moves[sub].list {
		if t.number <= c.After {
			continue
		}
		bytes += t.x.size()
		if n := len(a.Moves); n == int(c.Max) || n > 0 && c.MaxBytes > 0 && bytes > c.MaxBytes {
			a.Next = a.Moves[len(a.Moves)-1].Number
			break
		}
		a.Messages = append(a.Messages, m.inTransit(q, sub, t.x))
		a.Moves = append(a.Moves, m.move(sub, t))
	}
	return a
}
