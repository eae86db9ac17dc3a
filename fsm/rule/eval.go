package rule

import (
	"fmt"
	"strings"
)

// The cost that one evaluation may have, in steps of some ten nanoseconds. A node of the expression costs nodeSteps;
// a step is also stepBytes of a string that is searched, joined or compared, and stepProperties properties that are
// looked through. An honest filter needs some hundred; the limit is about a millisecond.
const (
	MaxSteps       = 1 << 17
	nodeSteps      = 8
	stepBytes      = 16
	stepProperties = 2
)

// MaxTextBytes is the longest string that an expression may compute: the quota of one property.
const MaxTextBytes = 32 << 10

// run is one evaluation. It lives on the stack of its caller.
type run struct {
	message Message
	source  string
	limit   int      // of steps
	fuel    int      // steps that are left
	look    int      // steps for looking through the properties of the message
	changes []Change // what the statements of an action have changed so far
	err     *EvaluationError
}

// begin sets how many steps the evaluation may take.
func (r *run) begin(budget int) {
	r.limit = max(0, min(MaxSteps, budget))
	r.fuel, r.look = r.limit, r.message.Properties()/stepProperties
}

// used returns the steps that were taken, one at least.
func (r *run) used() int { return max(1, r.limit-max(0, r.fuel)) }

// fail keeps the first failure.
func (r *run) fail(e *expression, format string, args ...any) Value {
	if r.err == nil {
		r.err = &EvaluationError{At: character(r.source, e.at), Text: fmt.Sprintf(format, args...)}
	}
	return Value{}
}

// spend takes the steps for so many bytes.
func (r *run) spend(e *expression, bytes int) {
	r.fuel -= 1 + bytes/stepBytes
	r.checkFuel(e)
}

func (r *run) checkFuel(e *expression) {
	if r.fuel < 0 {
		r.fail(e, "more than %d steps", r.limit)
		r.err.exhausted = r.err.exhausted || r.limit < MaxSteps
	}
}

// eval returns the value of e. After a failure it returns null without looking further.
func (r *run) eval(e *expression) Value {
	if r.fuel -= nodeSteps; r.fuel < 0 {
		r.checkFuel(e)
	}
	if r.err != nil {
		return Value{}
	}
	switch e.op {
	case opLiteral:
		return e.value
	case opUser:
		v, _ := r.user(e.name)
		return v
	case opSystem:
		return r.system(e, e.system, e.name)
	case opProperty:
		return r.computed(e)
	case opNewID:
		return r.newID()
	case opAnd, opOr:
		return r.logical(e)
	case opNot:
		if v := r.condition(e.left); v.kind == Bool {
			return OfBool(v.bits == 0)
		}
		return Value{}
	case opMinus, opPlus:
		return r.unary(e)
	case opAdd, opSubtract, opMultiply, opDivide, opModulo:
		return r.arithmetic(e)
	case opIn:
		return r.in(e)
	case opLike:
		return r.like(e)
	case opIsNull:
		return OfBool(r.eval(e.left).kind == Null)
	case opExists:
		return r.exists(e.left)
	}
	a, b := r.eval(e.left), r.eval(e.right)
	return r.compare(e, e.op, a, b)
}

// condition evaluates e and demands true, false or unknown.
func (r *run) condition(e *expression) Value {
	v := r.eval(e)
	if v.kind != Bool && v.kind != Null {
		return r.fail(e, "expected a condition, found a value of kind %s", v.kind)
	}
	return v
}

// logical evaluates the right side only if the left one leaves the answer open, as in C#.
func (r *run) logical(e *expression) Value {
	decisive := OfBool(e.op == opOr)
	left := r.condition(e.left)
	if left == decisive {
		return left
	}
	right := r.condition(e.right)
	if right == decisive || left.kind == Bool {
		return right
	}
	return Value{}
}

func (r *run) user(name string) (Value, bool) {
	for i := range r.changes {
		if c := &r.changes[i]; c.System == NoProperty && SameName(c.Name, name) {
			return c.Value, !c.Remove
		}
	}
	r.fuel -= r.look
	return r.message.User(name)
}

// system fails for a property that does not exist; one that is not set is null.
func (r *run) system(e *expression, p SystemProperty, name string) Value {
	if p == NoProperty {
		return r.fail(e, "there is no system property %.*s", maxFoundBytes, name)
	}
	for i := range r.changes {
		if c := &r.changes[i]; c.System == p {
			return c.Value
		}
	}
	return r.message.System(p)
}

// computed reads the property whose name e.left evaluates to.
func (r *run) computed(e *expression) Value {
	name := r.eval(e.left)
	switch name.kind {
	case Null:
		return Value{}
	case String:
	default:
		return r.fail(e, "the name of a property is a string, not a value of kind %s", name.kind)
	}
	r.spend(e, len(name.text))
	scope, rest := splitScope(name.text)
	if scope == "sys" {
		return r.system(e, FindSystemProperty(rest), rest)
	}
	v, _ := r.user(rest)
	return v
}

// splitScope separates the scope of a computed name; a name with another prefix is a user's.
func splitScope(name string) (scope, rest string) {
	before, after, ok := strings.Cut(name, ".")
	switch {
	case ok && SameName(before, "sys"):
		return "sys", after
	case ok && SameName(before, "user"):
		return "user", after
	}
	return "user", name
}

