package rule

import (
	"strings"
	"unicode/utf8"
)

// MaxSourceBytes bounds the texts and values of one rule together. It is as much as all properties of a message may
// have, so a correlation filter can ask for any of them.
const MaxSourceBytes = 64 << 10

// Property is a named value: a parameter of an expression or a property of a correlation filter.
type Property struct {
	Name  string `json:"name"` // of a parameter: with or without @, as the client wrote it
	Value Value  `json:"value"`
	// Type is the XML Schema type by which a client wrote the value ("int", "long"); empty if it is
	// the one of the value's kind. It is only given back (management-api.md 1.10).
	Type string `json:"type,omitempty"`
}

// Source is a rule as it is stored and given back. Equal sources compile to equal rules.
type Source struct {
	Kind       FilterKind `json:"kind"`
	Expression string     `json:"expression,omitempty"` // SQLFilter only
	Parameters []Property `json:"parameters,omitempty"` // of Expression

	Correlation *Correlation `json:"correlation,omitempty"` // CorrelationFilter only

	Action           string     `json:"action,omitempty"` // empty: none
	ActionParameters []Property `json:"actionParameters,omitempty"`
}

// Default is the rule that a subscription has if none is given (S-215).
func Default() Source { return Source{Kind: TrueFilter} }

// Rule is a compiled Source. Action is nil if there is none.
type Rule struct {
	Filter *Filter
	Action *Action
}

// Compile checks s and compiles it. The error is a *SyntaxError or *SourceError; the user is told.
func (s *Source) Compile() (*Rule, error) {
	if s.bytes() > MaxSourceBytes {
		return nil, sourceErrorf("the rule is larger than %d bytes", MaxSourceBytes)
	}
	filter, err := s.compileFilter()
	if err != nil {
		return nil, err
	}
	r := &Rule{Filter: filter}
	if s.Action == "" && len(s.ActionParameters) == 0 {
		return r, nil
	}
	if err := checkParameters(s.ActionParameters); err != nil {
		return nil, err
	}
	if r.Action, err = ParseAction(s.Action, s.ActionParameters); err != nil {
		return nil, err
	}
	return r, nil
}

func (s *Source) compileFilter() (*Filter, error) {
	if s.Kind != SQLFilter && (s.Expression != "" || len(s.Parameters) > 0) {
		return nil, sourceErrorf("only a SQL filter has an expression")
	}
	if s.Kind != CorrelationFilter && s.Correlation != nil {
		return nil, sourceErrorf("only a correlation filter has properties to compare")
	}
	switch s.Kind {
	case TrueFilter:
		return True(), nil
	case FalseFilter:
		return False(), nil
	case SQLFilter:
		if err := checkParameters(s.Parameters); err != nil {
			return nil, err
		}
		return Parse(s.Expression, s.Parameters)
	case CorrelationFilter:
		if s.Correlation == nil {
			return nil, sourceErrorf("a correlation filter must compare at least one property")
		}
		return NewCorrelation(s.Correlation)
	}
	return nil, sourceErrorf("there is no filter of kind %d", s.Kind)
}

// bytes returns the size of the texts and values of s.
func (s *Source) bytes() int {
	n := len(s.Expression) + len(s.Action)
	lists := [][]Property{s.Parameters, s.ActionParameters}
	if c := s.Correlation; c != nil {
		lists = append(lists, c.Properties)
		for _, f := range c.fields() {
			if *f.text != nil {
				n += len(**f.text)
			}
		}
	}
	for _, list := range lists {
		for i := range list {
			n += valueBytes + len(list[i].Name) + len(list[i].Value.text) + len(list[i].Type)
		}
	}
	return n
}

// valueBytes is what a value counts besides its text, so that their number is bounded too.
const valueBytes = 16

func checkParameters(list []Property) error {
	for i := range list {
		if strings.TrimPrefix(list[i].Name, "@") == "" {
			return sourceErrorf("a parameter has no name")
		}
	}
	return checkUnique("parameter", list, func(name string) string {
		return strings.TrimPrefix(name, "@")
	})
}

func checkProperties(what string, list []Property) error {
	for i := range list {
		if list[i].Name == "" {
			return sourceErrorf("a %s has no name", what)
		}
	}
	return checkUnique(what, list, strings.ToLower)
}

// checkUnique refuses two names that are equal once canonical is applied, and text that is no
// UTF-8.
func checkUnique(what string, list []Property, canonical func(string) string) error {
	seen := make(map[string]bool, len(list))
	for i := range list {
		p := &list[i]
		if !utf8.ValidString(p.Name) || p.Value.kind == String && !utf8.ValidString(p.Value.text) {
			return sourceErrorf("%s %.40q is not valid UTF-8", what, p.Name)
		}
		name := canonical(p.Name)
		if seen[name] {
			return sourceErrorf("%s %.40q is given twice", what, p.Name)
		}
		seen[name] = true
	}
	return nil
}
