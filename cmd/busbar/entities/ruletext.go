package entities

import (
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// ruleElement is the name of the description of a rule.
const ruleElement = "RuleDescription"

// Rule is a rule of a subscription as a file or a command line says it.
type Rule struct {
	Name       string
	Filter     string // True, False, Sql or Correlation
	SQL        string // of a Sql filter
	Action     string // "" for none
	Fields     []Property
	Properties []TypedProperty
}

// TypedProperty is a property that a correlation filter compares; Type is its XML Schema type.
type TypedProperty struct{ Name, Type, Value string }

// XML writes filter, action and name, as the description of a rule holds them.
func (r *Rule) XML() string {
	var out strings.Builder
	switch r.Filter {
	case "Correlation":
		out.WriteString(`<Filter i:type="CorrelationFilter">`)
		for _, f := range r.Fields {
			out.WriteString(dial.Tag(f.Name, f.Value))
		}
		if len(r.Properties) > 0 {
			out.WriteString("<Properties>")
			for _, p := range r.Properties {
				out.WriteString("<KeyValueOfstringanyType>" + dial.Tag("Key", p.Name) + `<Value i:type="d6p1:` + p.Type +
					`" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">` + dial.Escaped(p.Value) + "</Value></KeyValueOfstringanyType>")
			}
			out.WriteString("</Properties>")
		}
	case "Sql":
		out.WriteString(`<Filter i:type="SqlFilter">` + dial.Tag("SqlExpression", r.SQL))
	default:
		out.WriteString(`<Filter i:type="` + r.Filter + `Filter">`)
	}
	out.WriteString("</Filter>")
	if r.Action != "" {
		out.WriteString(`<Action i:type="SqlRuleAction">` + dial.Tag("SqlExpression", r.Action) + "</Action>")
	}
	return out.String() + dial.Tag("Name", r.Name)
}

// RuleText says what a rule does, so that two of them can be compared by people, too.
func RuleText(n *dial.Element) string {
	text := FilterText(n)
	if f := n.Child("Filter"); f != nil {
		text = strings.TrimSuffix(f.Type()+" "+text, " ")
	}
	if a := n.Child("Action").Value("SqlExpression"); a != "" {
		text += " then " + a
	}
	return "(" + text + ")"
}

// FilterText says what the filter of a rule compares; "" for one that selects all or none.
func FilterText(n *dial.Element) string {
	f := n.Child("Filter")
	if f.Type() == "SqlFilter" {
		return f.Value("SqlExpression")
	}
	var parts []string
	for _, name := range correlationNames {
		if c := f.Child(name); c != nil {
			parts = append(parts, name+"="+c.Text)
		}
	}
	if p := f.Child("Properties"); p != nil {
		var pairs []string
		for i := range p.Nodes {
			pair := p.Nodes[i].Value("Key") + "=" + p.Nodes[i].Value("Value")
			if kind := p.Nodes[i].Child("Value").Type(); !slices.Contains([]string{"string", "int", "double", "boolean"}, kind) {
				pair += ":" + kind
			}
			pairs = append(pairs, pair)
		}
		slices.Sort(pairs) // they are compared all together
		parts = append(parts, pairs...)
	}
	return strings.Join(parts, " ")
}

// CorrelationFields are the properties of a message that a correlation filter compares beside those of the application.
func CorrelationFields() []string { return slices.Clone(correlationNames) }

// CorrelationField is the field of that name in any case, "" if there is none. Subject is the SDKs' word for Label.
func CorrelationField(name string) string {
	if strings.EqualFold(name, "Subject") {
		return "Label"
	}
	return foldIn(correlationNames, name)
}

// ValueTypes are the types of values that a rule compares, as the management API calls them.
func ValueTypes() []string { return slices.Clone(valueTypes) }

// ValueType is the type of that name in any case, "" if there is none.
func ValueType(name string) string { return foldIn(valueTypes, name) }

// Document is the Atom entry with the description of r.
func (r *Rule) Document() string { return dial.Document(ruleElement, r.XML()) }

// RuleDocument is the Atom entry with a description of a rule that came from the broker.
func RuleDocument(n *dial.Element) string { return dial.Document(ruleElement, n.Inner) }
