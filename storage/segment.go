package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// Layout of a segment file (docs/formats/segments.md): a header, then records one after the other.
const (
	segmentMagic       = "BSEG"
	segmentHeaderBytes = 32
	segmentSuffix      = ".seg"

	recordMagic       = "BREC"
	recordHeaderBytes = 20
)

// segment is one file of bodies. Its fields are guarded by Bodies.mu, but for the file itself and
// its id. A segment has a single writer at any time, so its records are completed in order.
type segment struct {
	id     uint32
	file   File
	direct directFile // the same file, past the page cache; nil while nothing is written so
	// size is where the next record goes; end is the end of the last record that is complete.
	size, end uint32
	// written is how long the file is at least, synced the end of what a finished Sync covers.
	written, synced uint32
	// held counts the bytes of records that the index points to, entries their number; need is held
	// without the bodies that were freed: what compaction would keep.
	held    uint64
	need    uint64
	entries int
	// lo and hi bound the indexes that were ever written here; compaction scans no further.
	lo, hi uint64
	// sealed says that nothing will be appended any more.
	sealed bool
	// pins counts snapshots, pins and snapshot readers that may read the segment.
	pins int
	// reads counts reads under way.
	reads int
	// trash says that the segment was given up: it goes when pins and reads are 0.
	trash bool
}

// recordAt says where an entry is. It holds no pointer, so the collector has nothing to follow.
type recordAt struct {
	seg    uint32
	offset uint32 // of the record's header
	length uint32 // of the payload
	// waste is by how much the payload would be shorter without the bodies that were freed. Which ones
	// these are is in Bodies.dead; a record of which nothing was freed has nothing there.
	waste uint32
}

func (r recordAt) bytes() uint64 { return recordHeaderBytes + uint64(r.length) }

func (r recordAt) need() uint64 { return r.bytes() - uint64(r.waste) }

// left is what may still be freed of the record.
func (r recordAt) left() uint32 { return r.length - tableHeadBytes - r.waste }

func segmentName(dir string, id uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%010d%s", id, segmentSuffix))
}

// segmentID reads a file name; ok is false if the file is none of ours.
func segmentID(name string) (id uint32, ok bool) {
	digits, isSegment := strings.CutSuffix(name, segmentSuffix)
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), isSegment && err == nil && len(digits) == 10 && n > 0
}

func segmentHeader(id uint32) []byte {
	h := make([]byte, segmentHeaderBytes)
	copy(h, segmentMagic)
	binary.LittleEndian.PutUint32(h[4:], formatBodies)
	binary.LittleEndian.PutUint32(h[8:], id)
	binary.LittleEndian.PutUint32(h[12:], sum(h[:12]))
	return h
}

// checkHeader verifies that the file is the segment id and at least extent bytes long.
func checkHeader(f File, id, extent uint32) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size < int64(extent) || extent < segmentHeaderBytes {
		return fmt.Errorf("%w: %d bytes long, want %d", ErrCorrupt, size, extent)
	}
	h := make([]byte, segmentHeaderBytes)
	if err := readFull(f, h, 0); err != nil {
		return err
	}
	if string(h) != string(segmentHeader(id)) {
		return fmt.Errorf("%w: header of another segment or version", ErrCorrupt)
	}
	return nil
}

// putRecordHeader fills the header of a record; rec holds the payload behind it already. The checksum
// covers the id of the segment, so what a recycled file still holds is never taken for a record.
func putRecordHeader(rec []byte, seg uint32, index uint64) {
	copy(rec, recordMagic)
	binary.LittleEndian.PutUint64(rec[4:], index)
	binary.LittleEndian.PutUint32(rec[12:], uint32(len(rec)-recordHeaderBytes))
	binary.LittleEndian.PutUint32(rec[16:], recordSum(rec, seg))
}

func recordSum(rec []byte, seg uint32) uint32 {
	var id [4]byte
	binary.LittleEndian.PutUint32(id[:], seg)
	return sum(id[:], rec[:16], rec[recordHeaderBytes:])
}

// readRecord reads and verifies the record of an entry. The result is the record with its header.
func readRecord(f File, at recordAt, index uint64) ([]byte, error) {
	rec := make([]byte, at.bytes())
	if err := readFull(f, rec, int64(at.offset)); err != nil {
		return nil, fmt.Errorf("body of entry %d in segment %d: %w", index, at.seg, err)
	}
	ok := string(rec[:4]) == recordMagic &&
		binary.LittleEndian.Uint64(rec[4:]) == index &&
		binary.LittleEndian.Uint32(rec[12:]) == at.length &&
		binary.LittleEndian.Uint32(rec[16:]) == recordSum(rec, at.seg)
	if !ok || table(rec[recordHeaderBytes:]).check() != nil {
		return nil, fmt.Errorf("body of entry %d in segment %d at %d: %w",
			index, at.seg, at.offset, ErrCorrupt)
	}
	return rec, nil
}

// fits reports whether a record of n bytes may be appended to a segment of a normal size.
func (s *segment) fits(n uint64, limit int) bool {
	return uint64(s.size)+n <= uint64(limit)
}

// reserve gives the next n bytes of the segment to its writer.
func (s *segment) reserve(n uint64) (offset uint32, err error) {
	if uint64(s.size)+n > math.MaxUint32 {
		return 0, fmt.Errorf("segment %d is full", s.id)
	}
	offset = s.size
	s.size += uint32(n)
	return offset, nil
}

// hold counts a record that the index now points to.
func (s *segment) hold(index uint64, at recordAt) {
	if s.lo == 0 || index < s.lo {
		s.lo = index
	}
	s.hi = max(s.hi, index)
	s.end = max(s.end, at.offset+uint32(at.bytes()))
	s.held += at.bytes()
	s.need += at.need()
	s.entries++
}

// release counts a record that the index points to no more.
func (s *segment) release(at recordAt) {
	s.held -= at.bytes()
	s.need -= at.need()
	s.entries--
}

// idle reports whether nobody needs the file any more.
func (s *segment) idle() bool {
	return s.sealed && s.entries == 0 && s.pins == 0 && s.reads == 0
}

// sparse reports whether moving what is needed of the segment gains at least half of it.
func (s *segment) sparse() bool {
	return s.sealed && !s.trash && s.entries > 0 && s.need*2 < uint64(s.size)
}
