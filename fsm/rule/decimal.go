package rule

import (
	"cmp"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Constructors of the decimal types (AMQP 1.0 §1.6.12 to §1.6.14) and the sizes of their contents in bytes.
const (
	codeDecimal32  = 0x74
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94

	decimal128Bytes = 16
)

// Bounds of a decimal128 (IEEE 754-2008): digits of the coefficient, and the exponent of its last digit.
const (
	maxDigits     = 34
	minExponent   = -6176
	maxExponent   = 6111
	exponentBias  = 6176
	decimalWeight = 32 * stepBytes // what an operation with decimals spends, in bytes
)

// decimal is the number (-1)^negative · coefficient · 10^exponent. The coefficient is not negative and has at
// most 34 digits. A decimal of a message keeps its exponent, so 1.250 has another exponent than 1.25.
type decimal struct {
	negative    bool
	coefficient *big.Int
	exponent    int
}

// OfDecimal returns a decimal from its AMQP encoding: a constructor and 4, 8 or 16 bytes, or the 16 bytes of a
// decimal128 alone. Bytes that encode no finite number make a value that equals itself alone.
func OfDecimal(raw string) Value {
	if len(raw) == decimal128Bytes {
		raw = string([]byte{codeDecimal128}) + raw
	}
	return Value{kind: Decimal, text: raw}
}

// ParseDecimal reads a decimal as XML Schema writes it, such as -12.50. It reports false for any other text and
// for more than 34 digits.
func ParseDecimal(s string) (Value, bool) {
	d, ok := parseDecimal(s)
	if !ok {
		return Value{}, false
	}
	return d.value(), true
}

// parseDecimal reads digits with an optional sign, point and exponent.
func parseDecimal(s string) (decimal, bool) {
	d := decimal{coefficient: new(big.Int)}
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		d.negative, s = true, rest
	} else {
		s = strings.TrimPrefix(s, "+")
	}
	if mantissa, exponent, ok := strings.Cut(s, "e"); ok {
		n, err := strconv.Atoi(exponent)
		if err != nil || n < minExponent || n > maxExponent+maxDigits {
			return decimal{}, false
		}
		d.exponent, s = n, mantissa
	}
	whole, fraction, _ := strings.Cut(s, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if whole+fraction == "" || len(digits) > maxDigits || strings.Trim(digits, "0123456789") != "" {
		return decimal{}, false
	}
	d.exponent -= len(fraction)
	if digits != "" {
		d.coefficient.SetString(digits, 10)
	}
	return d.rounded()
}

// decimalOf returns a number of any kind as a decimal; ok is false for infinity, NaN and what is no number. A
// double becomes the shortest decimal that reads back equal, so 0.1 is one tenth.
func decimalOf(v Value) (d decimal, ok bool) {
	switch v.kind {
	case Int, Uint:
		i := v.integer()
		return decimal{negative: i.negative, coefficient: new(big.Int).SetUint64(i.magnitude)}, true
	case Float:
		f := v.Float()
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return decimal{}, false
		}
		return parseDecimal(strconv.FormatFloat(f, 'e', -1, 64))
	case Decimal:
		return decodeDecimal(v.text)
	}
	return decimal{}, false
}

// decodeDecimal reads two encodings. AMQP asks for the binary integer decimal form (IEEE 754-2008 §3.5.2); the .NET
// clients write a form of their own for a decimal128.
func decodeDecimal(raw string) (decimal, bool) {
	if raw == "" {
		return decimal{}, false
	}
	content := []byte(raw[1:])
	switch {
	case raw[0] == codeDecimal32 && len(content) == 4:
		return binaryDecimal(content, 8, 101)
	case raw[0] == codeDecimal64 && len(content) == 8:
		return binaryDecimal(content, 10, 398)
	case raw[0] == codeDecimal128 && len(content) == decimal128Bytes:
		if d, ok := dotnetDecimal(content); ok {
			return d, true
		}
		return binaryDecimal(content, 14, exponentBias)
	}
	return decimal{}, false
}

