package fsm

import (
	"encoding/binary"
	"fmt"
)

// reader walks over encoded bytes. After the first error it returns zero values; the caller looks at
// err once, at the end. Nothing it returns is larger than what is left to read.
type reader struct {
	b   []byte
	pos int
	err error
	// ahead is added to every lease time but 0: a share that moves takes what is left of its locks along.
	ahead Millis
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s at byte %d of %d", ErrFormat, what, r.pos, len(r.b))
	}
}

func (r *reader) left() int { return len(r.b) - r.pos }

func (r *reader) u8() uint8 {
	if r.err != nil || r.left() < 1 {
		r.fail("truncated")
		return 0
	}
	v := r.b[r.pos]
	r.pos++
	return v
}

func (r *reader) boolean() bool {
	v := r.u8()
	if v > 1 {
		r.fail("boolean is neither 0 nor 1")
	}
	return v == 1
}

func (r *reader) u64() uint64 {
	if r.err != nil || r.left() < 8 {
		r.fail("truncated")
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b[r.pos:])
	r.pos += 8
	return v
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.pos += n
	return v
}

func (r *reader) u32() uint32 {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.fail("number exceeds 32 bits")
		return 0
	}
	return uint32(v)
}

func (r *reader) u16() uint16 {
	v := r.uvarint()
	if v > 1<<16-1 {
		r.fail("number exceeds 16 bits")
		return 0
	}
	return uint16(v)
}

func (r *reader) wall() Wall { return Wall(r.millis()) }
func (r *reader) lease() Lease {
	at := Lease(r.millis())
	if at != 0 && r.ahead != 0 {
		at = max(1, at.After(r.ahead))
	}
	return at
}

func (r *reader) millis() Millis {
	if r.err != nil {
		return 0
	}
	v, n := binary.Varint(r.b[r.pos:])
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.pos += n
	return Millis(v)
}

// bytes returns a view.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if r.err != nil {
		return nil
	}
	if n > uint64(r.left()) {
		r.fail("length exceeds what is left")
		return nil
	}
	v := r.b[r.pos : r.pos+int(n) : r.pos+int(n)]
	r.pos += int(n)
	return v
}

func (r *reader) string() string { return string(r.bytes()) }

// count reads the number of elements that follow, each at least minBytes long. It makes no slice that the bytes left
// could not fill.
func (r *reader) count(minBytes int) int {
	n := r.uvarint()
	if r.err != nil {
		return 0
	}
	if n > uint64(r.left()/minBytes) {
		r.fail("count exceeds what is left")
		return 0
	}
	return int(n)
}

func (r *reader) fixed(dst []byte) {
	if r.err != nil || r.left() < len(dst) {
		r.fail("truncated")
		return
	}
	r.pos += copy(dst, r.b[r.pos:])
}

func (r *reader) version(want uint8) {
	if v := r.u8(); r.err == nil && v != want {
		r.pos--
		r.fail(fmt.Sprintf("format version %d, this program reads %d", v, want))
	}
}

// versions reads a version byte from a range of those that are understood.
func (r *reader) versions(first, last uint8) uint8 {
	v := r.u8()
	if r.err == nil && (v < first || v > last) {
		r.pos--
		r.fail(fmt.Sprintf("format version %d, this program reads %d to %d", v, first, last))
	}
	return v
}

// end returns the first error, or one if bytes are left over.
func (r *reader) end() error {
	if r.err == nil && r.left() > 0 {
		r.fail("bytes left over")
	}
	return r.err
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendUint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

// appendTime appends a duration or a point of time.
func appendTime[T instant | Millis](dst []byte, v T) []byte {
	return binary.AppendVarint(dst, int64(v))
}

func appendBytes(dst, v []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
}

func appendString(dst []byte, v string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
}
