package transport

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/stored"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// Shown is a message as operators see it, in JSON. Times are UTC with milliseconds.
type Shown struct {
	SequenceNumber    int64          `json:"sequenceNumber"`
	State             string         `json:"state"` // active, deferred or scheduled
	MessageID         string         `json:"messageId,omitempty"`
	SessionID         *string        `json:"sessionId,omitempty"`
	EnqueuedAt        *time.Time     `json:"enqueuedAt,omitempty"`
	ScheduledAt       *time.Time     `json:"scheduledAt,omitempty"`
	ExpiresAt         *time.Time     `json:"expiresAt,omitempty"`
	LockedUntil       *time.Time     `json:"lockedUntil,omitempty"`
	DeliveryCount     uint32         `json:"deliveryCount"` // finished, unsuccessful deliveries
	Subject           string         `json:"subject,omitempty"`
	To                string         `json:"to,omitempty"`
	ReplyTo           string         `json:"replyTo,omitempty"`
	ReplyToSessionID  string         `json:"replyToSessionId,omitempty"`
	CorrelationID     string         `json:"correlationId,omitempty"`
	ContentType       string         `json:"contentType,omitempty"`
	PartitionKey      string         `json:"partitionKey,omitempty"`
	DeadLetterReason  string         `json:"deadLetterReason,omitempty"`
	DeadLetterDetails string         `json:"deadLetterErrorDescription,omitempty"`
	DeadLetterSource  string         `json:"deadLetterSource,omitempty"`
	Properties        map[string]any `json:"properties,omitempty"`
	Body              string         `json:"body"`
	BodyEncoding      string         `json:"bodyEncoding,omitempty"` // "base64" if the body is no text
	BodyBytes         int            `json:"bodyBytes"`
}

// Show takes a delivery apart for people. The error says that the stored bytes are not a message,
// which they always are unless a disk lies.
func Show(d *fsm.Delivery) (*Shown, error) {
	s, err := stored.Parse(d.Body)
	if err != nil {
		return nil, err
	}
	parts, err := amqp.ParseMessage(s.Bare)
	if err != nil {
		return nil, err
	}
	p, err := parts.ParseProperties()
	if err != nil {
		return nil, err
	}
	changeProperties(&p, d.System)
	out := &Shown{
		SequenceNumber: int64(d.Seq), State: stateName(d.State), DeliveryCount: d.Attempts,
		EnqueuedAt: timeOf(d.EnqueuedAt), ScheduledAt: timeOf(d.ScheduledAt),
		LockedUntil: timeOf(d.LockedUntil), ExpiresAt: timeOf(d.ExpiresAt),
		Subject: string(p.Subject), To: string(p.To), ReplyTo: string(p.ReplyTo),
		ReplyToSessionID: string(p.ReplyToGroupID), ContentType: string(p.ContentType),
		DeadLetterReason: d.Reason, DeadLetterDetails: d.Description, DeadLetterSource: d.Source,
	}
	out.MessageID, _ = amqp.IDText(p.MessageID)
	out.CorrelationID, _ = amqp.IDText(p.CorrelationID)
	if p.GroupID != nil {
		id := string(p.GroupID)
		out.SessionID = &id
	}
	if key, ok := amqp.Raw(s.Annotations).Get(annPartitionKey); ok {
		out.PartitionKey, _ = key.Text()
	}
	for i := range d.System {
		if stored.AnnotationOf(d.System[i].Property) == annPartitionKey {
			out.PartitionKey, _ = amqp.Raw(d.System[i].Value).Text()
		}
	}
	if out.Properties, err = shownProperties(parts.ApplicationProperties, d.Properties); err != nil {
		return nil, err
	}
	out.Body, out.BodyEncoding, out.BodyBytes = shownBody(&parts)
	return out, nil
}

func stateName(s fsm.MessageState) string {
	switch s {
	case fsm.StateDeferred:
		return "deferred"
	case fsm.StateScheduled:
		return "scheduled"
	}
	return "active"
}

// timeOf returns the wall time, nil for none and for what lies behind the year 9999, which JSON's
// form of time cannot say.
func timeOf(at fsm.Wall) *time.Time {
	if at <= 0 || at >= 253_402_300_800_000 {
		return nil
	}
	t := time.UnixMilli(int64(at)).UTC()
	return &t
}

// shownProperties lists the sender's properties and those that settlements set since.
func shownProperties(section []byte, set []fsm.Property) (map[string]any, error) {
	sent, err := amqp.ReadProperties(amqp.SectionValue(section))
	if err != nil {
		return nil, err
	}
	if len(sent)+len(set) == 0 {
		return nil, nil
	}
	out := make(map[string]any, len(sent)+len(set))
	for _, p := range sent {
		out[p.Key] = shownValue(p.Value)
	}
	for _, p := range set {
		if delete(out, p.Key); len(p.Value) > 0 {
			out[p.Key] = shownValue(p.Value)
		}
	}
	return out, nil
}

// shownValue turns an AMQP value into what JSON has: truth values, numbers that a double holds
// exactly, and texts for the rest.
func shownValue(raw amqp.Raw) any {
	v, err := raw.Value()
	if err != nil {
		return fmt.Sprintf("unreadable: %v", err)
	}
	const exact = 1 << 53
	switch v := v.(type) {
	case nil, bool, string:
		return v
	case float32:
		return finite(float64(v))
	case float64:
		return finite(v)
	case uint64:
		if v > exact {
			return strconv.FormatUint(v, 10)
		}
		return v
	case int64:
		if v > exact || v < -exact {
			return strconv.FormatInt(v, 10)
		}
		return v
	case amqp.Timestamp:
		if t := timeOf(fsm.Wall(v)); t != nil {
			return t
		}
		return int64(v)
	case amqp.UUID:
		return v.String()
	case amqp.Symbol:
		return string(v)
	case amqp.Char:
		return string(rune(v))
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case uint8, uint16, uint32, int8, int16, int32:
		return v
	}
	return hex.EncodeToString(raw) // decimals and what has no place in properties
}

// finite keeps what JSON cannot say from failing the whole answer.
func finite(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return v
}

// shownBody is the body as text if it is one: data, or a value that is a string; otherwise its bytes.
func shownBody(parts *amqp.Sections) (text, encoding string, bytes int) {
	body := parts.Body
	switch parts.BodyCode {
	case amqp.CodeData:
		var all []byte
		for data, err := range amqp.BatchMessages(body) { // one for each data section
			if err != nil {
				break
			}
			all = append(all, data...)
		}
		body = all
	case amqp.CodeAMQPValue:
		body = amqp.SectionValue(parts.Body)
		if s, ok := amqp.Raw(body).Text(); ok {
			return s, "", len(s)
		}
		if b, ok := amqp.Raw(body).Binary(); ok {
			body = b
			break
		}
		return base64.StdEncoding.EncodeToString(body), "base64 of AMQP", len(body)
	case amqp.CodeAMQPSequence:
		return base64.StdEncoding.EncodeToString(body), "base64 of AMQP", len(body)
	}
	if utf8.Valid(body) {
		return string(body), "", len(body)
	}
	return base64.StdEncoding.EncodeToString(body), "base64", len(body)
}
