package rule

import "unicode/utf8"

// MaxStatements is the number of SET and REMOVE statements of one action (management quotas).
const MaxStatements = 32

// Change is one property of a copy that an action has changed. User properties are named as in the action; the caller
// replaces the property with the same name (SameName) and keeps its spelling. Changes to MessageID, PartitionKey and
// ScheduledEnqueueTime show on the copy but take no effect in this subscription. No duplicate is looked for, and
// nothing is scheduled (S-220). A subscription with sessions puts the copy into the session that SessionID names.
type Change struct {
	System SystemProperty // NoProperty: the user property Name
	Name   string
	Remove bool
	Value  Value // of the kind of the system property; null user properties are kept as null
}

// Action is a compiled action. It never changes; any number of goroutines may use it.
type Action struct {
	source     string
	statements []statement
}

// statement sets a property to value, or removes it where value is nil.
type statement struct {
	property *expression
	value    *expression
}

// ParseAction compiles an action: statements SET property = value and REMOVE property, with or
// without semicolons after them. The error is a *SyntaxError.
func ParseAction(expression string, parameters []Property) (*Action, error) {
	p := newParser(expression, parameters, true)
	a := &Action{source: expression}
	for p.err == nil && (p.tok.kind != tokenEnd || len(a.statements) == 0) {
		if len(a.statements) == MaxStatements {
			p.failAt(p.tok.at, "more than %d statements", MaxStatements)
			break
		}
		a.statements = append(a.statements, p.statement(len(a.statements) > 0))
		p.take(";")
	}
	if p.err != nil {
		return nil, p.err
	}
	return a, nil
}

func (p *parser) statement(further bool) (s statement) {
	switch {
	case p.takeWord("SET"):
		s.property = p.property()
		p.expect("=")
		s.value = p.sum()
	case p.takeWord("REMOVE"):
		s.property = p.property()
	case further:
		p.unexpected("SET, REMOVE or the end")
	default:
		p.unexpected("SET or REMOVE")
	}
	return s
}

// Apply returns what a changes on a copy of m, each property once, in the order in which they are
// first named. Statements see what those before them changed. The error is an *EvaluationError; no
// change counts then (S-221). Strings of the result may be views into m. A changed string is at most
// MaxTextBytes long if it was computed; the quota of all properties together is the caller's to check.
func (a *Action) Apply(m Message) ([]Change, error) {
	budget := MaxSteps
	return a.ApplyWithin(m, &budget)
}

// ApplyWithin is [Action.Apply] that takes its steps from a budget, at most [MaxSteps] of them and at least one. Where
// the budget does not last, the error is one of [Exhausted].
func (a *Action) ApplyWithin(m Message, budget *int) ([]Change, error) {
	r := run{message: m, source: a.source}
	r.begin(*budget)
	defer func() { *budget -= r.used() }()
	r.changes = make([]Change, 0, len(a.statements))
	for i := range a.statements {
		r.apply(&a.statements[i])
		if r.err != nil {
			return nil, r.err
		}
	}
	return r.changes, nil
}

func (r *run) apply(s *statement) {
	target := s.property
	if target.op == opSystem && !systemTable[target.system].settable {
		if target.system == NoProperty {
			r.fail(target, "there is no system property %.*s", maxFoundBytes, target.name)
		} else {
			r.fail(target, "system property %s cannot be changed", target.system)
		}
		return
	}
	c := Change{System: target.system, Remove: s.value == nil}
	if target.op == opUser {
		c.Name = target.name
	}
	if s.value != nil {
		c.Value = r.eval(s.value)
	}
	switch {
	case c.Remove:
	case target.op == opSystem:
		c.Value = r.systemValue(s.value, target.system, c.Value)
		c.Remove = c.Value.IsNull()
	default:
		old, _ := r.user(target.name)
		c.Value = converted(c.Value, old.kind)
	}
	if r.err == nil {
		r.record(c)
	}
}

// record replaces the earlier change of the same property.
func (r *run) record(c Change) {
	for i := range r.changes {
		old := &r.changes[i]
		if old.System == c.System && (c.System != NoProperty || SameName(old.Name, c.Name)) {
			if c.System == NoProperty {
				c.Name = old.Name
			}
			*old = c
			return
		}
	}
	r.changes = append(r.changes, c)
}

// converted applies C#'s implicit conversions to the kind that the property has had: integers
// become doubles or decimals. Everything else replaces value and kind.
func converted(v Value, kind Kind) Value {
	if kind == Float && v.integral() {
		return OfFloat(v.Float())
	}
	if kind == Decimal && v.integral() {
		d, _ := decimalOf(v)
		return d.value()
	}
	return v
}

// systemValue checks that a system property can take v. A guid may become the text of an id.
func (r *run) systemValue(e *expression, p SystemProperty, v Value) Value {
	known := &systemTable[p]
	if v.kind == Guid && known.kind == String {
		v = OfString(guidText(v))
	}
	switch {
	case v.kind == Null:
	case v.kind != known.kind:
		return r.fail(e, "%s is of kind %s and cannot take a value of kind %s",
			p, known.kind, v.kind)
	case known.maxChars > 0 && len(v.text) > known.maxChars &&
		utf8.RuneCountInString(v.text) > known.maxChars:
		return r.fail(e, "%s is longer than %d characters", p, known.maxChars)
	case p == TimeToLive && v.Millis() <= 0:
		return r.fail(e, "%s must be at least a millisecond", p)
	}
	return v
}
