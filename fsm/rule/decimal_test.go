package rule

import (
	"encoding/hex"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func mustDecimal(t *testing.T, s string) Value {
	t.Helper()
	v, ok := ParseDecimal(s)
	if !ok {
		t.Fatalf("%q is no decimal", s)
	}
	return v
}

func fromHex(t *testing.T, s string) Value {
	t.Helper()
	raw, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return OfDecimal(string(raw))
}

// RUL-38: the encodings that clients write, and the text that each stands for.
func TestDecimalEncodings(t *testing.T) {
	cases := []struct{ hex, want string }{
		{"94303c000000000000000000000000007d", "1.25"}, // IEEE 754, 128 bits
		{"940c3c000000000000000000000000007d", "1.25"}, // as the .NET clients write it
		{"303c000000000000000000000000007d", "1.25"},   // the bytes of a decimal128 alone
		{"8c40000000000000000000000000002a", "-42"},    // .NET, negative, scale 0
		{"0c080000ffffffffffffffffffffffff", "7.9228162514264337593543950335"},
		{"b040000000000000000000000000002a", "-42"},
		{"30420000000000000000000000000001", "10"},
		{"7432000007", "0.7"},         // decimal32: exponent 100 less the bias of 101, coefficient 7
		{"8431c000000000007d", "125"}, // decimal64: exponent 398 less the bias of 398
		{"9478000000000000000000000000000000", "infinite"},
		{"947c000000000000000000000000000000", "infinite"},
		{"9460000000000000000000000000000001", "0"}, // a coefficient of more than 34 digits is not canonical
		{"74", "infinite"},
		{"", "infinite"},
		{"9430", "infinite"},
	}
	for _, c := range cases {
		v := fromHex(t, c.hex)
		got, ok := v.DecimalText()
		if c.want == "0" {
			d, fine := decodeDecimal(v.text)
			if !fine || d.coefficient.Sign() != 0 {
				t.Errorf("%s: got %q", c.hex, got)
			}
			continue
		}
		if ok != (c.want != "infinite") || ok && got != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.hex, got, ok, c.want)
		}
	}
}

// Every finite decimal64 whose coefficient needs the large form, and the same number as decimal128, are equal.
func TestLargeCoefficients(t *testing.T) {
	// Sign 0, bits 11, exponent 398 (0) in 10 bits, implied 100, then 51 bits of which the last is set: 2^53 + 1.
	bits := uint64(3)<<61 | uint64(398)<<51 | 1
	raw := []byte{codeDecimal64, 0, 0, 0, 0, 0, 0, 0, 0}
	big.NewInt(0).SetUint64(bits).FillBytes(raw[1:])
	if got, ok := OfDecimal(string(raw)).DecimalText(); !ok || got != "9007199254740993" {
		t.Errorf("got %q", got)
	}
	// decimal32: bits 11, exponent 101 (0) in 8 bits, implied 100, then 21 bits: 2^23 + 1.
	small := uint32(3)<<29 | uint32(101)<<21 | 1
	raw = []byte{codeDecimal32, byte(small >> 24), byte(small >> 16), byte(small >> 8), byte(small)}
	if got, ok := OfDecimal(string(raw)).DecimalText(); !ok || got != "8388609" {
		t.Errorf("got %q", got)
	}
}

