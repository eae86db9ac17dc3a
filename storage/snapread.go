package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// snapshotReader yields a snapshot: its image, then the bodies it refers to as an inline block made
// up while it is read. Bodies.Restore on the same node takes the manifest instead.
type snapshotReader struct {
	store *Snapshots
	snap  *snapshot
	file  File
	name  string
	image *chunkReader
	// inline is the source of the second part; nil before, and if the data carries the bodies.
	inline *inlineReader
	closed bool
}

func (r *snapshotReader) hasManifest() bool { return r.snap.head.Manifest != nil }

// Read verifies what it returns; the error names the file and wraps ErrCorrupt if it is damaged.
func (r *snapshotReader) Read(p []byte) (int, error) {
	if r.closed {
		return 0, fmt.Errorf("read snapshot %s: %w", r.snap.id, ErrClosed)
	}
	if r.inline == nil {
		n, err := r.image.Read(p)
		if !errors.Is(err, io.EOF) || !r.hasManifest() {
			return n, err
		}
		m, err := r.manifest()
		if err != nil {
			return 0, err
		}
		r.inline = newInlineReader(m, r.segments(), r.snap.head.Manifest.Entries)
	}
	n, err := r.inline.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("read snapshot %s: %w", r.snap.id, err)
	}
	return n, err
}

// takeManifest gives the manifest to Restore, once the image was read and nothing after it.
func (r *snapshotReader) takeManifest() (*manifestReader, error) {
	if r.closed || r.inline != nil || r.image.pos != r.image.end {
		return nil, errNotAtBodies
	}
	return r.manifest()
}

func (r *snapshotReader) manifest() (*manifestReader, error) {
	h := &r.snap.head
	// The trailer is left out: its checksum is of the same bytes that the chunks' cover.
	end := h.Stored - blockTrailerBytes
	chunks, err := newChunkReader(r.file, r.name, h.Stored, h.Image, end)
	if err != nil {
		return nil, err
	}
	want, err := h.trailer()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.snap.id, err)
	}
	m, err := readManifest(chunks, want)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	if len(m.extents) != len(r.snap.segs) {
		return nil, fmt.Errorf("%s: %w: %d segments, header has %d",
			r.name, ErrCorrupt, len(m.extents), len(r.snap.segs))
	}
	for _, s := range r.snap.segs {
		if m.extents[s.seg.id] != s.extent {
			return nil, fmt.Errorf("%s: %w: segment %d is not the header's", r.name, ErrCorrupt, s.seg.id)
		}
	}
	return m, nil
}

// segments returns the files of the pinned segments; they stay open while the snapshot is pinned.
func (r *snapshotReader) segments() map[uint32]File {
	files := make(map[uint32]File, len(r.snap.segs))
	for _, s := range r.snap.segs {
		files[s.seg.id] = s.seg.file
	}
	return files
}

// Close gives the segments back.
func (r *snapshotReader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.file.Close()
	r.store.release(r.snap)
	return err
}

// entries gives entries of an index in order; io.EOF after the last. dead is valid until the next call.
type entries interface {
	next() (index uint64, at recordAt, dead []Span, err error)
}

// inlineReader makes an inline block out of entries and the segments that they name.
type inlineReader struct {
	entries entries
	files   map[uint32]File
	out     []byte // what is to be read next
	crc     hash.Hash32
	trailer blockTrailer
	ended   bool
}

func newInlineReader(e entries, files map[uint32]File, count uint64) *inlineReader {
	r := &inlineReader{entries: e, files: files, crc: crc32.New(castagnoli()),
		trailer: blockTrailer{kind: kindInline, entries: count}}
	r.emit(binary.LittleEndian.AppendUint64(blockHeader(kindInline, 0), count))
	return r
}

func (r *inlineReader) emit(b []byte) {
	_, _ = r.crc.Write(b)
	r.trailer.length += uint64(len(b))
	r.out = b
}

func (r *inlineReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.ended {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// fill reads the next entry, or ends the block.
func (r *inlineReader) fill() error {
	index, at, dead, err := r.entries.next()
	if errors.Is(err, io.EOF) {
		r.ended = true
		r.trailer.length += blockTrailerBytes
		_, _ = r.crc.Write(r.trailer.body())
		r.trailer.sum = r.crc.Sum32()
		r.out = r.trailer.encode()
		return nil
	}
	if err != nil {
		return err
	}
	rec, err := readRecord(r.files[at.seg], at, index)
	if err != nil {
		return err
	}
	if rec, err = pruned(rec, dead); err != nil {
		return fmt.Errorf("body of entry %d in segment %d: %w", index, at.seg, err)
	}
	// The header of an inline entry is not longer than that of a record, whose place it takes.
	payload := rec[recordHeaderBytes:]
	head := inlineHead(index, payload)
	copy(rec[recordHeaderBytes-inlineEntryBytes:], head[:])
	r.trailer.bytes += uint64(len(payload))
	r.emit(rec[recordHeaderBytes-inlineEntryBytes:])
	return nil
}
