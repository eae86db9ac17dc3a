package rulemap

import (
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
)

// Parse reads a rule's filter and action out of add-rule's description.
func Parse(description amqp.Map) (rule.Source, error) {
	var s rule.Source
	sql, hasSQL, err := innerMap(description, "sql-filter")
	if err != nil {
		return s, err
	}
	correlation, hasCorrelation, err := innerMap(description, "correlation-filter")
	if err != nil {
		return s, err
	}
	switch {
	case hasSQL && hasCorrelation:
		return s, errors.New("it has both a sql-filter and a correlation-filter")
	case hasSQL:
		if s.Expression, err = expressionOf(sql, "sql-filter"); err != nil {
			return s, err
		}
		switch s.Kind = rule.SQLFilter; s.Expression { // clients write the two simple filters so
		case rule.TrueExpression:
			s.Kind, s.Expression = rule.TrueFilter, ""
		case rule.FalseExpression:
			s.Kind, s.Expression = rule.FalseFilter, ""
		}
	case hasCorrelation:
		s.Kind = rule.CorrelationFilter
		if s.Correlation, err = correlationOf(correlation); err != nil {
			return s, err
		}
	default:
		return s, errors.New("it has neither a sql-filter nor a correlation-filter")
	}
	action, has, err := innerMap(description, "sql-rule-action")
	if err != nil || !has {
		return s, err
	}
	s.Action, err = expressionOf(action, "sql-rule-action")
	return s, err
}

// innerMap returns a map inside a map; has is false if it is absent or null.
func innerMap(m amqp.Map, key string) (inner amqp.Map, has bool, err error) {
	v, _ := m.Get(key)
	if v == nil {
		return nil, false, nil
	}
	inner, ok := v.(amqp.Map)
	if !ok {
		return nil, false, errors.New(key + " is no map")
	}
	return inner, true, nil
}

func expressionOf(m amqp.Map, what string) (string, error) {
	v, _ := m.Get("expression")
	text, ok := v.(string)
	if !ok {
		return "", errors.New(what + " has no expression")
	}
	return text, nil
}

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
			return nil, fmt.Errorf("property '%s' of the correlation-filter has a type that cannot be compared", refusal.Clip(name))
		}
		c.Properties = append(c.Properties, rule.Property{Name: name, Value: value, Type: typeOf(p.Value)})
	}
	return c, nil
}