// exists is true for a user property that is there, even null, and for a system property that has a
// value. It is the one question about an unknown system property that does not fail.
func (r *run) exists(e *expression) Value {
	switch e.op {
	case opUser:
		_, ok := r.user(e.name)
		return OfBool(ok)
	case opSystem:
		return OfBool(e.system != NoProperty && !r.system(e, e.system, e.name).IsNull())
	}
	return OfBool(!r.eval(e).IsNull())
}

// newID makes a random guid of version 4 of the chance that the message brings.
func (r *run) newID() Value {
	g := r.message.NewID()
	g[6] = g[6]&0x0f | 0x40
	g[8] = g[8]&0x3f | 0x80
	return OfGuid(g)
}

func (r *run) unary(e *expression) Value {
	v := r.eval(e.left)
	switch {
	case v.kind == Null:
		return Value{}
	case !v.number() && v.kind != Duration:
		return r.fail(e, "%s has no meaning for a value of kind %s", opNames[e.op], v.kind)
	case e.op == opPlus:
		return v
	case v.kind == Decimal:
		r.spend(e, decimalWeight)
		n, failure := computeDecimals(opMultiply, OfInt(-1), v)
		return r.result(e, n, failure)
	case v.kind == Float:
		return OfFloat(-v.Float())
	case v.kind == Duration:
		d, failure, _ := computeTimes(opSubtract, OfDuration(0), v)
		return r.result(e, d, failure)
	}
	n, ok := v.integer().negated().value(false)
	if !ok {
		return r.fail(e, overflow)
	}
	return n
}

func (r *run) result(e *expression, v Value, failure string) Value {
	if failure != "" {
		return r.fail(e, "%s", failure)
	}
	return v
}

func (r *run) arithmetic(e *expression) Value {
	a, b := r.eval(e.left), r.eval(e.right)
	switch {
	case a.kind == Null || b.kind == Null:
		return Value{}
	case a.number() && b.number() && (a.kind == Decimal || b.kind == Decimal):
		r.spend(e, decimalWeight)
		v, failure := computeDecimals(e.op, a, b)
		return r.result(e, v, failure)
	case a.numeric() && b.numeric():
		v, failure := computeNumbers(e.op, a, b)
		return r.result(e, v, failure)
	case e.op == opAdd && a.kind == String && b.kind == String:
		if len(a.text)+len(b.text) > MaxTextBytes {
			return r.fail(e, "a string longer than %d bytes", MaxTextBytes)
		}
		r.spend(e, len(a.text)+len(b.text))
		return OfString(a.text + b.text)
	}
	v, failure, ok := computeTimes(e.op, a, b)
	if !ok {
		return r.fail(e, "%s has no meaning for values of kind %s and %s",
			opNames[e.op], a.kind, b.kind)
	}
	return r.result(e, v, failure)
}

func (r *run) compare(e *expression, o op, a, b Value) Value {
	if a.kind == String && b.kind == String {
		r.spend(e, min(len(a.text), len(b.text)))
	}
	if a.kind == Decimal || b.kind == Decimal {
		r.spend(e, decimalWeight)
	}
	v, known := compareValues(o, a, b)
	if !known {
		return r.fail(e, "%s has no meaning for values of kind %s", opNames[o], a.kind)
	}
	return v
}

// in is the OR of the equalities with the members of the list.
func (r *run) in(e *expression) Value {
	left := r.eval(e.left)
	if left.kind == Null {
		return Value{}
	}
	answer := OfBool(false)
	for _, member := range e.list {
		switch v := r.compare(e, opEqual, left, r.eval(member)); {
		case v.Bool():
			return v
		case v.kind == Null:
			answer = Value{}
		}
	}
	return answer
}

func (r *run) like(e *expression) Value {
	left := r.eval(e.left)
	like, ok := r.pattern(e)
	switch {
	case !ok || left.kind == Null:
		return Value{}
	case left.kind != String:
		return r.fail(e, "LIKE asks for a string, not a value of kind %s", left.kind)
	}
	matches := like.matches(left.text, &r.fuel)
	r.checkFuel(e)
	return OfBool(matches)
}

// pattern returns the compiled pattern of a LIKE; ok is false if it is unknown or fails.
func (r *run) pattern(e *expression) (like *pattern, ok bool) {
	if e.like != nil {
		return e.like, true
	}
	text := r.eval(e.right)
	escape := noEscape
	if e.third != nil {
		third := r.eval(e.third)
		if third.kind == Null {
			return nil, false
		}
		if escape, ok = escapeOf(third); !ok {
			r.fail(e.third, "ESCAPE asks for a string of one character")
			return nil, false
		}
	}
	if text.kind == Null {
		return nil, false
	}
	if text.kind != String {
		r.fail(e.right, "LIKE asks for a string, not a value of kind %s", text.kind)
		return nil, false
	}
	r.spend(e, len(text.text)*stepBytes) // every character is copied
	if r.err != nil {
		return nil, false
	}
	like, failure := compilePattern(text.text, escape)
	if failure != "" {
		r.fail(e.right, "%s", failure)
		return nil, false
	}
	return like, true
}