// dotnetDecimal reads a decimal128 of the .NET clients: an integer of 96 bits and a scale of 0 to 28. The biased
// exponent of the scale lies in the first byte from bit 9 on, and in the second one from bit 0 on. In the IEEE form
// these two bytes mean an exponent near -4600, which no client writes.
func dotnetDecimal(b []byte) (decimal, bool) {
	const first, maxScale = (exponentBias - 28) >> 9, 28
	scale := exponentBias&0x7f - int(b[1]>>1)
	if b[0]&0x7f != first || b[1]&1 != 0 || b[2] != 0 || b[3] != 0 || scale < 0 || scale > maxScale {
		return decimal{}, false
	}
	return decimal{negative: b[0]&0x80 != 0, coefficient: new(big.Int).SetBytes(b[4:]), exponent: -scale}, true
}

// binaryDecimal reads a sign, an exponent of so many bits with its bias, and the coefficient behind it. Where the
// two bits behind the sign are set the exponent lies two bits further on; such a coefficient exceeds the
// number of digits and means 0. Four bits that are set mean infinity or NaN.
func binaryDecimal(b []byte, exponentBits, bias uint) (decimal, bool) {
	n := new(big.Int).SetBytes(b)
	width := uint(len(b)) * 8
	d := decimal{negative: n.Bit(int(width)-1) == 1, coefficient: new(big.Int)}
	at := width - 1 - exponentBits
	large := b[0]&0x60 == 0x60
	if large {
		if b[0]&0x78 == 0x78 {
			return decimal{}, false
		}
		at -= 2
	}
	mask := new(big.Int).Lsh(big.NewInt(1), exponentBits)
	exponent := new(big.Int).Rsh(n, at)
	exponent.And(exponent, mask.Sub(mask, big.NewInt(1)))
	d.exponent = int(exponent.Int64()) - int(bias)
	mask.Lsh(big.NewInt(1), at)
	d.coefficient.And(n, mask.Sub(mask, big.NewInt(1)))
	if large { // an implied 100 stands before the bits that are there
		d.coefficient.Or(d.coefficient, new(big.Int).Lsh(big.NewInt(4), at))
	}
	if digits(d.coefficient) > map[int]int{4: 7, 8: 16, decimal128Bytes: maxDigits}[len(b)] {
		d.coefficient.SetInt64(0) // §3.5.2: not canonical
	}
	return d, true
}

// value encodes d as a decimal128 in binary integer decimal form. d is rounded.
func (d decimal) value() Value {
	n := new(big.Int).Lsh(big.NewInt(int64(d.exponent+exponentBias)), 113)
	n.Or(n, d.coefficient)
	if d.negative {
		n.SetBit(n, 127, 1)
	}
	b := make([]byte, 1+decimal128Bytes)
	b[0] = codeDecimal128
	n.FillBytes(b[1:])
	return Value{kind: Decimal, text: string(b)}
}

// text writes d as XML Schema does, with all digits of its exponent where it is not positive.
func (d decimal) text() string {
	s := d.coefficient.String()
	switch {
	case d.exponent > 0:
		if d.coefficient.Sign() != 0 {
			s += strings.Repeat("0", d.exponent)
		}
	case d.exponent < 0:
		if missing := 1 - d.exponent - len(s); missing > 0 {
			s = strings.Repeat("0", missing) + s
		}
		s = s[:len(s)+d.exponent] + "." + s[len(s)+d.exponent:]
	}
	if d.negative {
		return "-" + s
	}
	return s
}

// DecimalText returns a Decimal as XML Schema writes it; ok is false for infinity, NaN and other kinds.
func (v Value) DecimalText() (text string, ok bool) {
	if v.kind != Decimal {
		return "", false
	}
	d, ok := decodeDecimal(v.text)
	if !ok {
		return "", false
	}
	return d.text(), true
}

