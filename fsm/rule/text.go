package rule

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

// The text form of a value: its kind, a colon, and the value. It is for ever, because the catalog
// holds it. Durations and times are ticks; doubles are the shortest decimal that reads back equal.
const (
	textNull     = "null"
	textBool     = "boolean"
	textInt      = "integer"
	textFloat    = "double"
	textDecimal  = "decimal"
	textString   = "string"
	textGuid     = "guid"
	textDateTime = "dateTime"
	textDuration = "duration"
	textBinary   = "binary"
)

// MarshalText returns the stable text form of v, such as "integer:5" or "string:red".
func (v Value) MarshalText() ([]byte, error) { return v.appendText(nil), nil }

func (v Value) appendText(dst []byte) []byte {
	dst = append(append(dst, kindNames[v.kind]...), ':')
	switch v.kind {
	case Bool:
		return strconv.AppendBool(dst, v.bits == 1)
	case Int, DateTime, Duration:
		return strconv.AppendInt(dst, int64(v.bits), 10)
	case Uint:
		return strconv.AppendUint(dst, v.bits, 10)
	case Float:
		return strconv.AppendFloat(dst, math.Float64frombits(v.bits), 'g', -1, 64)
	case String:
		return append(dst, v.text...)
	case Decimal, Binary:
		return hex.AppendEncode(dst, []byte(v.text))
	case Guid:
		return append(dst, guidText(v)...)
	}
	return dst
}

// UnmarshalText reads what MarshalText wrote.
func (v *Value) UnmarshalText(text []byte) error {
	kind, rest, ok := strings.Cut(string(text), ":")
	if !ok {
		return sourceErrorf("value %.40q: expected kind:value", text)
	}
	got, ok := parseValue(kind, rest)
	if !ok {
		return sourceErrorf("value %.40q: not of its kind", text)
	}
	*v = got
	return nil
}

func parseValue(kind, rest string) (Value, bool) {
	switch kind {
	case textNull:
		return Value{}, rest == ""
	case textBool:
		return OfBool(rest == "true"), rest == "true" || rest == "false"
	case textInt:
		return parseInteger(rest)
	case textFloat:
		f, err := strconv.ParseFloat(rest, 64)
		return OfFloat(f), err == nil
	case textString:
		return OfString(rest), true
	case textGuid:
		return ParseGuid(rest)
	case textDateTime:
		n, err := strconv.ParseInt(rest, 10, 64)
		return OfDateTime(n), err == nil && n >= minDateTime && n <= maxDateTime
	case textDuration:
		n, err := strconv.ParseInt(rest, 10, 64)
		return OfDuration(n), err == nil
	case textDecimal, textBinary:
		raw, err := hex.DecodeString(rest)
		if kind == textDecimal {
			return OfDecimal(string(raw)), err == nil
		}
		return OfBinary(string(raw)), err == nil
	}
	return Value{}, false
}

func parseInteger(s string) (Value, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return OfInt(n), true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return OfUint(n), err == nil
}

// guidText returns the 36 characters of a guid.
func guidText(v Value) string {
	g := v.Guid()
	h := hex.EncodeToString(g[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// ParseGuid reads the 36 characters of a guid.
func ParseGuid(s string) (Value, bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return Value{}, false
	}
	var g [16]byte
	_, err := hex.Decode(g[:], []byte(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:]))
	return OfGuid(g), err == nil
}

// String returns the text form, for people and tests.
func (v Value) String() string { return string(v.appendText(nil)) }
