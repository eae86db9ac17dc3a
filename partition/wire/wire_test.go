package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/fsm"
)

func TestFieldsComeBackInTheirOrder(t *testing.T) {
	b := AppendBytes(nil, []byte("abc"))
	b = AppendBool(AppendBool(b, true), false)
	b = binary.AppendUvarint(b, 300)
	b = binary.AppendVarint(b, -300)
	b = append(b, 7)
	if want := "\x03abc\x01\x00\xac\x02\xd7\x04\x07"; string(b) != want {
		t.Fatalf("%x, want %x", b, want)
	}
	r := NewReader(b)
	if v := r.Bytes(3); !bytes.Equal(v, []byte("abc")) || cap(v) != 3 {
		t.Errorf("%q with room for %d bytes", v, cap(v))
	}
	if !r.Bool() || r.Bool() || r.Uint() != 300 || r.Int() != -300 || r.Len() != 1 || r.Byte() != 7 {
		t.Error("a field came back as another")
	}
	if err := r.Done(); err != nil || !r.OK() {
		t.Error(err)
	}
}

// The first violation is told; what is read after it is zero.
func TestTheFirstViolationStays(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		read  func(*Reader)
		want  string
	}{
		"no byte":             {"", func(r *Reader) { r.Byte() }, "cut short"},
		"a bool of 2":         {"\x02", func(r *Reader) { r.Bool() }, "2 is no bool"},
		"half a number":       {"\x80", func(r *Reader) { r.Uint() }, "bad number"},
		"half a signed one":   {"\x80", func(r *Reader) { r.Int() }, "bad number"},
		"a longer string":     {"\x05abcde", func(r *Reader) { r.Bytes(4) }, "byte string of 5 bytes"},
		"a string cut short":  {"\x05abcd", func(r *Reader) { r.Bytes(9) }, "byte string of 5 bytes"},
		"a string of 2^63":    {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01x", func(r *Reader) { r.Bytes(9) }, "byte string of"},
		"bytes that are left": {"\x01\x01", func(r *Reader) { r.Byte() }, "1 bytes too many"},
	} {
		r := NewReader([]byte(c.bytes))
		c.read(r)
		err := r.Done()
		if !errors.Is(err, fsm.ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		r.Fail("another")
		if r.Byte() != 0 || r.Bool() || r.Uint() != 0 || r.Int() != 0 || len(r.Bytes(9)) != 0 {
			t.Errorf("%s: a field after it is not zero", name)
		}
		if again := r.Done(); again.Error() != err.Error() {
			t.Errorf("%s: then %v", name, again)
		}
	}
}
