package amqp

import (
	"encoding/binary"
	"unicode/utf8"
)

// fields reads the fields of a composite type, AMQP 1.0 §1.4, one after the other. Fields that a
// sender left out at the end read as null. The first error sticks; the caller looks at it once, at
// the end.
type fields struct {
	b     []byte // what is not read yet
	left  int    // fields in b
	total int
	depth int // of the fields
	bud   budget
	err   error
}

// openFields starts to read the described list at the start of b, which must have code want, and
// returns the list's end.
func openFields(b []byte, want Code, depth int, bud budget) (f fields, size int, err error) {
	c, n, err := readCode(b)
	if err != nil {
		return f, 0, err
	}
	if c != want {
		return f, 0, badf("descriptor 0x%02x where 0x%02x belongs", uint8(c), uint8(want))
	}
	return openList(b, n, depth, bud)
}

// openList starts to read the list at b[n:].
func openList(b []byte, n, depth int, bud budget) (f fields, size int, err error) {
	if depth >= MaxDepth {
		return f, 0, errDepth
	}
	if n >= len(b) {
		return f, 0, errShort
	}
	code := b[n]
	n++
	if code == tList0 {
		return fields{depth: depth + 1, bud: bud}, n, nil
	}
	if code != tList8 && code != tList32 {
		return f, 0, badf("constructor 0x%02x where a list belongs", code)
	}
	from, to, err := extent(code, b[n:])
	if err != nil {
		return f, 0, err
	}
	count, rest, err := bud.list(code, b[n+from:n+to])
	if err != nil {
		return f, 0, err
	}
	return fields{b: rest, left: count, total: count, depth: depth + 1, bud: bud}, n + to, nil
}

// end returns the first error, or one if the list has more than the fields that were read.
func (f *fields) end() error {
	if f.err == nil && f.left > 0 {
		f.err = badf("%d fields more than the type has", f.left)
	}
	if f.err == nil && len(f.b) > 0 {
		f.err = errCount
	}
	return f.err
}

func (f *fields) failf(format string, args ...any) {
	if f.err == nil {
		f.err = badf("field %d: "+format, append([]any{f.total - f.left}, args...)...)
	}
}

func (f *fields) wrong(code byte) { f.failf("constructor 0x%02x is of another type", code) }

// next returns the constructor of the next field, which its reader then takes. ok is false if the
// field is null, which next takes itself, or left out, or cannot be read.
func (f *fields) next() (code byte, ok bool) {
	if f.err != nil || f.left == 0 {
		return 0, false
	}
	f.left--
	if len(f.b) == 0 {
		f.err = errCount
		return 0, false
	}
	code = f.b[0]
	if code == tNull {
		f.b = f.b[1:]
		return 0, false
	}
	return code, true
}

// take consumes the constructor and n bytes behind it, and returns those.
func (f *fields) take(n int) []byte {
	if len(f.b) < 1+n {
		f.err = errShort
		f.b = nil
		return nil
	}
	v := f.b[1 : 1+n]
	f.b = f.b[1+n:]
	return v
}

// must returns the value of a mandatory field.
func must[T any](f *fields, v Opt[T]) T {
	if !v.Set {
		f.failf("is mandatory")
	}
	return v.Value
}

func (f *fields) uint32() Opt[uint32] {
	code, ok := f.next()
	if !ok {
		return Opt[uint32]{}
	}
	switch code {
	case tUint0:
		f.b = f.b[1:]
		return Some(uint32(0))
	case tSmallUint:
		if v := f.take(1); v != nil {
			return Some(uint32(v[0]))
		}
	case tUint:
		if v := f.take(4); v != nil {
			return Some(binary.BigEndian.Uint32(v))
		}
	default:
		f.wrong(code)
	}
	return Opt[uint32]{}
}

func (f *fields) uint64() Opt[uint64] {
	code, ok := f.next()
	if !ok {
		return Opt[uint64]{}
	}
	switch code {
	case tUlong0:
		f.b = f.b[1:]
		return Some(uint64(0))
	case tSmallUlong:
		if v := f.take(1); v != nil {
			return Some(uint64(v[0]))
		}
	case tUlong:
		if v := f.take(8); v != nil {
			return Some(binary.BigEndian.Uint64(v))
		}
	default:
		f.wrong(code)
	}
	return Opt[uint64]{}
}

