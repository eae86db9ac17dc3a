package rule

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Kind is the type of a [Value].
type Kind uint8

// The kinds. AMQP's types map to them as follows. Integers from byte to long and their unsigned forms become Int
// (Uint beyond its range), float and double Float. A string, symbol or char becomes String, uuid Guid, timestamp
// DateTime, boolean Bool, decimals Decimal. Binary and everything else become Binary.
const (
	Null Kind = iota // null, missing or unknown
	Bool
	Int     // 64 bits, signed
	Uint    // 64 bits, above the range of Int
	Float   // 64 bits
	Decimal // a decimal number of up to 34 digits, or the infinite and NaN of its type
	String
	Guid
	DateTime // ticks of 100 ns since 1970-01-01 UTC
	Duration // ticks of 100 ns
	Binary   // opaque: equal to itself in a correlation filter, else unknown
)

var kindNames = [...]string{
	Null: textNull, Bool: textBool, Int: textInt, Uint: textInt, Float: textFloat,
	Decimal: textDecimal, String: textString, Guid: textGuid, DateTime: textDateTime,
	Duration: textDuration, Binary: textBinary,
}

// String returns the kind as messages of errors call it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Constructors of binary values (AMQP 1.0 §1.6.19).
const (
	codeBinary8  = 0xa0
	codeBinary32 = 0xb0
)

// Times have the range of the clients' types: 0001-01-01 to 9999-12-31 in ticks.
const (
	ticksPerMilli = 10_000
	minDateTime   = -621_355_968_000_000_000
	maxDateTime   = 2_534_023_007_999_999_999
)

// Value is a property or the result of an expression. The zero Value is null. Values are small and
// passed by value; equal bytes are equal values.
type Value struct {
	kind Kind
	bits uint64 // Bool, Int, Uint, Float, DateTime, Duration; the first half of a Guid
	low  uint64 // the second half of a Guid
	text string // String; the encoded AMQP value, with its constructor, of Decimal and Binary
}

// OfBool returns a boolean.
func OfBool(b bool) Value {
	if b {
		return Value{kind: Bool, bits: 1}
	}
	return Value{kind: Bool}
}

// OfInt returns an integer.
func OfInt(n int64) Value { return Value{kind: Int, bits: uint64(n)} }

// OfUint returns an integer: an Int if it is in its range.
func OfUint(n uint64) Value {
	if n <= math.MaxInt64 {
		return OfInt(int64(n))
	}
	return Value{kind: Uint, bits: n}
}

// OfFloat returns a double.
func OfFloat(f float64) Value { return Value{kind: Float, bits: math.Float64bits(f)} }

// OfString returns a string. It may be a view into the message's bytes.
func OfString(s string) Value { return Value{kind: String, text: s} }

// OfGuid returns a guid from its bytes in the order of its text.
func OfGuid(g [16]byte) Value {
	high, low := binary.BigEndian.Uint64(g[:8]), binary.BigEndian.Uint64(g[8:])
	return Value{kind: Guid, bits: high, low: low}
}

// OfBinary returns an opaque value from its AMQP encoding, the constructor included.
func OfBinary(raw string) Value { return Value{kind: Binary, text: raw} }

// OfBytes returns a binary value of some bytes.
func OfBytes(b []byte) Value {
	if len(b) < 256 {
		return OfBinary(string([]byte{codeBinary8, byte(len(b))}) + string(b))
	}
	head := binary.BigEndian.AppendUint32([]byte{codeBinary32}, uint32(len(b)))
	return OfBinary(string(head) + string(b))
}

// Bytes returns the content of a binary value; all of it if it has no constructor.
func (v Value) Bytes() []byte {
	raw := v.text
	switch {
	case v.kind != Binary:
		return nil
	case len(raw) >= 2 && raw[0] == codeBinary8 && int(raw[1]) == len(raw)-2:
		return []byte(raw[2:])
	case len(raw) >= 5 && raw[0] == codeBinary32 && uint64(binary.BigEndian.Uint32([]byte(raw[1:5]))) == uint64(len(raw)-5):
		return []byte(raw[5:])
	}
	return []byte(raw)
}

// OfDateTime returns the time so many ticks of 100 ns after 1970-01-01 UTC, moved into the range of
// the years 1 to 9999.
func OfDateTime(ticks int64) Value {
	return Value{kind: DateTime, bits: uint64(min(max(ticks, minDateTime), maxDateTime))}
}

// OfTimestamp returns the time of an AMQP timestamp (§1.6.17), milliseconds since 1970-01-01 UTC.
func OfTimestamp(millis int64) Value { return OfDateTime(ticksOf(millis)) }

// OfDuration returns a duration in ticks of 100 ns.
func OfDuration(ticks int64) Value { return Value{kind: Duration, bits: uint64(ticks)} }

// OfMillis returns a duration in milliseconds, moved into the range of a duration.
func OfMillis(millis int64) Value { return OfDuration(ticksOf(millis)) }

func ticksOf(millis int64) int64 {
	const limit = math.MaxInt64 / ticksPerMilli
	switch {
	case millis > limit:
		return math.MaxInt64
	case millis < -limit:
		return math.MinInt64
	}
	return millis * ticksPerMilli
}

// Kind returns the type of v.
func (v Value) Kind() Kind { return v.kind }

// IsNull reports whether v is null, missing or unknown.
func (v Value) IsNull() bool { return v.kind == Null }

// Bool returns a boolean, false if v is none.
func (v Value) Bool() bool { return v.kind == Bool && v.bits == 1 }

// Int returns an Int, or 0.
func (v Value) Int() int64 {
	if v.kind != Int {
		return 0
	}
	return int64(v.bits)
}

// Uint returns an integer that is not negative, or 0.
func (v Value) Uint() uint64 {
	if v.kind == Uint || v.kind == Int && int64(v.bits) >= 0 {
		return v.bits
	}
	return 0
}

// Float returns a number of any kind as a double, or 0.
func (v Value) Float() float64 {
	switch v.kind {
	case Float:
		return math.Float64frombits(v.bits)
	case Int:
		return float64(int64(v.bits))
	case Uint:
		return float64(v.bits)
	}
	return 0
}

// Text returns a String, or "".
func (v Value) Text() string {
	if v.kind != String {
		return ""
	}
	return v.text
}

// Raw returns the bytes of a Decimal or Binary, or "".
func (v Value) Raw() string {
	if v.kind != Decimal && v.kind != Binary {
		return ""
	}
	return v.text
}

// Guid returns the bytes of a Guid, or zeros.
func (v Value) Guid() (g [16]byte) {
	if v.kind == Guid {
		binary.BigEndian.PutUint64(g[:8], v.bits)
		binary.BigEndian.PutUint64(g[8:], v.low)
	}
	return g
}

// Ticks returns a DateTime or Duration in ticks of 100 ns, or 0.
func (v Value) Ticks() int64 {
	if v.kind != DateTime && v.kind != Duration {
		return 0
	}
	return int64(v.bits)
}

// Millis returns a DateTime or Duration in milliseconds, rounded towards zero, or 0.
func (v Value) Millis() int64 { return v.Ticks() / ticksPerMilli }

func (v Value) numeric() bool  { return v.kind == Int || v.kind == Uint || v.kind == Float }
func (v Value) number() bool   { return v.numeric() || v.kind == Decimal }
func (v Value) integral() bool { return v.kind == Int || v.kind == Uint }
