package stored

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/busbar-mq/busbar/fsm/rule"
)

// Constructors of primitive types that rules read (AMQP 1.0 §1.6), and the sizes that the upper half of a code stands
// for (§1.2).
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBoolean    = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = 0x98
	codeBinary8    = 0xa0
	codeString8    = 0xa1
	codeSymbol8    = 0xa3
	codeBinary32   = 0xb0
	codeString32   = 0xb1
	codeSymbol32   = 0xb3
	codeList0      = 0x45
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
)

// timespan is what stands in front of a duration in ticks: clients write it as a described long.
const timespan = "\x00\xa3\x16com.microsoft:timespan"

// maxDescribed bounds how often a value may be described by another one.
const maxDescribed = 4

// Value is one encoded value: its constructor and its content. Described values, lists, maps and arrays are taken
// whole and looked into by nobody. Its parts are views of the text that it was read from.
type Value struct {
	code    byte
	content string
	whole   string
}

// ReadValue takes the first value off s; ok is false if there is none that is well formed as far as it is looked at.
func ReadValue(s string) (v Value, rest string, ok bool) {
	at := 0
	for range maxDescribed {
		if at >= len(s) || s[at] != codeDescribed {
			break
		}
		descriptor, _, ok := nextPlain(s[at+1:])
		if !ok {
			return Value{}, "", false
		}
		at += 1 + len(descriptor.whole)
	}
	v, rest, ok = nextPlain(s[at:])
	if at > 0 {
		v.code = codeDescribed
	}
	v.whole = s[:at+len(v.whole)]
	return v, rest, ok
}

// valueBytes is the size of the first value of b.
func valueBytes(b []byte) (n int, ok bool) {
	for range maxDescribed {
		if n >= len(b) || b[n] != codeDescribed {
			break
		}
		_, end, ok := extent(b[n+1:])
		if !ok {
			return 0, false
		}
		n += 1 + end
	}
	_, end, ok := extent(b[n:])
	return n + end, ok
}

// nextPlain takes a value that is not described.
func nextPlain(s string) (v Value, rest string, ok bool) {
	from, end, ok := extent(s)
	if !ok {
		return Value{}, "", false
	}
	return Value{code: s[0], content: s[from:end], whole: s[:end]}, s[end:], true
}

// text is encoded bytes, in either of the types that Go has for them.
type text interface{ string | []byte }

// extent returns where the content of a value that is not described begins and ends.
func extent[T text](s T) (from, end int, ok bool) {
	if len(s) == 0 {
		return 0, 0, false
	}
	size, from := uint64(0), 1
	switch s[0] >> 4 {
	case 0x4:
	case 0x5:
		size = 1
	case 0x6:
		size = 2
	case 0x7:
		size = 4
	case 0x8:
		size = 8
	case 0x9:
		size = 16
	case 0xa, 0xc, 0xe:
		if len(s) < 2 {
			return 0, 0, false
		}
		size, from = uint64(s[1]), 2
	case 0xb, 0xd, 0xf:
		if len(s) < 5 {
			return 0, 0, false
		}
		size, from = bigEndian(s[1:5]), 5
	default: // a described value, too
		return 0, 0, false
	}
	if size > uint64(len(s)-from) {
		return 0, 0, false
	}
	return from, from + int(size), true
}

func bigEndian[T text](s T) (n uint64) {
	for i := range len(s) {
		n = n<<8 | uint64(s[i])
	}
	return n
}

// Text returns a string or symbol.
func (v *Value) Text() (string, bool) {
	switch v.code {
	case codeString8, codeString32, codeSymbol8, codeSymbol32:
		return v.content, true
	}
	return "", false
}

// elements returns the encoded elements of a list or map.
func (v *Value) elements() (string, bool) {
	switch v.code {
	case codeList0:
		return "", true
	case codeList8, codeMap8:
		if len(v.content) >= 1 {
			return v.content[1:], true
		}
	case codeList32, codeMap32:
		if len(v.content) >= 4 {
			return v.content[4:], true
		}
	}
	return "", false
}

