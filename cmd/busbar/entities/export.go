package entities

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/busbar-mq/busbar/cmd/busbar/dial"
)

// Namespace is the shape of a file of entities.
type Namespace struct {
	Queues []exportedEntity `yaml:"Queues" json:"Queues"`
	Topics []exportedEntity `yaml:"Topics" json:"Topics"`
}

type exportedEntity struct {
	Name          string           `yaml:"Name" json:"Name"`
	Properties    map[string]any   `yaml:"Properties" json:"Properties"`
	Subscriptions []exportedEntity `yaml:"Subscriptions,omitempty" json:"Subscriptions,omitempty"`
	Rules         []exportedRule   `yaml:"Rules,omitempty" json:"Rules,omitempty"`
}

type exportedRule struct {
	Name       string         `yaml:"Name" json:"Name"`
	Properties map[string]any `yaml:"Properties" json:"Properties"`
}

// Export reads everything that apply could make. withheld are entities with keys, which no file has.
func (a *Applier) Export(ctx context.Context) (out *Namespace, withheld []string, err error) {
	out = &Namespace{}
	queues, err := List(ctx, a.API, Queue, "")
	if err != nil {
		return nil, nil, err
	}
	topics, err := List(ctx, a.API, Topic, "")
	if err != nil {
		return nil, nil, err
	}
	for _, d := range queues {
		out.Queues = append(out.Queues, exportEntity(d, &withheld))
	}
	for _, d := range topics {
		t := exportEntity(d, &withheld)
		below, err := List(ctx, a.API, Subscription, d.Path)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range below {
			s := exportEntity(d, &withheld)
			rules, err := a.API.List(ctx, d.Path+"/Rules")
			if err != nil {
				return nil, nil, err
			}
			for _, rule := range rules {
				if rule.Content == nil {
					continue
				}
				r, err := exportRule(rule.Title, rule.Content)
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", d.Path, err)
				}
				s.Rules = append(s.Rules, r)
			}
			t.Subscriptions = append(t.Subscriptions, s)
		}
		out.Topics = append(out.Topics, t)
	}
	return out, withheld, nil
}

func exportEntity(d *Description, withheld *[]string) exportedEntity {
	e := exportedEntity{Name: d.Path, Properties: map[string]any{}}
	if _, name, ok := SplitSubscription(d.Path); ok && d.Kind == Subscription {
		e.Name = name
	}
	for _, name := range namesOf(d.Kind) {
		if value := d.current(name); value != "" && value != Unlimited {
			e.Properties[name] = typedValue(value) // without limit is what no value means
		}
	}
	if options := d.Child("Options"); options != nil {
		for _, o := range options.Nodes {
			e.Properties[o.XMLName.Local] = typedValue(o.Text)
		}
	}
	if rules := d.Child("AuthorizationRules"); rules != nil && len(rules.Nodes) > 0 {
		*withheld = append(*withheld, d.Path)
	}
	return e
}

// exportedValue writes a value that a rule compares: plain where YAML has its type, else with the name of the type.
func exportedValue(kind, text string) any {
	plain := typedValue(text)
	switch v := plain.(type) {
	case int64:
		if kind == "int" {
			return plain
		}
	case float64:
		if kind == "double" && !math.IsInf(v, 0) {
			return plain
		}
	case bool:
		if kind == "boolean" {
			return plain
		}
	}
	if kind == "string" {
		return text
	}
	return map[string]any{"Type": kind, "Value": text}
}

// exportRule writes a rule in the emulator's words. A parameter of an expression is an error: a file cannot say
// it, and it must not get lost.
func exportRule(name string, d *dial.Element) (exportedRule, error) {
	r := exportedRule{Name: name, Properties: map[string]any{}}
	f := d.Child("Filter")
	kind := strings.TrimSuffix(f.Type(), "Filter")
	r.Properties["FilterType"] = kind
	for _, n := range []*dial.Element{f, d.Child("Action")} {
		if p := n.Child("Parameters"); p != nil && len(p.Nodes) > 0 {
			return r, fmt.Errorf("rule %s has parameters, which a file cannot say", name)
		}
	}
	switch kind {
	case "Sql":
		r.Properties["SqlFilter"] = map[string]any{"SqlExpression": f.Value("SqlExpression")}
	case "Correlation":
		fields := map[string]any{}
		for _, name := range correlationNames {
			if c := f.Child(name); c != nil {
				fields[name] = c.Text
			}
		}
		if p := f.Child("Properties"); p != nil && len(p.Nodes) > 0 {
			properties := map[string]any{}
			for i := range p.Nodes {
				v := p.Nodes[i].Child("Value")
				properties[p.Nodes[i].Value("Key")] = exportedValue(v.Type(), v.Text)
			}
			fields["Properties"] = properties
		}
		r.Properties["CorrelationFilter"] = fields
	}
	if action := d.Child("Action").Value("SqlExpression"); action != "" {
		r.Properties["Action"] = map[string]any{"SqlExpression": action}
	}
	return r, nil
}

// Write writes a file that Read reads: YAML, or JSON.
func Write(out io.Writer, exported *Namespace, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(exported)
	}
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	return e.Encode(exported)
}
