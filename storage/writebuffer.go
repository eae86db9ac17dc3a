package storage

import (
	"cmp"
	"io"
	"slices"
	"sync"
)

const (
	// maxExtentBytes is the size of an extent: two entries of the usual limit, and few enough writes that none
	// of them matters.
	maxExtentBytes = 512 << 10
	// extentsOfCache is into how many extents the memory of bodies is divided at least.
	extentsOfCache = 16
	// maxSpareRuns is how many buffers wait to be used again.
	maxSpareRuns = 2
)

// writeBuffer keeps the bodies that were put last in memory, in extents. It writes an extent when a snapshot names it or the
// memory is wanted. Most messages are settled before, and an extent without live bodies is never written. An extent is
// written past the page cache. In the cache, bytes that are written once and hardly ever read cost a copy, new pages
// each time, and their way out. Until then the raft log has it all, as before.
//
// Bodies.mu guards it, but for the bytes of the record that a Put is just writing.
type writeBuffer struct {
	size  int    // bytes of an extent; 0: everything is written at once
	align uint32 // where an extent begins in its file, a multiple of this
	dirty int    // closed extents that may wait to be written before the writer begins
	keep  int    // extents that are kept
	// extents are in the order of their places, the oldest first; only the last may be open.
	extents []*extent
	spare   []*extent
	changed sync.Cond // an extent was closed, written or dropped, or there will be no more
	plain   bool      // the file system has no direct writes
}

// extent is a piece of a segment: records one after the other.
type extent struct {
	seg     *segment
	at      uint32 // where it begins in the file
	buf     []byte // up to the end of its last record
	records []place
	filling bool // a Put copies a record into buf
	closed  bool // nothing is appended any more
	writing bool // buf is on its way to the disk
	written bool // or need not be
}

// still reports whether nobody reads or writes buf without mu.
func (r *extent) still() bool { return r.closed && !r.filling && !r.writing }

// place is where a record of an entry begins.
type place struct {
	index  uint64
	offset uint32
}

// newBehind divides limit bytes of memory. Little memory, as tests have, is not worth a block's alignment.
func newWriteBuffer(limit int, mu sync.Locker) *writeBuffer {
	w := &writeBuffer{size: min(limit/extentsOfCache, maxExtentBytes), align: 1, keep: extentsOfCache}
	if w.size >= blockBytes*4 {
		w.size -= w.size % blockBytes
		w.align = blockBytes
		w.keep = limit / w.size
	}
	w.dirty = w.keep / 4
	w.changed.L = mu
	return w
}

// up rounds a place in a file up to where an extent may begin.
func (w *writeBuffer) up(at uint32) uint32 { return (at + w.align - 1) / w.align * w.align }

// open returns the extent that Put appends to, nil if there is none.
func (w *writeBuffer) open() *extent {
	if n := len(w.extents); n > 0 && !w.extents[n-1].closed {
		return w.extents[n-1]
	}
	return nil
}

// waiting is how many extents are to be written.
func (w *writeBuffer) waiting() (n int) {
	for _, r := range w.extents {
		if r.closed && !r.written {
			n++
		}
	}
	return n
}

// record returns a record with its header if it is in memory, nil if it is not.
func (w *writeBuffer) record(at recordAt) []byte {
	i, found := slices.BinarySearchFunc(w.extents, at, func(r *extent, at recordAt) int {
		return cmp.Or(cmp.Compare(r.seg.id, at.seg), cmp.Compare(r.at, at.offset))
	})
	if !found {
		i--
	}
	if i < 0 || w.extents[i].seg.id != at.seg {
		return nil
	}
	r := w.extents[i]
	from, to := uint64(at.offset-r.at), uint64(at.offset-r.at)+at.bytes()
	if to > uint64(len(r.buf)) {
		return nil
	}
	return r.buf[from:to]
}

// fresh returns an empty extent; its memory begins at a multiple of blockBytes.
func (w *writeBuffer) fresh(seg *segment, at uint32) *extent {
	n := len(w.spare)
	if n == 0 {
		return &extent{seg: seg, at: at, buf: alignedBytes(w.size)[:0]}
	}
	r := w.spare[n-1]
	w.spare = w.spare[:n-1]
	*r = extent{seg: seg, at: at, buf: r.buf[:0], records: r.records[:0]}
	return r
}

// roomLocked returns the extent that takes the next record of n bytes, and waits for the disk if too much
// is not written yet. The caller holds putMu.
func (b *Bodies) roomLocked(n int) (*extent, error) {
	w := b.buffer
	if r := w.open(); r != nil {
		if len(r.buf)+n <= cap(r.buf) && r.seg.fits(uint64(n), b.limit) {
			return r, nil
		}
		b.closeExtentLocked(r)
	}
	for b.failed == nil && w.waiting() > 2*w.dirty+1 {
		w.changed.Wait()
	}
	at := uint32(0)
	if b.hot != nil {
		at = w.up(b.hot.size)
		n += int(at - b.hot.size)
	}
	seg, err := b.writableLocked(&b.hot, uint64(n))
	if err != nil {
		return nil, err
	}
	r := w.fresh(seg, at)
	if seg.size == segmentHeaderBytes { // the block that the header lies in is written with the extent
		r.at, r.buf = 0, append(r.buf, segmentHeader(seg.id)...)
	} else {
		seg.size = at
	}
	w.extents = append(w.extents, r)
	return r, nil
}

// closeExtentLocked lets nothing more into an extent. The next begins in a block of its own, so that no block
// is written twice.
func (b *Bodies) closeExtentLocked(r *extent) {
	r.closed = true
	r.seg.size = max(r.seg.size, b.buffer.up(r.at+uint32(len(r.buf))))
	b.trimLocked()
	b.buffer.changed.Broadcast()
}