// Rule is what the rule language makes of the value. A malformed inner value is opaque: a Decimal or Binary of the rule
// language holds the encoded value with its constructor.
func (v *Value) Rule() rule.Value {
	n := uint64(0)
	if c := v.code; c >= 0x50 && c < 0x90 {
		n = bigEndian(v.content)
	}
	switch v.code {
	case codeNull:
		return rule.Value{}
	case codeDescribed:
		if ticks, found := strings.CutPrefix(v.whole, timespan); found {
			if plain, _, ok := nextPlain(ticks); ok && (plain.code == codeLong || plain.code == codeSmallLong) {
				return rule.OfDuration(plain.Rule().Int())
			}
		}
	case codeTrue, codeFalse, codeBoolean:
		return rule.OfBool(v.code == codeTrue || n != 0)
	case codeUint0, codeUlong0:
		return rule.OfInt(0)
	case codeUbyte, codeUshort, codeUint, codeSmallUint, codeUlong, codeSmallUlong:
		return rule.OfUint(n)
	case codeByte, codeSmallInt, codeSmallLong:
		return rule.OfInt(int64(int8(n)))
	case codeShort:
		return rule.OfInt(int64(int16(n)))
	case codeInt:
		return rule.OfInt(int64(int32(n)))
	case codeLong:
		return rule.OfInt(int64(n))
	case codeFloat:
		return rule.OfFloat(float64(math.Float32frombits(uint32(n))))
	case codeDouble:
		return rule.OfFloat(math.Float64frombits(n))
	case codeChar:
		return rule.OfString(string(rune(n)))
	case codeTimestamp:
		return rule.OfTimestamp(int64(n))
	case codeUUID:
		return rule.OfGuid([16]byte([]byte(v.content)))
	case codeDecimal32, codeDecimal64, codeDecimal128:
		return rule.OfDecimal(v.whole)
	case codeString8, codeString32, codeSymbol8, codeSymbol32:
		if utf8.ValidString(v.content) {
			return rule.OfString(v.content)
		}
	case codeBinary32:
		return rule.OfBytes([]byte(v.content)) // as short a form as a rule has it, so that equal bytes are equal
	}
	return rule.OfBinary(v.whole)
}

// IDText is the one text of a message or correlation id: what duplicate detection compares.
func (v *Value) IDText() (string, bool) {
	switch v.code {
	case codeString8, codeString32:
		return v.content, true
	case codeUlong0:
		return "0", true
	case codeSmallUlong, codeUlong:
		return strconv.FormatUint(bigEndian(v.content), 10), true
	case codeUUID:
		s := hex.EncodeToString([]byte(v.content))
		return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:], true
	case codeBinary8, codeBinary32:
		return hex.EncodeToString([]byte(v.content)), true
	}
	return "", false
}

// AppendValue appends what a rule computed as an AMQP value.
func AppendValue(dst []byte, v rule.Value) []byte {
	switch v.Kind() {
	case rule.Bool:
		if v.Bool() {
			return append(dst, codeTrue)
		}
		return append(dst, codeFalse)
	case rule.Int:
		return binary.BigEndian.AppendUint64(append(dst, codeLong), uint64(v.Int()))
	case rule.Uint:
		return binary.BigEndian.AppendUint64(append(dst, codeUlong), v.Uint())
	case rule.Float:
		return binary.BigEndian.AppendUint64(append(dst, codeDouble), math.Float64bits(v.Float()))
	case rule.String:
		return appendText(dst, codeString8, v.Text())
	case rule.Guid:
		g := v.Guid()
		return append(append(dst, codeUUID), g[:]...)
	case rule.DateTime:
		return binary.BigEndian.AppendUint64(append(dst, codeTimestamp), uint64(v.Millis()))
	case rule.Duration:
		dst = append(append(dst, timespan...), codeLong)
		return binary.BigEndian.AppendUint64(dst, uint64(v.Ticks()))
	case rule.Decimal, rule.Binary:
		if _, rest, ok := ReadValue(v.Raw()); ok && rest == "" {
			return append(dst, v.Raw()...)
		}
		return appendText(dst, codeBinary8, v.Raw()) // of a rule's parameter, not of a message
	}
	return append(dst, codeNull)
}

// AppendString appends a string.
func AppendString(dst []byte, s string) []byte { return appendText(dst, codeString8, s) }

// AppendSymbol appends a symbol.
func AppendSymbol(dst []byte, s string) []byte { return appendText(dst, codeSymbol8, s) }

// appendText appends a string or symbol, whose short code is given.
func appendText(dst []byte, code byte, s string) []byte {
	if len(s) < 256 {
		return append(append(dst, code, byte(len(s))), s...)
	}
	dst = binary.BigEndian.AppendUint32(append(dst, code+0x10), uint32(len(s)))
	return append(dst, s...)
}
