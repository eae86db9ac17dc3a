package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/tidwall/btree"
)

// Errors of the bodies, for callers who branch.
var (
	// ErrNoBody says that no entry with that index is kept: it was freed, or never put.
	ErrNoBody = fmt.Errorf("no body is kept for the entry: %w", fs.ErrNotExist)
	// ErrBodyRange says that the bytes asked for lie outside what is kept of the entry.
	ErrBodyRange = fmt.Errorf("range outside the entry: %w", fs.ErrNotExist)
)

// maxFreeSegments is how many empty segment files wait to be used again. A file whose blocks are
// written already costs half of the sync of a new one; more than two are never needed at once.
const maxFreeSegments = 2

// Bodies keeps the bytes of log entries that messages of the state refer to (A9), in segment files. The raft log is
// their write-ahead log: Put does not sync, and writes nothing while there is memory (behind). Bodies that a snapshot
// refers to are written and synced before its manifest is. Everything later comes again through Put when the log is
// replayed.
//
// Put, Free, Pin and Restore come from one goroutine, the state machine's; Read, and a pin's
// WriteTo and Close, from any.
type Bodies struct {
	dir    string
	fsys   FS
	limit  int // bytes of a segment
	logger hclog.Logger

	// putMu orders the writers of the hot segment: Put and Restore.
	putMu   sync.Mutex
	scratch []byte // of Put, for what no extent has room for
	// compactMu orders the steps of compaction and Restore, which replaces what they work on.
	compactMu sync.Mutex

	mu       sync.Mutex
	failed   error // sticky: the first failed write, or ErrClosed
	index    *btree.Map[uint64, recordAt]
	dead     *btree.BTreeG[deadBody] // freed bodies of entries that live
	need     uint64                  // of all segments
	sealed   uint64                  // bytes of sealed segments with entries
	segments map[uint32]*segment
	free     []*segment // empty files to use again
	hot      *segment   // takes what Put brings
	cold     *segment   // takes what compaction moves; old messages are apart from young ones
	nextID   uint32
	dirDirty bool // a name in the directory is newer than the last SyncDir
	buffer   *writeBuffer
	unread   int // entries put since somebody read, up to unreadPuts
	back     readBack
	pins     map[uint64]*pin // by nonce
	stats    BodyStats

	work chan struct{} // wakes the sweeper; capacity 1
	stop chan struct{}
	done sync.WaitGroup
}

// BodyStats are counters and levels of the bodies of a group.
type BodyStats struct {
	Puts, PutBytes       uint64
	CacheHits, CacheMiss uint64
	Freed                uint64 // entries of which nothing lives any more
	OverFreed            uint64 // frees of what did not live: a broken caller
	Rotations, Recycled  uint64
	Compacted            uint64 // segments emptied by compaction
	CompactedBytes       uint64
	Syncs                uint64
	Runs                 uint64 // writes of what was kept in memory before

	Entries   uint64 // kept now
	Dead      uint64 // freed bodies of entries that live
	LiveBytes uint64 // of records, without the bodies that were freed
	HeldBytes uint64 // of records with something alive in them
	DiskBytes uint64 // of segment files in use
	Segments  uint64
	Pinned    uint64 // segments that a snapshot or a reader needs
}

// openBodies opens the directory of segments. Its segments stay until the snapshots have said what they need
// (claimSegments), and one of them is restored or there is none (dropUnknown).
func openBodies(fsys FS, dir string, cfg Config, logger hclog.Logger) (*Bodies, error) {
	if err := makeDirs(fsys, dir); err != nil {
		return nil, err
	}
	b := &Bodies{
		dir: dir, fsys: fsys, limit: cfg.BodySegmentBytes, logger: logger,
		index: btree.NewMap[uint64, recordAt](0), dead: newDead(),
		segments: map[uint32]*segment{},
		dirDirty: true, // a process that was killed may have left names that were not synced
		back:     readBack{limit: cfg.BodyCacheBytes / 4},
		pins:     map[uint64]*pin{},
		work:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
	}
	b.buffer = newWriteBuffer(cfg.BodyCacheBytes, &b.mu)
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open bodies: %w", err)
	}
	for _, e := range entries {
		if id, ok := segmentID(e.Name()); ok {
			b.nextID = max(b.nextID, id)
		}
	}
	b.done.Go(b.sweep)
	b.done.Go(b.writeExtents)
	return b, nil
}

// forgetLocked removes an entry from the index and the caches.
func (b *Bodies) forgetLocked(index uint64) {
	at, ok := b.index.Delete(index)
	if !ok {
		return
	}
	b.back.drop(index)
	if at.waste > 0 {
		for _, s := range b.deadOfLocked(index) {
			b.dead.Delete(deadBody{index, s})
		}
	}
	seg := b.segments[at.seg]
	b.releaseLocked(seg, at)
	b.retireLocked(seg)
}

