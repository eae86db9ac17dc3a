package storage

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// A snapshot is the image of the state followed by one block of bodies, in one of two kinds
// (docs/formats/segments.md). A manifest says where on this disk the bodies are; it is what a pin
// writes. An inline block carries them; it is what goes to another node.
const (
	blockMagic   = "BBOD"
	blockEnd     = "BEND"
	kindManifest = 1
	kindInline   = 2

	blockHeaderBytes  = 16
	blockTrailerBytes = 48
	inlineCountBytes  = 8
	inlineEntryBytes  = 16 // before the payload of each entry
)

// blockTrailer ends a block and describes it, so that it can be found from the end of a stream.
type blockTrailer struct {
	kind    byte
	nonce   uint64 // of the pin that wrote the manifest; 0 inline
	entries uint64
	bytes   uint64 // of their payloads, without the bodies that were freed
	length  uint64 // of the block, header and trailer included
	sum     uint32 // over the block before it
}

func blockHeader(kind byte, nonce uint64) []byte {
	h := make([]byte, blockHeaderBytes)
	copy(h, blockMagic)
	h[4], h[5] = formatBodies, kind
	binary.LittleEndian.PutUint64(h[8:], nonce)
	return h
}

// body returns the trailer before its checksum.
func (t blockTrailer) body() []byte {
	b := make([]byte, 0, blockTrailerBytes)
	b = append(b, blockMagic...)
	b = append(b, formatBodies, t.kind, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, t.nonce)
	b = binary.LittleEndian.AppendUint64(b, t.entries)
	b = binary.LittleEndian.AppendUint64(b, t.bytes)
	return binary.LittleEndian.AppendUint64(b, t.length)
}

func (t blockTrailer) encode() []byte {
	b := binary.LittleEndian.AppendUint32(t.body(), t.sum)
	return append(b, blockEnd...)
}

// parseTrailer reads a trailer; ok is false if b does not end a block.
func parseTrailer(b []byte) (t blockTrailer, ok bool) {
	if len(b) != blockTrailerBytes || string(b[:4]) != blockMagic || string(b[44:]) != blockEnd ||
		b[4] != formatBodies || b[6]|b[7] != 0 {
		return t, false
	}
	return blockTrailer{
		kind:    b[5],
		nonce:   binary.LittleEndian.Uint64(b[8:]),
		entries: binary.LittleEndian.Uint64(b[16:]),
		bytes:   binary.LittleEndian.Uint64(b[24:]),
		length:  binary.LittleEndian.Uint64(b[32:]),
		sum:     binary.LittleEndian.Uint32(b[40:]),
	}, true
}

// inlineBytes is the length of the inline block with so many entries of so many bytes.
func inlineBytes(entries, bytes uint64) uint64 {
	return blockHeaderBytes + inlineCountBytes + entries*inlineEntryBytes + bytes + blockTrailerBytes
}

// inlineHead is what precedes the payload of an entry in an inline block.
func inlineHead(index uint64, payload []byte) [inlineEntryBytes]byte {
	var h [inlineEntryBytes]byte
	binary.LittleEndian.PutUint64(h[0:], index)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(h[12:], sum(h[:12], payload))
	return h
}

// blockWriter writes a block, counting and summing what goes through it.
type blockWriter struct {
	w      *bufio.Writer
	crc    hash.Hash32
	length uint64
	out    []byte // of numbers
}

func newBlockWriter(w io.Writer) *blockWriter {
	return &blockWriter{w: bufio.NewWriterSize(w, chunkBytes), crc: crc32.New(castagnoli())}
}

func (b *blockWriter) Write(p []byte) (int, error) {
	n, err := b.w.Write(p)
	_, _ = b.crc.Write(p[:n])
	b.length += uint64(n)
	return n, err
}

func (b *blockWriter) numbers(ns ...uint64) error {
	b.out = b.out[:0]
	for _, n := range ns {
		b.out = binary.AppendUvarint(b.out, n)
	}
	_, err := b.Write(b.out)
	return err
}

// finish writes the trailer; t's length and sum are filled in.
func (b *blockWriter) finish(t blockTrailer) error {
	t.length = b.length + blockTrailerBytes
	if _, err := b.Write(t.body()); err != nil {
		return err
	}
	t.sum = b.crc.Sum32()
	if _, err := b.w.Write(t.encode()[blockTrailerBytes-8:]); err != nil {
		return err
	}
	b.length += 8
	return b.w.Flush()
}

