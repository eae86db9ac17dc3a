package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// The state looks only at the beginning of the stored form (docs/formats/body.md): its version, these flags, and the
// sections with annotations and properties.
const (
	storedVersion  = 1
	storedPriority = 1 << 1
	storedTTL      = 1 << 2

	sectionProperties  = 0x73
	sectionApplication = 0x74
	propertyFields     = 13 // of the properties section, AMQP §3.2.4
)

// Places in the properties section.
const (
	fieldMessageID      = 0
	fieldTo             = 2
	fieldSubject        = 3
	fieldReplyTo        = 4
	fieldCorrelationID  = 5
	fieldContentType    = 6
	fieldGroupID        = 10
	fieldReplyToGroupID = 12
)

// view is a message as rules and the forwarder see it: what its sender wrote, under what was changed since. It is
// made once per message, and takes one copy of the part in front of the body. It finds values in that part when they
// are asked for.
//
// The bytes come from a front end, but an old or faulty one must not stop a replica. So a malformed value counts as
// absent.
type view struct {
	head        string // the stored form up to the body
	ttl         Millis // header.ttl, 0 if absent
	annotations string // the elements of the map
	fields      [propertyFields]amqpValue
	application []namedValue

	carried *Carried // nil if it was never changed
	facts   facts
	draw    func() uint64
}

type namedValue struct {
	name  string
	value rule.Value
}

// facts are what the broker knows of a message.
type facts struct {
	number, first SequenceNumber
	enqueuedAt    Wall
	expiresAt     Wall
	scheduledAt   Wall
	size          int
}

// look reads the stored form. The memory of an earlier message is used again.
func (v *view) look(body []byte) {
	*v = view{application: v.application[:0], draw: v.draw}
	v.facts.size = len(body) // of a large one the caller knows better
	at, ok := v.prefix(body)
	if !ok {
		return
	}
	end := headEnd(body, at)
	v.head = string(body[:end])
	v.sections(v.head[at:])
}

// prefix reads what stands in front of the bare message and returns where that begins.
func (v *view) prefix(b []byte) (at int, ok bool) {
	if len(b) < 2 || b[0] != storedVersion {
		return 0, false
	}
	at = 2
	if b[1]&storedPriority != 0 {
		at++
	}
	if b[1]&storedTTL != 0 {
		if len(b) < at+4 {
			return 0, false
		}
		v.ttl = Millis(binary.BigEndian.Uint32(b[at:]))
		at += 4
	}
	if at > len(b) {
		return 0, false
	}
	n, size := binary.Uvarint(b[at:])
	if size <= 0 || n > uint64(len(b)-at-size) {
		return 0, false
	}
	at += size
	if n > 0 {
		annotations, _, ok := nextValue(string(b[at : at+int(n)]))
		if ok {
			v.annotations, _ = annotations.elements()
		}
	}
	return at + int(n), true
}

// headEnd returns where the sections with properties end.
func headEnd(b []byte, at int) int {
	for range 2 {
		n := sectionBytes(b[at:])
		if n == 0 {
			break
		}
		at += n
	}
	return at
}

// sectionBytes returns the size of a section with properties at the beginning of b, 0 if there is
// none.
func sectionBytes(b []byte) int {
	const longest = 64 // of a descriptor; a symbolic one is half of that
	_, from, ok := sectionCode(string(b[:min(len(b), longest)]))
	if !ok || from >= len(b) {
		return 0
	}
	size := 0
	switch code := b[from]; {
	case code == codeList0:
		size = 1
	case (code == codeList8 || code == codeMap8) && len(b) > from+1:
		size = 2 + int(b[from+1])
	case (code == codeList32 || code == codeMap32) && len(b) > from+4:
		size = 5 + int(binary.BigEndian.Uint32(b[from+1:]))
	default:
		return 0
	}
	if size > len(b)-from {
		return 0
	}
	return from + size
}

// sectionCode reads the descriptor of a section with properties, numeric or by name, and returns
// where its value begins.
func sectionCode(s string) (section, from int, ok bool) {
	if s == "" || s[0] != codeDescribed {
		return 0, 0, false
	}
	d, rest, ok := nextPlain(s[1:])
	if !ok {
		return 0, 0, false
	}
	from = len(s) - len(rest)
	switch name, isName := d.text(); {
	case isName && name == "amqp:properties:list":
		return sectionProperties, from, true
	case isName && name == "amqp:application-properties:map":
		return sectionApplication, from, true
	case d.code == codeSmallUlong || d.code == codeUlong:
		n := bigEndian(d.content)
		return int(n & 0xff), from, n == sectionProperties || n == sectionApplication
	}
	return 0, 0, false
}

func (v *view) sections(s string) {
	for {
		section, from, ok := sectionCode(s)
		if !ok {
			return
		}
		content, rest, ok := nextPlain(s[from:])
		if !ok {
			return
		}
		elements, _ := content.elements()
		if section == sectionProperties {
			v.readFields(elements)
		} else {
			v.readApplication(elements)
		}
		s = rest
	}
}

