package storage

import (
	"fmt"
	"io"

	"github.com/tidwall/btree"
)

// pinnedEntries reads the entries that a pin froze, in order of index.
type pinnedEntries struct {
	it    btree.MapIter[uint64, recordAt]
	dead  *btree.BTreeG[deadBody]
	begun bool
}

func (e *pinnedEntries) next() (index uint64, at recordAt, dead []Span, err error) {
	more := false
	if e.begun {
		more = e.it.Next()
	} else {
		e.begun, more = true, e.it.First()
	}
	if !more {
		return 0, at, nil, io.EOF
	}
	index, at = e.it.Key(), e.it.Value()
	if at.waste > 0 {
		dead = deadOf(e.dead, index)
	}
	return index, at, dead, nil
}

// Inline writes the bodies that the pin froze, as an inline block. It may be called several times. A Close
// meanwhile waits with the segments until the block is written.
func (p *pin) Inline(w io.Writer) (int64, error) {
	p.b.mu.Lock()
	if p.closed {
		p.b.mu.Unlock()
		return 0, fmt.Errorf("write bodies: %w", ErrClosed)
	}
	segs, dead := append([]pinnedSegment(nil), p.segs...), p.dead
	entries := &pinnedEntries{it: p.index.Iter(), dead: dead}
	count := uint64(p.index.Len())
	for _, s := range segs {
		s.seg.pins++
	}
	p.b.mu.Unlock()
	defer p.b.unpin(segs)

	files := make(map[uint32]File, len(segs))
	for _, s := range segs {
		if err := p.b.syncSegment(s); err != nil {
			return 0, err
		}
		files[s.seg.id] = s.seg.file
	}
	n, err := io.Copy(w, newInlineReader(entries, files, count))
	if err != nil {
		return n, fmt.Errorf("write bodies: %w", err)
	}
	return n, nil
}

// EachBody reads an inline block from r, exactly to its end. It calls each with the index of the entry that
// brought a body, with the offset in that entry, and with the bytes. The bytes are used again after the call. Bodies come
// in order of index and offset.
func EachBody(r io.Reader, each func(index uint64, offset uint32, body []byte) error) error {
	return scanInline(r, func(index uint64, rec []byte) error {
		t := table(rec[recordHeaderBytes:])
		at := tableHeadBytes + spanBytes*t.count()
		for i := range t.count() {
			s := t.span(i)
			if err := each(index, s.Offset, t[at:at+int(s.Length)]); err != nil {
				return err
			}
			at += int(s.Length)
		}
		return nil
	})
}
