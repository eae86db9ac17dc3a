package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// Constructors, AMQP 1.0 §1.6. The high nibble tells the width: 4x no bytes, 5x one, 6x two, 7x four, 8x eight, 9x
// sixteen, Ax and Bx a length of one or four bytes. Cx and Dx stand for a compound with size and count of one or four
// bytes each. Ex and Fx stand for an array with the same.
const (
	tDescribed  = 0x00
	tNull       = 0x40
	tTrue       = 0x41
	tFalse      = 0x42
	tUint0      = 0x43
	tUlong0     = 0x44
	tList0      = 0x45
	tUbyte      = 0x50
	tByte       = 0x51
	tSmallUint  = 0x52
	tSmallUlong = 0x53
	tSmallInt   = 0x54
	tSmallLong  = 0x55
	tBool       = 0x56
	tUshort     = 0x60
	tShort      = 0x61
	tUint       = 0x70
	tInt        = 0x71
	tFloat      = 0x72
	tChar       = 0x73
	tDecimal32  = 0x74
	tUlong      = 0x80
	tLong       = 0x81
	tDouble     = 0x82
	tTimestamp  = 0x83
	tDecimal64  = 0x84
	tDecimal128 = 0x94
	tUUID       = 0x98
	tBinary8    = 0xa0
	tString8    = 0xa1
	tSymbol8    = 0xa3
	tBinary32   = 0xb0
	tString32   = 0xb1
	tSymbol32   = 0xb3
	tList8      = 0xc0
	tMap8       = 0xc1
	tList32     = 0xd0
	tMap32      = 0xd1
	tArray8     = 0xe0
	tArray32    = 0xf0

	// wide added to a constructor with one-byte sizes gives the one with four-byte sizes.
	wide = 0x10
)

// width returns how many bytes follow a constructor of fixed width, or -1 for one that has a size
// field or does not exist.
func width(code byte) int {
	switch code {
	case tNull, tTrue, tFalse, tUint0, tUlong0, tList0:
		return 0
	case tUbyte, tByte, tSmallUint, tSmallUlong, tSmallInt, tSmallLong, tBool:
		return 1
	case tUshort, tShort:
		return 2
	case tUint, tInt, tFloat, tChar, tDecimal32:
		return 4
	case tUlong, tLong, tDouble, tTimestamp, tDecimal64:
		return 8
	case tDecimal128, tUUID:
		return 16
	}
	return -1
}

// sizeField returns how many bytes the size field of a constructor has, 0 for one without.
func sizeField(code byte) int {
	switch code {
	case tBinary8, tString8, tSymbol8, tList8, tMap8, tArray8:
		return 1
	case tBinary32, tString32, tSymbol32, tList32, tMap32, tArray32:
		return 4
	}
	return 0
}

// badf returns an error that wraps ErrDecode.
func badf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDecode, fmt.Sprintf(format, args...))
}

// The errors of the innermost readers are made once, so that a flood of bad frames costs little.
var (
	errShort  = fmt.Errorf("%w: the value ends beyond its bytes", ErrDecode)
	errUTF8   = fmt.Errorf("%w: a string is not UTF-8", ErrDecode)
	errASCII  = fmt.Errorf("%w: a symbol is not ASCII", ErrDecode)
	errBool   = fmt.Errorf("%w: a boolean is neither 0 nor 1", ErrDecode)
	errChar   = fmt.Errorf("%w: a char is not a code point", ErrDecode)
	errDepth  = fmt.Errorf("%w: values are nested too deeply", ErrDecode)
	errBudget = fmt.Errorf("%w: more elements than the bytes may hold", ErrDecode)
	errCount  = fmt.Errorf("%w: size and count of a compound disagree", ErrDecode)
)

// extent returns where the content of a value begins, behind its constructor's size field, and
// where it ends, given the bytes behind the constructor. The content of a compound begins with its
// count.
func extent(code byte, b []byte) (from, to int, err error) {
	if w := width(code); w >= 0 {
		if w > len(b) {
			return 0, 0, errShort
		}
		return 0, w, nil
	}
	switch n := sizeField(code); {
	case n == 0:
		return 0, 0, badf("constructor 0x%02x does not exist", code)
	case n > len(b):
		return 0, 0, errShort
	case n == 1:
		from, to = 1, 1+int(b[0])
	default:
		size := binary.BigEndian.Uint32(b)
		if uint64(size) > uint64(len(b)) {
			return 0, 0, errShort
		}
		from, to = 4, 4+int(size)
	}
	if to > len(b) {
		return 0, 0, errShort
	}
	return from, to, nil
}

// valueSize returns the size of the value at the start of b, constructor included. It looks at
// constructors and sizes only, never at contents, and so costs the same for any value.
func valueSize(b []byte) (int, error) {
	at := 0
	for range MaxDepth {
		if at >= len(b) {
			return 0, errShort
		}
		code := b[at]
		at++
		if code != tDescribed {
			_, to, err := extent(code, b[at:])
			return at + to, err
		}
		_, n, err := readDescriptor(b[at:])
		if err != nil {
			return 0, err
		}
		at += n
	}
	return 0, errDepth
}

// checkText checks the content of a string, symbol, boolean or char. Other contents need no check.
func checkText(code byte, content []byte) error {
	switch code {
	case tString8, tString32:
		if !utf8.Valid(content) {
			return errUTF8
		}
	case tSymbol8, tSymbol32:
		if !ascii(content) {
			return errASCII
		}
	case tBool:
		if content[0] > 1 {
			return errBool
		}
	case tChar:
		if c := binary.BigEndian.Uint32(content); c > utf8.MaxRune || !utf8.ValidRune(rune(c)) {
			return errChar
		}
	}
	return nil
}

