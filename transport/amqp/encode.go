package amqp

import (
	"encoding/binary"
	"math"
)

// AppendValue writes a value of one of the Go types that the type list of this package names. The error wraps
// ErrDecode for a Go type that is none of them, such as a plain int, whose AMQP type would be a guess. It wraps
// ErrDecode too for an Array whose items do not fit its code, and for too deep a nesting; dst is then returned as it
// was.
func AppendValue(dst []byte, v any) ([]byte, error) {
	out, err := appendValue(dst, v, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func appendValue(dst []byte, v any, depth int) ([]byte, error) {
	switch v := v.(type) {
	case Raw:
		if v == nil {
			return AppendNull(dst), nil
		}
		return append(dst, v...), nil
	case string:
		return AppendString(dst, v), nil
	case Symbol:
		return AppendSymbol(dst, v), nil
	case []byte:
		return AppendBinary(dst, v), nil
	case List, Map, Array, Described, []int64, []UUID, []Timestamp, []Symbol, []string:
		if depth >= MaxDepth {
			return nil, errDepth
		}
		return appendCompound(dst, v, depth+1)
	}
	return appendPrimitive(dst, v)
}

func appendPrimitive(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return AppendNull(dst), nil
	case bool:
		return AppendBool(dst, v), nil
	case uint8:
		return AppendUbyte(dst, v), nil
	case uint16:
		return AppendUshort(dst, v), nil
	case uint32:
		return AppendUint(dst, v), nil
	case uint64:
		return AppendUlong(dst, v), nil
	case int8:
		return append(dst, tByte, byte(v)), nil
	case int16:
		return AppendShort(dst, v), nil
	case int32:
		return AppendInt(dst, v), nil
	case int64:
		return AppendLong(dst, v), nil
	case float32:
		return binary.BigEndian.AppendUint32(append(dst, tFloat), math.Float32bits(v)), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, tDouble), math.Float64bits(v)), nil
	case Char:
		return binary.BigEndian.AppendUint32(append(dst, tChar), uint32(v)), nil
	case Decimal32:
		return append(append(dst, tDecimal32), v[:]...), nil
	case Decimal64:
		return append(append(dst, tDecimal64), v[:]...), nil
	case Decimal128:
		return append(append(dst, tDecimal128), v[:]...), nil
	case Timestamp:
		return AppendTimestamp(dst, v), nil
	case UUID:
		return AppendUUID(dst, v), nil
	}
	return nil, badf("%T is no AMQP type", v)
}

func appendCompound(dst []byte, v any, depth int) (out []byte, err error) {
	switch v := v.(type) {
	case List:
		if len(v) == 0 {
			return append(dst, tList0), nil
		}
		dst, start := beginCompound(dst)
		for _, item := range v {
			if dst, err = appendValue(dst, item, depth); err != nil {
				return nil, err
			}
		}
		return endCompound(dst, start, tList8, len(v)), nil
	case Map:
		dst, start := beginCompound(dst)
		for _, p := range v {
			if dst, err = appendValue(dst, p.Key, depth); err != nil {
				return nil, err
			}
			if dst, err = appendValue(dst, p.Value, depth); err != nil {
				return nil, err
			}
		}
		return endCompound(dst, start, tMap8, 2*len(v)), nil
	case Described:
		if dst, err = appendAnyDescriptor(append(dst, tDescribed), v.Descriptor); err != nil {
			return nil, err
		}
		return appendValue(dst, v.Value, depth)
	case Array:
		return appendArray(dst, v, depth)
	case []int64:
		return AppendArray(dst, v), nil
	case []UUID:
		return AppendArray(dst, v), nil
	case []Timestamp:
		return AppendArray(dst, v), nil
	case []Symbol:
		return AppendArray(dst, v), nil
	case []string:
		return AppendArray(dst, v), nil
	}
	return nil, badf("%T is no AMQP type", v)
}

// appendAnyDescriptor writes a descriptor, which may be any primitive.
func appendAnyDescriptor(dst []byte, d any) ([]byte, error) {
	switch d := d.(type) {
	case string:
		return AppendString(dst, d), nil
	case Symbol:
		return AppendSymbol(dst, d), nil
	case []byte:
		return AppendBinary(dst, d), nil
	case Raw:
		return append(dst, d...), nil
	}
	return appendPrimitive(dst, d)
}

// AppendArray writes an array of longs, uuids, timestamps, symbols or strings. An empty one has the
// constructor of its elements too, AMQP 1.0 §1.6.24.
func AppendArray[T int64 | UUID | Timestamp | Symbol | string](dst []byte, items []T) []byte {
	dst, start := beginCompound(dst)
	switch items := any(items).(type) {
	case []int64:
		dst = append(dst, tLong)
		for _, v := range items {
			dst = binary.BigEndian.AppendUint64(dst, uint64(v))
		}
	case []Timestamp:
		dst = append(dst, tTimestamp)
		for _, v := range items {
			dst = binary.BigEndian.AppendUint64(dst, uint64(v))
		}
	case []UUID:
		dst = append(dst, tUUID)
		for _, v := range items {
			dst = append(dst, v[:]...)
		}
	case []Symbol:
		dst = appendTexts(dst, items, tSymbol8)
	case []string:
		dst = appendTexts(dst, items, tString8)
	}
	return endCompound(dst, start, tArray8, len(items))
}