// holdLocked and releaseLocked keep the totals of all segments along with those of one.
func (b *Bodies) holdLocked(seg *segment, index uint64, at recordAt) {
	if seg.sealed && seg.entries == 0 {
		b.sealed += uint64(seg.size)
	}
	seg.hold(index, at)
	b.need += at.need()
}

func (b *Bodies) releaseLocked(seg *segment, at recordAt) {
	seg.release(at)
	b.need -= at.need()
	if seg.sealed && seg.entries == 0 {
		b.sealed -= uint64(seg.size)
	}
}

// Read returns length bytes at offset of the entry, which lie within one body, in memory of the
// caller's own. The error wraps ErrNoBody or ErrBodyRange, and both wrap fs.ErrNotExist, if the body was
// freed; a body that was freed may be there for a while. Any other error is one of the disk, such as
// ErrCorrupt, names the file, and means that the replica must stop.
func (b *Bodies) Read(index uint64, offset, length uint32) ([]byte, error) {
	b.mu.Lock()
	if b.failed != nil && errors.Is(b.failed, ErrClosed) {
		b.mu.Unlock()
		return nil, ErrClosed
	}
	b.unread = 0
	at, ok := b.index.Get(index)
	if !ok {
		b.mu.Unlock()
		return nil, fmt.Errorf("read body of entry %d: %w", index, ErrNoBody)
	}
	payload, ok := b.back.get(index)
	if rec := b.buffer.record(at); rec != nil {
		payload, ok = rec[recordHeaderBytes:], true
	}
	if ok {
		b.stats.CacheHits++
		out, err := bodyOf(payload, index, offset, length)
		b.mu.Unlock()
		return out, err
	}
	b.stats.CacheMiss++
	seg := b.segments[at.seg]
	seg.reads++
	b.mu.Unlock()

	// The whole record is read, because its checksum covers all of it. The neighbours of a message in its entry are
	// usually wanted next, too.
	rec, err := readRecord(seg.file, at, index)

	b.mu.Lock()
	defer b.mu.Unlock()
	seg.reads--
	b.retireLocked(seg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", segmentName(b.dir, at.seg), err)
	}
	payload = rec[recordHeaderBytes:]
	if now, ok := b.index.Get(index); ok && now.seg == at.seg && now.offset == at.offset {
		b.back.add(index, payload)
	}
	return bodyOf(payload, index, offset, length)
}

// bodyOf copies a body, or a part of one, out of a payload.
func bodyOf(payload []byte, index uint64, offset, length uint32) ([]byte, error) {
	body, ok := table(payload).body(offset, length)
	if !ok {
		return nil, fmt.Errorf("read body of entry %d: %d bytes at %d: %w",
			index, length, offset, ErrBodyRange)
	}
	return bytes.Clone(body), nil
}

// Free says that the body of length bytes at offset of the entry is referred to no more. With the last
// body the entry is gone, and with the last entry of a segment the segment; until then compaction gives
// back what was freed.
func (b *Bodies) Free(index uint64, offset, length uint32) {
	if length == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.index.Get(index)
	if !ok || length > math.MaxUint32-spanBytes || spanCost(length) > at.left() {
		b.stats.OverFreed++
		return
	}
	if spanCost(length) == at.left() {
		b.stats.Freed++
		b.forgetLocked(index)
		return
	}
	if _, twice := b.dead.Set(deadBody{index, Span{offset, length}}); twice {
		b.stats.OverFreed++
		return
	}
	at.waste += spanCost(length)
	b.index.Set(index, at)
	seg := b.segments[at.seg]
	seg.need -= uint64(spanCost(length))
	b.need -= uint64(spanCost(length))
	if b.crowdedLocked() {
		b.wake()
	}
}

// deadBody is a body that was freed while others of its entry live. It holds no pointer.
type deadBody struct {
	index uint64
	Span
}

func newDead() *btree.BTreeG[deadBody] {
	return btree.NewBTreeGOptions(func(a, b deadBody) bool {
		if a.index != b.index {
			return a.index < b.index
		}
		return a.Offset < b.Offset
	}, btree.Options{NoLocks: true})
}

// deadOf returns the freed bodies of an entry, ascending.
func deadOf(dead *btree.BTreeG[deadBody], index uint64) (spans []Span) {
	dead.Ascend(deadBody{index: index}, func(d deadBody) bool {
		if d.index != index {
			return false
		}
		spans = append(spans, d.Span)
		return true
	})
	return spans
}

