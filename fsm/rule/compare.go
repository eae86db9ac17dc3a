package rule

import "cmp"

// compareValues applies a comparison operator. Unknown with anything is unknown. Values of two kinds without a common
// type are not equal, and neither is less. The result is unknown, so no filter selects by it. known is false if the
// kind has no order at all.
func compareValues(o op, a, b Value) (v Value, known bool) {
	switch {
	case a.kind == Null || b.kind == Null:
		return Value{}, true
	case a.kind == Binary || b.kind == Binary:
		return Value{}, true
	case a.number() && b.number() && (a.kind == Decimal || b.kind == Decimal):
		return compareDecimals(o, a, b), true
	case a.numeric() && b.numeric():
		return compareNumbers(o, a, b), true
	case a.kind != b.kind:
		if o == opEqual || o == opNotEqual {
			return OfBool(o == opNotEqual), true
		}
		return Value{}, true
	}
	switch a.kind {
	case String:
		return ordered(o, cmp.Compare(a.text, b.text)), true
	case DateTime, Duration:
		return ordered(o, cmp.Compare(int64(a.bits), int64(b.bits))), true
	}
	equal := a.bits == b.bits && a.low == b.low
	switch o {
	case opEqual:
		return OfBool(equal), true
	case opNotEqual:
		return OfBool(!equal), true
	}
	return Value{}, false
}

// compareNumbers promotes like C#: with a double both are doubles. NaN equals nothing.
func compareNumbers(o op, a, b Value) Value {
	if a.kind != Float && b.kind != Float {
		return ordered(o, a.integer().compare(b.integer()))
	}
	x, y := a.Float(), b.Float()
	if x != x || y != y {
		return OfBool(o == opNotEqual)
	}
	return ordered(o, cmp.Compare(x, y))
}

func ordered(o op, c int) Value {
	switch o {
	case opEqual:
		return OfBool(c == 0)
	case opNotEqual:
		return OfBool(c != 0)
	case opLess:
		return OfBool(c < 0)
	case opLessEqual:
		return OfBool(c <= 0)
	case opGreater:
		return OfBool(c > 0)
	}
	return OfBool(c >= 0)
}

// Equal reports whether a correlation filter that wants a is satisfied by b (S-218). Kinds and values must be equal:
// numbers by value across their widths, strings exactly.
func Equal(a, b Value) bool {
	if a.number() && b.number() && (a.kind == Decimal || b.kind == Decimal) {
		if v := compareDecimals(opEqual, a, b); v.kind == Bool {
			return v.Bool()
		}
	}
	if a.numeric() && b.numeric() {
		return compareNumbers(opEqual, a, b).Bool()
	}
	return a == b
}
