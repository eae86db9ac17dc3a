package transport

import (
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// correlationFields are the fields of a correlation filter in the order of their list on the wire.
func correlationFields(c *rule.Correlation) []struct {
	key  string
	text **string
} {
	return []struct {
		key  string
		text **string
	}{
		{"correlation-id", &c.CorrelationID}, {"message-id", &c.MessageID}, {"to", &c.To}, {"reply-to", &c.ReplyTo},
		{"label", &c.Label}, {"session-id", &c.SessionID}, {"reply-to-session-id", &c.ReplyToSessionID},
		{"content-type", &c.ContentType},
	}
}

// correlationOf reads a correlation filter.
func correlationOf(m amqp.Map) (*rule.Correlation, error) {
	c := &rule.Correlation{}
	for _, f := range correlationFields(c) {
		v, _ := m.Get(f.key)
		if v == nil {
			continue
		}
		text, ok := amqp.ToText(v)
		if !ok {
			return nil, fmt.Errorf("%s of the correlation-filter is no string", f.key)
		}
		*f.text = &text
	}
	props, _, err := innerMap(m, "properties")
	if err != nil {
		return nil, err
	}
	for _, p := range props {
		name, ok := amqp.ToText(p.Key)
		if !ok {
			return nil, fmt.Errorf("a property of the correlation-filter has no name")
		}
		value, ok := valueOf(p.Value)
		if !ok {
			return nil, fmt.Errorf("property '%s' of the correlation-filter has a type that cannot be compared", clipText(name))
		}
		c.Properties = append(c.Properties, rule.Property{Name: name, Value: value})
	}
	return c, nil
}

// valueOf turns an AMQP value into one that rules compare.
func valueOf(v any) (rule.Value, bool) {
	switch v := v.(type) {
	case nil:
		return rule.Value{}, true
	case bool:
		return rule.OfBool(v), true
	case string:
		return rule.OfString(v), true
	case amqp.Symbol:
		return rule.OfString(string(v)), true
	case amqp.Char:
		return rule.OfString(string(rune(v))), true
	case uint64:
		return rule.OfUint(v), true
	case float32:
		return rule.OfFloat(float64(v)), true
	case float64:
		return rule.OfFloat(v), true
	case amqp.UUID:
		return rule.OfGuid(v), true
	case amqp.Timestamp:
		return rule.OfTimestamp(int64(v)), true
	case []byte:
		return rule.OfBinary(string(v)), true
	case amqp.Decimal128:
		return rule.OfDecimal(string(v[:])), true
	case amqp.Described:
		ticks, isTicks := v.Value.(int64)
		if name, ok := v.Descriptor.(amqp.Symbol); ok && name == symbolTimeSpan && isTicks {
			return rule.OfDuration(ticks), true
		}
		return rule.Value{}, false
	}
	n, ok := amqp.ToInt64(v)
	return rule.OfInt(n), ok
}

// wireValue is the inverse of valueOf.
func wireValue(v rule.Value) any {
	switch v.Kind() {
	case rule.Bool:
		return v.Bool()
	case rule.Int:
		return v.Int()
	case rule.Uint:
		return v.Uint()
	case rule.Float:
		return v.Float()
	case rule.String:
		return v.Text()
	case rule.Guid:
		return amqp.UUID(v.Guid())
	case rule.DateTime:
		return amqp.Timestamp(v.Millis())
	case rule.Duration:
		return amqp.Described{Descriptor: symbolTimeSpan, Value: v.Ticks()}
	case rule.Binary:
		return []byte(v.Raw())
	case rule.Decimal:
		if raw := v.Raw(); len(raw) == len(amqp.Decimal128{}) {
			return amqp.Decimal128([]byte(raw))
		}
	}
	return nil
}

// describeRule writes a rule as enumerate-rules answers it.
func describeRule(r *fsm.Rule) amqp.Described {
	action := amqp.Described{Descriptor: codeEmptyAction, Value: amqp.List{}}
	if r.Source.Action != "" {
		action = amqp.Described{Descriptor: codeSQLAction, Value: amqp.List{r.Source.Action, ruleCompatibility}}
	}
	return amqp.Described{Descriptor: codeRuleDescription, Value: amqp.List{
		describeFilter(&r.Source), action, r.Name, amqp.Timestamp(r.CreatedAt)}}
}

func describeFilter(s *rule.Source) amqp.Described {
	switch s.Kind {
	case rule.TrueFilter:
		return amqp.Described{Descriptor: codeTrueFilter, Value: amqp.List{}}
	case rule.FalseFilter:
		return amqp.Described{Descriptor: codeFalseFilter, Value: amqp.List{}}
	case rule.CorrelationFilter:
		list := amqp.List{}
		c := *s.Correlation
		for _, f := range correlationFields(&c) {
			if *f.text == nil {
				list = append(list, nil)
			} else {
				list = append(list, **f.text)
			}
		}
		props := amqp.Map{}
		for _, p := range c.Properties {
			props = append(props, amqp.Pair{Key: p.Name, Value: wireValue(p.Value)})
		}
		return amqp.Described{Descriptor: codeCorrelationFilter, Value: append(list, props)}
	}
	return amqp.Described{Descriptor: codeSQLFilter, Value: amqp.List{s.Expression, ruleCompatibility}}
}
