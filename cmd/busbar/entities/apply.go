package entities

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// xmlNode is an element of an answer, whatever it is.
type xmlNode struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Text    string     `xml:",chardata"`
	Nodes   []xmlNode  `xml:",any"`
}

// child returns the first child of that name, nil if there is none.
func (n *xmlNode) child(name string) *xmlNode {
	if n == nil {
		return nil
	}
	for i := range n.Nodes {
		if n.Nodes[i].XMLName.Local == name {
			return &n.Nodes[i]
		}
	}
	return nil
}

// text returns the text of a child, "" if there is none.
func (n *xmlNode) text(name string) string {
	if c := n.child(name); c != nil {
		return c.Text
	}
	return ""
}

// kind returns the local name of i:type.
func (n *xmlNode) kind() string {
	for _, a := range n.Attrs {
		if a.Name.Local == "type" {
			return a.Value[strings.LastIndexByte(a.Value, ':')+1:]
		}
	}
	return ""
}

// Applier makes what a file asks for, by the management API.
type Applier struct {
	API    *dial.Management
	DryRun bool                             // nothing is created, and Say tells what would be
	Say    func(format string, args ...any) // tells a person; Export needs none

	// Created counts what was missing, Drifted the properties and rules that differ from the file.
	Created, Drifted int
}

// Apply creates what is missing and tells what is there and differs; it changes nothing that is there.
func (a *Applier) Apply(ctx context.Context, all []Spec) error {
	list, err := a.ordered(ctx, all)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := a.entity(ctx, e); err != nil {
			return e.errorf("%w", err)
		}
	}
	return nil
}

// awaits reports whether e forwards to one of those that are not made yet, or is below it.
func awaits(e Spec, waiting []Spec) bool {
	for _, other := range waiting {
		if other.path == e.path {
			continue
		}
		if e.kind == "Subscription" && strings.HasPrefix(e.path, other.path+"/Subscriptions/") {
			return true
		}
		for _, p := range e.props {
			if strings.HasPrefix(p.name, "Forward") && strings.EqualFold(entityOf(p.value), other.path) {
				return true
			}
		}
	}
	return false
}

// entityOf is the entity that a forward target names.
func entityOf(target string) string {
	if u, err := url.Parse(target); err == nil && u.Scheme != "" && u.Host != "" {
		target = u.Path
	}
	return strings.Trim(target, "/")
}

// get returns what an Atom entry holds, nil if there is nothing at that path.
func (a *Applier) get(ctx context.Context, path string) (*xmlNode, error) {
	answer, err := a.API.Do(ctx, "show "+path, http.MethodGet, path, "", nil)
	if exit.Code(err) == exit.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var root xmlNode
	if err := xml.Unmarshal(answer, &root); err != nil {
		return nil, fmt.Errorf("show %s: %w", path, err)
	}
	if content := root.child("content"); content != nil && len(content.Nodes) == 1 {
		return &content.Nodes[0], nil
	}
	return nil, nil
}

func (a *Applier) entity(ctx context.Context, e Spec) error {
	there, err := a.get(ctx, e.path)
	if err != nil {
		return err
	}
	if there == nil {
		return a.create(ctx, e)
	}
	if there.XMLName.Local != e.kind+"Description" {
		return fmt.Errorf("%s is there already, and no %s", e.path, strings.ToLower(e.kind))
	}
	for _, p := range e.props {
		got := there.text(p.name)
		if isOption(p.name) {
			got = there.child("Options").text(p.name)
		}
		if !sameValue(p.name, got, p.value) {
			a.drift("line %d, %s: %s of %s is %q, the file wants %q", p.line, p.pointer, p.name, e.path, got,
				p.value)
		}
	}
	return a.rulesOf(ctx, e)
}

func (a *Applier) drift(format string, args ...any) {
	a.Drifted++
	a.Say(format, args...)
}

func (a *Applier) create(ctx context.Context, e Spec) error {
	a.Created++
	if a.DryRun {
		a.Say("would create %s %s", strings.ToLower(e.kind), e.path)
		return nil
	}
	if err := a.put(ctx, e.path, e.kind+"Description", elementsOf(e)); err != nil {
		return err
	}
	a.Say("created %s %s", strings.ToLower(e.kind), e.path)
	for i, r := range e.rules {
		if i == 0 {
			continue // it came with the subscription, so nothing slips past it
		}
		if err := a.put(ctx, e.path+"/Rules/"+r.name, "RuleDescription", r.xml()); err != nil {
			return r.errorf("%w", err)
		}
	}
	return nil
}

func (a *Applier) put(ctx context.Context, path, element, inner string) error {
	body := `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><` + element +
		` xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"` +
		` xmlns:i="http://www.w3.org/2001/XMLSchema-instance">` + inner + `</` + element + `></content></entry>`
	_, err := a.API.Do(ctx, "create "+path, http.MethodPut, path, "", []byte(body))
	return err
}

