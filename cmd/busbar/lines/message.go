package lines

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// Format is the version of the form of a line.
const Format = 1

// Message is one line. The first fields are what a broker says of the message; a broker that stores the line sets them
// anew. All others are the message of its sender.
type Message struct {
	Format           int    `json:"format"`
	SequenceNumber   *int64 `json:"sequenceNumber,omitempty"`
	State            string `json:"state,omitempty"` // active, deferred or scheduled
	EnqueuedAt       any    `json:"enqueuedAt,omitempty"`
	ScheduledAt      any    `json:"scheduledAt,omitempty"` // sent again: the schedule is the sender's
	ExpiresAt        any    `json:"expiresAt,omitempty"`
	LockedUntil      any    `json:"lockedUntil,omitempty"`
	DeadLetterSource string `json:"deadLetterSource,omitempty"`

	Header                *Header     `json:"header,omitempty"`
	DeliveryAnnotations   []any       `json:"deliveryAnnotations,omitempty"` // pairs
	MessageAnnotations    []any       `json:"messageAnnotations,omitempty"`  // pairs
	Properties            *Properties `json:"properties,omitempty"`
	ApplicationProperties []any       `json:"applicationProperties,omitempty"` // pairs

	// At most one of these is the body.
	Data     []any           `json:"data,omitempty"`     // a binary for each section
	Sequence []any           `json:"sequence,omitempty"` // a list for each section
	Value    json.RawMessage `json:"value,omitempty"`
	Encoded  string          `json:"encoded,omitempty"` // base64 of body sections whose values are malformed

	Footer []any `json:"footer,omitempty"` // pairs
}

// Header is AMQP 1.0 §3.2.1; a field that is absent was null.
type Header struct {
	Durable       bool    `json:"durable,omitempty"`
	Priority      *uint8  `json:"priority,omitempty"`
	TTL           *uint32 `json:"ttl,omitempty"` // milliseconds
	FirstAcquirer bool    `json:"firstAcquirer,omitempty"`
	DeliveryCount uint32  `json:"deliveryCount,omitempty"`
}

// Properties is AMQP 1.0 §3.2.4; a field that is absent was null.
type Properties struct {
	MessageID          any     `json:"messageId,omitempty"` // string, ulong, uuid or binary
	UserID             any     `json:"userId,omitempty"`    // binary
	To                 *string `json:"to,omitempty"`
	Subject            *string `json:"subject,omitempty"`
	ReplyTo            *string `json:"replyTo,omitempty"`
	CorrelationID      any     `json:"correlationId,omitempty"` // as MessageID
	ContentType        *string `json:"contentType,omitempty"`
	ContentEncoding    *string `json:"contentEncoding,omitempty"`
	AbsoluteExpiryTime any     `json:"absoluteExpiryTime,omitempty"`
	CreationTime       any     `json:"creationTime,omitempty"`
	GroupID            *string `json:"groupId,omitempty"` // the session id
	GroupSequence      *uint32 `json:"groupSequence,omitempty"`
	ReplyToGroupID     *string `json:"replyToGroupId,omitempty"`
}

// Decode takes an encoded message apart.
func Decode(payload []byte) (*Message, error) {
	s, err := amqp.ParseMessage(payload)
	if err != nil {
		return nil, err
	}
	m := &Message{Format: Format}
	if s.Header != nil {
		h, err := s.ParseHeader()
		if err != nil {
			return nil, err
		}
		m.Header = &Header{Durable: h.Durable, Priority: opt(h.Priority), TTL: opt(h.TTL),
			FirstAcquirer: h.FirstAcquirer, DeliveryCount: h.DeliveryCount}
	}
	if s.Properties != nil {
		p, err := s.ParseProperties()
		if err != nil {
			return nil, err
		}
		m.Properties = fromProperties(&p)
	}
	for _, part := range []struct {
		section []byte
		into    *[]any
		key     func(any) any
	}{
		{s.DeliveryAnnotations, &m.DeliveryAnnotations, fromSymbol},
		{s.MessageAnnotations, &m.MessageAnnotations, fromSymbol},
		{s.ApplicationProperties, &m.ApplicationProperties, fromValue},
		{s.Footer, &m.Footer, fromSymbol},
	} {
		pairs, err := amqp.SectionValue(part.section).Map()
		if err != nil {
			return nil, err
		}
		if len(pairs) > 0 {
			*part.into = fromPairs(pairs, part.key)
		}
	}
	return m, m.decodeBody(&s)
}

func opt[T any](o amqp.Opt[T]) *T {
	if !o.Set {
		return nil
	}
	return &o.Value
}

// fromSymbol writes a key of annotations or of the footer. Symbols, which nearly all are, stand there without their type.
func fromSymbol(key any) any {
	switch key := key.(type) {
	case amqp.Symbol:
		return string(key)
	case string:
		return typed("string", key)
	}
	return fromValue(key)
}

func fromProperties(p *amqp.Properties) *Properties {
	text := func(b []byte) *string {
		if b == nil {
			return nil
		}
		s := string(b)
		return &s
	}
	id := func(raw amqp.Raw) any {
		v, err := raw.Value()
		if err != nil {
			return nil // ParseProperties has checked it
		}
		return fromValue(v)
	}
	at := func(t amqp.Opt[amqp.Timestamp]) any {
		if !t.Set {
			return nil
		}
		return timeText(t.Value)
	}
	out := &Properties{
		MessageID: id(p.MessageID), To: text(p.To), Subject: text(p.Subject), ReplyTo: text(p.ReplyTo),
		CorrelationID: id(p.CorrelationID), ContentType: text(p.ContentType), ContentEncoding: text(p.ContentEncoding),
		AbsoluteExpiryTime: at(p.AbsoluteExpiryTime), CreationTime: at(p.CreationTime), GroupID: text(p.GroupID),
		GroupSequence: opt(p.GroupSequence), ReplyToGroupID: text(p.ReplyToGroupID),
	}
	if p.UserID != nil {
		out.UserID = fromBytes(p.UserID)
	}
	return out
}

// decodeBody reads the body. The broker looks at the sizes of a body only, so its values may be malformed; such a body
// is kept as it is.
func (m *Message) decodeBody(s *amqp.Sections) error {
	if s.Body == nil {
		return nil
	}
	var sections []any
	for at := s.Body; len(at) > 0; {
		v, rest, err := amqp.DecodeValue(at)
		if err != nil {
			m.Encoded = base64.StdEncoding.EncodeToString(s.Body)
			return nil
		}
		section, _ := v.(amqp.Described) // ParseMessage found its descriptor
		sections, at = append(sections, section.Value), rest
	}
	switch s.BodyCode {
	case amqp.CodeData:
		m.Data = fromItems(sections)
	case amqp.CodeAMQPSequence:
		m.Sequence = fromItems(sections)
	case amqp.CodeAMQPValue:
		text, err := marshal(fromValue(sections[0]))
		m.Value = text
		return err
	}
	return nil
}

// marshal is [json.Marshal] without an escape for each of <, > and &.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// Line writes the message as a line of JSON without its end.
func (m *Message) Line() ([]byte, error) { return marshal(m) }

// Parse reads a line.
func Parse(line []byte) (*Message, error) {
	if !utf8.Valid(line) {
		return nil, fmt.Errorf("the line is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	d.DisallowUnknownFields()
	m := &Message{}
	if err := d.Decode(m); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("the line is cut off")
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is more behind the object of the message")
	}
	if m.Format != Format {
		return nil, fmt.Errorf("the format is %d, want %d", m.Format, Format)
	}
	return m, nil
}
