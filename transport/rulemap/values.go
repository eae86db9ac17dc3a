package rulemap

import (
	"unicode/utf8"

	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// valueOf turns an AMQP value into one that rules compare.
func valueOf(v any) (rule.Value, bool) {
	switch v := v.(type) {
	case nil:
		return rule.Value{}, true
	case bool:
		return rule.OfBool(v), true
	case string:
		return rule.OfString(v), true
	case amqp.Symbol:
		return rule.OfString(string(v)), true
	case amqp.Char:
		return rule.OfString(string(rune(v))), true
	case uint64:
		return rule.OfUint(v), true
	case float32:
		return rule.OfFloat(float64(v)), true
	case float64:
		return rule.OfFloat(v), true
	case amqp.UUID:
		return rule.OfGuid(v), true
	case amqp.Timestamp:
		return rule.OfTimestamp(int64(v)), true
	case []byte:
		return rule.OfBytes(v), true
	case amqp.Decimal32, amqp.Decimal64, amqp.Decimal128:
		raw, err := amqp.AppendValue(nil, v)
		return rule.OfDecimal(string(raw)), err == nil
	case amqp.Described:
		ticks, isTicks := v.Value.(int64)
		if name, ok := v.Descriptor.(amqp.Symbol); ok && name == SymbolTimeSpan && isTicks {
			return rule.OfDuration(ticks), true
		}
		return rule.Value{}, false
	}
	n, ok := amqp.ToInt64(v)
	return rule.OfInt(n), ok
}

// The types that a rule keeps for values whose kind alone would come back as another AMQP type (RUL-38). They are the
// words of XML Schema, which the management API shows, but for typeUint. The JavaScript client writes every positive
// integer as uint over AMQP and can read no unsignedInt over HTTP. So it gets an integer there.
const (
	typeUint = "uint"
	typeLong = "long"
)

// typeOf returns the type to keep of an AMQP value; "" if its kind says it.
func typeOf(v any) string {
	switch v.(type) {
	case int8:
		return "byte"
	case uint8:
		return "unsignedByte"
	case int16:
		return "short"
	case uint16:
		return "unsignedShort"
	case uint32:
		return typeUint
	case int64:
		return typeLong
	case uint64:
		return "unsignedLong"
	case float32:
		return "float"
	case amqp.Char:
		return "char"
	}
	return ""
}

// wireValue is the inverse of valueOf and typeOf. A value that came over HTTP has the type that was given there.
func wireValue(p *rule.Property) any {
	v := p.Value
	switch v.Kind() {
	case rule.Bool:
		return v.Bool()
	case rule.Int, rule.Uint:
		return wireInteger(v, p.Type)
	case rule.Float:
		if p.Type == "float" {
			return float32(v.Float())
		}
		return v.Float()
	case rule.String:
		if only, size := utf8.DecodeRuneInString(v.Text()); p.Type == "char" && size > 0 && size == len(v.Text()) {
			return amqp.Char(only)
		}
		return v.Text()
	case rule.Guid:
		return amqp.UUID(v.Guid())
	case rule.DateTime:
		return amqp.Timestamp(v.Millis())
	case rule.Duration:
		return amqp.Described{Descriptor: SymbolTimeSpan, Value: v.Ticks()}
	case rule.Binary:
		return v.Bytes()
	case rule.Decimal:
		if got, rest, err := amqp.DecodeValue([]byte(v.Raw())); err == nil && len(rest) == 0 {
			return got
		}
	}
	return nil
}

// wireInteger writes an integer as the type that it came as. Without one it is an int where it fits, as over HTTP.
func wireInteger(v rule.Value, kind string) any {
	n := v.Int()
	switch kind {
	case "byte":
		return int8(n)
	case "unsignedByte":
		return uint8(n)
	case "short":
		return int16(n)
	case "unsignedShort":
		return uint16(n)
	case typeUint, "unsignedInt":
		return uint32(n)
	case "unsignedLong":
		return v.Uint()
	case typeLong:
		return n
	}
	switch {
	case v.Kind() == rule.Uint:
		return v.Uint()
	case n == int64(int32(n)):
		return int32(n)
	}
	return n
}