func (b *Bodies) deadOfLocked(index uint64) []Span { return deadOf(b.dead, index) }

// Stats returns the counters and levels.
func (b *Bodies) Stats() BodyStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Entries, s.Dead, s.LiveBytes = uint64(b.index.Len()), uint64(b.dead.Len()), b.need
	for _, seg := range b.segments {
		s.Segments++
		s.HeldBytes += seg.held
		s.DiskBytes += uint64(seg.size)
		if seg.pins > 0 {
			s.Pinned++
		}
	}
	return s
}

// Close stops the sweeper and closes the files. Nothing is synced: what no snapshot names comes
// again from the log.
func (b *Bodies) Close() error {
	b.mu.Lock()
	if errors.Is(b.failed, ErrClosed) {
		b.mu.Unlock()
		return nil
	}
	b.failed = ErrClosed
	close(b.stop)
	b.buffer.changed.Broadcast()
	b.mu.Unlock()
	b.done.Wait()

	b.putMu.Lock() // a Put under way has its file until it is done
	defer b.putMu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, r := range b.buffer.extents {
		r.seg.closeDirect()
	}
	for _, seg := range b.segments {
		errs = append(errs, seg.file.Close())
	}
	for _, seg := range b.free {
		errs = append(errs, seg.file.Close())
	}
	b.free = nil
	return errors.Join(errs...)
}

// fail makes an error sticky: nothing is written after a failed write (R3).
func (b *Bodies) fail(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failLocked(err)
}

func (b *Bodies) failLocked(err error) error {
	if b.failed == nil {
		b.failed = fmt.Errorf("bodies take no more writes: %w", err)
		b.buffer.changed.Broadcast()
	}
	return err
}

// writableLocked returns the segment behind slot with room for n bytes, sealing the one there and
// opening another if need be. File operations happen under mu here, once in a segment: every other
// order would let a reader see a segment that is not there yet.
func (b *Bodies) writableLocked(slot **segment, n uint64) (*segment, error) {
	if b.failed != nil {
		return nil, b.failed
	}
	if seg := *slot; seg != nil {
		if seg.fits(n, b.limit) {
			return seg, nil
		}
		*slot = nil
		b.sealLocked(seg)
	}
	seg, err := b.newSegmentLocked(n)
	if err != nil {
		return nil, b.failLocked(fmt.Errorf("open segment of bodies: %w", err))
	}
	*slot = seg
	return seg, nil
}

func (b *Bodies) sealLocked(seg *segment) {
	seg.sealed = true
	if seg.entries > 0 {
		b.sealed += uint64(seg.size)
	}
	b.stats.Rotations++
	b.retireLocked(seg)
	if b.crowdedLocked() {
		b.wake()
	}
}

// newSegmentLocked opens an empty segment: a file of the free ones under a new name, or a new one.
// A record of more than a segment gets a file of its own, which is not used again.
func (b *Bodies) newSegmentLocked(n uint64) (*segment, error) {
	if b.nextID == 1<<32-1 {
		return nil, errors.New("segment numbers are used up")
	}
	b.nextID++
	id := b.nextID
	seg := &segment{id: id, size: segmentHeaderBytes, end: segmentHeaderBytes}
	name := segmentName(b.dir, id)
	b.dirDirty = true
	if last := len(b.free) - 1; last >= 0 && n+segmentHeaderBytes <= uint64(b.limit) {
		old := b.free[last]
		b.free = b.free[:last]
		if err := b.fsys.Rename(segmentName(b.dir, old.id), name); err != nil {
			return nil, errors.Join(err, old.file.Close())
		}
		seg.file = old.file
		b.stats.Recycled++
	} else {
		f, err := b.fsys.Create(name)
		if err != nil {
			return nil, err
		}
		seg.file = f
	}
	if _, err := seg.file.WriteAt(segmentHeader(id), 0); err != nil {
		return nil, errors.Join(err, seg.file.Close())
	}
	b.segments[id] = seg
	return seg, nil
}

// retireLocked gives a segment up that nobody needs: to the free ones, or to the sweeper, which
// deletes it.
func (b *Bodies) retireLocked(seg *segment) {
	if seg.trash || !seg.idle() {
		if b.crowdedLocked() {
			b.wake()
		}
		return
	}
	if b.failed == nil && int(seg.size) <= b.limit && len(b.free) < maxFreeSegments {
		delete(b.segments, seg.id)
		b.free = append(b.free, seg)
		return
	}
	seg.trash = true
	b.wake()
}

func (b *Bodies) wake() {
	select {
	case b.work <- struct{}{}:
	default:
	}
}

var _ io.Closer = (*Bodies)(nil)