// Decimal128 returns the 16 bytes of a decimal128, as the client wrote them where it wrote that type.
func (v Value) Decimal128() (b [decimal128Bytes]byte, ok bool) {
	if v.kind != Decimal {
		return b, false
	}
	raw := v.text
	if raw == "" || raw[0] != codeDecimal128 {
		d, ok := decodeDecimal(raw)
		if !ok {
			return b, false
		}
		raw = d.value().text
	}
	return b, copy(b[:], raw[1:]) == decimal128Bytes
}

// digits returns the number of decimal digits of n, which is not negative; 0 has none.
func digits(n *big.Int) int {
	if n.Sign() == 0 {
		return 0
	}
	return len(n.String())
}

func power10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// rounded brings d into the bounds of a decimal128: to 34 digits, half to even. It reports false on overflow.
func (d decimal) rounded() (decimal, bool) {
	n := digits(d.coefficient)
	if n == 0 {
		d.exponent = min(max(d.exponent, minExponent), maxExponent)
		return d, true
	}
	if cut := max(n-maxDigits, minExponent-d.exponent); cut > 0 {
		d.coefficient = roundedQuotient(d.coefficient, power10(min(cut, n+1)))
		d.exponent += cut
		if digits(d.coefficient) > maxDigits { // 99…9 has become 100…0
			d.coefficient.Quo(d.coefficient, big.NewInt(10))
			d.exponent++
		}
	}
	if pad := d.exponent - maxExponent; pad > 0 {
		if pad+digits(d.coefficient) > maxDigits {
			return decimal{}, false
		}
		d.coefficient = new(big.Int).Mul(d.coefficient, power10(pad))
		d.exponent = maxExponent
	}
	return d, true
}

// roundedQuotient returns n / by, rounded half to even.
func roundedQuotient(n, by *big.Int) *big.Int {
	q, rest := new(big.Int).QuoRem(n, by, new(big.Int))
	switch c := rest.Lsh(rest, 1).Cmp(by); {
	case c > 0, c == 0 && q.Bit(0) == 1:
		q.Add(q, big.NewInt(1))
	}
	return q
}

// compare returns -1, 0 or 1. It scales by 34 digits at most: numbers of other magnitudes need no scaling.
func (d decimal) compare(e decimal) int {
	sign := d.sign()
	if other := e.sign(); sign != other || sign == 0 {
		switch {
		case sign < other:
			return -1
		case sign > other:
			return 1
		}
		return 0
	}
	a, b := d.exponent+digits(d.coefficient), e.exponent+digits(e.coefficient)
	switch {
	case a < b:
		return -sign
	case a > b:
		return sign
	}
	x, y, _ := aligned(d, e)
	return sign * x.Cmp(y)
}

func (d decimal) sign() int {
	if d.negative {
		return -d.coefficient.Sign()
	}
	return d.coefficient.Sign()
}

// aligned returns both coefficients at the smaller exponent.
func aligned(d, e decimal) (x, y *big.Int, exponent int) {
	x, y, exponent = d.coefficient, e.coefficient, min(d.exponent, e.exponent)
	if gap := d.exponent - exponent; gap > 0 {
		x = new(big.Int).Mul(x, power10(gap))
	}
	if gap := e.exponent - exponent; gap > 0 {
		y = new(big.Int).Mul(y, power10(gap))
	}
	return x, y, exponent
}

// maxGap is the largest difference of exponents at which two decimals are aligned. Beyond it the smaller number
// is below half of the last of 34 digits of the larger one.
const maxGap = 3 * maxDigits

