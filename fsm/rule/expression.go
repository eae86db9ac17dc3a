package rule

// op is what a node of an expression does.
type op uint8

const (
	opLiteral  op = iota
	opUser        // application property name
	opSystem      // system property; NoProperty fails when it is evaluated
	opProperty    // property(left): the property whose name is computed
	opNewID
	opAnd
	opOr
	opNot
	opEqual
	opNotEqual
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opAdd
	opSubtract
	opMultiply
	opDivide
	opModulo
	opMinus  // of left
	opPlus   // of left
	opIn     // left in list
	opLike   // left like right escape third
	opIsNull // left
	opExists // left
)

var opNames = [...]string{
	opAnd: "AND", opOr: "OR", opNot: "NOT", opEqual: "=", opNotEqual: "<>", opLess: "<",
	opLessEqual: "<=", opGreater: ">", opGreaterEqual: ">=", opAdd: "+", opSubtract: "-",
	opMultiply: "*", opDivide: "/", opModulo: "%", opMinus: "-", opPlus: "+",
}

// expression is a node of a compiled filter. It never changes after parsing, so that any number of
// evaluations may share it.
type expression struct {
	op     op
	at     int // byte offset in the source, for errors
	left   *expression
	right  *expression
	third  *expression
	list   []*expression
	value  Value
	name   string // as written
	system SystemProperty
	like   *pattern // if it is known when parsing
}

// mayBeCondition is false if the node can never be true or false; it is then refused where a
// condition must stand, rather than failing for every message.
func (e *expression) mayBeCondition() bool {
	switch e.op {
	case opLiteral:
		return e.value.kind == Bool || e.value.kind == Null
	case opNewID, opAdd, opSubtract, opMultiply, opDivide, opModulo, opMinus, opPlus:
		return false
	}
	return true
}

func (e *expression) isProperty() bool {
	return e.op == opUser || e.op == opSystem || e.op == opProperty
}
