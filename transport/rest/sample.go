package rest

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/rule"
)

// Sample is a message that somebody describes, to try rules on.
type Sample struct {
	User    []rule.Property
	Systems map[rule.SystemProperty]rule.Value
}

// sampleMessage is a sample as rules see it.
type sampleMessage struct{ *Sample }

// User implements rule.Message.
func (s sampleMessage) User(name string) (rule.Value, bool) {
	for _, p := range s.Sample.User {
		if rule.SameName(p.Name, name) {
			return p.Value, true
		}
	}
	return rule.Value{}, false
}

// Properties implements rule.Message.
func (s sampleMessage) Properties() int { return len(s.Sample.User) }

// System implements rule.Message.
func (s sampleMessage) System(p rule.SystemProperty) rule.Value { return s.Systems[p] }

// NewID implements rule.Message.
func (s sampleMessage) NewID() (id [16]byte) {
	_, _ = rand.Read(id[:])
	return id
}

// Verdict is what one rule does with a sample.
type Verdict struct {
	Rule     string   `json:"rule"`
	Selected bool     `json:"selected"`
	Changes  []string `json:"changes,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// Try evaluates one rule. An evaluation that fails is a verdict, too: such a message is dead-lettered or dropped (S-221).
// The error says that the rule itself is wrong.
func (s *Sample) Try(name string, source *rule.Source) (Verdict, error) {
	v := Verdict{Rule: name}
	compiled, err := source.Compile()
	if err != nil {
		return v, err
	}
	m := sampleMessage{s}
	if v.Selected, err = compiled.Filter.Match(m); err != nil {
		v.Error = err.Error()
		return v, nil
	}
	if !v.Selected || compiled.Action == nil {
		return v, nil
	}
	changes, err := compiled.Action.Apply(m)
	if err != nil {
		v.Error = err.Error()
		return v, nil
	}
	for _, c := range changes {
		property := c.Name
		if c.System != rule.NoProperty {
			property = "sys." + c.System.String()
		}
		if c.Remove {
			v.Changes = append(v.Changes, "REMOVE "+property)
			continue
		}
		v.Changes = append(v.Changes, "SET "+property+" = "+literal(c.Value))
	}
	return v, nil
}

// literal writes a value as an action would.
func literal(v rule.Value) string {
	switch v.Kind() {
	case rule.Null:
		return "NULL"
	case rule.String:
		return "'" + strings.ReplaceAll(v.Text(), "'", "''") + "'"
	}
	_, text, _ := strings.Cut(v.String(), ":")
	return text
}

// trial is the body of a request to try rules.
type trial struct {
	// SQL and Action are an expression to try; without both the rules of the subscription are.
	SQL     string `json:"sql"`
	Action  string `json:"action"`
	Message struct {
		System     map[string]string `json:"system"`
		Properties []struct {
			Name  string `json:"name"`
			Type  string `json:"type"` // of XML Schema, as in a rule; string if it is empty
			Value string `json:"value"`
		} `json:"properties"`
	} `json:"message"`
}

// sample reads the message that a trial describes.
func (t *trial) sample() (*Sample, error) {
	s := &Sample{Systems: map[rule.SystemProperty]rule.Value{}}
	for name, text := range t.Message.System {
		p := rule.FindSystemProperty(name)
		if p == rule.NoProperty {
			return nil, badRequest("There is no system property %s.", clip(name))
		}
		s.Systems[p] = rule.OfString(text)
	}
	for _, p := range t.Message.Properties {
		value, ok := parseValue(&element{kind: p.Type, text: p.Value})
		if p.Name == "" {
			return nil, badRequest("A property has no name.")
		}
		if !ok {
			return nil, badRequest("The property %s: '%s' is not of the type %s, or the type is not supported.", clip(p.Name), clip(p.Value), clip(p.Type))
		}
		s.User = append(s.User, rule.Property{Name: p.Name, Value: value})
	}
	return s, nil
}

// testRules tries the rules of a subscription, or an expression, on a message that the body describes.
func (q *inspection) testRules() (any, error) {
	if err := q.only(); err != nil {
		return nil, err
	}
	var t trial
	in := json.NewDecoder(q.http.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&t); err != nil {
		return nil, badRequest("The body must be a JSON object with a message, and perhaps sql and action: %v.", err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("The body is followed by something else.")
	}
	s, err := t.sample()
	if err != nil {
		return nil, err
	}
	if t.SQL == "" && t.Action == "" {
		if q.d.Kind != fsm.Subscription {
			return nil, badRequest("%s is no subscription, so it has no rules: give sql or action.", q.d.Name)
		}
		verdicts := make([]Verdict, len(q.d.Rules))
		for i, r := range q.d.RulesByName() {
			if verdicts[i], err = s.Try(r.Name, &r.Source); err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.Name, err)
			}
		}
		return map[string]any{"verdicts": verdicts}, nil
	}
	source := rule.Source{Kind: rule.TrueFilter, Action: t.Action}
	if t.SQL != "" {
		source.Kind, source.Expression = rule.SQLFilter, t.SQL
	}
	v, err := s.Try("", &source)
	if err != nil {
		return nil, badRequest("The rule is not valid: %s.", strings.TrimSuffix(err.Error(), "."))
	}
	return map[string]any{"verdicts": []Verdict{v}}, nil
}