func (d decimal) add(e decimal) (decimal, bool) {
	switch {
	case d.coefficient.Sign() == 0 && e.coefficient.Sign() == 0:
		return decimal{coefficient: new(big.Int), exponent: min(d.exponent, e.exponent)}, true
	case d.coefficient.Sign() == 0:
		return e, true
	case e.coefficient.Sign() == 0:
		return d, true
	case d.exponent-e.exponent > maxGap:
		return d, true
	case e.exponent-d.exponent > maxGap:
		return e, true
	}
	x, y, exponent := aligned(d, e)
	if d.negative {
		x = new(big.Int).Neg(x)
	}
	if e.negative {
		y = new(big.Int).Neg(y)
	}
	sum := new(big.Int).Add(x, y)
	return decimal{sum.Sign() < 0, sum.Abs(sum), exponent}.rounded()
}

func (d decimal) negated() decimal {
	d.negative = !d.negative
	return d
}

func (d decimal) multiply(e decimal) (decimal, bool) {
	return decimal{d.negative != e.negative, new(big.Int).Mul(d.coefficient, e.coefficient),
		d.exponent + e.exponent}.rounded()
}

// divide returns 34 digits of the quotient; e is not zero. A quotient that ends sooner has no zeros behind it.
func (d decimal) divide(e decimal) (decimal, bool) {
	shift := max(0, maxDigits+2+digits(e.coefficient)-digits(d.coefficient))
	n := new(big.Int).Mul(d.coefficient, power10(shift))
	q, rest := new(big.Int).QuoRem(n, e.coefficient, new(big.Int))
	out := decimal{d.negative != e.negative, q, d.exponent - e.exponent - shift}
	if rest.Sign() != 0 { // one more digit keeps a tie from being seen where there is none
		out.coefficient.Add(out.coefficient.Mul(out.coefficient, big.NewInt(10)), big.NewInt(1))
		out.exponent--
		return out.rounded()
	}
	ten, part := big.NewInt(10), new(big.Int)
	for out.exponent < d.exponent-e.exponent {
		shorter, last := new(big.Int).QuoRem(out.coefficient, ten, part)
		if last.Sign() != 0 {
			break
		}
		out.coefficient = shorter
		out.exponent++
	}
	return out.rounded()
}

// remainder has the sign of d, as in C#; e is not zero. It reports false if the quotient has too many digits.
func (d decimal) remainder(e decimal) (decimal, bool) {
	switch {
	case d.exponent+digits(d.coefficient)-e.exponent-digits(e.coefficient) > maxGap:
		return decimal{}, false
	case d.exponent+digits(d.coefficient) < e.exponent+digits(e.coefficient):
		return d, true
	}
	x, y, exponent := aligned(d, e)
	return decimal{d.negative, new(big.Int).Rem(x, y), exponent}.rounded()
}

// compareDecimals compares two numbers of which one is a decimal. A decimal that is infinite or NaN is unknown;
// a double that is infinite is beyond every decimal, and NaN equals nothing.
func compareDecimals(o op, a, b Value) Value {
	d, finite := decimalOf(a)
	e, also := decimalOf(b)
	if finite && also {
		return ordered(o, d.compare(e))
	}
	if a.kind == Decimal && !finite || b.kind == Decimal && !also {
		return Value{}
	}
	x, y := a.Float(), b.Float() // the decimal's is 0, which lies between the infinities
	if x != x || y != y {
		return OfBool(o == opNotEqual)
	}
	return ordered(o, cmp.Compare(x, y))
}

// computeDecimals computes with two numbers of which one is a decimal; the result is one.
func computeDecimals(o op, a, b Value) (v Value, failure string) {
	d, ok := decimalOf(a)
	e, also := decimalOf(b)
	if !ok || !also {
		return Value{}, "a number is infinite or not a number"
	}
	if (o == opDivide || o == opModulo) && e.coefficient.Sign() == 0 {
		return Value{}, divideByZero
	}
	switch o {
	case opAdd:
		d, ok = d.add(e)
	case opSubtract:
		d, ok = d.add(e.negated())
	case opMultiply:
		d, ok = d.multiply(e)
	case opDivide:
		d, ok = d.divide(e)
	case opModulo:
		d, ok = d.remainder(e)
	}
	if !ok {
		return Value{}, overflow
	}
	return d.value(), ""
}
