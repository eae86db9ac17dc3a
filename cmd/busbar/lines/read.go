package lines

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// toValue turns what [json.Decoder] has read, with numbers as texts, into a value for [amqp.AppendValue].
func toValue(v any) (any, error) { return toValueAt(v, 0) }

func toValueAt(v any, depth int) (any, error) {
	if depth > amqp.MaxDepth {
		return nil, fmt.Errorf("values are nested deeper than %d", amqp.MaxDepth)
	}
	switch v := v.(type) {
	case nil, bool, string:
		return v, nil
	case json.Number:
		return nil, fmt.Errorf(`the number %s has no type: write {"int":%s}, or another type of AMQP`, v, v)
	case map[string]any:
		if len(v) != 1 {
			return nil, fmt.Errorf("a value is an object with %d fields, want one: the type", len(v))
		}
		for name, content := range v {
			out, err := toTyped(name, content, depth)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf(`a list has no type: write {"list":[...]}`)
}

// toTyped reads the content of a value of a named type.
func toTyped(name string, v any, depth int) (any, error) {
	switch name {
	case "ubyte":
		n, err := unsigned(v, 8)
		return uint8(n), err
	case "ushort":
		n, err := unsigned(v, 16)
		return uint16(n), err
	case "uint":
		n, err := unsigned(v, 32)
		return uint32(n), err
	case "ulong":
		return unsigned(v, 64)
	case "byte":
		n, err := signed(v, 8)
		return int8(n), err
	case "short":
		n, err := signed(v, 16)
		return int16(n), err
	case "int":
		n, err := signed(v, 32)
		return int32(n), err
	case "long":
		return signed(v, 64)
	case "float":
		bits, err := float(v, 32)
		return math.Float32frombits(uint32(bits)), err
	case "double":
		bits, err := float(v, 64)
		return math.Float64frombits(bits), err
	case "char":
		n, err := unsigned(v, 32)
		return amqp.Char(n), err
	case "timestamp":
		return toTime(v)
	}
	if out, known, err := toFixed(name, v); known {
		return out, err
	}
	return toCompound(name, v, depth)
}

// number is the text of a number, which may be written as a text in JSON, too.
func number(v any) (string, error) {
	switch v := v.(type) {
	case json.Number:
		return string(v), nil
	case string:
		return v, nil
	}
	return "", fmt.Errorf("want a number")
}

func unsigned(v any, bits int) (uint64, error) {
	text, err := number(v)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number from 0 of %d bits", text, bits)
	}
	return n, nil
}

func signed(v any, bits int) (int64, error) {
	text, err := number(v)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number of %d bits", text, bits)
	}
	return n, nil
}

// float returns the bits of a number with a fraction. A text that begins with 0x has them in hexadecimal digits.
func float(v any, size int) (uint64, error) {
	text, err := number(v)
	if err != nil {
		return 0, err
	}
	if digits, isBits := strings.CutPrefix(text, "0x"); isBits {
		bits, err := strconv.ParseUint(digits, 16, size)
		if err != nil || len(digits) != size/4 {
			return 0, fmt.Errorf("%q has not %d hexadecimal digits", text, size/4)
		}
		return bits, nil
	}
	f, err := strconv.ParseFloat(text, size)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of %d bits", text, size)
	}
	if size == 32 {
		return uint64(math.Float32bits(float32(f))), nil
	}
	return math.Float64bits(f), nil
}

func toTime(v any) (amqp.Timestamp, error) {
	if _, isNumber := v.(json.Number); isNumber {
		n, err := signed(v, 64)
		return amqp.Timestamp(n), err
	}
	text, ok := v.(string)
	if !ok {
		return 0, fmt.Errorf("want a time such as 2026-01-31T12:00:00.000Z, or a number of milliseconds")
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Nanosecond()%int(time.Millisecond) != 0 {
		return 0, fmt.Errorf("%q is no time such as 2026-01-31T12:00:00.000Z", text)
	}
	return amqp.Timestamp(at.UnixMilli()), nil
}

// toFixed reads the types whose content is a text. known is false for other types.
func toFixed(name string, v any) (out any, known bool, err error) {
	text, isText := v.(string)
	switch name {
	case "decimal32", "decimal64", "decimal128", "uuid", "symbol", "binary", "text":
	default:
		return nil, false, nil
	}
	if !isText {
		return nil, true, fmt.Errorf("want a text")
	}
	fixed := func(into []byte, digits string) error {
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) != len(into) {
			return fmt.Errorf("%q has not %d hexadecimal digits", text, 2*len(into))
		}
		copy(into, b)
		return nil
	}
	switch name {
	case "decimal32":
		var d amqp.Decimal32
		err = fixed(d[:], strings.TrimPrefix(text, "0x"))
		out = d
	case "decimal64":
		var d amqp.Decimal64
		err = fixed(d[:], strings.TrimPrefix(text, "0x"))
		out = d
	case "decimal128":
		var d amqp.Decimal128
		err = fixed(d[:], strings.TrimPrefix(text, "0x"))
		out = d
	case "uuid":
		var u amqp.UUID
		err = fixed(u[:], strings.ReplaceAll(text, "-", ""))
		out = u
	case "symbol":
		if strings.ContainsFunc(text, func(r rune) bool { return r > 0x7f }) {
			return nil, true, fmt.Errorf("%q is not ASCII", text)
		}
		out = amqp.Symbol(text)
	case "text":
		out = []byte(text)
	case "binary":
		b, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return nil, true, fmt.Errorf("is not base64: %w", err)
		}
		out = b
	}
	return out, true, err
}

