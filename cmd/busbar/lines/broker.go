package lines

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// The annotations that a broker sets on a message that it delivers. A sender's own of that name do not reach the broker's
// store, but for the schedule.
const (
	annEnqueuedTime  = "x-opt-enqueued-time"
	annNumber        = "x-opt-sequence-number"
	annFirstNumber   = "x-opt-enqueue-sequence-number"
	annLockedUntil   = "x-opt-locked-until"
	annState         = "x-opt-message-state"
	annScheduledTime = "x-opt-scheduled-enqueue-time"
	annDeadSource    = "x-opt-deadletter-source"
	annLockToken     = "x-opt-lock-token"
)

// FromBroker takes a message apart that a broker has shown. Its line has what the broker says of it apart.
func FromBroker(payload []byte) (*Message, error) {
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		return nil, err
	}
	m, err := Decode(payload)
	if err != nil {
		return nil, err
	}
	said, err := amqp.SectionValue(s.MessageAnnotations).Map()
	if err != nil {
		return nil, err
	}
	kept := amqp.Map{}
	var enqueued amqp.Timestamp
	for _, p := range said {
		key, _ := p.Key.(amqp.Symbol)
		at, isTime := p.Value.(amqp.Timestamp)
		switch {
		case key == annEnqueuedTime && isTime:
			enqueued, m.EnqueuedAt = at, timeText(at)
		case key == annScheduledTime && isTime:
			m.ScheduledAt = timeText(at)
		case key == annLockedUntil && isTime:
			m.LockedUntil = timeText(at)
		case key == annNumber:
			if n, ok := p.Value.(int64); ok {
				m.SequenceNumber = &n
			}
		case key == annState:
			m.State = stateOf(p.Value)
		case key == annDeadSource:
			m.DeadLetterSource, _ = amqp.ToText(p.Value)
		case key == annFirstNumber: // the number in another queue means nothing elsewhere
		default:
			kept = append(kept, p)
		}
	}
	m.MessageAnnotations = nil
	if len(kept) > 0 {
		m.MessageAnnotations = fromPairs(kept, fromSymbol)
	}
	m.dropLockToken()
	if h := m.Header; h != nil && h.TTL != nil && m.State != stateScheduled && enqueued > 0 {
		m.ExpiresAt = timeText(enqueued + amqp.Timestamp(*h.TTL))
	}
	return m, nil
}

const stateScheduled = "scheduled"

// stateOf is the name of a value of x-opt-message-state.
func stateOf(v any) string {
	switch n, _ := amqp.ToInt64(v); n {
	case 1:
		return "deferred"
	case 2:
		return stateScheduled
	}
	return "active"
}

func (m *Message) dropLockToken() {
	var kept []any
	for _, item := range m.DeliveryAnnotations {
		if pair, ok := item.([]any); !ok || len(pair) != 2 || pair[0] != annLockToken {
			kept = append(kept, item)
		}
	}
	m.DeliveryAnnotations = kept
}

// Schedule puts the time of the line's schedule where a broker looks for it.
func (m *Message) Schedule() error {
	if m.ScheduledAt == nil {
		return nil
	}
	t, err := toTime(m.ScheduledAt)
	if err != nil {
		return wrap("scheduledAt", err)
	}
	m.MessageAnnotations = append(m.MessageAnnotations, []any{annScheduledTime, typed("timestamp", timeNumber(t))})
	return nil
}

// timeNumber is a timestamp that no form of text can change.
func timeNumber(t amqp.Timestamp) json.Number { return json.Number(fmt.Sprint(int64(t))) }

// KeepExpiry makes the message live as long as it would have lived where the line comes from. It reports false for a
// message whose life is over at the time now.
func (m *Message) KeepExpiry(now time.Time) (alive bool, err error) {
	if m.ExpiresAt == nil {
		return true, nil
	}
	t, err := toTime(m.ExpiresAt)
	if err != nil {
		return false, wrap("expiresAt", err)
	}
	left := int64(t) - now.UnixMilli()
	if left <= 0 {
		return false, nil
	}
	if m.Header == nil {
		m.Header = &Header{}
	}
	ttl := uint32(min(left, 1<<32-1))
	m.Header.TTL = &ttl
	return true, nil
}

// Fresh returns the message as if its sender had just written it. It has nothing of what the broker says, no schedule, and
// no reason of a death.
func (m *Message) Fresh() *Message {
	out := *m
	out.SequenceNumber, out.State, out.EnqueuedAt, out.ScheduledAt, out.ExpiresAt, out.LockedUntil = nil, "", nil, nil, nil, nil
	out.DeadLetterSource, out.ApplicationProperties = "", nil
	for _, item := range m.ApplicationProperties {
		if pair, ok := item.([]any); !ok || len(pair) != 2 || pair[0] != deadReason && pair[0] != deadDescription {
			out.ApplicationProperties = append(out.ApplicationProperties, item)
		}
	}
	if h := m.Header; h != nil {
		fresh := *h
		fresh.DeliveryCount, fresh.FirstAcquirer = 0, false
		out.Header = &fresh
	}
	return &out
}

// The application properties by which a broker tells why a message died.
const (
	deadReason      = "DeadLetterReason"
	deadDescription = "DeadLetterErrorDescription"
)
