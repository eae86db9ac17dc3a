package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

const (
	noSession     = "Session ID is null."
	noSessionText = "A subscription with sessions takes no message without a valid session id."
)

// subscriptions are those of a topic that want a message. The rules of this model are true or false.
func (m *Model) subscriptions(topic *queue, wanting bool) (list []*queue) {
	for _, q := range m.queues {
		wants := slices.ContainsFunc(q.d.Rules, func(r fsm.Rule) bool { return r.Source.Kind == rule.TrueFilter })
		if q.d.Kind == fsm.Subscription && q.d.Parent == topic.d.ID && (wants || !wanting) {
			list = append(list, q)
		}
	}
	return list
}

// stores is what a copy takes in a subscription, 0 if there is none.
func (q *queue) stores(x *message) int {
	switch {
	case !q.d.RequiresSession || x.group != nil:
		return int(x.size()) + x.luggage()
	case q.d.NoDeadLetter:
		return 0
	}
	dead := *x
	dead.reason, dead.text = noSession, noSessionText
	return int(x.size()) + dead.luggage()
}

// publish makes the copies of a message that has its number in the topic.
func (m *Model) publish(topic *queue, x *message) {
	wanting := m.subscriptions(topic, true)
	if len(wanting) == 0 {
		topic.drops[fsm.DropUnmatched]++
	}
	for _, q := range wanting {
		if q.stores(x) == 0 {
			q.drops[fsm.DropSession]++
			continue
		}
		y := &message{id: x.id, known: q.d.ProcessedHistory || q.d.AcceptedHistory, body: x.body, parts: x.parts,
			scheduled: x.scheduled, first: x.number, hops: x.hops, reason: x.reason, text: x.text,
			source: x.source, props: x.props}
		if x.first != 0 {
			y.first = x.first
		}
		m.stamp(q, y)
		dead := q.d.RequiresSession && x.group == nil
		if q.d.RequiresSession && !dead {
			y.session = q.reach(*x.group)
		}
		q.append(y)
		if dead {
			deadLetter(y, noSession, noSessionText)
		} else {
			m.accepted(q, y)
		}
		q.tidy()
	}
}

// topicFull reports whether a topic and its subscriptions have no room for that many bytes more.
func (m *Model) topicFull(topic *queue, more uint64) bool {
	size := m.topicSize(topic)
	return topic.d.MaxSizeBytes > 0 && more > 0 && size+more > topic.d.MaxSizeBytes
}

func (m *Model) topicSize(topic *queue) uint64 {
	size := topic.size()
	for _, q := range m.subscriptions(topic, false) {
		size += q.size()
	}
	return size
}

// enqueueTopic is enqueue for a topic: what is due goes to the subscriptions.
func (m *Model) enqueueTopic(q *queue, c *fsm.Enqueue, news []bool) fsm.Outcome {
	more := 0
	list := make([]*message, len(c.Messages))
	for i := range c.Messages {
		in := &c.Messages[i]
		x := &message{id: in.MessageID, ttl: in.TTL, scheduled: in.ScheduledAt, body: m.ref(in), parts: m.parts[m.ref(in)]}
		x.brings(in.Carried)
		if in.HasSession {
			x.group = &in.SessionID
		}
		list[i] = x
		if !news[i] {
			continue
		}
		if until, ok := m.waits(in); ok {
			x.state, x.scheduled = fsm.StateScheduled, until
			more += sizeOf(in)
			continue
		}
		for _, sub := range m.subscriptions(q, true) {
			more += sub.stores(x)
		}
	}
	if m.topicFull(q, uint64(more)) {
		return refused(fsm.QuotaExceeded)
	}
	o := fsm.Outcome{EnqueuedAt: m.wall}
	for i, x := range list {
		in := &c.Messages[i]
		if q.d.DetectDuplicates {
			o.Duplicate = append(o.Duplicate, !news[i])
		}
		if !news[i] {
			q.drops[fsm.DropDuplicate]++
			o.Numbers = append(o.Numbers, q.scheduledTwin(in, m.wall))
			continue
		}
		q.admit(x, in)
		if x.state != fsm.StateScheduled {
			q.delete(x)
			m.publish(q, x)
		}
		if q.d.DetectDuplicates && in.MessageID != "" {
			q.known = append(q.known, identity{q.identity(in), m.wall, x})
		}
		o.Numbers = append(o.Numbers, x.number)
	}
	q.touched = m.wall
	return o
}