func toCompound(name string, v any, depth int) (any, error) {
	switch name {
	case "list":
		items, err := toItems(v, depth)
		return amqp.List(items), err
	case "map":
		return toPairs(v, func(v any) (any, error) { return toValueAt(v, depth+1) }, depth)
	case "described":
		fields, ok := v.(map[string]any)
		_, has := fields["value"]
		if descriptor, named := fields["descriptor"]; ok && has && named && len(fields) == 2 {
			return toDescribed(descriptor, fields["value"], depth)
		}
		return nil, fmt.Errorf(`want {"descriptor":...,"value":...}`)
	case "array":
		return toArray(v, depth)
	}
	return nil, fmt.Errorf("there is no such type of AMQP")
}

func toItems(v any, depth int) ([]any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("want a list")
	}
	out := make([]any, 0, len(list))
	for i, item := range list {
		value, err := toValueAt(item, depth+1)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		out = append(out, value)
	}
	return out, nil
}

// toPairs reads a list of pairs, whose keys the caller reads.
func toPairs(v any, key func(any) (any, error), depth int) (amqp.Map, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("want a list of pairs: [[key,value],...]")
	}
	out := make(amqp.Map, 0, len(list))
	for i, item := range list {
		pair, ok := item.([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("pair %d: want [key,value]", i+1)
		}
		k, err := key(pair[0])
		if err != nil {
			return nil, fmt.Errorf("key of pair %d: %w", i+1, err)
		}
		value, err := toValueAt(pair[1], depth+1)
		if err != nil {
			return nil, fmt.Errorf("value of pair %d: %w", i+1, err)
		}
		out = append(out, amqp.Pair{Key: k, Value: value})
	}
	return out, nil
}

func toDescribed(descriptor, value any, depth int) (any, error) {
	d, err := toDescriptor(descriptor)
	if err != nil {
		return nil, err
	}
	inner, err := toValueAt(value, depth+1)
	return amqp.Described{Descriptor: d, Value: inner}, err
}

// toDescriptor reads a descriptor, which is a primitive.
func toDescriptor(v any) (any, error) {
	d, err := toValue(v)
	if err != nil {
		return nil, fmt.Errorf("descriptor: %w", err)
	}
	if _, err := amqp.AppendValue(nil, amqp.Described{Descriptor: d}); err != nil {
		return nil, fmt.Errorf("a descriptor is no list, map, array or described value")
	}
	return d, nil
}

func toArray(v any, depth int) (any, error) {
	fields, _ := v.(map[string]any)
	of, isText := fields["of"].(string)
	for name := range fields {
		if name != "of" && name != "items" && name != "descriptor" {
			return nil, fmt.Errorf("there is no field %q", name)
		}
	}
	if !isText {
		return nil, fmt.Errorf(`want {"of":"TYPE","items":[...]}`)
	}
	code, ok := codeOf(of)
	if !ok {
		return nil, fmt.Errorf("there is no type %q of AMQP", of)
	}
	items, err := toItems(fields["items"], depth)
	if err != nil {
		return nil, err
	}
	a := amqp.Array{Code: code, Items: items}
	if d, described := fields["descriptor"]; described {
		if a.Descriptor, err = toDescriptor(d); err != nil {
			return nil, err
		}
		if a.Descriptor == nil {
			a.Descriptor = amqp.Raw(amqp.AppendNull(nil))
		}
	}
	if _, err := amqp.AppendValue(nil, a); err != nil {
		return nil, fmt.Errorf("an item is not of type %s: %w", of, err)
	}
	return a, nil
}
