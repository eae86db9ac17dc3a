package storage

import (
	"cmp"
	"io"
	"slices"
	"sync"
)

const (
	// maxRunBytes is the size of a run: two entries of the usual limit, and few enough writes that none
	// of them matters.
	maxRunBytes = 512 << 10
	// runsOfCache is into how many runs the memory of bodies is divided at least.
	runsOfCache = 16
	// maxSpareRuns is how many buffers wait to be used again.
	maxSpareRuns = 2
)

// behind keeps the bodies that were put last in memory, in runs. It writes a run when a snapshot names it or the
// memory is wanted. Most messages are settled before, and a run without live bodies is never written. A run is
// written past the page cache. In the cache, bytes that are written once and hardly ever read cost a copy, new pages
// each time, and their way out. Until then the raft log has it all, as before.
//
// Bodies.mu guards it, but for the bytes of the record that a Put is just writing.
type behind struct {
	size  int    // bytes of a run; 0: everything is written at once
	align uint32 // where a run begins in its file, a multiple of this
	dirty int    // closed runs that may wait to be written before the writer begins
	keep  int    // runs that are kept
	// runs are in the order of their places, the oldest first; only the last may be open.
	runs    []*run
	spare   []*run
	changed sync.Cond // a run was closed, written or dropped, or there will be no more
	plain   bool      // the file system has no direct writes
}