func (v *view) readFields(s string) {
	for i := range v.fields {
		field, rest, ok := nextValue(s)
		if !ok {
			return
		}
		if field.code != codeNull {
			v.fields[i] = field
		}
		s = rest
	}
}

func (v *view) readApplication(s string) {
	for {
		key, rest, ok := nextValue(s)
		if !ok {
			return
		}
		value, rest, ok := nextValue(rest)
		if !ok {
			return
		}
		if name, isText := key.text(); isText {
			v.application = append(v.application, namedValue{name, value.value()})
		}
		s = rest
	}
}

// annotation returns a text among the annotations.
func (v *view) annotation(name string) (string, bool) {
	for s := v.annotations; ; {
		key, rest, ok := nextValue(s)
		if !ok {
			return "", false
		}
		value, rest, ok := nextValue(rest)
		if !ok {
			return "", false
		}
		if k, isText := key.text(); isText && k == name {
			return value.text()
		}
		s = rest
	}
}

// Properties returns how many application properties there are, as rule.Message asks.
func (v *view) Properties() int {
	n := len(v.application)
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
				value, _, ok := nextValue(string(c.Properties[i].Value))
				return value.value(), ok
			}
		}
		switch {
		case c.Reason != "" && rule.SameName(name, propertyReason):
			return rule.OfString(c.Reason), true
		case c.Description != "" && rule.SameName(name, propertyDescription):
			return rule.OfString(c.Description), true
		}
	}
	for i := range v.application {
		if p := &v.application[i]; p.name == name || rule.SameName(p.name, name) {
			return p.value, true
		}
	}
	return rule.Value{}, false
}

// The application properties by which clients see why a message died.
const (
	propertyReason      = "DeadLetterReason"
	propertyDescription = "DeadLetterErrorDescription"
)

// spelling returns a name as the message has it, which is what an action's change replaces.
func (v *view) spelling(name string) string {
	if v.carried != nil {
		for i := range v.carried.Properties {
			if rule.SameName(v.carried.Properties[i].Key, name) {
				return v.carried.Properties[i].Key
			}
		}
	}
	for i := range v.application {
		if rule.SameName(v.application[i].name, name) {
			return v.application[i].name
		}
	}
	return name
}

// System returns a system property, as rule.Message asks.
func (v *view) System(p rule.SystemProperty) rule.Value {
	if v.carried != nil && len(v.carried.System) > 0 {
		if value, ok := v.change(p); ok {
			return value
		}
	}
	if text, known, ok := v.written(p); known {
		if !ok {
			return rule.Value{}
		}
		return rule.OfString(text)
	}
	switch p {
	case rule.TimeToLive:
		if v.ttl == 0 {
			return rule.Value{}
		}
		return rule.OfMillis(int64(v.ttl))
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

// MessageIDOf returns the message id in a stored body, as text; "" if there is none.
func MessageIDOf(body []byte) string {
	var v view
	v.look(body)
	return v.System(rule.MessageID).Text()
}

// change returns what an action has made of a system property; ok is false if nothing.
func (v *view) change(p rule.SystemProperty) (value rule.Value, ok bool) {
	for i := range v.carried.System {
		if v.carried.System[i].Property == p {
			changed, _, _ := nextValue(string(v.carried.System[i].Value))
			return changed.value(), true
		}
	}
	return rule.Value{}, false
}

// written returns a system property that its sender wrote as a text; known is false for those that
// are no texts.
func (v *view) written(p rule.SystemProperty) (text string, known, ok bool) {
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
		text, ok = v.fields[field].idText()
		return text, true, ok
	case rule.PartitionKey:
		text, ok = v.annotation("x-opt-partition-key")
		return text, true, ok
	case rule.ViaPartitionKey:
		text, ok = v.annotation("x-opt-via-partition-key")
		return text, true, ok
	default:
		return "", false, false
	}
	if text, ok = v.fields[field].text(); !ok {
		text, ok = v.fields[field].idText() // an address is any type
	}
	return text, true, ok
}

// NewID draws 16 bytes of the entry's chance (S-224).
func (v *view) NewID() (id [16]byte) {
	putUint64(id[:8], v.draw())
	putUint64(id[8:], v.draw())
	return id
}

// Carry makes a message in transit ready for its destination: what Enqueue with an Origin takes. The
// delivery is one of Forward or Moving with its body.
func Carry(d *Delivery, m *Move) (Message, error) {
	var v view
	if _, ok := v.prefix(d.Body); !ok {
		return Message{}, fmt.Errorf("%w: stored message of %d bytes", ErrFormat, len(d.Body))
	}
	v.look(d.Body)
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

// HeadBytes is how much of the stored form must travel with the command when the rest is uploaded. It covers the part
// that the state looks at, and some bytes of the body at least.
func HeadBytes(body []byte) int {
	const least = 4 << 10
	var v view
	at, ok := v.prefix(body)
	if !ok {
		return min(len(body), least)
	}
	return min(max(headEnd(body, at), least), len(body))
}
