package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
)

// AppendBytes appends a byte string with its length.
func AppendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendBool appends one byte, 0 or 1.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Reader reads the fields of one call in their order. The first violation stays: every later field reads as zero, and
// Done returns the violation. The bytes may come from a hostile peer: nothing panics, nothing is allocated for a
// length that the bytes do not have.
type Reader struct {
	b   []byte
	err error
}

// NewReader returns a reader of b. The results of its reads are views into b.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Fail notes a violation, unless there is one already, and drops the bytes that are left. The error wraps
// [fsm.ErrFormat].
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format+": %w", append(args, fsm.ErrFormat)...)
	}
	r.b = nil
}

// Done returns the first violation; bytes left over are one.
func (r *Reader) Done() error {
	if r.err == nil && len(r.b) > 0 {
		r.Fail("%d bytes too many", len(r.b))
	}
	return r.err
}

// OK reports whether there was no violation so far.
func (r *Reader) OK() bool { return r.err == nil }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.b) }

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.b) == 0 {
		r.Fail("cut short")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// Bool reads a byte that must be 0 or 1.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail("%d is no bool", v)
	}
	return v == 1
}

// Uint reads an unsigned varint.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.Fail("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Int reads a signed varint.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.Fail("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Bytes reads a byte string of at most limit bytes as a view.
func (r *Reader) Bytes(limit int) []byte {
	n := r.Uint()
	if n > uint64(limit) || n > uint64(len(r.b)) {
		r.Fail("byte string of %d bytes", n)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}
