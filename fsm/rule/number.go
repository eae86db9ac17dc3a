package rule

import (
	"math"
	"math/bits"
)

// integer is an Int or Uint as sign and magnitude, so that one path serves both without losing a
// bit.
type integer struct {
	negative  bool
	magnitude uint64
}

func (v Value) integer() integer {
	if v.kind == Int && int64(v.bits) < 0 {
		return integer{negative: true, magnitude: -v.bits}
	}
	return integer{magnitude: v.bits}
}

// value reports false if i fits neither kind, or needs Uint where wide does not allow it. A sum of two signed
// integers outside their range is an overflow, not an unsigned integer.
func (i integer) value(wide bool) (Value, bool) {
	switch {
	case i.negative && i.magnitude <= 1<<63:
		return OfInt(int64(-i.magnitude)), true
	case !i.negative && i.magnitude <= math.MaxInt64:
		return OfInt(int64(i.magnitude)), true
	case !i.negative && wide:
		return OfUint(i.magnitude), true
	}
	return Value{}, false
}

func (i integer) add(j integer) (integer, bool) {
	if i.negative == j.negative {
		sum, carry := bits.Add64(i.magnitude, j.magnitude, 0)
		return integer{i.negative, sum}, carry == 0
	}
	if i.magnitude >= j.magnitude {
		return integer{i.negative, i.magnitude - j.magnitude}, true
	}
	return integer{j.negative, j.magnitude - i.magnitude}, true
}

func (i integer) negated() integer { return integer{!i.negative, i.magnitude} }

func (i integer) multiply(j integer) (integer, bool) {
	high, low := bits.Mul64(i.magnitude, j.magnitude)
	return integer{i.negative != j.negative, low}, high == 0
}

// compare returns -1, 0 or 1. Zero has no sign: -v.bits of a negative Int is never zero.
func (i integer) compare(j integer) int {
	sign := 1
	switch {
	case i.negative != j.negative && i.negative:
		return -1
	case i.negative != j.negative:
		return 1
	case i.negative:
		sign = -1
	}
	switch {
	case i.magnitude < j.magnitude:
		return -sign
	case i.magnitude > j.magnitude:
		return sign
	}
	return 0
}

// Failures of arithmetic.
const (
	overflow     = "the result is out of range"
	divideByZero = "division by zero"
)

// computeNumbers applies C#'s promotion: integers stay integers (5/2 is 2), a double makes both
// doubles. A division by zero fails for doubles too. failure is "" if it went well.
func computeNumbers(o op, a, b Value) (v Value, failure string) {
	if a.kind == Float || b.kind == Float {
		return computeFloats(o, a.Float(), b.Float())
	}
	i, j := a.integer(), b.integer()
	ok := true
	switch o {
	case opSubtract:
		i, ok = i.add(j.negated())
	case opAdd:
		i, ok = i.add(j)
	case opMultiply:
		i, ok = i.multiply(j)
	case opDivide, opModulo:
		if j.magnitude == 0 {
			return Value{}, divideByZero
		}
		if o == opDivide {
			i = integer{i.negative != j.negative, i.magnitude / j.magnitude}
		} else {
			i.magnitude %= j.magnitude
		}
	}
	if ok {
		v, ok = i.value(a.kind == Uint || b.kind == Uint)
	}
	if !ok {
		return Value{}, overflow
	}
	return v, ""
}

func computeFloats(o op, a, b float64) (Value, string) {
	switch o {
	case opAdd:
		return OfFloat(a + b), ""
	case opSubtract:
		return OfFloat(a - b), ""
	case opMultiply:
		return OfFloat(a * b), ""
	}
	if b == 0 {
		return Value{}, divideByZero
	}
	if o == opDivide {
		return OfFloat(a / b), ""
	}
	return OfFloat(math.Mod(a, b)), ""
}

// computeTimes adds and subtracts times and durations; ok is false if the operator has no meaning
// for the two kinds.
func computeTimes(o op, a, b Value) (v Value, failure string, ok bool) {
	if o != opAdd && o != opSubtract {
		return Value{}, "", false
	}
	kind := Duration
	switch {
	case a.kind == Duration && b.kind == Duration:
	case a.kind == DateTime && b.kind == DateTime && o == opSubtract:
	case a.kind == DateTime && b.kind == Duration:
		kind = DateTime
	case a.kind == Duration && b.kind == DateTime && o == opAdd:
		kind = DateTime
	default:
		return Value{}, "", false
	}
	v, failure = computeNumbers(o, OfInt(int64(a.bits)), OfInt(int64(b.bits)))
	if failure != "" {
		return Value{}, failure, true
	}
	v.kind = kind
	if kind == DateTime && (v.Ticks() < minDateTime || v.Ticks() > maxDateTime) {
		return Value{}, overflow, true
	}
	return v, "", true
}
