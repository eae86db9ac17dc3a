package amqp

import (
	"encoding/binary"
)

const (
	// MaxDepth is how deep values may be nested: lists, maps, arrays and described values, each one
	// level. The deepest that a client sends is the list of rules, with 8.
	MaxDepth = 32
	// MaxElements is how many list items, map keys, map values and array elements one call decodes.
	// A client that schedules 10,000 messages in one request needs 80,000.
	MaxElements = 1 << 18
	// maxFreeElements is how many array elements of no width one call decodes. They are the only
	// ones that can outnumber their bytes, and nobody needs more than a handful.
	maxFreeElements = 256
)

// budget counts down the elements that a call may still meet. Compounds are charged by the count they claim, before
// anything is made for it, so lies about counts cannot add up. Such lies are one array of 2³²−1 elements of no width,
// or many small ones in one frame. A part of a value has the limits of the whole, so a value that was checked within
// a frame can be decoded by itself.
type budget struct {
	elements int // items, keys, values and array elements of at least one byte each
	free     int // array elements of no width
}

func newBudget(b []byte) budget {
	return budget{elements: min(len(b), MaxElements), free: maxFreeElements}
}

// charge takes the elements that a compound claims to have in the given bytes.
func (left *budget) charge(count uint32, content []byte) error {
	if uint64(count) > uint64(len(content)) {
		return errCount
	}
	if int(count) > left.elements {
		return errBudget
	}
	left.elements -= int(count)
	return nil
}

// chargeFree takes array elements of no width.
func (left *budget) chargeFree(count uint32) error {
	if uint64(count) > uint64(left.free) {
		return errBudget
	}
	left.free -= int(count)
	return nil
}

// list splits the content of a list or map into its count and the rest, and charges it.
func (left *budget) list(code byte, content []byte) (count int, rest []byte, err error) {
	c, rest, err := splitCount(code, content)
	if err != nil {
		return 0, nil, err
	}
	if code&^wide == tMap8 && c%2 != 0 {
		return 0, nil, badf("a map has a key without a value")
	}
	return int(c), rest, left.charge(c, rest)
}

// splitCount splits the content of a list, map or array into its count and the rest.
func splitCount(code byte, content []byte) (count uint32, rest []byte, err error) {
	n := sizeField(code)
	if len(content) < n {
		return 0, nil, errShort
	}
	if n == 1 {
		return uint32(content[0]), content[1:], nil
	}
	return binary.BigEndian.Uint32(content), content[4:], nil
}

// checkValue checks the whole value at the start of b and returns its size.
func (left *budget) checkValue(b []byte, depth int) (int, error) {
	if len(b) == 0 {
		return 0, errShort
	}
	if b[0] != tDescribed {
		n, err := left.checkBody(b[0], b[1:], depth)
		return 1 + n, err
	}
	if depth >= MaxDepth {
		return 0, errDepth
	}
	_, n, err := readDescriptor(b[1:])
	if err != nil {
		return 0, err
	}
	m, err := left.checkValue(b[1+n:], depth+1)
	return 1 + n + m, err
}

// checkBody checks what follows a constructor and returns its size.
func (left *budget) checkBody(code byte, b []byte, depth int) (int, error) {
	from, to, err := extent(code, b)
	if err != nil {
		return 0, err
	}
	content := b[from:to]
	switch code &^ wide {
	default:
		return to, checkText(code, content)
	case tList8, tMap8, tArray8:
	}
	if depth >= MaxDepth {
		return 0, errDepth
	}
	if code&^wide == tArray8 {
		return to, left.checkArray(code, content, depth+1)
	}
	count, content, err := left.list(code, content)
	if err != nil {
		return 0, err
	}
	for range count {
		n, err := left.checkValue(content, depth+1)
		if err != nil {
			return 0, err
		}
		content = content[n:]
	}
	if len(content) > 0 {
		return 0, errCount
	}
	return to, nil
}

// array is the head of an array: how many elements it has, and the constructor they share.
type array struct {
	count      int
	described  bool
	descriptor descriptor
	code       byte
}

// array reads the head of an array, charges its elements and returns their bytes. All bytes of
// elements of fixed width are then there.
func (left *budget) array(code byte, content []byte) (a array, rest []byte, err error) {
	count, rest, err := splitCount(code, content)
	if err != nil {
		return a, nil, err
	}
	// An empty array needs a constructor, too, AMQP 1.0 §1.6.24; the Python client leaves it out.
	if count == 0 && len(rest) == 0 {
		return array{code: tNull}, nil, nil
	}
	if len(rest) > 0 && rest[0] == tDescribed {
		d, n, err := readDescriptor(rest[1:])
		if err != nil {
			return a, nil, err
		}
		a.described, a.descriptor, rest = true, d, rest[1+n:]
	}
	if len(rest) == 0 {
		return a, nil, errShort
	}
	a.code, rest = rest[0], rest[1:]
	switch w := width(a.code); {
	case w < 0 && sizeField(a.code) == 0:
		return a, nil, badf("constructor 0x%02x does not exist", a.code)
	case w >= 0 && uint64(count)*uint64(w) != uint64(len(rest)):
		return a, nil, errCount
	case w == 0:
		err = left.chargeFree(count)
	default:
		err = left.charge(count, rest)
	}
	a.count = int(count)
	return a, rest, err
}

func (left *budget) checkArray(code byte, content []byte, depth int) error {
	a, content, err := left.array(code, content)
	if err != nil {
		return err
	}
	if width(a.code) >= 0 && a.code != tBool && a.code != tChar {
		return nil
	}
	for range a.count {
		n, err := left.checkBody(a.code, content, depth)
		if err != nil {
			return err
		}
		content = content[n:]
	}
	if len(content) > 0 {
		return errCount
	}
	return nil
}
