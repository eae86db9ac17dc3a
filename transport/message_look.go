package transport

import (
	"crypto/rand"
	"errors"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/fsm/stored"
)

// looked is a message that is there, as filters of operators see it. Rules of subscriptions see what a sender wrote and
// what was changed since (fsm/view.go); this is the same, with what has become of the message in its queue.
type looked struct {
	sent stored.Sent
	d    *fsm.Delivery
}

// Look makes a message that is there visible to filters.
func Look(d *fsm.Delivery) (rule.Message, error) {
	m := &looked{d: d}
	if !m.sent.Read(d.Body) {
		return nil, errors.New("the stored bytes are no message")
	}
	return m, nil
}

// Properties implements rule.Message.
func (m *looked) Properties() int { return len(m.sent.Properties) + len(m.d.Properties) }

// User implements rule.Message.
func (m *looked) User(name string) (rule.Value, bool) {
	for i := range m.d.Properties {
		if rule.SameName(m.d.Properties[i].Key, name) {
			value, _, ok := stored.ReadValue(string(m.d.Properties[i].Value))
			return value.Rule(), ok
		}
	}
	switch {
	case m.d.Reason != "" && rule.SameName(name, stored.PropertyReason):
		return rule.OfString(m.d.Reason), true
	case m.d.Description != "" && rule.SameName(name, stored.PropertyDescription):
		return rule.OfString(m.d.Description), true
	}
	return m.sent.User(name)
}

// System implements rule.Message.
func (m *looked) System(p rule.SystemProperty) rule.Value {
	for i := range m.d.System {
		if m.d.System[i].Property == p {
			value, _, _ := stored.ReadValue(string(m.d.System[i].Value))
			return value.Rule()
		}
	}
	if text, known, ok := m.sent.Text(p); known {
		if !ok {
			return rule.Value{}
		}
		return rule.OfString(text)
	}
	switch p {
	case rule.TimeToLive:
		if m.sent.TTL != 0 {
			return rule.OfMillis(int64(m.sent.TTL))
		}
	case rule.ScheduledEnqueueTime:
		return lookedAt(m.d.ScheduledAt)
	case rule.EnqueuedTime:
		return lookedAt(m.d.EnqueuedAt)
	case rule.ExpiresAt:
		return lookedAt(m.d.ExpiresAt)
	case rule.SequenceNumber:
		return rule.OfInt(int64(m.d.Seq))
	case rule.EnqueuedSequenceNumber:
		return rule.OfInt(int64(m.d.First()))
	case rule.DeliveryCount:
		return rule.OfInt(int64(m.d.Attempts))
	case rule.State:
		return rule.OfString(stateTitles[stateName(m.d.State)])
	case rule.Size:
		return rule.OfInt(int64(len(m.d.Body)))
	case rule.DeadLetterSource:
		if m.d.Source != "" {
			return rule.OfString(m.d.Source)
		}
	}
	return rule.Value{}
}

// stateTitles are the states as rules name them.
var stateTitles = map[string]string{"active": "Active", "deferred": "Deferred", "scheduled": "Scheduled"}

func lookedAt(at fsm.Wall) rule.Value {
	if at <= 0 {
		return rule.Value{}
	}
	return rule.OfTimestamp(int64(at))
}

// NewID implements rule.Message. A filter that is tried decides nothing that replicas must agree on.
func (m *looked) NewID() (id [16]byte) {
	_, _ = rand.Read(id[:])
	return id
}