// neededLocked reports whether an extent must be written before it is dropped. It must if an entry in it lives, or lived
// when a pin was taken that has not written its manifest yet.
func (b *Bodies) neededLocked(r *extent) bool {
	for _, p := range b.pins {
		for _, s := range p.segs {
			if s.seg == r.seg && r.at < s.extent {
				return true
			}
		}
	}
	return slices.ContainsFunc(r.records, func(p place) bool {
		at, ok := b.index.Get(p.index)
		return ok && at.seg == r.seg.id && at.offset == p.offset
	})
}

// trimLocked drops the oldest extents that nobody needs in memory: dead extents, and written extents beyond keep. Where nobody
// reads, as on a follower, it drops all written extents.
func (b *Bodies) trimLocked() {
	w := b.buffer
	for len(w.extents) > 0 {
		r := w.extents[0]
		spent := r.written && (len(w.extents) > w.keep || b.unread >= unreadPuts)
		if !r.still() || !spent && b.neededLocked(r) {
			return
		}
		b.dropRunLocked(0)
	}
}

func (b *Bodies) dropRunLocked(i int) {
	w := b.buffer
	r := w.extents[i]
	w.extents = slices.Delete(w.extents, i, i+1)
	if len(w.spare) < maxSpareRuns {
		w.spare = append(w.spare, r)
	}
	if !slices.ContainsFunc(w.extents, func(o *extent) bool { return o.seg == r.seg }) {
		r.seg.closeDirect()
	}
}

// resetRunsLocked forgets what the index has forgotten at once, but for what a pin is still to write.
func (b *Bodies) resetRunsLocked() {
	if r := b.buffer.open(); r != nil {
		r.closed = true
	}
	for i := len(b.buffer.extents) - 1; i >= 0; i-- {
		if r := b.buffer.extents[i]; r.still() && (r.written || !b.neededLocked(r)) {
			b.dropRunLocked(i)
		}
	}
	b.buffer.changed.Broadcast()
}

// writeExtents is the goroutine that writes the oldest extents when more wait than should.
func (b *Bodies) writeExtents() {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.buffer
	for b.failed == nil {
		i := slices.IndexFunc(w.extents, func(r *extent) bool { return !r.written && r.still() })
		if i < 0 || w.waiting() <= w.dirty {
			w.changed.Wait()
			continue
		}
		b.writeExtentLocked(w.extents[i])
		b.trimLocked()
	}
}

// writeExtentLocked writes a closed extent that nobody else writes, without mu meanwhile. A failure is for
// ever, as of every write here (R3).
func (b *Bodies) writeExtentLocked(r *extent) {
	defer b.buffer.changed.Broadcast()
	if !b.neededLocked(r) {
		r.written = true
		return
	}
	n := len(r.buf)
	padded := r.buf[:b.buffer.up(uint32(n))]
	clear(padded[n:])
	out := b.writerLocked(r.seg)
	r.writing = true
	r.seg.reads++ // the file is not used again for something else meanwhile
	b.mu.Unlock()
	_, err := out.WriteAt(padded, int64(r.at))
	if err != nil && refused(err) {
		_, err = r.seg.file.WriteAt(padded, int64(r.at))
	}
	b.mu.Lock()
	r.seg.reads--
	r.writing = false
	if err != nil {
		_ = b.failLocked(err)
	} else {
		r.written = true
		r.seg.written = max(r.seg.written, r.at+uint32(len(padded)))
		b.stats.Runs++
	}
	b.retireLocked(r.seg)
}

// writerLocked returns what writes the extents of a segment.
func (b *Bodies) writerLocked(seg *segment) io.WriterAt {
	fsys, ok := b.fsys.(directFS)
	if seg.direct == nil && ok && b.buffer.align > 1 && !b.buffer.plain {
		f, err := fsys.OpenDirect(segmentName(b.dir, seg.id))
		if err != nil {
			b.logger.Info("bodies are written through the page cache", "reason", err)
			b.buffer.plain = true
		} else {
			seg.direct = f
		}
	}
	if seg.direct == nil {
		return seg.file
	}
	return seg.direct
}

// closeDirect gives the second handle of a file back. Bytes that were written through it are checked at the sync,
// through the first handle.
func (s *segment) closeDirect() {
	if s.direct != nil {
		_ = s.direct.Close()
		s.direct = nil
	}
}

// flush writes what a pin needs of a segment and has only in memory.
func (b *Bodies) flush(s pinnedSegment) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.buffer.open(); r != nil && r.seg == s.seg && r.at < s.extent {
		b.closeExtentLocked(r)
	}
	for b.failed == nil {
		i := slices.IndexFunc(b.buffer.extents, func(r *extent) bool {
			return r.seg == s.seg && r.at < s.extent && !r.written
		})
		switch {
		case i < 0:
			return b.fillLocked(s)
		case !b.buffer.extents[i].still():
			b.buffer.changed.Wait()
		default:
			b.writeExtentLocked(b.buffer.extents[i])
		}
	}
	return b.failed
}

// fillLocked makes the file as long as the pin says. Its end may have been an extent that was never written,
// because nothing in it lived.
func (b *Bodies) fillLocked(s pinnedSegment) error {
	if s.seg.written >= s.extent {
		return nil
	}
	if _, err := s.seg.file.WriteAt([]byte{0}, int64(s.extent-1)); err != nil {
		return b.failLocked(err)
	}
	s.seg.written = s.extent
	return nil
}
