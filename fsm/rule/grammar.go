package rule

import (
	"fmt"
	"math"
	"strings"
)

// The grammar, without white space. Words of the language are known in any case. An unscoped name
// is a user property.
//
//	filter     := or
//	or         := and { OR and }
//	and        := not { AND not }
//	not        := { NOT } test
//	test       := EXISTS '(' property ')' | sum [ comparison ]
//	comparison := ( '=' | '<>' | '!=' | '<' | '<=' | '>' | '>=' ) sum
//	            | IS [NOT] NULL                              (of a property)
//	            | [NOT] IN '(' sum { ',' sum } ')'
//	            | [NOT] LIKE sum [ ESCAPE sum ]
//	sum        := term { ( '+' | '-' ) term }
//	term       := factor { ( '*' | '/' | '%' ) factor }
//	factor     := ( '+' | '-' ) factor | constant | property | '@' name | function | '(' or ')'
//	function   := NEWID '(' ')' | ( PROPERTY | P ) '(' sum ')'
//	property   := [ ( SYS | USER ) '.' ] name
//	name       := word | '[' … ']' | '"' … '"'

// MaxNesting bounds parentheses, functions and unary operators around one operand, and so the depth
// of the recursion that parses and evaluates.
const MaxNesting = 64

// parser holds one token of look-ahead. After the first error every method returns nil.
type parser struct {
	lex        lexer
	tok        token
	parameters []Property
	depth      int
	err        *SyntaxError
}

func newParser(source string, parameters []Property, action bool) *parser {
	p := &parser{lex: lexer{source: source, action: action}, parameters: parameters}
	if p.err = checkSource(source); p.err == nil {
		p.advance()
	}
	return p
}

func (p *parser) advance() {
	if p.err != nil {
		return
	}
	p.tok, p.err = p.lex.next()
}

func (p *parser) failAt(offset int, format string, args ...any) *expression {
	if p.err == nil {
		p.err = p.lex.errorAt(offset, format, args...)
	}
	return nil
}

// unexpected reports what stands where something else was expected.
func (p *parser) unexpected(expected string) *expression {
	return p.failAt(p.tok.at, "expected %s, found %s", expected, p.found())
}

// maxFoundBytes keeps a long string out of the error.
const maxFoundBytes = 40

func (p *parser) found() string {
	if p.tok.kind == tokenEnd {
		return "the end"
	}
	text := p.lex.source[p.tok.at:p.tok.end]
	if len(text) > maxFoundBytes {
		text = strings.ToValidUTF8(text[:maxFoundBytes], "") + "…"
	}
	return text
}

// take consumes a symbol if it is there.
func (p *parser) take(symbol string) bool {
	if p.err == nil && p.tok.is(symbol) {
		p.advance()
		return true
	}
	return false
}

