package entities

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

func foldIn(names []string, key string) string {
	for _, name := range names {
		if strings.EqualFold(name, key) {
			return name
		}
	}
	return ""
}

// rule reads a rule: a name, and properties that say which filter and action.
func (r *reader) rule(e *Spec, n *yaml.Node, at place) {
	s := ruleSpec{place: at}
	for _, m := range r.members(n, at) {
		switch m.key {
		case "name":
			s.Name, _ = r.scalar(m)
		case "properties":
			for _, m := range r.members(m.node, m.place) {
				r.ruleProperty(&s, m)
			}
		default:
			r.fail(m.place, "is unknown in a rule")
		}
	}
	switch {
	case s.Name == "":
		r.fail(at, "the rule has no name")
	case s.Filter == "":
		r.fail(at, "the rule %s has no FilterType", s.Name)
	case s.Filter == "Sql" && s.SQL == "":
		r.fail(at, "the rule %s has no SqlExpression", s.Name)
	case s.Filter == "Correlation" && len(s.Fields)+len(s.Properties) == 0:
		r.fail(at, "the filter of the rule %s has nothing to compare", s.Name)
	}
	for _, other := range e.rules {
		if strings.EqualFold(other.Name, s.Name) {
			r.fail(at, "the rule %s is named on line %d as well", s.Name, other.line)
		}
	}
	e.rules = append(e.rules, s)
}

func (r *reader) ruleProperty(s *ruleSpec, m member) {
	expression := func(into *string) {
		for _, m := range r.members(m.node, m.place) {
			if m.key != "sqlexpression" {
				r.fail(m.place, "is unknown; want SqlExpression")
				continue
			}
			*into, _ = r.scalar(m)
		}
	}
	switch m.key {
	case "filtertype":
		text, _ := r.scalar(m)
		if s.Filter = foldIn(filterTypes, text); s.Filter == "" {
			r.fail(m.place, "%q is no type of filter; want Correlation, Sql, True or False", text)
		}
	case "sqlfilter":
		expression(&s.SQL)
	case "action":
		expression(&s.Action)
	case "correlationfilter":
		for _, m := range r.members(m.node, m.place) {
			r.correlation(s, m)
		}
	default:
		r.fail(m.place, "is unknown; want FilterType, SqlFilter, CorrelationFilter or Action")
	}
}

func (r *reader) correlation(s *ruleSpec, m member) {
	if name := foldIn(correlationNames, m.key); name != "" {
		if value, ok := r.scalar(m); ok && value != "" {
			s.Fields = append(s.Fields, Property{name, value})
		}
		return
	}
	if m.key != "properties" {
		r.fail(m.place, "is unknown in a correlation filter")
		return
	}
	for _, p := range r.members(m.node, m.place) {
		if kind, value, ok := r.typed(p); ok {
			s.Properties = append(s.Properties, TypedProperty{lastKey(m.node, p), kind, value})
		}
	}
}

// valueTypes are the types that a file may name for a value, as the management API calls them.
var valueTypes = []string{"string", "char", "boolean", "byte", "unsignedByte", "short", "unsignedShort", "int",
	"unsignedInt", "long", "unsignedLong", "float", "double", "decimal", "dateTime", "duration", "guid", "base64Binary"}

// typed reads a value that a rule compares. A plain one has the type that YAML gives it, and one of another type is
// an object of Type and Value.
func (r *reader) typed(p member) (kind, value string, ok bool) {
	if p.node.Kind == yaml.MappingNode {
		for _, m := range r.members(p.node, p.place) {
			text, _ := r.scalar(m)
			switch m.key {
			case "type":
				if kind = foldIn(valueTypes, text); kind == "" {
					r.fail(m.place, "%q is no type of a value; want %s", text, strings.Join(valueTypes, ", "))
					return "", "", false
				}
			case "value":
				value, ok = text, true
			default:
				r.fail(m.place, "is unknown in a value; want Type and Value")
			}
		}
		if kind == "" || !ok {
			r.fail(p.place, "a value that is an object wants Type and Value")
		}
		return kind, value, kind != "" && ok
	}
	if value, ok = r.scalar(p); !ok {
		return "", "", false
	}
	switch p.node.ShortTag() {
	case "!!int":
		return "int", value, true
	case "!!float":
		return "double", value, true
	case "!!bool":
		return "boolean", value, true
	}
	return "string", value, true
}

// lastKey is the key of p as it was written: names of properties keep their capitals.
func lastKey(n *yaml.Node, p member) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i+1] == p.node {
			return n.Content[i].Value
		}
	}
	return p.key
}