// rulesOf compares the rules of a subscription that is there.
func (a *Applier) rulesOf(ctx context.Context, e Spec) error {
	if len(e.rules) == 0 {
		return nil
	}
	for _, r := range e.rules {
		path := e.path + "/Rules/" + r.name
		there, err := a.get(ctx, path)
		if err != nil {
			return err
		}
		if there == nil {
			a.Created++
			if a.DryRun {
				a.Say("would create rule %s", path)
				continue
			}
			if err := a.put(ctx, path, "RuleDescription", r.xml()); err != nil {
				return r.errorf("%w", err)
			}
			a.Say("created rule %s", path)
			continue
		}
		var want xmlNode
		if err := xml.Unmarshal([]byte(`<r xmlns:i="http://www.w3.org/2001/XMLSchema-instance">`+r.xml()+`</r>`),
			&want); err != nil {
			return r.errorf("%w", err)
		}
		if got, wanted := ruleText(there), ruleText(&want); got != wanted {
			a.drift("line %d, %s: the rule %s is %s, the file wants %s", r.line, r.pointer, path, got, wanted)
		}
	}
	return a.extraRules(ctx, e)
}

// extraRules tells of rules that the file does not have: with them a subscription gets more.
func (a *Applier) extraRules(ctx context.Context, e Spec) error {
	rules, err := a.list(ctx, e.path+"/Rules")
	if err != nil {
		return err
	}
	for _, r := range rules {
		name := r.text("title")
		if !slices.ContainsFunc(e.rules, func(s ruleSpec) bool { return strings.EqualFold(s.name, name) }) {
			a.drift("line %d, %s: %s has a rule %s that the file does not have", e.line, e.pointer, e.path, name)
		}
	}
	return nil
}

// list reads all entries of a feed.
func (a *Applier) list(ctx context.Context, path string) ([]xmlNode, error) {
	var all []xmlNode
	for {
		query := fmt.Sprintf("&$skip=%d&$top=%d", len(all), dial.AtomPageSize)
		answer, err := a.API.Do(ctx, "list "+path, http.MethodGet, path, query, nil)
		if err != nil {
			return nil, err
		}
		var feed xmlNode
		if err := xml.Unmarshal(answer, &feed); err != nil {
			return nil, fmt.Errorf("list %s: %w", path, err)
		}
		before := len(all)
		for _, n := range feed.Nodes {
			if n.XMLName.Local == "entry" {
				all = append(all, n)
			}
		}
		if len(all)-before < dial.AtomPageSize {
			return all, nil
		}
	}
}

func escaped(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // a buffer takes everything
	return out.String()
}

func tagged(name, text string) string { return "<" + name + ">" + escaped(text) + "</" + name + ">" }

// elementsOf writes the elements of a new entity.
func elementsOf(e Spec) string {
	var out, options strings.Builder
	for _, p := range e.props {
		if isOption(p.name) {
			options.WriteString(tagged(p.name, p.value))
			continue
		}
		out.WriteString(tagged(p.name, p.value))
	}
	if len(e.rules) > 0 {
		out.WriteString("<DefaultRuleDescription>" + e.rules[0].xml() + "</DefaultRuleDescription>")
	}
	if options.Len() > 0 {
		out.WriteString(`<Options xmlns="urn:busbar:entity">` + options.String() + "</Options>")
	}
	return out.String()
}

// xml writes filter, action and name.
func (r *ruleSpec) xml() string {
	var out strings.Builder
	switch r.filter {
	case "Correlation":
		out.WriteString(`<Filter i:type="CorrelationFilter">`)
		for _, f := range r.fields {
			out.WriteString(tagged(f.name, f.value))
		}
		if len(r.properties) > 0 {
			out.WriteString("<Properties>")
			for _, p := range r.properties {
				out.WriteString("<KeyValueOfstringanyType>" + tagged("Key", p.name) + `<Value i:type="d6p1:` +
					p.kind + `" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">` + escaped(p.value) +
					"</Value></KeyValueOfstringanyType>")
			}
			out.WriteString("</Properties>")
		}
	case "Sql":
		out.WriteString(`<Filter i:type="SqlFilter">` + tagged("SqlExpression", r.sql))
	default:
		out.WriteString(`<Filter i:type="` + r.filter + `Filter">`)
	}
	out.WriteString("</Filter>")
	if r.action != "" {
		out.WriteString(`<Action i:type="SqlRuleAction">` + tagged("SqlExpression", r.action) + "</Action>")
	}
	return out.String() + tagged("Name", r.name)
}

// ruleText says what a rule does, so that two of them can be compared by people, too.
func ruleText(n *xmlNode) string {
	var parts []string
	if f := n.child("Filter"); f != nil {
		parts = append(parts, f.kind())
		if f.kind() == "SqlFilter" {
			parts = append(parts, f.text("SqlExpression"))
		}
		for _, name := range correlationNames {
			if c := f.child(name); c != nil {
				parts = append(parts, name+"="+c.Text)
			}
		}
		if p := f.child("Properties"); p != nil {
			var pairs []string
			for i := range p.Nodes {
				pair := p.Nodes[i].text("Key") + "=" + p.Nodes[i].text("Value")
				if kind := p.Nodes[i].child("Value").kind(); !slices.Contains([]string{"string", "int", "double", "boolean"}, kind) {
					pair += ":" + kind
				}
				pairs = append(pairs, pair)
			}
			slices.Sort(pairs) // they are compared all together
			parts = append(parts, pairs...)
		}
	}
	if a := n.child("Action"); a != nil && a.text("SqlExpression") != "" {
		parts = append(parts, "then "+a.text("SqlExpression"))
	}
	return "(" + strings.Join(parts, " ") + ")"
}