// appendTexts writes the constructor and the elements of an array of text, all of them with a
// length of one byte or all of four.
func appendTexts[T string | Symbol](dst []byte, items []T, code byte) []byte {
	var scratch []byte
	text := func(v T) []byte {
		if code&^wide == tSymbol8 {
			scratch = AppendSymbol(scratch[:0], Symbol(v))
		} else {
			scratch = AppendString(scratch[:0], string(v))
		}
		from, to, _ := extent(scratch[0], scratch[1:])
		return scratch[1+from : 1+to]
	}
	for _, v := range items {
		if len(text(v)) > math.MaxUint8 {
			code |= wide
			break
		}
	}
	dst = append(dst, code)
	for _, v := range items {
		t := text(v)
		dst = append(appendLength(dst, code, len(t)), t...)
	}
	return dst
}

// appendLength writes the length of a text behind a constructor that is written already.
func appendLength(dst []byte, code byte, n int) []byte {
	if code&wide == 0 {
		return append(dst, byte(n))
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

func appendArray(dst []byte, a Array, depth int) ([]byte, error) {
	dst, start := beginCompound(dst)
	if a.Descriptor != nil {
		var err error
		if dst, err = appendAnyDescriptor(append(dst, tDescribed), a.Descriptor); err != nil {
			return nil, err
		}
	}
	if width(a.Code) < 0 && sizeField(a.Code) == 0 {
		return nil, badf("constructor 0x%02x does not exist", a.Code)
	}
	dst = append(dst, a.Code)
	var scratch []byte
	for _, item := range a.Items {
		var err error
		if scratch, err = appendValue(scratch[:0], item, depth); err != nil {
			return nil, err
		}
		if dst, err = appendElement(dst, a.Code, scratch); err != nil {
			return nil, err
		}
	}
	return endCompound(dst, start, tArray8, len(a.Items)), nil
}

// appendElement writes an encoded value as an element of an array whose constructor is code. The value gets the form
// of that code, without a constructor of its own.
func appendElement(dst []byte, code byte, value []byte) ([]byte, error) {
	own := value[0]
	if own == tDescribed {
		return nil, badf("an array of described values keeps the descriptor once")
	}
	from, to, err := extent(own, value[1:])
	if err != nil {
		return nil, err
	}
	content := value[1+from : 1+to]
	mismatch := func() error {
		return badf("an item of constructor 0x%02x in an array of 0x%02x", own, code)
	}
	switch {
	case own == code:
		return append(dst, value[1:1+to]...), nil
	case sizeField(code) == 0 || own == tList0 && code&^wide == tList8:
		return appendFixedElement(dst, code, own, content, mismatch)
	case code&^wide != own&^wide:
		return nil, mismatch()
	case code&^wide < tList8 && (code&wide != 0 || len(content) <= math.MaxUint8):
		return append(appendLength(dst, code, len(content)), content...), nil
	case code&wide == 0:
		return nil, mismatch() // too large for sizes of one byte
	}
	// A compound in its short form, as an element with sizes of four bytes.
	dst = appendLength(dst, code, len(content)-1+4)
	dst = appendLength(dst, code, int(content[0]))
	return append(dst, content[1:]...), nil
}

// appendFixedElement widens or narrows a value that has more than one form of fixed width.
func appendFixedElement(
	dst []byte, code, own byte, content []byte, mismatch func() error,
) ([]byte, error) {
	b := func(v bool) byte {
		if v {
			return 1
		}
		return 0
	}
	if own == tList0 && sizeField(code) > 0 { // size and count of an empty list
		return appendLength(appendLength(dst, code, sizeField(code)), code, 0), nil
	}
	switch v := decodePrimitive(own, content).(type) {
	case bool:
		if code == tBool {
			return append(dst, b(v)), nil
		}
	case uint32:
		if code == tUint {
			return binary.BigEndian.AppendUint32(dst, v), nil
		}
		if code == tSmallUint && v <= math.MaxUint8 {
			return append(dst, byte(v)), nil
		}
	case uint64:
		if code == tUlong {
			return binary.BigEndian.AppendUint64(dst, v), nil
		}
		if code == tSmallUlong && v <= math.MaxUint8 {
			return append(dst, byte(v)), nil
		}
	case int32:
		if code == tInt {
			return binary.BigEndian.AppendUint32(dst, uint32(v)), nil
		}
	case int64:
		if code == tLong {
			return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
		}
	}
	return nil, mismatch()
}
