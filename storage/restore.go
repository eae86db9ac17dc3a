package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
	"github.com/tidwall/btree"
)

// readStepBytes is how much of an entry is allocated before the bytes before it have arrived.
const readStepBytes = 1 << 20

// maxWrappers bounds how many readers are peeled off to find the snapshot's own; raft adds one.
const maxWrappers = 8

// Restore makes the kept bytes those of a snapshot. r is the reader that raft gave to FSM.Restore. The image has been
// read from it already, and not a byte more. For a snapshot made on this disk the segments are attached without
// reading a body; any other stream carries the bodies, which go to fresh segments. After an error the bodies are what
// they were; the replica must not go on.
func (b *Bodies) Restore(r io.Reader) error {
	b.putMu.Lock()
	defer b.putMu.Unlock()
	b.compactMu.Lock()
	defer b.compactMu.Unlock()

	// First, because a full disk may have no other room for the bodies of the snapshot.
	err := b.dropUnknown()
	if err == nil {
		if s := ownSnapshot(r, b); s != nil && s.hasManifest() {
			err = b.attach(s)
		} else {
			err = b.readInline(r)
		}
	}
	if err != nil {
		return fmt.Errorf("restore bodies: %w", err)
	}
	return nil
}

// ownSnapshot finds our reader under raft's wrappers.
func ownSnapshot(r io.Reader, b *Bodies) *snapshotReader {
	for range maxWrappers {
		switch w := r.(type) {
		case *snapshotReader:
			if w.store.bodies == b {
				return w
			}
			return nil
		case raft.ReadCloserWrapper:
			r = w.WrappedReadCloser()
		default:
			return nil
		}
	}
	return nil
}

