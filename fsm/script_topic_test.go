package fsm

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/fsm/stored"
)

// topic describes the topic of a step; the arguments are those of a queue.
func (s *script) topic() *PutEntity {
	p := s.queue()
	p.Descriptor.Kind = Topic
	return p
}

// subscription describes a subscription of topic=. Rules are rules=name|filter|action;… with ~ for a
// space; without it there is the rule $Default, with an empty one none.
func (s *script) subscription() *PutEntity {
	p := s.queue()
	d := &p.Descriptor
	d.Kind, d.DeadLetterOnFilterError = Subscription, s.flags["errors"]
	topic := s.args["topic"]
	if _, known := s.ids[topic]; !known {
		s.ids[topic] = EntityID(len(s.ids) + 1)
	}
	d.Parent = s.ids[topic]
	text, given := s.args["rules"]
	if !given {
		d.Rules = []Rule{{Name: DefaultRuleName, Source: rule.Default()}}
		return p
	}
	for _, one := range strings.FieldsFunc(strings.ReplaceAll(text, "~", " "), func(c rune) bool { return c == ';' }) {
		parts := append(strings.Split(one, "|"), "", "")
		d.Rules = append(d.Rules, Rule{Name: parts[0], Source: rule.Source{
			Kind: rule.SQLFilter, Expression: parts[1], Action: parts[2]}})
	}
	return p
}

// sectionFields are the system properties in the properties section, by place (AMQP 1.0 §3.2.4).
var sectionFields = [...]rule.SystemProperty{
	0: rule.MessageID, 2: rule.To, 3: rule.Label, 4: rule.ReplyTo, 5: rule.CorrelationID, 6: rule.ContentType,
	10: rule.SessionID, 12: rule.ReplyToSessionID,
}

// storedMessage is a message in its stored form, with application properties name:value, text or
// integer, and fields of the properties section.
func storedMessage(label string, properties []string, fields map[rule.SystemProperty]string, annotations string) []byte {
	m := stored.Message{Annotations: []byte(annotations)}
	b := m.AppendHead(nil)
	if len(fields) > 0 {
		var list []byte
		for _, p := range sectionFields {
			if text, ok := fields[p]; ok {
				list = stored.AppendString(list, text)
			} else {
				list = stored.AppendValue(list, rule.Value{})
			}
		}
		b = appendSized(append(b, "\x00\x53\x73"...), list32, list, len(sectionFields))
	}
	var pairs []byte
	for _, p := range properties {
		name, value, _ := strings.Cut(p, ":")
		pairs = stored.AppendString(pairs, name)
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			pairs = stored.AppendValue(pairs, rule.OfInt(n))
		} else {
			pairs = stored.AppendString(pairs, value)
		}
	}
	if len(properties) > 0 {
		b = appendSized(append(b, "\x00\x53\x74"...), map32, pairs, 2*len(properties))
	}
	return append(append(b, bodyMark...), label...)
}

// Constructors of a list and a map with sizes of four bytes (AMQP 1.0 §1.6.22, §1.6.23).
const (
	list32 = 0xd0
	map32  = 0xd1
)

func appendSized(b []byte, code byte, content []byte, n int) []byte {
	b = binary.BigEndian.AppendUint32(append(b, code), uint32(len(content)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return append(b, content...)
}

// bodyMark begins a data section of a stored message.
const bodyMark = "\x00\x53\x75\xb0\x00\x00\x00\x05"

// stored makes the body of a step a stored message if it has properties.
func (s *script) stored(label string) []byte {
	fields := map[rule.SystemProperty]string{}
	for key, place := range map[string]rule.SystemProperty{"mid": rule.MessageID, "subject": rule.Label, "to": rule.To,
		"group": rule.SessionID} {
		if v, ok := s.args[key]; ok {
			fields[place] = v
		}
	}
	props := s.list("props")
	if len(fields)+len(props) == 0 {
		return []byte(label)
	}
	return storedMessage(label, props, fields, "")
}

// showChanges tells what a delivery has that its body has not.
func showChanges(b *strings.Builder, d *Delivery) {
	for _, p := range d.Properties {
		if len(p.Value) == 0 {
			fmt.Fprintf(b, " -%s", p.Key)
		} else {
			fmt.Fprintf(b, " %s:%s", p.Key, showValue(p.Value))
		}
	}
	for _, v := range d.System {
		if len(v.Value) == 0 {
			fmt.Fprintf(b, " -sys.%s", v.Property)
		} else {
			fmt.Fprintf(b, " sys.%s:%s", v.Property, showValue(v.Value))
		}
	}
	if d.First() != d.Seq {
		fmt.Fprintf(b, " first=%d", d.EnqueuedSeq)
	}
	if d.Source != "" {
		fmt.Fprintf(b, " source=%s", d.Source)
	}
}

func showValue(b []byte) string {
	if v, rest, ok := stored.ReadValue(string(b)); ok && rest == "" {
		return v.Rule().String()
	}
	return string(b)
}