// RUL-38: decimals in the language, beside integers and doubles.
func TestDecimalsAreNumbers(t *testing.T) {
	p := func(name, value string) Property { return Property{Name: "@" + name, Value: mustDecimal(t, value)} }
	parameters := []Property{p("five", "5"), p("tenth", "0.1"), p("price", "19.990"), p("neg", "-2.50"),
		p("big", "9999999999999999999999999999999999"), p("tiny", "0.0000000000000000000000000001"), p("zero", "0.00"),
		{Name: "@net", Value: fromHex(t, "0c3c000000000000000000000000007d")},
		{Name: "@inf", Value: fromHex(t, "9478000000000000000000000000000000")},
		{Name: "@infinite", Value: OfFloat(math.Inf(1))}, {Name: "@nan", Value: OfFloat(math.NaN())}}
	askAll(t, []question{
		{"@five = 5", isTrue}, {"@five > 2.5", isTrue}, {"@five <> 5.0", isFalse}, {"5 >= @five", isTrue},
		{"@tenth = 0.1", isTrue}, {"@tenth < 0.1", isFalse}, {"@tenth + @tenth + @tenth = 0.3", isTrue},
		{"@price = 19.99", isTrue}, {"@price * 2 = 39.98", isTrue}, {"@price * 1.1 = 21.989", isTrue},
		{"@neg < 0", isTrue}, {"-@neg = 2.5", isTrue}, {"+@neg = -2.5", isTrue}, {"@neg % 2 = -0.5", isTrue},
		{"@net = 1.25", isTrue}, {"@net + 1 = 2.25", isTrue}, {"@five / 4 = 1.25", isTrue}, {"@five / 3 * 3 = 5", isFalse},
		{"@five / 3 > 1.6666666666", isTrue}, {"@big > huge", isTrue}, {"@big + 1 > @big", isTrue},
		{"@big + @tiny = @big", isTrue}, {"@tiny > 0", isTrue}, {"@tiny - @tiny = @zero", isTrue},
		{"@price IN (1, 19.99)", isTrue}, {"Quantity / @five = 1.4", isTrue}, {"price = @five / 2", isTrue},
		{"@price = '19.99'", isFalse}, {"@price <> color", isTrue}, {"@price < color", unknown},
		{"@inf = @inf", unknown}, {"@inf > 1", unknown}, {"@infinite > @big", isTrue}, {"@nan <> @five", isTrue},
		{"@nan = @five", isFalse}, {"@five / @zero = 1", fails}, {"@five % 0 = 1", fails}, {"@inf + 1 = 1", fails},
		{"@five + color = 1", fails}, {"@five + nothing = 1", unknown}, {"@infinite * @five = 1", fails},
	}, parameters...)
}

// RUL-38, S-218: a correlation filter compares decimals by value, whoever wrote them.
func TestACorrelationFilterComparesDecimals(t *testing.T) {
	ieee, net := fromHex(t, "94303c000000000000000000000000007d"), fromHex(t, "0c3c000000000000000000000000007d")
	for _, c := range []struct {
		a, b Value
		want bool
	}{
		{ieee, net, true}, {net, mustDecimal(t, "1.2500"), true}, {net, OfFloat(1.25), true},
		{mustDecimal(t, "5.0"), OfInt(5), true}, {OfInt(6), mustDecimal(t, "5.0"), false},
		{net, OfString("1.25"), false}, {net, OfFloat(1.26), false},
		{fromHex(t, "9478000000000000000000000000000000"), fromHex(t, "9478000000000000000000000000000000"), true},
		{fromHex(t, "9478000000000000000000000000000000"), OfFloat(math.Inf(1)), false},
	} {
		f, err := NewCorrelation(&Correlation{Properties: []Property{{Name: "amount", Value: c.a}}})
		if err != nil {
			t.Fatal(err)
		}
		m := &message{user: []Property{{Name: "amount", Value: c.b}}}
		if got, err := f.Match(m); err != nil || got != c.want {
			t.Errorf("%v against %v: got %v, %v, want %v", c.a, c.b, got, err, c.want)
		}
	}
}

// RUL-38: an action computes decimals exactly and keeps the kind of a property that was one.
func TestActionsComputeDecimals(t *testing.T) {
	action, err := ParseAction("SET total = amount * 3; SET amount = 7", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &message{user: []Property{{Name: "amount", Value: mustDecimal(t, "0.10")}}}
	changes, err := action.Apply(m)
	if err != nil || len(changes) != 2 {
		t.Fatalf("%v, %v", changes, err)
	}
	for i, want := range []string{"0.30", "7"} {
		if got, ok := changes[i].Value.DecimalText(); !ok || got != want {
			t.Errorf("%s: got %q, want %q", changes[i].Name, got, want)
		}
	}
}

func TestDecimalTexts(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0.5": "-0.5", "+12.50": "12.50", "007": "7", ".5": "0.5", "5.": "5", "1e3": "1000", "12e-1": "1.2",
		"9999999999999999999999999999999999": "9999999999999999999999999999999999",
	} {
		if got, ok := mustDecimal(t, in).DecimalText(); !ok || got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
	for _, in := range []string{"", "-", ".", "1.2.3", "1a2", "e5", "1e", "1e99999", "NaN", "INF", "--1", "1 ",
		"10000000000000000000000000000000001"} {
		if v, ok := ParseDecimal(in); ok {
			t.Errorf("%q was read as %v", in, v)
		}
	}
}

// rat returns the exact value of a decimal.
func rat(t *testing.T, d decimal) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(d.text())
	if !ok {
		t.Fatal(d.text())
	}
	return r
}