// fixed returns the content of the next field, which must have the constructor want.
func (f *fields) fixed(want byte) []byte {
	code, ok := f.next()
	if !ok {
		return nil
	}
	if code != want {
		f.wrong(code)
		return nil
	}
	return f.take(width(want))
}

func (f *fields) uint16() Opt[uint16] {
	if v := f.fixed(tUshort); v != nil {
		return Some(binary.BigEndian.Uint16(v))
	}
	return Opt[uint16]{}
}

func (f *fields) uint8() Opt[uint8] {
	if v := f.fixed(tUbyte); v != nil {
		return Some(v[0])
	}
	return Opt[uint8]{}
}

func (f *fields) timestamp() Opt[Timestamp] {
	if v := f.fixed(tTimestamp); v != nil {
		return Some(Timestamp(binary.BigEndian.Uint64(v)))
	}
	return Opt[Timestamp]{}
}

func (f *fields) bool() Opt[bool] {
	code, ok := f.next()
	if !ok {
		return Opt[bool]{}
	}
	switch code {
	case tTrue, tFalse:
		f.b = f.b[1:]
		return Some(code == tTrue)
	case tBool:
		v := f.take(1)
		if v == nil {
			return Opt[bool]{}
		}
		if v[0] > 1 {
			f.err = errBool
		}
		return Some(v[0] == 1)
	}
	f.wrong(code)
	return Opt[bool]{}
}

// bytes returns the content of the next field, which must have constructor code8 or its wide form;
// nil if it is null.
func (f *fields) bytes(code8 byte) []byte {
	code, ok := f.next()
	if !ok {
		return nil
	}
	if code&^wide != code8 {
		f.wrong(code)
		return nil
	}
	from, to, err := extent(code, f.b[1:])
	if err != nil {
		f.err = err
		return nil
	}
	v := f.b[1+from : 1+to : 1+to]
	f.b = f.b[1+to:]
	return v
}

func (f *fields) binary() []byte { return f.bytes(tBinary8) }

// text returns a view of a string field, nil if it is null.
func (f *fields) text() []byte {
	v := f.bytes(tString8)
	if f.err == nil && !utf8.Valid(v) {
		f.err = errUTF8
	}
	return v
}

// symbolText returns a view of a symbol field, nil if it is null.
func (f *fields) symbolText() []byte {
	v := f.bytes(tSymbol8)
	if f.err == nil && !ascii(v) {
		f.err = errASCII
	}
	return v
}

func (f *fields) string() Opt[string] {
	if v := f.text(); v != nil {
		return Some(string(v))
	}
	return Opt[string]{}
}

func (f *fields) symbol() Opt[Symbol] {
	if v := f.symbolText(); v != nil {
		return Some(Symbol(v))
	}
	return Opt[Symbol]{}
}

// raw checks the next field in full and returns a view of it, nil if it is null.
func (f *fields) raw() Raw {
	if _, ok := f.next(); !ok {
		return nil
	}
	n, err := f.bud.checkValue(f.b, f.depth)
	if err != nil {
		f.err = err
		return nil
	}
	v := f.b[:n:n]
	f.b = f.b[n:]
	return Raw(v)
}

// rawMap is raw for a field that must be a map.
func (f *fields) rawMap() Raw {
	v := f.raw()
	if v != nil && v[0]&^wide != tMap8 {
		f.wrong(v[0])
		return nil
	}
	return v
}

// symbols reads a field of symbols that is declared "multiple": one symbol, an array of them, or
// null. An empty array is not nil.
func (f *fields) symbols() []Symbol {
	v := f.raw()
	if v == nil {
		return nil
	}
	switch v[0] {
	case tSymbol8, tSymbol32:
		s, _ := v.Text()
		return []Symbol{Symbol(s)}
	case tArray8, tArray32:
		a, _, err := DecodeValue(v)
		if err != nil {
			f.err = err
			return nil
		}
		if s, ok := a.([]Symbol); ok {
			return s
		}
		if a, ok := a.(Array); ok && a.Code == tNull && len(a.Items) == 0 {
			return []Symbol{}
		}
	}
	f.wrong(v[0])
	return nil
}
