package amqp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// hostile returns what has broken other brokers: single values that are small and claim much, or
// are as wasteful as bytes can be.
func hostile() map[string][]byte {
	repeat := func(unit string, n int) []byte { return bytes.Repeat([]byte(unit), n) }
	list32 := func(count uint32, content []byte) []byte {
		b := binary.BigEndian.AppendUint32([]byte{tList32}, uint32(len(content)+4))
		return append(binary.BigEndian.AppendUint32(b, count), content...)
	}
	array32 := func(count uint32, content ...byte) []byte {
		b := binary.BigEndian.AppendUint32([]byte{tArray32}, uint32(len(content)+4))
		return append(binary.BigEndian.AppendUint32(b, count), content...)
	}
	map32 := func(count uint32, content []byte) []byte {
		b := list32(count, content)
		b[0] = tMap32
		return b
	}
	nested := func(deep int, code byte) []byte {
		b := []byte{tNull}
		for range deep {
			content := b
			if code == tMap32 {
				content = append([]byte{tNull}, b...)
			}
			b = list32(uint32(len(content)), content) // as many items as there are bytes
			b[0] = code
		}
		return b
	}
	const many = 1 << 14
	return map[string][]byte{
		"array32 of 2³²−1 nulls":             array32(1<<32-1, tNull),
		"array32 of 2³²−1 trues":             array32(1<<32-1, tTrue),
		"array32 of 2³²−1 uints of 0":        array32(1<<32-1, tUint0),
		"array32 of 2³²−1 empty lists":       array32(1<<32-1, tList0),
		"array32 of 2³²−1 described nulls":   array32(1<<32-1, 0, tSmallUlong, 1, tNull),
		"array32 of 2³²−1 longs":             array32(1<<32-1, tLong),
		"array32 of 2³²−1 symbols":           array32(1<<32-1, tSymbol32),
		"many arrays of 255 nulls":           list32(many, repeat("\xe0\x02\xff\x40", many)),
		"many arrays of one null":            list32(many, repeat("\xe0\x02\x01\x40", many)),
		"many arrays of 1000 trues in a map": map32(2000, bytes.Repeat(array32(1000, tTrue), 2000)),
		"nulls":                              list32(many, repeat("\x40", many)),
		"empty lists":                        list32(many, repeat("\x45", many)),
		"lists of one item":                  list32(many, repeat("\xc0\x02\x01\x40", many)),
		"long empty lists":                   list32(many, repeat("\xc0\x01\x00", many)),
		"empty maps":                         list32(many, repeat("\xc1\x01\x00", many)),
		"described empty lists":              list32(many, repeat("\x00\x44\x45", many)),
		"empty arrays of long":               list32(many, repeat("\xe0\x02\x00\x81", many)),
		"strings of two bytes":               list32(many, repeat("\xa1\x02aa", many)),
		"uuids of none":                      array32(0, tUUID),
		"empty strings in an array": array32(many, append([]byte{tString8}, make([]byte,
			many)...)...),
		"empty binaries in an array": array32(many, append([]byte{tBinary8}, make([]byte,
			many)...)...),
		"more nulls than a call may decode": list32(MaxElements+1, repeat("\x40", MaxElements+1)),
		"lists that all claim all bytes":    nested(MaxDepth+1, tList32),
		"maps that all claim all bytes":     nested(MaxDepth+1, tMap32),
		"lists that nest 10⁶ deep":          repeat("\xc0\xff\x01", 1_000_000),
		"lists32 that nest 10⁶ deep": repeat("\xd0\x00\xff\xff\xff\x00\x00\x00\x01",
			1_000_000),
		"maps with an odd count":          list32(many, repeat("\xc1\x02\x01\x40", many)),
		"an unsettled map of 10⁶ entries": map32(2_000_000, repeat("\xa0\x00\x40", 1_000_000)),
		"a binary that wraps the size":    {tBinary32, 0xff, 0xff, 0xff, 0xff},
		"a list that wraps the size":      {tList32, 0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0},
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A decoder may allocate this many bytes for each byte of input, and this many besides. The dearest
// value is a described empty list: three bytes on the wire, 72 in memory.
const (
	allocPerByte = 32
	allocFree    = 16 << 10
)

func TestMemoryIsBoundedByTheInput(t *testing.T) {
	attachOf := func(v []byte) []byte { // as the unsettled map, where a client may put it
		dst, start := beginCompound(appendDescriptor(nil, CodeAttach))
		dst = append(AppendString(dst, "l"), tUint0, tTrue, tNull, tNull, tNull, tNull)
		return endCompound(append(dst, v...), start, tList8, 8)
	}
	openOf := func(v []byte) []byte { // as a capability
		dst, start := beginCompound(appendDescriptor(nil, CodeOpen))
		dst = append(AppendString(dst, "c"), tNull, tNull, tNull, tNull, tNull, tNull)
		return endCompound(append(dst, v...), start, tList8, 8)
	}
	section := func(c Code, v []byte) []byte { return append(appendDescriptor(nil, c), v...) }
	for name, v := range hostile() {
		t.Run(name, func(t *testing.T) {
			for what, decode := range map[string]func() int{
				"a value": func() int { _, _, _ = DecodeValue(v); return len(v) },
				"an attach": func() int {
					b := attachOf(v)
					_, _, _ = DecodePerformative(b)
					return 8 * len(b) // it is built here, too
				},
				"an open": func() int {
					b := openOf(v)
					_, _, _ = DecodePerformative(b)
					return 8 * len(b)
				},
				"annotations": func() int {
					b := section(CodeMessageAnnotations, v)
					s, err := ParseMessage(b)
					if err == nil {
						_, _ = s.Annotation("x")
					}
					return 8 * len(b)
				},
				"application properties": func() int {
					_, _ = ReadProperties(v)
					return len(v)
				},
			} {
				var size int
				got := allocated(func() { size = decode() })
				if limit := uint64(allocPerByte*size + allocFree); got > limit {
					t.Errorf("%s of %d bytes: allocated %d, limit %d", what, size, got, limit)
				}
			}
		})
	}
}

func TestHostileValuesAreJudgedAlikeByDecodeAndCheck(t *testing.T) {
	// Wasteful, but each of them has the elements that it claims.
	honest := map[string]bool{
		"nulls": true, "empty lists": true, "lists of one item": true, "long empty lists": true,
		"empty maps": true, "described empty lists": true, "empty arrays of long": true,
		"strings of two bytes": true, "uuids of none": true, "empty strings in an array": true,
		"empty binaries in an array": true,
	}
	for name, v := range hostile() {
		left := newBudget(v)
		_, checkErr := left.checkValue(v, 0)
		_, _, decodeErr := DecodeValue(v)
		if honest[name] && (checkErr != nil || decodeErr != nil) {
			t.Errorf("%s: checked %v, decoded %v", name, checkErr, decodeErr)
		}
		if !honest[name] && (!errors.Is(checkErr, ErrDecode) || !errors.Is(decodeErr, ErrDecode)) {
			t.Errorf("%s: checked %v, decoded %v", name, checkErr, decodeErr)
		}
	}
}

// A Raw has been checked as a part of its frame, so it decodes, however much shorter it is.
func TestWhatWasCheckedInAFrameDecodesByItself(t *testing.T) {
	trues := append([]byte{tArray32, 0, 0, 0, 5}, 0, 0, 1, 0, tTrue) // 256 elements in no bytes
	for count, ok := range map[byte]bool{0: true, 1: false} {
		trues[8] = count
		properties := append([]byte{tMap8, byte(3 + len(trues)), 2, tSymbol8, 0}, trues...)
		body := AppendFrame(nil, 0, &Open{
			ContainerID: strings.Repeat("c", 5000), Properties: properties})[FrameHeaderBytes:]
		p, _, err := DecodePerformative(body)
		if !ok {
			if !errors.Is(err, ErrDecode) {
				t.Errorf("257 elements of no width: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.(*Open).Properties.Map(); err != nil {
			t.Errorf("the properties by themselves: %v", err)
		}
	}
}

func addFrames(f *testing.F, body bool) {
	f.Helper()
	for _, g := range goldenFrames() {
		frame := encodeGolden(g)
		if body {
			frame = frame[FrameHeaderBytes:]
		}
		f.Add(frame)
	}
}

func addHostile(f *testing.F) {
	f.Helper()
	for _, v := range hostile() {
		f.Add(v[:min(len(v), 1<<12)])
	}
}

func FuzzReadFrame(f *testing.F) {
	addFrames(f, false)
	for _, s := range []string{
		"\x00\x00\x00\x00\x02\x00\x00\x00", "\x00\x00\x00\x07\x02\x00\x00\x00",
		"\x00\x00\x00\x08\x01\x00\x00\x00", "\x00\x00\x00\x08\x03\x00\x00\x00",
		"\xff\xff\xff\xff\x02\x00\x00\x00", "\x00\x00\x00\x08\x02\x00\xff\xff",
		"AMQP\x00\x01\x00\x00\x00\x00\x00\x08\x02\x00\x00\x00", "\x16\x03\x01", "GET / HTTP/1.1",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), 4096)
		_, _ = r.ReadProtocolHeader()
		r = NewReader(bytes.NewReader(b), 4096)
		for read := 0; ; {
			frame, err := r.ReadFrame()
			if err != nil {
				known := errors.Is(err, ErrFraming) || errors.Is(err, io.EOF) ||
					errors.Is(err, io.ErrUnexpectedEOF)
				if !known {
					t.Fatalf("got %v", err)
				}
				return
			}
			if read += FrameHeaderBytes + len(frame.Body); read > len(b) {
				t.Fatalf("%d bytes of frames in %d", read, len(b))
			}
		}
	})
}

func FuzzDecodePerformative(f *testing.F) {
	addFrames(f, true)
	addHostile(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		p, payload, err := DecodePerformative(body)
		if err != nil {
			if !errors.Is(err, ErrDecode) {
				t.Fatal(err)
			}
			return
		}
		first := encodeGolden(goldenFrame{3, p, payload})
		again, payload2, err := DecodePerformative(first[FrameHeaderBytes:])
		if err != nil || !bytes.Equal(payload, payload2) {
			t.Fatalf("written % x: %v", first, err)
		}
		if second := encodeGolden(goldenFrame{3, again, payload2}); !bytes.Equal(first, second) {
			t.Fatalf("first  % x\nsecond % x", first, second)
		}
		a, ok := p.(*Attach)
		if !ok {
			return
		}
		if _, _, err := a.Source.SharedFilter(); err != nil && !errors.Is(err, ErrDecode) {
			t.Fatalf("shared filter: %v", err)
		}
		if _, _, err := a.Source.SessionFilter(); err != nil && !errors.Is(err, ErrDecode) {
			t.Fatal(err)
		}
		reply := &Attach{Name: "l", Source: a.Source.Echo(Some("s")), Target: a.Target.Echo()}
		if a.Coordinator != nil {
			reply.Target, reply.Coordinator = nil, a.Coordinator.Echo()
		}
		frame := AppendFrame(nil, 0, reply)
		if _, _, err := DecodePerformative(frame[FrameHeaderBytes:]); err != nil {
			t.Fatalf("echo % x: %v", frame, err)
		}
	})
}

