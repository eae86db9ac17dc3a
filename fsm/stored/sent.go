package stored

import "github.com/busbar-mq/busbar/fsm/rule"

// Places in the properties section (AMQP 1.0 §3.2.4).
const (
	fieldMessageID      = 0
	fieldTo             = 2
	fieldSubject        = 3
	fieldReplyTo        = 4
	fieldCorrelationID  = 5
	fieldContentType    = 6
	fieldGroupID        = 10
	fieldReplyToGroupID = 12

	propertyFields = 13
)

// Message annotations that are system properties of the rule language.
const (
	AnnotationPartitionKey    = "x-opt-partition-key"
	AnnotationViaPartitionKey = "x-opt-via-partition-key"
	AnnotationScheduledTime   = "x-opt-scheduled-enqueue-time"
)

// Application properties by which clients see why a message died.
const (
	PropertyReason      = "DeadLetterReason"
	PropertyDescription = "DeadLetterErrorDescription"
)

// AnnotationOf names the message annotation that a system property is on the wire, "" if it is none.
func AnnotationOf(p rule.SystemProperty) string {
	switch p {
	case rule.PartitionKey:
		return AnnotationPartitionKey
	case rule.ViaPartitionKey:
		return AnnotationViaPartitionKey
	case rule.ScheduledEnqueueTime:
		return AnnotationScheduledTime
	}
	return ""
}

// Sent is what the sender of a message wrote in front of its body, for rules to look at. It takes one copy of that part
// and finds values in it when they are asked for. A malformed value counts as absent.
type Sent struct {
	Head       string // the stored form up to the body
	TTL        uint32 // header.ttl in milliseconds, 0 without
	Properties []Property

	annotations string // the elements of the map of message annotations
	fields      [propertyFields]Value
}

// Property is an application property.
type Property struct {
	Name  string
	Value rule.Value
}

// Read reads a stored message and reports whether it is one. The memory of an earlier message is used again.
func (s *Sent) Read(b []byte) bool {
	*s = Sent{Properties: s.Properties[:0]}
	var m Message
	annotations, at, ok := m.split(b)
	s.TTL = m.TTL
	if !ok {
		return false
	}
	end := headEnd(b, at)
	s.Head = string(b[:end])
	if annotations < at {
		if v, _, ok := ReadValue(s.Head[annotations:at]); ok {
			s.annotations, _ = v.elements()
		}
	}
	s.sections(s.Head[at:])
	return true
}

func (s *Sent) sections(text string) {
	for {
		section, from, ok := sectionCode(text)
		if !ok {
			return
		}
		content, rest, ok := nextPlain(text[from:])
		if !ok {
			return
		}
		elements, _ := content.elements()
		if section == sectionProperties {
			s.readFields(elements)
		} else {
			s.readApplication(elements)
		}
		text = rest
	}
}

func (s *Sent) readFields(text string) {
	for i := range s.fields {
		field, rest, ok := ReadValue(text)
		if !ok {
			return
		}
		if field.code != codeNull {
			s.fields[i] = field
		}
		text = rest
	}
}

func (s *Sent) readApplication(text string) {
	for {
		key, rest, ok := ReadValue(text)
		if !ok {
			return
		}
		value, rest, ok := ReadValue(rest)
		if !ok {
			return
		}
		if name, isText := key.Text(); isText {
			s.Properties = append(s.Properties, Property{name, value.Rule()})
		}
		text = rest
	}
}

// annotation returns a text among the annotations.
func (s *Sent) annotation(name string) (string, bool) {
	for text := s.annotations; ; {
		key, rest, ok := ReadValue(text)
		if !ok {
			return "", false
		}
		value, rest, ok := ReadValue(rest)
		if !ok {
			return "", false
		}
		if k, isText := key.Text(); isText && k == name {
			return value.Text()
		}
		text = rest
	}
}

// User returns the first application property whose name is the same as name (rule.SameName).
func (s *Sent) User(name string) (rule.Value, bool) {
	for i := range s.Properties {
		if p := &s.Properties[i]; p.Name == name || rule.SameName(p.Name, name) {
			return p.Value, true
		}
	}
	return rule.Value{}, false
}

// Spelling returns the name of an application property as the message has it, name itself if it has none of that name.
func (s *Sent) Spelling(name string) string {
	for i := range s.Properties {
		if rule.SameName(s.Properties[i].Name, name) {
			return s.Properties[i].Name
		}
	}
	return name
}

// Text returns a system property that senders write as a text. known is false for a property that is no text, ok
// for one that the message lacks.
func (s *Sent) Text(p rule.SystemProperty) (text string, known, ok bool) {
	var field int
	switch p {
	case rule.Label:
		field = fieldSubject
	case rule.To:
		field = fieldTo
	case rule.ReplyTo:
		field = fieldReplyTo
	case rule.ReplyToSessionID:
		field = fieldReplyToGroupID
	case rule.SessionID:
		field = fieldGroupID
	case rule.ContentType:
		field = fieldContentType
	case rule.MessageID, rule.CorrelationID:
		field = fieldMessageID
		if p == rule.CorrelationID {
			field = fieldCorrelationID
		}
		text, ok = s.fields[field].IDText()
		return text, true, ok
	case rule.PartitionKey, rule.ViaPartitionKey:
		text, ok = s.annotation(AnnotationOf(p))
		return text, true, ok
	default:
		return "", false, false
	}
	if text, ok = s.fields[field].Text(); !ok {
		text, ok = s.fields[field].IDText() // an address is any type
	}
	return text, true, ok
}

// MessageIDOf returns the message id in a stored message, as text; "" if there is none.
func MessageIDOf(b []byte) string {
	var s Sent
	s.Read(b)
	id, _, _ := s.Text(rule.MessageID)
	return id
}
