package amqp

import (
	"encoding/binary"
	"math"
)

// DecodeValue decodes the value at the start of b, and returns what follows it. The Go types are those that the type
// list of this package names. The value is a copy except for binaries, which are views. Errors wrap ErrDecode.
func DecodeValue(b []byte) (v any, rest []byte, err error) {
	left := newBudget(b)
	v, n, err := left.decodeValue(b, 0)
	if err != nil {
		return nil, nil, err
	}
	return v, b[n:], nil
}

func (left *budget) decodeValue(b []byte, depth int) (v any, n int, err error) {
	if len(b) == 0 {
		return nil, 0, errShort
	}
	if b[0] != tDescribed {
		v, n, err = left.decodeBody(b[0], b[1:], depth)
		return v, 1 + n, err
	}
	if depth >= MaxDepth {
		return nil, 0, errDepth
	}
	d, n, err := readDescriptor(b[1:])
	if err != nil {
		return nil, 0, err
	}
	inner, m, err := left.decodeValue(b[1+n:], depth+1)
	if err != nil {
		return nil, 0, err
	}
	return Described{Descriptor: d.value(), Value: inner}, 1 + n + m, nil
}

func (d descriptor) value() any {
	if d.symbol != nil {
		return Symbol(d.symbol)
	}
	if d.other != nil {
		code, content, _ := d.other.content()
		return decodePrimitive(code, content)
	}
	return d.number
}

// decodeBody decodes what follows a constructor and returns its size.
func (left *budget) decodeBody(code byte, b []byte, depth int) (v any, n int, err error) {
	from, to, err := extent(code, b)
	if err != nil {
		return nil, 0, err
	}
	content := b[from:to:to]
	switch code &^ wide {
	case tList8, tMap8, tArray8:
		if depth >= MaxDepth {
			return nil, 0, errDepth
		}
		v, err = left.decodeCompound(code, content, depth)
		return v, to, err
	}
	if err := checkText(code, content); err != nil {
		return nil, 0, err
	}
	return decodePrimitive(code, content), to, nil
}

// The values of one byte that would cost the most memory are made once. They are never changed.
var (
	emptyList   any = List{}
	emptyBinary any = []byte{}
)

// decodePrimitive makes the Go value of a primitive whose width and text have been checked.
func decodePrimitive(code byte, content []byte) any {
	switch code {
	case tTrue, tFalse:
		return code == tTrue
	case tBool:
		return content[0] == 1
	case tUint0:
		return uint32(0)
	case tUlong0:
		return uint64(0)
	case tList0:
		return emptyList
	case tUbyte:
		return content[0]
	case tByte:
		return int8(content[0])
	case tSmallUint:
		return uint32(content[0])
	case tSmallUlong:
		return uint64(content[0])
	case tSmallInt:
		return int32(int8(content[0]))
	case tSmallLong:
		return int64(int8(content[0]))
	case tUshort:
		return binary.BigEndian.Uint16(content)
	case tShort:
		return int16(binary.BigEndian.Uint16(content))
	case tUint:
		return binary.BigEndian.Uint32(content)
	case tInt:
		return int32(binary.BigEndian.Uint32(content))
	case tFloat:
		return math.Float32frombits(binary.BigEndian.Uint32(content))
	case tChar:
		return Char(binary.BigEndian.Uint32(content))
	case tDecimal32:
		return Decimal32(content)
	case tUlong:
		return binary.BigEndian.Uint64(content)
	case tLong:
		return int64(binary.BigEndian.Uint64(content))
	case tDouble:
		return math.Float64frombits(binary.BigEndian.Uint64(content))
	case tTimestamp:
		return Timestamp(binary.BigEndian.Uint64(content))
	case tDecimal64:
		return Decimal64(content)
	case tDecimal128:
		return Decimal128(content)
	case tUUID:
		return UUID(content)
	case tBinary8, tBinary32:
		if len(content) == 0 {
			return emptyBinary
		}
		return content
	case tString8, tString32:
		return string(content)
	case tSymbol8, tSymbol32:
		return Symbol(content)
	}
	return nil
}

func (left *budget) decodeCompound(code byte, content []byte, depth int) (any, error) {
	if code&^wide == tArray8 {
		return left.decodeArray(code, content, depth+1)
	}
	count, content, err := left.list(code, content)
	if err != nil {
		return nil, err
	}
	if code&^wide == tMap8 {
		return left.decodeMap(count/2, content, depth+1)
	}
	list := make(List, count)
	for i := range list {
		v, n, err := left.decodeValue(content, depth+1)
		if err != nil {
			return nil, err
		}
		list[i], content = v, content[n:]
	}
	if len(content) > 0 {
		return nil, errCount
	}
	return list, nil
}

func (left *budget) decodeMap(pairs int, content []byte, depth int) (any, error) {
	m := make(Map, pairs)
	for i := range m {
		k, n, err := left.decodeValue(content, depth)
		if err != nil {
			return nil, err
		}
		content = content[n:]
		v, n, err := left.decodeValue(content, depth)
		if err != nil {
			return nil, err
		}
		m[i], content = Pair{Key: k, Value: v}, content[n:]
	}
	if len(content) > 0 {
		return nil, errCount
	}
	return m, nil
}

func (left *budget) decodeArray(code byte, content []byte, depth int) (any, error) {
	head, content, err := left.array(code, content)
	if err != nil {
		return nil, err
	}
	count := head.count
	if !head.described {
		switch head.code {
		case tLong, tSmallLong:
			return longs(head.code, count, content), nil
		case tTimestamp:
			times := make([]Timestamp, count)
			for i := range times {
				times[i] = Timestamp(binary.BigEndian.Uint64(content[8*i:]))
			}
			return times, nil
		case tUUID:
			ids := make([]UUID, count)
			for i := range ids {
				ids[i] = UUID(content[16*i:])
			}
			return ids, nil
		case tString8, tString32:
			return textArray[string](head.code, count, content)
		case tSymbol8, tSymbol32:
			return textArray[Symbol](head.code, count, content)
		}
	}
	a := Array{Code: head.code, Items: make([]any, count)}
	if head.described {
		if a.Descriptor = head.descriptor.value(); a.Descriptor == nil {
			a.Descriptor = Raw{tNull} // nil is for an array of values that are not described
		}
	}
	for i := range a.Items {
		v, n, err := left.decodeBody(head.code, content, depth)
		if err != nil {
			return nil, err
		}
		a.Items[i], content = v, content[n:]
	}
	if len(content) > 0 {
		return nil, errCount
	}
	return a, nil
}

func longs(code byte, count int, content []byte) []int64 {
	items := make([]int64, count)
	for i := range items {
		if code == tSmallLong {
			items[i] = int64(int8(content[i]))
		} else {
			items[i] = int64(binary.BigEndian.Uint64(content[8*i:]))
		}
	}
	return items
}

func textArray[T string | Symbol](code byte, count int, content []byte) (any, error) {
	items := make([]T, count)
	for i := range items {
		from, to, err := extent(code, content)
		if err != nil {
			return nil, err
		}
		if err := checkText(code, content[from:to]); err != nil {
			return nil, err
		}
		items[i], content = T(content[from:to]), content[to:]
	}
	if len(content) > 0 {
		return nil, errCount
	}
	return items, nil
}
