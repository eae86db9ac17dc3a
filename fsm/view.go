package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/fsm/stored"
)

// view is a message as rules and the forwarder see it: what its sender wrote, under what was changed since. It is
// made once per message, and finds values when they are asked for.
type view struct {
	sent stored.Sent

	carried *Carried // nil if it was never changed
	facts   facts
	draw    func() uint64
}

// facts are what the broker knows of a message.
type facts struct {
	number, first SequenceNumber
	enqueuedAt    Wall
	expiresAt     Wall
	scheduledAt   Wall
	size          int
}

// look reads the stored form and reports whether it is one. The memory of an earlier message is used again.
func (v *view) look(body []byte) bool {
	v.carried, v.facts = nil, facts{size: len(body)} // of a large one the caller knows better
	return v.sent.Read(body)
}

// Properties returns how many application properties there are, as rule.Message asks.
func (v *view) Properties() int {
	n := len(v.sent.Properties)
	if v.carried != nil {
		n += len(v.carried.Properties)
	}
	return n
}

// User returns an application property, as rule.Message asks.
func (v *view) User(name string) (rule.Value, bool) {
	if c := v.carried; c != nil {
		for i := range c.Properties {
			if rule.SameName(c.Properties[i].Key, name) {
				value, _, ok := stored.ReadValue(string(c.Properties[i].Value))
				return value.Rule(), ok
			}
		}
		switch {
		case c.Reason != "" && rule.SameName(name, stored.PropertyReason):
			return rule.OfString(c.Reason), true
		case c.Description != "" && rule.SameName(name, stored.PropertyDescription):
			return rule.OfString(c.Description), true
		}
	}
	return v.sent.User(name)
}

// spelling returns a name as the message has it, which is what an action's change replaces.
func (v *view) spelling(name string) string {
	if v.carried != nil {
		for i := range v.carried.Properties {
			if rule.SameName(v.carried.Properties[i].Key, name) {
				return v.carried.Properties[i].Key
			}
		}
	}
	return v.sent.Spelling(name)
}

// System returns a system property, as rule.Message asks.
func (v *view) System(p rule.SystemProperty) rule.Value {
	if v.carried != nil && len(v.carried.System) > 0 {
		if value, ok := v.change(p); ok {
			return value
		}
	}
	if text, known, ok := v.sent.Text(p); known {
		if !ok {
			return rule.Value{}
		}
		return rule.OfString(text)
	}
	switch p {
	case rule.TimeToLive:
		if v.sent.TTL == 0 {
			return rule.Value{}
		}
		return rule.OfMillis(int64(v.sent.TTL))
	case rule.ScheduledEnqueueTime:
		return shownAt(v.facts.scheduledAt)
	case rule.EnqueuedTime:
		return shownAt(v.facts.enqueuedAt)
	case rule.ExpiresAt:
		return shownAt(v.facts.expiresAt)
	case rule.SequenceNumber:
		return rule.OfInt(int64(v.facts.number))
	case rule.EnqueuedSequenceNumber:
		return rule.OfInt(int64(v.facts.first))
	case rule.DeliveryCount:
		return rule.OfInt(0)
	case rule.State:
		return rule.OfString("Active")
	case rule.Size:
		return rule.OfInt(int64(v.facts.size))
	case rule.DeadLetterSource:
		if v.carried != nil && v.carried.Source != "" {
			return rule.OfString(v.carried.Source)
		}
	}
	return rule.Value{}
}

func shownAt(at Wall) rule.Value {
	if at == 0 {
		return rule.Value{}
	}
	return rule.OfTimestamp(int64(at))
}

// change returns what an action has made of a system property; ok is false if nothing.
func (v *view) change(p rule.SystemProperty) (value rule.Value, ok bool) {
	for i := range v.carried.System {
		if v.carried.System[i].Property == p {
			changed, _, _ := stored.ReadValue(string(v.carried.System[i].Value))
			return changed.Rule(), true
		}
	}
	return rule.Value{}, false
}

// NewID draws 16 bytes of the entry's chance (S-224).
func (v *view) NewID() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], v.draw())
	binary.BigEndian.PutUint64(id[8:], v.draw())
	return id
}

// Carry makes a message in transit ready for its destination: what Enqueue with an Origin takes. The
// delivery is one of Forward or Moving with its body.
func Carry(d *Delivery, m *Move) (Message, error) {
	var v view
	if !v.look(d.Body) {
		return Message{}, fmt.Errorf("%w: stored message of %d bytes", ErrFormat, len(d.Body))
	}
	v.carried = &Carried{
		EnqueuedSeq: d.First(), Hops: m.Hops + 1, Reason: d.Reason, Description: d.Description,
		Source: d.Source, Properties: d.Properties, System: d.System,
	}
	out := Message{TTL: m.TTL, ScheduledAt: d.ScheduledAt, Body: d.Body, Carried: v.carried}
	if at, _ := v.change(rule.ScheduledEnqueueTime); at.Kind() == rule.DateTime {
		out.ScheduledAt = Wall(at.Millis()) // by an action; until now it only showed (S-220)
	}
	if s := v.System(rule.SessionID); s.Kind() == rule.String {
		out.SessionID, out.HasSession = s.Text(), true
	}
	out.MessageID = v.System(rule.MessageID).Text()
	out.PartitionKey = v.System(rule.PartitionKey).Text()
	return out, nil
}
