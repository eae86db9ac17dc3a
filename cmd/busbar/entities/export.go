package entities

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
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
	queues, err := a.list(ctx, "$Resources/Queues")
	if err != nil {
		return nil, nil, err
	}
	topics, err := a.list(ctx, "$Resources/Topics")
	if err != nil {
		return nil, nil, err
	}
	for i := range queues {
		out.Queues = append(out.Queues, exportEntity("Queue", &queues[i], &withheld))
	}
	for i := range topics {
		t := exportEntity("Topic", &topics[i], &withheld)
		below, err := a.list(ctx, t.Name+"/Subscriptions")
		if err != nil {
			return nil, nil, err
		}
		for i := range below {
			s := exportEntity("Subscription", &below[i], &withheld)
			rules, err := a.list(ctx, t.Name+"/Subscriptions/"+s.Name+"/Rules")
			if err != nil {
				return nil, nil, err
			}
			for i := range rules {
				if content := rules[i].child("content"); content != nil && len(content.Nodes) == 1 {
					r, err := exportRule(rules[i].text("title"), &content.Nodes[0])
					if err != nil {
						return nil, nil, fmt.Errorf("%s/Subscriptions/%s: %w", t.Name, s.Name, err)
					}
					s.Rules = append(s.Rules, r)
				}
			}
			t.Subscriptions = append(t.Subscriptions, s)
		}
		out.Topics = append(out.Topics, t)
	}
	return out, withheld, nil
}

func exportEntity(kind string, entry *xmlNode, withheld *[]string) exportedEntity {
	e := exportedEntity{Name: entry.text("title"), Properties: map[string]any{}}
	d := entry.child("content").child(kind + "Description")
	for _, name := range namesOf(kind) {
		value := d.text(name)
		switch {
		case value == "" || value == "P10675199DT2H48M5.4775807S":
			continue // not set, or without limit, which is what no value means
		case strings.HasPrefix(name, "Forward"):
			value = entityOf(value)
		case name == "MaxSizeInMegabytes" && d.text("EnablePartitioning") == "true":
			value = divided(value)
		}
		e.Properties[name] = typedValue(value)
	}
	if options := d.child("Options"); options != nil {
		for _, o := range options.Nodes {
			e.Properties[o.XMLName.Local] = typedValue(o.Text)
		}
	}
	if rules := d.child("AuthorizationRules"); rules != nil && len(rules.Nodes) > 0 {
		*withheld = append(*withheld, e.Name)
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
func exportRule(name string, d *xmlNode) (exportedRule, error) {
	r := exportedRule{Name: name, Properties: map[string]any{}}
	f := d.child("Filter")
	kind := strings.TrimSuffix(f.kind(), "Filter")
	r.Properties["FilterType"] = kind
	for _, n := range []*xmlNode{f, d.child("Action")} {
		if p := n.child("Parameters"); p != nil && len(p.Nodes) > 0 {
			return r, fmt.Errorf("rule %s has parameters, which a file cannot say", name)
		}
	}
	switch kind {
	case "Sql":
		r.Properties["SqlFilter"] = map[string]any{"SqlExpression": f.text("SqlExpression")}
	case "Correlation":
		fields := map[string]any{}
		for _, name := range correlationNames {
			if c := f.child(name); c != nil {
				fields[name] = c.Text
			}
		}
		if p := f.child("Properties"); p != nil && len(p.Nodes) > 0 {
			properties := map[string]any{}
			for i := range p.Nodes {
				v := p.Nodes[i].child("Value")
				properties[p.Nodes[i].text("Key")] = exportedValue(v.kind(), v.Text)
			}
			fields["Properties"] = properties
		}
		r.Properties["CorrelationFilter"] = fields
	}
	if action := d.child("Action").text("SqlExpression"); action != "" {
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