func ascii[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// AppendNull writes null.
func AppendNull(dst []byte) []byte { return append(dst, tNull) }

// AppendBool writes a boolean.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, tTrue)
	}
	return append(dst, tFalse)
}

// AppendUbyte writes a ubyte.
func AppendUbyte(dst []byte, v uint8) []byte { return append(dst, tUbyte, v) }

// AppendUshort writes a ushort.
func AppendUshort(dst []byte, v uint16) []byte {
	return binary.BigEndian.AppendUint16(append(dst, tUshort), v)
}

// AppendUint writes a uint in its shortest form.
func AppendUint(dst []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(dst, tUint0)
	case v <= math.MaxUint8:
		return append(dst, tSmallUint, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, tUint), v)
}

// AppendUlong writes a ulong in its shortest form.
func AppendUlong(dst []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(dst, tUlong0)
	case v <= math.MaxUint8:
		return append(dst, tSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, tUlong), v)
}

// AppendShort writes a short.
func AppendShort(dst []byte, v int16) []byte {
	return binary.BigEndian.AppendUint16(append(dst, tShort), uint16(v))
}

// AppendInt writes an int in its shortest form.
func AppendInt(dst []byte, v int32) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(dst, tSmallInt, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, tInt), uint32(v))
}

// AppendLong writes a long in its shortest form.
func AppendLong(dst []byte, v int64) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(dst, tSmallLong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, tLong), uint64(v))
}

// AppendTimestamp writes a timestamp.
func AppendTimestamp(dst []byte, v Timestamp) []byte {
	return binary.BigEndian.AppendUint64(append(dst, tTimestamp), uint64(v))
}

// AppendUUID writes a uuid.
func AppendUUID(dst []byte, v UUID) []byte { return append(append(dst, tUUID), v[:]...) }

// AppendBinary writes a binary; nil is written as an empty one.
func AppendBinary(dst, v []byte) []byte { return append(appendSize(dst, tBinary8, len(v)), v...) }

// AppendString writes a string. Bytes that are not UTF-8 are written as U+FFFD, so that no bytes of ours are ever
// refused as malformed.
func AppendString(dst []byte, v string) []byte {
	if !utf8.ValidString(v) {
		v = string([]rune(v))
	}
	return append(appendSize(dst, tString8, len(v)), v...)
}

// AppendSymbol writes a symbol. A character that is not ASCII is written as a question mark.
func AppendSymbol(dst []byte, v Symbol) []byte {
	dst = append(appendSize(dst, tSymbol8, len(v)), v...)
	if !ascii(string(v)) {
		toASCII(dst[len(dst)-len(v):])
	}
	return dst
}

func toASCII(b []byte) {
	for i, c := range b {
		if c >= utf8.RuneSelf {
			b[i] = '?'
		}
	}
}

// appendSize writes the constructor and length of a binary, string or symbol.
func appendSize(dst []byte, code8 byte, size int) []byte {
	if size <= math.MaxUint8 {
		return append(dst, code8, byte(size))
	}
	return binary.BigEndian.AppendUint32(append(dst, code8+wide), uint32(size))
}

// A compound is written behind the three bytes that its short form needs. Most stay short; one that
// grows beyond 255 bytes or elements is moved by the six bytes that the long form needs more.
const (
	shortCompound = 3
	longCompound  = 9
)

// beginCompound reserves the constructor, size and count of a list, map or array and returns where.
func beginCompound(dst []byte) (out []byte, start int) {
	return append(dst, 0, 0, 0), len(dst)
}

// endCompound fills in what beginCompound reserved. For an array the constructor of the elements
// belongs to the content, not to count.
func endCompound(dst []byte, start int, code8 byte, count int) []byte {
	content := len(dst) - start - shortCompound
	if content+1 <= math.MaxUint8 && count <= math.MaxUint8 {
		dst[start], dst[start+1], dst[start+2] = code8, byte(content+1), byte(count)
		return dst
	}
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	copy(dst[start+longCompound:], dst[start+shortCompound:len(dst)-longCompound+shortCompound])
	dst[start] = code8 + wide
	binary.BigEndian.PutUint32(dst[start+1:], uint32(content+4))
	binary.BigEndian.PutUint32(dst[start+5:], uint32(count))
	return dst
}

// A value too large to be copied is written in pieces. These write what stands before its content, always in
// the long form: count items or pairs, or a binary, of content bytes behind the start.
const (
	// MapStartBytes is the size of the start of a map or list.
	MapStartBytes = longCompound
	// BinaryStartBytes is the size of the start of a binary.
	BinaryStartBytes = 5
)

// AppendMapStart begins a map whose content has that many bytes.
func AppendMapStart(dst []byte, pairs, content int) []byte {
	return appendStart(dst, tMap8, 2*pairs, content)
}

// AppendListStart begins a list whose content has that many bytes.
func AppendListStart(dst []byte, items, content int) []byte {
	return appendStart(dst, tList8, items, content)
}

func appendStart(dst []byte, code8 byte, count, content int) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, code8+wide), uint32(content+4))
	return binary.BigEndian.AppendUint32(dst, uint32(count))
}

// AppendBinaryStart begins a binary of size bytes.
func AppendBinaryStart(dst []byte, size int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, tBinary8+wide), uint32(size))
}
