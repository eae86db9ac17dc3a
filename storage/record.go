package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
)

// Span is one body in an entry: Length bytes at Offset.
type Span = struct{ Offset, Length uint32 }

// The payload of a record (docs/formats/segments.md): the number of bodies, where each of them was in its entry, and
// the bodies one after the other. Bytes between the bodies of an entry are not kept.
const (
	tableHeadBytes = 4
	spanBytes      = 8
)

// spanCost is how much shorter a record gets when a body leaves it.
func spanCost(length uint32) uint32 { return spanBytes + length }

// checkSpans reports whether spans are bodies of an entry of n bytes, none empty, in ascending
// order. The result is the length of the payload that holds them.
func checkSpans(spans []Span, n int) (payload int, err error) {
	if len(spans) == 0 {
		return 0, fmt.Errorf("no bodies")
	}
	end, total := uint64(0), tableHeadBytes+spanBytes*len(spans)
	for _, s := range spans {
		if s.Length == 0 || uint64(s.Offset) < end {
			return 0, fmt.Errorf("body of %d bytes at %d, the one before ends at %d",
				s.Length, s.Offset, end)
		}
		end = uint64(s.Offset) + uint64(s.Length)
		total += int(s.Length)
	}
	if end > uint64(n) {
		return 0, fmt.Errorf("a body ends at %d of %d", end, n)
	}
	return total, nil
}

// putPayload fills p, which has the length that checkSpans gave.
func putPayload(p []byte, spans []Span, entry []byte) {
	binary.LittleEndian.PutUint32(p, uint32(len(spans)))
	at := tableHeadBytes
	for _, s := range spans {
		binary.LittleEndian.PutUint32(p[at:], s.Offset)
		binary.LittleEndian.PutUint32(p[at+4:], s.Length)
		at += spanBytes
	}
	for _, s := range spans {
		at += copy(p[at:], entry[s.Offset:s.Offset+s.Length])
	}
}

// table is the payload of a record, seen as bodies.
type table []byte

func (t table) count() int { return int(binary.LittleEndian.Uint32(t)) }

func (t table) span(i int) Span {
	at := tableHeadBytes + spanBytes*i
	return Span{binary.LittleEndian.Uint32(t[at:]), binary.LittleEndian.Uint32(t[at+4:])}
}

// check verifies a payload from outside: the table fits, spans ascend, and the bodies fill the rest.
func (t table) check() error {
	if len(t) < tableHeadBytes+spanBytes+1 || t.count() < 1 ||
		t.count() > (len(t)-tableHeadBytes)/spanBytes {
		return fmt.Errorf("%w: table of bodies", ErrCorrupt)
	}
	end, total := uint64(0), uint64(tableHeadBytes+spanBytes*t.count())
	for i := range t.count() {
		s := t.span(i)
		if s.Length == 0 || uint64(s.Offset) < end {
			return fmt.Errorf("%w: table of bodies at %d", ErrCorrupt, i)
		}
		end = uint64(s.Offset) + uint64(s.Length)
		total += uint64(s.Length)
	}
	if total != uint64(len(t)) || end > math.MaxUint32 {
		return fmt.Errorf("%w: bodies of %d bytes in %d", ErrCorrupt, total, len(t))
	}
	return nil
}

// body returns length bytes at offset of the entry, in the payload's own memory; ok is false if they
// are not within one body. The end of a body counts to it, for a length of 0.
func (t table) body(offset, length uint32) (b []byte, ok bool) {
	n := t.count()
	i := sort.Search(n, func(i int) bool { return t.span(i).Offset > offset }) - 1
	if i < 0 {
		return nil, false
	}
	s := t.span(i)
	if uint64(offset)+uint64(length) > uint64(s.Offset)+uint64(s.Length) {
		return nil, false
	}
	at := uint64(tableHeadBytes + spanBytes*n)
	for k := range i {
		at += uint64(t.span(k).Length)
	}
	at += uint64(offset - s.Offset)
	return t[at : at+uint64(length)], true
}

// pruned returns a record with the bodies of rec but for the dead ones; its header is not filled in. dead ascends,
// and each is a body of rec. Without any it is rec itself.
func pruned(rec []byte, dead []Span) ([]byte, error) {
	if len(dead) == 0 {
		return rec, nil
	}
	from := table(rec[recordHeaderBytes:])
	n := from.count()
	if len(dead) >= n {
		return nil, fmt.Errorf("%w: %d bodies freed of %d", ErrCorrupt, len(dead), n)
	}
	size := len(rec)
	for _, s := range dead {
		size -= int(spanCost(s.Length))
	}
	if size < recordHeaderBytes {
		return nil, fmt.Errorf("%w: freed more than there is", ErrCorrupt)
	}
	out := make([]byte, recordHeaderBytes, size)
	out = binary.LittleEndian.AppendUint32(out, uint32(n-len(dead)))
	d := 0
	for i := range n {
		if s := from.span(i); d < len(dead) && dead[d] == s {
			d++
		} else {
			out = binary.LittleEndian.AppendUint32(out, s.Offset)
			out = binary.LittleEndian.AppendUint32(out, s.Length)
		}
	}
	if d != len(dead) {
		return nil, fmt.Errorf("%w: freed %d bytes at %d, which are no body", ErrCorrupt,
			dead[d].Length, dead[d].Offset)
	}
	d = 0
	at := tableHeadBytes + spanBytes*n
	for i := range n {
		s := from.span(i)
		if d < len(dead) && dead[d] == s {
			d++
		} else {
			out = append(out, from[at:at+int(s.Length)]...)
		}
		at += int(s.Length)
	}
	return out, nil
}

// maxPayloadBytes bounds a payload: the bodies of an entry of the largest size, and their table. A
// body of less than a byte does not exist, and one of a single byte costs nine here.
const maxPayloadBytes = tableHeadBytes + (spanBytes+1)*maxEntryBytes
