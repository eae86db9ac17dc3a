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
	// freeElements is how many more elements than bytes a call may decode. Only elements of no
	// width can outnumber their bytes, and nobody needs more than a handful of those.
	freeElements = 256
)

// budget counts down the elements that a call may still meet. Compounds are charged by the count
// they claim, before anything is made for it, so lies about counts cannot add up: neither one array
// of 2³²−1 elements of no width nor many small ones in one frame.
type budget int

func newBudget(b []byte) budget { return budget(min(len(b)+freeElements, MaxElements)) }

// charge takes the elements that a compound claims to have.
func (left *budget) charge(count uint32) error {
	if uint64(count) > uint64(*left) {
		return errBudget
	}
	*left -= budget(count)
	return nil
}

// elements splits the content of a list, map or array into its count and the rest, and charges it.
func (left *budget) elements(code byte, content []byte) (count int, rest []byte, err error) {
	n := sizeField(code)
	if len(content) < n {
		return 0, nil, errShort
	}
	c := uint32(content[0])
	if n == 4 {
		c = binary.BigEndian.Uint32(content)
	}
	rest = content[n:]
	if code&^wide != tArray8 && uint64(c) > uint64(len(rest)) {
		return 0, nil, errCount
	}
	if code&^wide == tMap8 && c%2 != 0 {
		return 0, nil, badf("a map has a key without a value")
	}
	if err := left.charge(c); err != nil {
		return 0, nil, err
	}
	return int(c), rest, nil
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
	count, content, err := left.elements(code, content)
	if err != nil {
		return 0, err
	}
	if code&^wide == tArray8 {
		return to, left.checkArray(count, content, depth+1)
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

// arrayElements reads the constructor that all elements of an array share.
func arrayElements(content []byte) (d descriptor, described bool, code byte, rest []byte, err error) {
	if len(content) > 0 && content[0] == tDescribed {
		described = true
		var n int
		if d, n, err = readDescriptor(content[1:]); err != nil {
			return d, described, 0, nil, err
		}
		content = content[1+n:]
	}
	if len(content) == 0 {
		return d, described, 0, nil, errShort
	}
	return d, described, content[0], content[1:], nil
}

func (left *budget) checkArray(count int, content []byte, depth int) error {
	// An empty array needs a constructor, too, AMQP 1.0 §1.6.24; the Python client leaves it out.
	if count == 0 && len(content) == 0 {
		return nil
	}
	_, _, code, content, err := arrayElements(content)
	if err != nil {
		return err
	}
	w := width(code)
	if w >= 0 && uint64(count)*uint64(w) != uint64(len(content)) {
		return errCount
	}
	if w >= 0 && code != tBool && code != tChar {
		return nil
	}
	if w < 0 && sizeField(code) == 0 {
		return badf("constructor 0x%02x does not exist", code)
	}
	for range count {
		n, err := left.checkBody(code, content, depth)
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