// run is a piece of a segment: records one after the other.
type run struct {
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
func (r *run) still() bool { return r.closed && !r.filling && !r.writing }

// place is where a record of an entry begins.
type place struct {
	index  uint64
	offset uint32
}

// newBehind divides limit bytes of memory. Little memory, as tests have, is not worth a block's alignment.
func newBehind(limit int, mu sync.Locker) *behind {
	w := &behind{size: min(limit/runsOfCache, maxRunBytes), align: 1, keep: runsOfCache}
	if w.size >= blockBytes*4 {
		w.size -= w.size % blockBytes
		w.align = blockBytes
		w.keep = limit / w.size
	}
	w.dirty = w.keep / 4
	w.changed.L = mu
	return w
}

// up rounds a place in a file up to where a run may begin.
func (w *behind) up(at uint32) uint32 { return (at + w.align - 1) / w.align * w.align }

// open returns the run that Put appends to, nil if there is none.
func (w *behind) open() *run {
	if n := len(w.runs); n > 0 && !w.runs[n-1].closed {
		return w.runs[n-1]
	}
	return nil
}

// waiting is how many runs are to be written.
func (w *behind) waiting() (n int) {
	for _, r := range w.runs {
		if r.closed && !r.written {
			n++
		}
	}
	return n
}

// record returns a record with its header if it is in memory, nil if it is not.
func (w *behind) record(at recordAt) []byte {
	i, found := slices.BinarySearchFunc(w.runs, at, func(r *run, at recordAt) int {
		return cmp.Or(cmp.Compare(r.seg.id, at.seg), cmp.Compare(r.at, at.offset))
	})
	if !found {
		i--
	}
	if i < 0 || w.runs[i].seg.id != at.seg {
		return nil
	}
	r := w.runs[i]
	from, to := uint64(at.offset-r.at), uint64(at.offset-r.at)+at.bytes()
	if to > uint64(len(r.buf)) {
		return nil
	}
	return r.buf[from:to]
}

// fresh returns an empty run; its memory begins at a multiple of blockBytes.
func (w *behind) fresh(seg *segment, at uint32) *run {
	n := len(w.spare)
	if n == 0 {
		return &run{seg: seg, at: at, buf: alignedBytes(w.size)[:0]}
	}
	r := w.spare[n-1]
	w.spare = w.spare[:n-1]
	*r = run{seg: seg, at: at, buf: r.buf[:0], records: r.records[:0]}
	return r
}

// roomLocked returns the run that takes the next record of n bytes, and waits for the disk if too much
// is not written yet. The caller holds putMu.
func (b *Bodies) roomLocked(n int) (*run, error) {
	w := b.behind
	if r := w.open(); r != nil {
		if len(r.buf)+n <= cap(r.buf) && r.seg.fits(uint64(n), b.limit) {
			return r, nil
		}
		b.closeRunLocked(r)
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
	if seg.size == segmentHeaderBytes { // the block that the header lies in is written with the run
		r.at, r.buf = 0, append(r.buf, segmentHeader(seg.id)...)
	} else {
		seg.size = at
	}
	w.runs = append(w.runs, r)
	return r, nil
}

// closeRunLocked lets nothing more into a run. The next begins in a block of its own, so that no block
// is written twice.
func (b *Bodies) closeRunLocked(r *run) {
	r.closed = true
	r.seg.size = max(r.seg.size, b.behind.up(r.at+uint32(len(r.buf))))
	b.trimLocked()
	b.behind.changed.Broadcast()
}

// neededLocked reports whether a run must be written before it is dropped. It must if an entry in it lives, or lived
// when a pin was taken that has not written its manifest yet.
func (b *Bodies) neededLocked(r *run) bool {
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

// trimLocked drops the oldest runs that nobody needs in memory: dead runs, and written runs beyond keep. Where nobody
// reads, as on a follower, it drops all written runs.
func (b *Bodies) trimLocked() {
	w := b.behind
	for len(w.runs) > 0 {
		r := w.runs[0]
		spent := r.written && (len(w.runs) > w.keep || b.unread >= unreadPuts)
		if !r.still() || !spent && b.neededLocked(r) {
			return
		}
		b.dropRunLocked(0)
	}
}

func (b *Bodies) dropRunLocked(i int) {
	w := b.behind
	r := w.runs[i]
	w.runs = slices.Delete(w.runs, i, i+1)
	if len(w.spare) < maxSpareRuns {
		w.spare = append(w.spare, r)
	}
	if !slices.ContainsFunc(w.runs, func(o *run) bool { return o.seg == r.seg }) {
		r.seg.closeDirect()
	}
}

// resetRunsLocked forgets what the index has forgotten at once, but for what a pin is still to write.
func (b *Bodies) resetRunsLocked() {
	if r := b.behind.open(); r != nil {
		r.closed = true
	}
	for i := len(b.behind.runs) - 1; i >= 0; i-- {
		if r := b.behind.runs[i]; r.still() && (r.written || !b.neededLocked(r)) {
			b.dropRunLocked(i)
		}
	}
	b.behind.changed.Broadcast()
}

// writeBehind is the goroutine that writes the oldest runs when more wait than should.
func (b *Bodies) writeBehind() {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.behind
	for b.failed == nil {
		i := slices.IndexFunc(w.runs, func(r *run) bool { return !r.written && r.still() })
		if i < 0 || w.waiting() <= w.dirty {
			w.changed.Wait()
			continue
		}
		b.writeRunLocked(w.runs[i])
		b.trimLocked()
	}
}

// writeRunLocked writes a closed run that nobody else writes, without mu meanwhile. A failure is for
// ever, as of every write here (R3).
func (b *Bodies) writeRunLocked(r *run) {
	defer b.behind.changed.Broadcast()
	if !b.neededLocked(r) {
		r.written = true
		return
	}
	n := len(r.buf)
	padded := r.buf[:b.behind.up(uint32(n))]
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

// directFS is a file system that can write past the page cache.
type directFS interface {
	// OpenDirect opens an existing file for writes of whole blocks from memory that begins at one.
	OpenDirect(name string) (directFile, error)
}

type directFile interface {
	io.WriterAt
	io.Closer
}

// writerLocked returns what writes the runs of a segment.
func (b *Bodies) writerLocked(seg *segment) io.WriterAt {
	fsys, ok := b.fsys.(directFS)
	if seg.direct == nil && ok && b.behind.align > 1 && !b.behind.plain {
		f, err := fsys.OpenDirect(segmentName(b.dir, seg.id))
		if err != nil {
			b.logger.Info("bodies are written through the page cache", "reason", err)
			b.behind.plain = true
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
	if r := b.behind.open(); r != nil && r.seg == s.seg && r.at < s.extent {
		b.closeRunLocked(r)
	}
	for b.failed == nil {
		i := slices.IndexFunc(b.behind.runs, func(r *run) bool {
			return r.seg == s.seg && r.at < s.extent && !r.written
		})
		switch {
		case i < 0:
			return b.fillLocked(s)
		case !b.behind.runs[i].still():
			b.behind.changed.Wait()
		default:
			b.writeRunLocked(b.behind.runs[i])
		}
	}
	return b.failed
}

// fillLocked makes the file as long as the pin says. Its end may have been a run that was never written,
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
