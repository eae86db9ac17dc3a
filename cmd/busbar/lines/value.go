package lines

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// A value of AMQP is null, true, false or a text where JSON has the same. All others are an object with one field, whose
// name is the type: {"int":5}. See docs/formats/lines.md.

// exact is the largest integer that every reader of JSON keeps. Larger ones are written as texts.
const exact = 1 << 53

// millisLayout is how a timestamp is written: UTC, with the milliseconds that AMQP counts.
const millisLayout = "2006-01-02T15:04:05.000Z07:00"

// typed is a value with the name of its type.
func typed(name string, v any) map[string]any { return map[string]any{name: v} }

// fromValue turns a value that [amqp.DecodeValue] has made into one for [json.Marshal].
func fromValue(v any) any {
	switch v := v.(type) {
	case nil, bool, string:
		return v
	case uint8:
		return typed("ubyte", v)
	case uint16:
		return typed("ushort", v)
	case uint32:
		return typed("uint", v)
	case uint64:
		if v > exact {
			return typed("ulong", strconv.FormatUint(v, 10))
		}
		return typed("ulong", v)
	case int8:
		return typed("byte", v)
	case int16:
		return typed("short", v)
	case int32:
		return typed("int", v)
	case int64:
		if v > exact || v < -exact {
			return typed("long", strconv.FormatInt(v, 10))
		}
		return typed("long", v)
	case float32:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return typed("float", fmt.Sprintf("0x%08x", math.Float32bits(v)))
		}
		return typed("float", json.Number(strconv.FormatFloat(float64(v), 'g', -1, 32)))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return typed("double", fmt.Sprintf("0x%016x", math.Float64bits(v)))
		}
		return typed("double", json.Number(strconv.FormatFloat(v, 'g', -1, 64)))
	}
	return fromOther(v)
}

// fromOther is fromValue for what is no number and no text.
func fromOther(v any) any {
	switch v := v.(type) {
	case amqp.Decimal32:
		return typed("decimal32", "0x"+hex.EncodeToString(v[:]))
	case amqp.Decimal64:
		return typed("decimal64", "0x"+hex.EncodeToString(v[:]))
	case amqp.Decimal128:
		return typed("decimal128", "0x"+hex.EncodeToString(v[:]))
	case amqp.Char:
		return typed("char", uint32(v))
	case amqp.Timestamp:
		return typed("timestamp", timeText(v))
	case amqp.UUID:
		return typed("uuid", v.String())
	case amqp.Symbol:
		return typed("symbol", string(v))
	case []byte:
		return fromBytes(v)
	case amqp.List:
		return typed("list", fromItems(v))
	case amqp.Map:
		return typed("map", fromPairs(v, fromValue))
	case amqp.Described:
		return typed("described", map[string]any{"descriptor": fromValue(v.Descriptor), "value": fromValue(v.Value)})
	}
	return fromArray(v)
}

// timeText writes a timestamp as RFC 3339, or as a number of milliseconds where that has no form for it.
func timeText(t amqp.Timestamp) any {
	at := time.UnixMilli(int64(t)).UTC()
	if y := at.Year(); y < 0 || y > 9999 {
		return json.Number(strconv.FormatInt(int64(t), 10))
	}
	return at.Format(millisLayout)
}

// fromBytes writes a binary as text if it is one, so that people can read it.
func fromBytes(b []byte) any {
	if len(b) > 0 && utf8.Valid(b) {
		return typed("text", string(b))
	}
	return typed("binary", base64.StdEncoding.EncodeToString(b))
}

func fromItems[T any](items []T) []any {
	out := make([]any, 0, len(items))
	for _, item := range items {
		out = append(out, fromValue(item))
	}
	return out
}

// fromPairs writes a map as a list of pairs, because the order of an AMQP map counts.
func fromPairs(m amqp.Map, key func(any) any) []any {
	out := make([]any, 0, len(m))
	for _, p := range m {
		out = append(out, []any{key(p.Key), fromValue(p.Value)})
	}
	return out
}

// fromArray writes an array of any type.
func fromArray(v any) any {
	array := func(of string, items []any) any { return typed("array", map[string]any{"of": of, "items": items}) }
	switch v := v.(type) {
	case []int64:
		return array("long", fromItems(v))
	case []amqp.Timestamp:
		return array("timestamp", fromItems(v))
	case []amqp.UUID:
		return array("uuid", fromItems(v))
	case []amqp.Symbol:
		return array("symbol", fromItems(v))
	case []string:
		return array("string", fromItems(v))
	case amqp.Array:
		a := map[string]any{"of": nameOf(v.Code), "items": fromItems(v.Items)}
		if _, isNull := v.Descriptor.(amqp.Raw); isNull {
			a["descriptor"] = nil
		} else if v.Descriptor != nil {
			a["descriptor"] = fromValue(v.Descriptor)
		}
		return typed("array", a)
	}
	return nil // DecodeValue makes nothing else
}

// elements are the types of the elements of arrays, with the constructor that is written for them.
var elements = [...]struct {
	name  string
	code  byte   // written; the widest of the type, so every element fits
	codes []byte // others of the type
}{
	{"null", 0x40, nil},
	{"boolean", 0x56, []byte{0x41, 0x42}},
	{"ubyte", 0x50, nil}, {"ushort", 0x60, nil},
	{"uint", 0x70, []byte{0x43, 0x52}}, {"ulong", 0x80, []byte{0x44, 0x53}},
	{"byte", 0x51, nil}, {"short", 0x61, nil},
	{"int", 0x71, []byte{0x54}}, {"long", 0x81, []byte{0x55}},
	{"float", 0x72, nil}, {"double", 0x82, nil},
	{"decimal32", 0x74, nil}, {"decimal64", 0x84, nil}, {"decimal128", 0x94, nil},
	{"char", 0x73, nil}, {"timestamp", 0x83, nil}, {"uuid", 0x98, nil},
	{"binary", 0xb0, []byte{0xa0}}, {"string", 0xb1, []byte{0xa1}}, {"symbol", 0xb3, []byte{0xa3}},
	{"list", 0xd0, []byte{0x45, 0xc0}}, {"map", 0xd1, []byte{0xc1}}, {"array", 0xf0, []byte{0xe0}},
}

// nameOf is the type that a constructor stands for.
func nameOf(code byte) string {
	for i := range elements {
		e := &elements[i]
		if e.code == code {
			return e.name
		}
		for _, c := range e.codes {
			if c == code {
				return e.name
			}
		}
	}
	return fmt.Sprintf("0x%02x", code) // there is none: amqp knows the same constructors
}

// codeOf is the constructor for a type; ok is false if there is no such type.
func codeOf(name string) (code byte, ok bool) {
	for i := range elements {
		if elements[i].name == name {
			return elements[i].code, true
		}
	}
	return 0, false
}