// takeWord consumes a keyword if it is there.
func (p *parser) takeWord(word string) bool {
	if p.err == nil && p.tok.isWord(word) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expect(symbol string) {
	if !p.take(symbol) {
		p.unexpected(symbol)
	}
}

// enter counts a level of nesting; the caller leaves with p.depth--.
func (p *parser) enter() bool {
	p.depth++
	if p.depth > MaxNesting {
		p.failAt(p.tok.at, "nested deeper than %d", MaxNesting)
	}
	return p.err == nil
}

func (p *parser) or() *expression {
	left := p.and()
	for p.err == nil && p.tok.isWord("OR") {
		left = p.logical(opOr, left, p.and)
	}
	return left
}

func (p *parser) and() *expression {
	left := p.not()
	for p.err == nil && p.tok.isWord("AND") {
		left = p.logical(opAnd, left, p.not)
	}
	return left
}

func (p *parser) logical(o op, left *expression, operand func() *expression) *expression {
	at := p.tok.at
	p.advance()
	right := operand()
	p.condition(left)
	p.condition(right)
	return p.node(&expression{op: o, at: at, left: left, right: right})
}

// not reads its operators in a loop, so that a long chain costs no stack.
func (p *parser) not() *expression {
	var nots []int
	for p.err == nil && p.tok.isWord("NOT") {
		nots = append(nots, p.tok.at)
		p.advance()
	}
	if p.depth += len(nots); p.depth > MaxNesting {
		return p.failAt(p.tok.at, "nested deeper than %d", MaxNesting)
	}
	e := p.test()
	p.depth -= len(nots)
	if len(nots) > 0 {
		p.condition(e)
	}
	for i := len(nots) - 1; i >= 0; i-- {
		e = p.node(&expression{op: opNot, at: nots[i], left: e})
	}
	return e
}

// condition refuses an operand of AND, OR and NOT that can never be true or false.
func (p *parser) condition(e *expression) {
	if p.err == nil && !e.mayBeCondition() {
		p.failAt(e.at, "expected a condition, found a value")
	}
}

// node returns e, or nil after an error.
func (p *parser) node(e *expression) *expression {
	if p.err != nil {
		return nil
	}
	return e
}

func (p *parser) test() *expression {
	if p.err == nil && p.tok.isWord("EXISTS") {
		return p.exists()
	}
	left := p.sum()
	if p.err != nil {
		return nil
	}
	at := p.tok.at
	if o, ok := p.comparison(); ok {
		p.advance()
		return p.node(&expression{op: o, at: at, left: left, right: p.sum()})
	}
	if p.takeWord("IS") {
		return p.isNull(at, left)
	}
	negated := p.takeWord("NOT")
	var e *expression
	switch {
	case p.takeWord("IN"):
		e = p.in(at, left)
	case p.takeWord("LIKE"):
		e = p.likeTest(at, left)
	case negated:
		return p.unexpected("IN or LIKE")
	default:
		return left
	}
	if negated {
		e = &expression{op: opNot, at: at, left: e}
	}
	return p.node(e)
}

func (p *parser) comparison() (op, bool) {
	if p.err != nil || p.tok.kind != tokenSymbol {
		return 0, false
	}
	switch p.tok.text {
	case "=":
		return opEqual, true
	case "<>", "!=":
		return opNotEqual, true
	case "<":
		return opLess, true
	case "<=":
		return opLessEqual, true
	case ">":
		return opGreater, true
	case ">=":
		return opGreaterEqual, true
	}
	return 0, false
}

func (p *parser) exists() *expression {
	at := p.tok.at
	p.advance()
	p.expect("(")
	property := p.property()
	p.expect(")")
	return p.node(&expression{op: opExists, at: at, left: property})
}

func (p *parser) isNull(at int, left *expression) *expression {
	negated := p.takeWord("NOT")
	if !p.takeWord("NULL") {
		return p.unexpected("NULL")
	}
	if !left.isProperty() {
		return p.failAt(left.at, "IS NULL asks for a property")
	}
	e := &expression{op: opIsNull, at: at, left: left}
	if negated {
		e = &expression{op: opNot, at: at, left: e}
	}
	return p.node(e)
}

func (p *parser) in(at int, left *expression) *expression {
	e := &expression{op: opIn, at: at, left: left}
	p.expect("(")
	for p.err == nil {
		e.list = append(e.list, p.sum())
		if !p.take(",") {
			break
		}
	}
	if !p.take(")") {
		return p.unexpected(", or )")
	}
	return p.node(e)
}

func (p *parser) likeTest(at int, left *expression) *expression {
	e := &expression{op: opLike, at: at, left: left, right: p.sum()}
	if p.takeWord("ESCAPE") {
		e.third = p.sum()
	}
	if p.err != nil || e.right.op != opLiteral || e.third != nil && e.third.op != opLiteral {
		return p.node(e)
	}
	return p.compileLike(e)
}

// compileLike prepares a pattern that is the same for every message.
func (p *parser) compileLike(e *expression) *expression {
	escape := noEscape
	if e.third != nil && e.third.value.kind != Null {
		var ok bool
		if escape, ok = escapeOf(e.third.value); !ok {
			return p.failAt(e.third.at, "ESCAPE asks for a string of one character")
		}
	}
	switch {
	case e.right.value.kind == Null:
	case e.right.value.kind != String:
		return p.failAt(e.right.at, "LIKE asks for a string")
	case e.third != nil && e.third.value.kind == Null: // unknown, whatever the pattern
	default:
		like, failure := compilePattern(e.right.value.text, escape)
		if failure != "" {
			return p.failAt(e.right.at, "%s", failure)
		}
		e.like = like
	}
	return e
}

func (p *parser) sum() *expression {
	left := p.term()
	for p.err == nil && (p.tok.is("+") || p.tok.is("-")) {
		o := opAdd
		if p.tok.is("-") {
			o = opSubtract
		}
		at := p.tok.at
		p.advance()
		left = p.node(&expression{op: o, at: at, left: left, right: p.term()})
	}
	return left
}

func (p *parser) term() *expression {
	left := p.factor()
	for p.err == nil && (p.tok.is("*") || p.tok.is("/") || p.tok.is("%")) {
		o := opMultiply
		switch p.tok.text {
		case "/":
			o = opDivide
		case "%":
			o = opModulo
		}
		at := p.tok.at
		p.advance()
		left = p.node(&expression{op: o, at: at, left: left, right: p.factor()})
	}
	return left
}

func (p *parser) factor() *expression {
	if p.err != nil {
		return nil
	}
	at := p.tok.at
	switch {
	case p.take("-"):
		if p.err == nil && p.tok.kind == tokenInteger && p.tok.integer == 1<<63 {
			p.advance() // the least integer has no positive counterpart
			return p.node(&expression{op: opLiteral, at: at, value: OfInt(math.MinInt64)})
		}
		return p.unary(opMinus, at)
	case p.take("+"):
		return p.unary(opPlus, at)
	case p.tok.is("("):
		if !p.enter() {
			return nil
		}
		p.advance()
		e := p.or()
		p.expect(")")
		p.depth--
		return p.node(e)
	case p.tok.kind == tokenName || p.tok.kind == tokenDelimited:
		return p.name()
	}
	return p.constant()
}

func (p *parser) unary(o op, at int) *expression {
	if !p.enter() {
		return nil
	}
	left := p.factor()
	p.depth--
	return p.node(&expression{op: o, at: at, left: left})
}

func (p *parser) constant() *expression {
	t := p.tok
	e := &expression{op: opLiteral, at: t.at}
	switch {
	case t.kind == tokenText:
		e.value = OfString(t.text)
	case t.kind == tokenInteger && t.integer > math.MaxInt64:
		return p.failAt(t.at, "an integer is out of range")
	case t.kind == tokenInteger:
		e.value = OfInt(int64(t.integer))
	case t.kind == tokenFloat:
		e.value = OfFloat(t.float)
	case t.isWord("TRUE"), t.isWord("FALSE"):
		e.value = OfBool(t.text == "TRUE")
	case t.isWord("NULL"):
	case t.kind == tokenParameter:
		v, ok := findParameter(p.parameters, t.text)
		if !ok {
			return p.failAt(t.at, "parameter @%s has no value", t.text)
		}
		e.value = v
	case t.kind == tokenKeyword:
		return p.unexpected("a value (a property of this name is written in brackets)")
	default:
		return p.unexpected("a value")
	}
	p.advance()
	return p.node(e)
}

// findParameter prefers the name as it is written: case counts only where two differ by nothing
// else. Clients write the @ in the name of the parameter or leave it out.
func findParameter(parameters []Property, name string) (Value, bool) {
	for _, same := range []func(a, b string) bool{equal, SameName} {
		for i := range parameters {
			if same(strings.TrimPrefix(parameters[i].Name, "@"), name) {
				return parameters[i].Value, true
			}
		}
	}
	return Value{}, false
}

func equal(a, b string) bool { return a == b }

// name reads a property or a function.
func (p *parser) name() *expression {
	t := p.tok
	e := p.property()
	if p.err != nil || t.kind != tokenName || e.op != opUser || !p.tok.is("(") {
		return e
	}
	if !p.enter() {
		return nil
	}
	defer func() { p.depth-- }()
	switch strings.ToUpper(t.text) {
	case "NEWID":
		p.advance()
		p.expect(")")
		return p.node(&expression{op: opNewID, at: t.at})
	case "PROPERTY", "P":
		p.advance()
		name := p.sum()
		p.expect(")")
		return p.node(&expression{op: opProperty, at: t.at, left: name})
	}
	return p.failAt(t.at, "there is no function %s", p.shorten(t.text))
}

func (p *parser) shorten(s string) string { return fmt.Sprintf("%.*s", maxFoundBytes, s) }

// property reads a name with or without a scope. A name before a dot is a scope only if it is not
// delimited.
func (p *parser) property() *expression {
	t := p.tok
	if p.err != nil || t.kind != tokenName && t.kind != tokenDelimited {
		return p.unexpected("a property")
	}
	p.advance()
	if p.err != nil || !p.tok.is(".") {
		return p.node(&expression{op: opUser, at: t.at, name: t.text})
	}
	scope := strings.ToUpper(t.text)
	if t.kind != tokenName || scope != "SYS" && scope != "USER" {
		return p.failAt(t.at, "the scope of a property is sys or user, not %s", p.shorten(t.text))
	}
	p.advance()
	name := p.tok
	if p.err != nil || name.kind != tokenName && name.kind != tokenDelimited {
		return p.unexpected("the name of a property")
	}
	p.advance()
	e := &expression{op: opUser, at: t.at, name: name.text}
	if scope == "SYS" {
		e.op, e.system = opSystem, FindSystemProperty(name.text)
	}
	return p.node(e)
}