// attach takes the index out of the manifest of a snapshot; its segments are open and pinned.
func (b *Bodies) attach(s *snapshotReader) error {
	m, err := s.takeManifest()
	if err != nil {
		return err
	}
	index, dead := btree.NewMap[uint64, recordAt](0), newDead()
	for {
		i, at, freed, err := m.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		index.Set(i, at)
		for _, s := range freed {
			dead.Set(deadBody{i, s})
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.replaceLocked(index, dead)
}

// readInline reads a block that carries the bodies and writes them to fresh segments.
func (b *Bodies) readInline(r io.Reader) (err error) {
	var slot *segment
	var fresh []pinnedSegment
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if slot != nil {
			b.sealLocked(slot)
		}
		b.unpinLocked(fresh)
	}()
	index := btree.NewMap[uint64, recordAt](0)
	err = scanInline(r, func(i uint64, rec []byte) error {
		b.mu.Lock()
		seg, err := b.writableLocked(&slot, uint64(len(rec)))
		if err == nil && (len(fresh) == 0 || fresh[len(fresh)-1].seg != seg) {
			seg.pins++ // so that it is not given up before the index points to it
			fresh = append(fresh, pinnedSegment{seg: seg})
		}
		var offset uint32
		if err == nil {
			offset, err = seg.reserve(uint64(len(rec)))
		}
		b.mu.Unlock()
		if err != nil {
			return err
		}
		putRecordHeader(rec, seg.id, i)
		if _, err := seg.file.WriteAt(rec, int64(offset)); err != nil {
			return b.fail(err)
		}
		b.mu.Lock()
		seg.written = max(seg.written, offset+uint32(len(rec)))
		b.mu.Unlock()
		index.Set(i, recordAt{seg: seg.id, offset: offset,
			length: uint32(len(rec) - recordHeaderBytes)})
		return nil
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.replaceLocked(index, newDead())
}

// scanInline reads an inline block from r, exactly to its end, and gives each entry to keep. rec has the payload
// behind room for a record's header, and is used again afterwards.
func scanInline(r io.Reader, keep func(index uint64, rec []byte) error) error {
	crc := crc32.New(castagnoli())
	length := uint64(0)
	read := func(p []byte) error {
		n, err := io.ReadFull(r, p)
		length += uint64(n)
		_, _ = crc.Write(p[:n])
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	head := make([]byte, blockHeaderBytes+inlineCountBytes)
	if err := read(head); err != nil {
		return fmt.Errorf("read block of bodies: %w", err)
	}
	if string(head[:blockHeaderBytes]) != string(blockHeader(kindInline, 0)) {
		return fmt.Errorf("read block of bodies: %w: header", ErrCorrupt)
	}
	want := blockTrailer{kind: kindInline, entries: binary.LittleEndian.Uint64(head[blockHeaderBytes:])}
	var rec []byte
	var last uint64
	for range want.entries {
		var h [inlineEntryBytes]byte
		if err := read(h[:]); err != nil {
			return fmt.Errorf("read body after entry %d: %w", last, err)
		}
		index, n := binary.LittleEndian.Uint64(h[0:]), binary.LittleEndian.Uint32(h[8:])
		if index <= last || n > maxPayloadBytes {
			return fmt.Errorf("read body after entry %d: %w: entry %d, %d bytes",
				last, ErrCorrupt, index, n)
		}
		last = index
		rec = append(rec[:0], make([]byte, recordHeaderBytes)...)
		for left := int(n); left > 0; { // a length alone must not make us allocate
			step := min(left, readStepBytes)
			at := len(rec)
			rec = slices.Grow(rec, step)[:at+step]
			if err := read(rec[at:]); err != nil {
				return fmt.Errorf("read body of entry %d: %w", index, err)
			}
			left -= step
		}
		payload := rec[recordHeaderBytes:]
		if h != inlineHead(index, payload) {
			return fmt.Errorf("read body of entry %d: %w: checksum", index, ErrCorrupt)
		}
		if err := table(payload).check(); err != nil {
			return fmt.Errorf("read body of entry %d: %w", index, err)
		}
		want.bytes += uint64(n)
		if err := keep(index, rec); err != nil {
			return err
		}
	}
	want.length = length + blockTrailerBytes
	_, _ = crc.Write(want.body())
	want.sum = crc.Sum32()
	end := make([]byte, blockTrailerBytes)
	if _, err := io.ReadFull(r, end); err != nil {
		return fmt.Errorf("read end of bodies: %w", io.ErrUnexpectedEOF)
	}
	if string(end) != string(want.encode()) {
		return fmt.Errorf("read end of bodies: %w: trailer", ErrCorrupt)
	}
	return nil
}

// replaceLocked makes index the index. The segments it points to are open and pinned.
func (b *Bodies) replaceLocked(index *btree.Map[uint64, recordAt],
	dead *btree.BTreeG[deadBody]) error {
	if b.failed != nil {
		return b.failed
	}
	for _, slot := range []**segment{&b.hot, &b.cold} {
		if *slot != nil {
			(*slot).sealed = true
			*slot = nil
		}
	}
	for _, seg := range b.segments {
		seg.entries, seg.held, seg.need, seg.lo, seg.hi = 0, 0, 0, 0, 0
	}
	b.back.reset()
	b.index, b.dead = index, dead
	b.resetRunsLocked()
	b.need, b.sealed = 0, 0
	index.Scan(func(i uint64, at recordAt) bool {
		b.holdLocked(b.segments[at.seg], i, at)
		return true
	})
	for _, seg := range b.segments {
		b.retireLocked(seg)
	}
	return nil
}

// dropUnknown deletes the files that neither the index nor a snapshot knows: bodies above the last
// snapshot, of before a restart. They come again from the log.
func (b *Bodies) dropUnknown() error {
	entries, err := b.fsys.ReadDir(b.dir)
	if err != nil {
		return fmt.Errorf("list bodies: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known := make(map[uint32]bool, len(b.segments)+len(b.free))
	for id := range b.segments {
		known[id] = true
	}
	for _, seg := range b.free {
		known[seg.id] = true
	}
	for _, e := range entries {
		if id, ok := segmentID(e.Name()); ok && !known[id] && id <= b.nextID {
			err := b.fsys.Remove(filepath.Join(b.dir, e.Name()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove old bodies: %w", err)
			}
		}
	}
	return nil
}
