package fsm

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/busbar-mq/busbar/fsm/rule"
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

// storedMessage is a message in its stored form, with application properties name:value, text or
// integer, and fields of the properties section by place.
func storedMessage(label string, properties []string, fields map[int]string, annotations string) []byte {
	b := []byte{storedVersion, 0}
	b = append(binary.AppendUvarint(b, uint64(len(annotations))), annotations...)
	if len(fields) > 0 {
		var list []byte
		for i := range propertyFields {
			if text, ok := fields[i]; ok {
				list = appendText(list, codeString8, text)
			} else {
				list = append(list, codeNull)
			}
		}
		b = append(b, codeDescribed, codeSmallUlong, sectionProperties)
		b = appendSized(b, codeList32, list, propertyFields)
	}
	var pairs []byte
	for _, p := range properties {
		name, value, _ := strings.Cut(p, ":")
		pairs = appendText(pairs, codeString8, name)
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			pairs = appendValue(pairs, rule.OfInt(n))
		} else {
			pairs = appendText(pairs, codeString8, value)
		}
	}
	if len(properties) > 0 {
		b = append(b, codeDescribed, codeSmallUlong, sectionApplication)
		b = appendSized(b, codeMap32, pairs, 2*len(properties))
	}
	return append(append(b, bodyMark...), label...)
}

func appendSized(b []byte, code byte, content []byte, n int) []byte {
	b = binary.BigEndian.AppendUint32(append(b, code), uint32(len(content)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return append(b, content...)
}

// bodyMark begins a data section of a stored message.
const bodyMark = "\x00\x53\x75\xb0\x00\x00\x00\x05"

// stored makes the body of a step a stored message if it has properties.
func (s *script) stored(label string) []byte {
	fields := map[int]string{}
	for key, place := range map[string]int{"mid": fieldMessageID, "subject": fieldSubject, "to": fieldTo,
		"group": fieldGroupID} {
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
	if v, rest, ok := nextValue(string(b)); ok && rest == "" {
		return v.value().String()
	}
	return string(b)
}
