package lines

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// Encode makes the message that the line describes, without what only a broker sets.
func (m *Message) Encode() ([]byte, error) {
	var b []byte
	if h := m.Header; h != nil {
		b = amqp.AppendHeader(b, amqp.Header{Durable: h.Durable, Priority: toOpt(h.Priority), TTL: toOpt(h.TTL),
			FirstAcquirer: h.FirstAcquirer, DeliveryCount: h.DeliveryCount})
	}
	var err error
	section := func(name string, code amqp.Code, pairs []any, key func(any) (any, error)) {
		if err == nil && len(pairs) > 0 {
			b, err = appendMap(b, code, pairs, key)
			err = wrap(name, err)
		}
	}
	section("deliveryAnnotations", amqp.CodeDeliveryAnnotations, m.DeliveryAnnotations, toSymbol)
	section("messageAnnotations", amqp.CodeMessageAnnotations, m.MessageAnnotations, toSymbol)
	if m.Properties != nil && err == nil {
		b, err = m.Properties.append(b)
		err = wrap("properties", err)
	}
	section("applicationProperties", amqp.CodeApplicationProperties, m.ApplicationProperties, toValue)
	if err == nil {
		b, err = m.appendBody(b)
	}
	section("footer", amqp.CodeFooter, m.Footer, toSymbol)
	if err != nil {
		return nil, err
	}
	if _, err := amqp.ParseMessage(b); err != nil {
		return nil, fmt.Errorf("no broker would take this message: %w", err)
	}
	return b, nil
}

// wrap names the part of the line that an error is about.
func wrap(part string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", part, err)
	}
	return nil
}

func toOpt[T any](v *T) amqp.Opt[T] {
	if v == nil {
		return amqp.Opt[T]{}
	}
	return amqp.Some(*v)
}

// toSymbol reads a key of annotations or of the footer: a text is a symbol there.
func toSymbol(key any) (any, error) {
	if text, isText := key.(string); isText {
		return toValue(typed("symbol", text))
	}
	if fields, ok := key.(map[string]any); ok && len(fields) == 1 {
		if text, isString := fields["string"].(string); isString {
			return text, nil
		}
	}
	return toValue(key)
}

// appendMap writes a section that is a map.
func appendMap(dst []byte, code amqp.Code, pairs []any, key func(any) (any, error)) ([]byte, error) {
	m, err := toPairs(pairs, key, 0)
	if err != nil {
		return nil, err
	}
	w := amqp.BeginMapSection(dst, code)
	for _, p := range m {
		k, err := amqp.AppendValue(nil, p.Key)
		if err != nil {
			return nil, err
		}
		v, err := amqp.AppendValue(nil, p.Value)
		if err != nil {
			return nil, err
		}
		w.Pair(k, v)
	}
	return w.End(), nil
}

// append writes the section.
func (p *Properties) append(dst []byte) ([]byte, error) {
	text := func(s *string) []byte {
		if s == nil {
			return nil
		}
		return append([]byte{}, *s...)
	}
	out := amqp.Properties{
		To: text(p.To), Subject: text(p.Subject), ReplyTo: text(p.ReplyTo), ContentType: text(p.ContentType),
		ContentEncoding: text(p.ContentEncoding), GroupID: text(p.GroupID), GroupSequence: toOpt(p.GroupSequence),
		ReplyToGroupID: text(p.ReplyToGroupID),
	}
	for _, id := range []struct {
		name string
		from any
		into *amqp.Raw
	}{{"messageId", p.MessageID, &out.MessageID}, {"correlationId", p.CorrelationID, &out.CorrelationID}} {
		if id.from == nil {
			continue
		}
		v, err := toValue(id.from)
		if err != nil {
			return nil, wrap(id.name, err)
		}
		switch v.(type) {
		case string, uint64, amqp.UUID, []byte:
		default:
			return nil, fmt.Errorf("%s is no string, ulong, uuid or binary", id.name)
		}
		if *id.into, err = amqp.AppendValue(nil, v); err != nil {
			return nil, wrap(id.name, err)
		}
	}
	if p.UserID != nil {
		v, err := toValue(p.UserID)
		b, isBinary := v.([]byte)
		if err != nil || !isBinary {
			return nil, fmt.Errorf("userId is no binary")
		}
		out.UserID = b
	}
	for _, at := range []struct {
		name string
		from any
		into *amqp.Opt[amqp.Timestamp]
	}{{"absoluteExpiryTime", p.AbsoluteExpiryTime, &out.AbsoluteExpiryTime}, {"creationTime", p.CreationTime, &out.CreationTime}} {
		if at.from == nil {
			continue
		}
		t, err := toTime(at.from)
		if err != nil {
			return nil, wrap(at.name, err)
		}
		*at.into = amqp.Some(t)
	}
	return amqp.AppendProperties(dst, &out), nil
}

// appendBody writes the sections of the body.
func (m *Message) appendBody(dst []byte) ([]byte, error) {
	bodies := 0
	for _, has := range []bool{len(m.Data) > 0, len(m.Sequence) > 0, len(m.Value) > 0, m.Encoded != ""} {
		if has {
			bodies++
		}
	}
	if bodies > 1 {
		return nil, fmt.Errorf("a message has one of data, sequence, value and encoded")
	}
	switch {
	case len(m.Data) > 0:
		for i, item := range m.Data {
			v, err := toValue(item)
			b, isBinary := v.([]byte)
			if err != nil || !isBinary {
				return nil, fmt.Errorf(`section %d of data: want {"text":"..."} or {"binary":"BASE64"}`, i+1)
			}
			dst = amqp.AppendData(dst, b)
		}
	case len(m.Sequence) > 0:
		for i, item := range m.Sequence {
			v, err := toValue(item)
			if _, isList := v.(amqp.List); err == nil && !isList {
				err = fmt.Errorf(`want {"list":[...]}`)
			}
			if err != nil {
				return nil, fmt.Errorf("section %d of sequence: %w", i+1, err)
			}
			if dst, err = amqp.AppendValue(dst, amqp.Described{Descriptor: uint64(amqp.CodeAMQPSequence), Value: v}); err != nil {
				return nil, err
			}
		}
	case len(m.Value) > 0:
		return appendValueBody(dst, m.Value)
	case m.Encoded != "":
		b, err := base64.StdEncoding.Strict().DecodeString(m.Encoded)
		if err != nil {
			return nil, fmt.Errorf("encoded is not base64: %w", err)
		}
		if s, err := amqp.ParseMessage(b); err != nil || !bytes.Equal(s.Body, b) {
			return nil, fmt.Errorf("encoded holds no sections of a body")
		}
		dst = append(dst, b...)
	}
	return dst, nil
}

func appendValueBody(dst []byte, text json.RawMessage) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var content any
	if err := d.Decode(&content); err != nil {
		return nil, wrap("value", err)
	}
	v, err := toValue(content)
	if err != nil {
		return nil, wrap("value", err)
	}
	dst, err = amqp.AppendValueBody(dst, v)
	return dst, wrap("value", err)
}