// Sums, products, quotients and remainders of drawn decimals agree with exact fractions, to half of the last of 34
// digits; comparisons agree exactly, and every value reads back as it was written.
func TestDecimalsAgreeWithFractions(t *testing.T) {
	chance := rand.New(rand.NewPCG(7, 38))
	draw := func() decimal {
		n := new(big.Int).SetUint64(chance.Uint64())
		n.Mul(n, new(big.Int).SetUint64(chance.Uint64()>>(chance.Uint32()%64)))
		n.Mod(n, power10(chance.IntN(maxDigits)+1))
		return decimal{chance.IntN(2) == 0 && n.Sign() != 0, n, chance.IntN(60) - 40}
	}
	for range 20_000 {
		d, e := draw(), draw()
		if back, ok := decodeDecimal(d.value().text); !ok || back.text() != d.text() {
			t.Fatalf("%s reads back as %s", d.text(), back.text())
		}
		x, y := rat(t, d), rat(t, e)
		if got, want := d.compare(e), x.Cmp(y); got != want {
			t.Fatalf("%s against %s: %d, want %d", d.text(), e.text(), got, want)
		}
		near := func(op string, got decimal, ok bool, want *big.Rat) {
			t.Helper()
			if !ok || digits(got.coefficient) > maxDigits {
				t.Fatalf("%s %s %s: %s, %v", d.text(), op, e.text(), got.text(), ok)
			}
			off := new(big.Rat).Sub(rat(t, got), want)
			unit := rat(t, decimal{coefficient: big.NewInt(5), exponent: got.exponent - 1})
			if off.Abs(off).Cmp(unit) > 0 || digits(got.coefficient) < maxDigits && off.Sign() != 0 {
				t.Fatalf("%s %s %s = %s, off by %s", d.text(), op, e.text(), got.text(), off.FloatString(60))
			}
		}
		sum, ok := d.add(e)
		near("+", sum, ok, new(big.Rat).Add(x, y))
		product, ok := d.multiply(e)
		near("*", product, ok, new(big.Rat).Mul(x, y))
		if e.coefficient.Sign() == 0 {
			continue
		}
		quotient, ok := d.divide(e)
		near("/", quotient, ok, new(big.Rat).Quo(x, y))
		if rest, ok := d.remainder(e); ok {
			whole := new(big.Rat).Quo(x, y)
			cut := new(big.Int).Quo(whole.Num(), whole.Denom())
			near("%", rest, ok, new(big.Rat).Sub(x, new(big.Rat).Mul(y, new(big.Rat).SetInt(cut))))
		}
	}
}

// Results beyond the range of a decimal128 are failures, and below it they are zero.
func TestDecimalsOutOfRange(t *testing.T) {
	top := decimal{coefficient: power10(33), exponent: maxExponent}
	if _, ok := top.multiply(decimal{coefficient: big.NewInt(10)}); ok {
		t.Error("a product beyond the range was returned")
	}
	if d, ok := (decimal{coefficient: big.NewInt(1), exponent: minExponent}).multiply(
		decimal{coefficient: big.NewInt(1), exponent: -1}); !ok || d.coefficient.Sign() != 0 || d.exponent != minExponent {
		t.Errorf("got %v, %v", d, ok)
	}
	if d, ok := (decimal{coefficient: big.NewInt(7), exponent: maxExponent + 5}).rounded(); !ok || d.exponent != maxExponent {
		t.Errorf("got %v, %v", d, ok)
	}
}

// FuzzDecimal looks for panics and for values that change when they are written and read.
func FuzzDecimal(f *testing.F) {
	f.Add([]byte("\x94\x30\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x7d"), int64(3), 0.1)
	f.Add([]byte("\x74\x60\x00\x00\x01"), int64(math.MinInt64), math.Inf(-1))
	f.Fuzz(func(t *testing.T, raw []byte, n int64, x float64) {
		v := OfDecimal(string(raw))
		for _, w := range []Value{OfInt(n), OfFloat(x), v} {
			for o := range opNames {
				if o := op(o); o >= opAdd && o <= opModulo {
					if got, failure := computeDecimals(o, v, w); failure == "" {
						if _, ok := decodeDecimal(got.text); !ok {
							t.Fatalf("%v %s %v = %v", v, opNames[o], w, got)
						}
					}
				}
			}
			a, b := compareDecimals(opLess, v, w), compareDecimals(opGreaterEqual, v, w)
			if a.kind != b.kind || a.kind == Bool && a == b && x == x {
				t.Fatalf("%v and %v: %v, %v", v, w, a, b)
			}
		}
		if text, ok := v.DecimalText(); ok {
			again, ok := ParseDecimal(text)
			if d, _ := decodeDecimal(v.text); ok && !Equal(v, again) && digits(d.coefficient) <= maxDigits {
				t.Fatalf("%v became %v", v, again)
			}
		}
	})
}
