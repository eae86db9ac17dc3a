package model

import (
	"fmt"
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

func (m *Model) enqueue(q *queue, sub fsm.SubQueue, c *fsm.Enqueue) fsm.Outcome {
	if c.Origin != nil {
		return m.enqueueMoved(q, sub, c)
	}
	if sub != fsm.Main || q.d.Kind == fsm.Subscription {
		return refused(fsm.InvalidOperation)
	}
	if len(c.Messages) == 0 || !q.believable(c.Messages) {
		return refused(fsm.InvalidArgument)
	}
	total := 0
	for _, x := range c.Messages {
		if q.d.RequiresSession && !x.HasSession {
			return refused(fsm.SessionRequired)
		}
		total += sizeOf(&x)
	}
	news := m.news(q, c)
	if total > int(q.d.MaxMessageBytes)+512*len(c.Messages) {
		return refused(fsm.MessageSizeExceeded)
	}
	if q.d.Kind == fsm.Topic {
		return m.enqueueTopic(q, c, news)
	}
	stored := 0
	for i, x := range c.Messages {
		if news[i] {
			stored += sizeOf(&x)
		}
	}
	if q.full(uint64(stored)) {
		return refused(fsm.QuotaExceeded)
	}
	o := fsm.Outcome{EnqueuedAt: m.wall}
	for i := range c.Messages {
		in := &c.Messages[i]
		if q.d.DetectDuplicates {
			o.Duplicate = append(o.Duplicate, !news[i])
		}
		if !news[i] {
			q.drops[fsm.DropDuplicate]++
			o.Numbers = append(o.Numbers, q.scheduledTwin(in, m.wall))
			continue
		}
		x := &message{id: in.MessageID, known: q.d.ProcessedHistory || q.d.AcceptedHistory, ttl: in.TTL, scheduled: in.ScheduledAt, body: m.ref(in), parts: m.parts[m.ref(in)]}
		x.brings(in.Carried)
		if until, ok := m.waits(in); ok {
			x.state, x.scheduled = fsm.StateScheduled, until
		} else {
			m.stamp(q, x)
		}
		if q.d.RequiresSession {
			x.session = q.reach(in.SessionID)
		}
		q.admit(x, in)
		m.accepted(q, x)
		q.tidy()
		if q.d.DetectDuplicates && in.MessageID != "" {
			q.known = append(q.known, identity{q.identity(in), m.wall, x})
		}
		o.Numbers = append(o.Numbers, x.number)
	}
	q.touched = m.wall
	return o
}

// redrive sends dead messages again, or deletes them.
func (m *Model) redrive(q *queue, sub fsm.SubQueue, c *fsm.Redrive) fsm.Outcome {
	if len(c.Numbers) > 0 {
		return m.redriveNumbers(q, sub, c)
	}
	if sub == fsm.Main && c.To == 0 {
		return refused(fsm.InvalidOperation)
	}
	if c.Max == 0 || c.Max > 1000 {
		return refused(fsm.InvalidArgument)
	}
	var o fsm.Outcome
	var last uint64
	for _, x := range slices.Clone(q.messages) {
		if x.sub != sub || !x.here() || x.arrival <= c.After || x.session != nil && x.session.held() {
			continue
		}
		if o.Count == uint64(c.Max) {
			o.Next = last
			break
		}
		last = x.arrival
		if c.HasReason && x.reason != c.Reason || c.From > x.enqueued || c.Until != 0 && c.Until <= x.enqueued ||
			c.HasSession && !x.of(c.Session) ||
			c.To == 0 && !c.Discard && q.d.RequiresSession && x.diedIn == nil { // it never had a session
			continue
		}
		m.sendOn(q, x, c)
		o.Count++
	}
	q.touched = m.wall
	return o
}

// redriveNumbers does it to messages by their numbers.
func (m *Model) redriveNumbers(q *queue, sub fsm.SubQueue, c *fsm.Redrive) fsm.Outcome {
	if sub == fsm.Main && c.To == 0 && !c.Discard {
		return refused(fsm.InvalidOperation)
	}
	if len(c.Numbers) > 1000 {
		return refused(fsm.InvalidArgument)
	}
	var o fsm.Outcome
	for _, n := range c.Numbers {
		i := slices.IndexFunc(q.messages, func(x *message) bool { return x.sub == sub && x.number == n })
		if i < 0 {
			continue
		}
		x := q.messages[i]
		if !x.here() || x.session != nil && x.session.held() ||
			c.To == 0 && !c.Discard && q.d.RequiresSession && x.diedIn == nil {
			continue
		}
		m.sendOn(q, x, c)
		o.Count++
	}
	q.touched = m.wall
	return o
}

// sendOn moves one message, deletes it, or sends it again to its own queue.
func (m *Model) sendOn(q *queue, x *message, c *fsm.Redrive) {
	switch {
	case c.To != 0:
		m.redirect(q, x, c.To)
	case c.Discard:
		q.drops[fsm.DropPurged]++
		m.left(q, x, fsm.Deleted)
		q.delete(x)
	default:
		y := &message{id: x.id, known: x.known, props: x.props, body: x.body, parts: x.parts}
		if x.expires != 0 {
			y.ttl = x.expires.Since(x.enqueued)
		}
		q.delete(x)
		m.stamp(q, y)
		if q.d.RequiresSession {
			y.session = q.reach(*x.diedIn)
		}
		q.append(y)
		m.accepted(q, y)
	}
	if !c.Discard {
		q.tidy()
	}
}

// of reports whether a message is or died in a session.
func (x *message) of(session string) bool {
	if x.session != nil {
		return x.session.id == session
	}
	return x.diedIn != nil && *x.diedIn == session
}

// news says which messages are not duplicates of others.
func (m *Model) news(q *queue, c *fsm.Enqueue) []bool {
	news := make([]bool, len(c.Messages))
	ids := map[string]bool{}
	for i := range c.Messages {
		in := &c.Messages[i]
		id := q.identity(in)
		news[i] = !q.d.DetectDuplicates || in.MessageID == "" || q.twin(in, m.wall) == nil && !ids[id]
		ids[id] = true
	}
	return news
}

func (q *queue) identity(in *fsm.Message) string {
	switch {
	case !q.d.Partitioned:
		return in.MessageID
	case in.HasSession:
		return fmt.Sprintf("%q in %q", in.MessageID, in.SessionID)
	case in.PartitionKey != "":
		return fmt.Sprintf("%q in %q", in.MessageID, in.PartitionKey)
	}
	return fmt.Sprintf("%q", in.MessageID)
}

// twin returns the message that was accepted with the same id within the window; it may be gone.
func (q *queue) twin(in *fsm.Message, wall fsm.Wall) *message {
	for _, k := range q.known {
		if k.key == q.identity(in) && wall < k.at.After(q.d.DuplicateWindow) {
			return k.message
		}
	}
	return nil
}

func (q *queue) scheduledTwin(in *fsm.Message, wall fsm.Wall) fsm.SequenceNumber {
	if x := q.twin(in, wall); x != nil && x.state == fsm.StateScheduled && slices.Contains(q.messages, x) {
		return x.number
	}
	return 0
}

// reach returns the session of that id, which then exists.
func (q *queue) reach(id string) *session {
	s := q.session(id)
	if s == nil {
		q.born++
		s = &session{id: id, order: q.born}
		q.sessions = append(q.sessions, s)
	}
	return s
}
