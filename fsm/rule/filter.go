package rule

// FilterKind tells the filters apart that a client can create and list.
type FilterKind uint8

// The kinds of filter. Numbers are for ever: the catalog holds them.
const (
	SQLFilter FilterKind = 1 + iota
	TrueFilter
	FalseFilter
	CorrelationFilter
)

// The expressions by which true and false filters are known to clients (management-api.md 4.4).
const (
	TrueExpression  = "1=1"
	FalseExpression = "1=0"
)

// Filter is a compiled filter. It never changes; any number of goroutines may use it.
type Filter struct {
	kind        FilterKind
	source      string
	root        *expression
	correlation *correlation
}

// True returns the filter that selects every message.
func True() *Filter { return &Filter{kind: TrueFilter} }

// False returns the filter that selects none.
func False() *Filter { return &Filter{kind: FalseFilter} }

// Parse compiles a SQL filter. Parameters are looked up by name, with or without @. The error is a
// *SyntaxError.
func Parse(expression string, parameters []Property) (*Filter, error) {
	p := newParser(expression, parameters, false)
	root := p.or()
	if p.err == nil && p.tok.kind != tokenEnd {
		p.unexpected("AND, OR or the end")
	}
	p.condition(root)
	if p.err != nil {
		return nil, p.err
	}
	return &Filter{kind: SQLFilter, source: expression, root: root}, nil
}

// Kind returns which kind of filter f is.
func (f *Filter) Kind() FilterKind { return f.kind }

// Match reports whether f selects m: only true does, unknown does not (S-219). The error is an
// *EvaluationError; the message then goes the way of S-221. Match allocates nothing but errors,
// what joins strings, and what m allocates.
func (f *Filter) Match(m Message) (bool, error) {
	budget := MaxSteps
	return f.MatchWithin(m, &budget)
}

// MatchWithin is [Filter.Match] that takes its steps from a budget, at most [MaxSteps] of them and at least one.
// Where the budget does not last, the error is one of [Exhausted].
func (f *Filter) MatchWithin(m Message, budget *int) (bool, error) {
	switch f.kind {
	case TrueFilter:
		*budget--
		return true, nil
	case CorrelationFilter:
		*budget -= f.correlation.steps() + len(f.correlation.user)*m.Properties()/stepProperties
		return f.correlation.match(m), nil
	case SQLFilter:
		r := run{message: m, source: f.source}
		r.begin(*budget)
		v := r.condition(f.root)
		*budget -= r.used()
		if r.err != nil {
			return false, r.err
		}
		return v.Bool(), nil
	}
	*budget--
	return false, nil
}