// segmentExtent names a segment and how much of it a snapshot needs.
type segmentExtent struct {
	ID     uint32 `json:"id"`
	Extent uint32 `json:"extent"`
}

// manifestReader decodes a manifest entry by entry. Every number is checked against the segments
// that the manifest names.
type manifestReader struct {
	r       *bufio.Reader
	extents map[uint32]uint32
	left    uint64
	last    uint64
	dead    []Span // of the entry that next returned
}

func readManifest(r io.Reader, want blockTrailer) (*manifestReader, error) {
	m := &manifestReader{r: bufio.NewReaderSize(r, chunkBytes), extents: map[uint32]uint32{}}
	head := make([]byte, blockHeaderBytes)
	if _, err := io.ReadFull(m.r, head); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if string(head) != string(blockHeader(kindManifest, want.nonce)) {
		return nil, fmt.Errorf("read manifest: %w: header", ErrCorrupt)
	}
	segments, err := m.number(1 << 32)
	if err != nil {
		return nil, err
	}
	for range segments {
		id, err := m.number(1<<32 - 1)
		if err != nil {
			return nil, err
		}
		extent, err := m.number(1<<32 - 1)
		if err != nil {
			return nil, err
		}
		m.extents[uint32(id)] = uint32(extent)
	}
	if m.left, err = m.number(1<<64 - 1); err != nil {
		return nil, err
	}
	if m.left != want.entries {
		return nil, fmt.Errorf("read manifest: %w: %d entries, want %d", ErrCorrupt, m.left, want.entries)
	}
	return m, nil
}

func (m *manifestReader) number(limit uint64) (uint64, error) {
	n, err := binary.ReadUvarint(m.r)
	if err != nil {
		return 0, fmt.Errorf("read manifest: %w", err)
	}
	if n > limit {
		return 0, fmt.Errorf("read manifest: %w: %d, at most %d", ErrCorrupt, n, limit)
	}
	return n, nil
}

// next returns the next entry, with the bodies of it that were freed; io.EOF after the last. dead is
// valid until the next call.
func (m *manifestReader) next() (index uint64, at recordAt, dead []Span, err error) {
	if m.left == 0 {
		return 0, at, nil, io.EOF
	}
	m.left--
	var n [5]uint64
	for i, limit := range [5]uint64{1<<64 - 1, 1<<32 - 1, 1<<32 - 1, maxPayloadBytes, maxPayloadBytes} {
		if n[i], err = m.number(limit); err != nil {
			return 0, at, nil, err
		}
	}
	at = recordAt{seg: uint32(n[1]), offset: uint32(n[2]), length: uint32(n[3])}
	index = m.last + n[0]
	extent, known := m.extents[at.seg]
	switch {
	case n[0] == 0 || index < m.last:
		err = fmt.Errorf("read manifest: %w: indexes do not ascend at %d", ErrCorrupt, m.last)
	case !known || at.offset < segmentHeaderBytes || uint64(at.offset)+at.bytes() > uint64(extent):
		err = fmt.Errorf("read manifest: %w: entry %d outside of segment %d", ErrCorrupt, index, at.seg)
	case at.length <= tableHeadBytes+spanBytes:
		err = fmt.Errorf("read manifest: %w: entry %d of %d bytes", ErrCorrupt, index, at.length)
	default:
		err = m.readDead(&at, n[4])
	}
	m.last = index
	return index, at, m.dead, err
}

// readDead reads count freed bodies.
func (m *manifestReader) readDead(at *recordAt, count uint64) error {
	m.dead = m.dead[:0]
	end := uint64(0)
	for range count {
		gap, err := m.number(maxEntryBytes)
		if err != nil {
			return err
		}
		length, err := m.number(maxEntryBytes)
		if err != nil {
			return err
		}
		s := Span{uint32(end + gap), uint32(length)}
		end += gap + length
		if length == 0 || end > maxEntryBytes || spanCost(s.Length) >= at.left() {
			return fmt.Errorf("read manifest: %w: freed %d bytes at %d of a record of %d",
				ErrCorrupt, length, s.Offset, at.length)
		}
		at.waste += spanCost(s.Length)
		m.dead = append(m.dead, s)
	}
	return nil
}