func FuzzDecodeValue(f *testing.F) {
	for _, tc := range primitives {
		f.Add(unhex(f, tc.hex))
	}
	addHostile(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := DecodeValue(b)
		left := newBudget(b)
		n, checkErr := left.checkValue(b, 0)
		if (err == nil) != (checkErr == nil) {
			t.Fatalf("decoded %v, checked %v", err, checkErr)
		}
		if err != nil {
			if !errors.Is(err, ErrDecode) {
				t.Fatal(err)
			}
			return
		}
		if size, err := valueSize(b); size != n || len(b)-len(rest) != n || err != nil {
			t.Fatalf("checked %d bytes, decoded %d, size %d, %v", n, len(b)-len(rest), size, err)
		}
		first, err := AppendValue(nil, v)
		if err != nil {
			t.Fatalf("%#v: %v", v, err)
		}
		again, _, err := DecodeValue(first)
		if err != nil {
			t.Fatalf("% x: %v", first, err)
		}
		if second, err := AppendValue(nil, again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("first  % x\nsecond % x, %v", first, second, err)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	for _, s := range []string{hexHeader, hexDelivery, hexAnnotation, hexProperties, hexAppProps,
		hexData, hexSequence, hexValue, hexFooter,
		hexHeader + hexProperties + hexAppProps + hexData,
		hexData + hexData, hexData + hexDelivery, hexAnnotation + hexValue + hexFooter,
		"00 53 77 00 53 32 c0 05 02 a0 01 07 42"} {
		f.Add(unhex(f, s))
	}
	for _, v := range hostile() {
		f.Add(append(appendDescriptor(nil, CodeApplicationProperties), v[:min(len(v), 1<<12)]...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for m, err := range BatchMessages(b) {
			if err != nil && !errors.Is(err, ErrDecode) || len(m) > len(b) {
				t.Fatalf("% x, %v", m, err)
			}
		}
		s, err := ParseMessage(b)
		if err != nil {
			if !errors.Is(err, ErrDecode) {
				t.Fatal(err)
			}
			return
		}
		parts := [][]byte{s.Header, s.DeliveryAnnotations, s.MessageAnnotations}
		late := append(append(append([]byte{}, s.Header...), s.MessageAnnotations...), s.Bare...)
		late = append(late, s.DeliveryAnnotations...)
		if got := append(bytes.Join(parts, nil), s.Bare...); !bytes.Equal(got, b) &&
			!bytes.Equal(late, b) {
			t.Fatalf("sections % x of % x", got, b)
		}
		parts = [][]byte{s.Properties, s.ApplicationProperties, s.Body, s.Footer}
		if got := bytes.Join(parts, nil); !bytes.Equal(got, s.Bare) {
			t.Fatalf("sections % x of bare % x", got, s.Bare)
		}
		_, _ = DecodeTransaction(s.Body)
		if h, err := s.ParseHeader(); err == nil {
			again, err := ParseMessage(AppendHeader(nil, h))
			if h2, err2 := again.ParseHeader(); err != nil || err2 != nil || h2 != h {
				t.Fatalf("header %+v became %+v", h, h2)
			}
		}
		if p, err := s.ParseProperties(); err == nil {
			first := AppendProperties(nil, &p)
			again, err := ParseMessage(first)
			p2, err2 := again.ParseProperties()
			if second := AppendProperties(nil, &p2); err != nil || err2 != nil ||
				!bytes.Equal(first, second) {
				t.Fatalf("properties % x became % x", first, second)
			}
			_, _ = IDText(p.MessageID)
		}
		overlay := []Property{{Key: "k", Value: rawOf("v")}, {Key: "x"}}
		merged, err := MergeApplicationProperties(nil, s.ApplicationProperties, overlay)
		if err != nil {
			return
		}
		if again, err := ParseMessage(merged); err != nil {
			t.Fatalf("merged % x: %v", merged, err)
		} else if v, ok := again.ApplicationProperty("k"); !ok ||
			fmt.Sprint(v) != fmt.Sprint(rawOf("v")) {
			t.Fatalf("merged % x: % x", merged, v)
		}
	})
}
