package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
)

// compactStepBytes bounds the bytes that compaction moves before it looks again whether it should stop. That bounds
// how long Restore waits for it: a few milliseconds of disk.
const compactStepBytes = 1 << 20

// compactStepEntries bounds how many entries one step looks at under mu. That bounds how long Put and Read wait for
// it: about a tenth of a millisecond.
const compactStepEntries = 4096

// slackSegments is how many segments of waste are left alone. A backlog that drains in order empties one segment
// after the other by itself. Moving the rest of a segment would be work for nothing. It covers the two segments being
// written too.
const slackSegments = 4

// crowdedLocked reports whether the segments take more than twice what is needed of them, and the
// slack. Then one of the sealed ones is sparse.
func (b *Bodies) crowdedLocked() bool {
	return b.sealed > 2*b.need+slackSegments*uint64(b.limit)
}

// sweep is the goroutine that deletes segments nobody needs and moves the rest of sparse ones.
func (b *Bodies) sweep() {
	for {
		select {
		case <-b.stop:
			return
		case <-b.work:
		}
		for b.sweepStep() {
			select {
			case <-b.stop:
				return
			default:
			}
		}
	}
}

// sweepStep does one bounded piece of work and reports whether there is more.
func (b *Bodies) sweepStep() bool {
	b.compactMu.Lock()
	defer b.compactMu.Unlock()

	b.mu.Lock()
	var trash, sparse *segment
	crowded := b.crowdedLocked()
	for _, seg := range b.segments {
		switch {
		case seg.trash && seg.pins == 0 && seg.reads == 0:
			trash = seg
		case crowded && seg.sparse() && (sparse == nil || seg.need < sparse.need):
			sparse = seg
		}
	}
	if trash != nil {
		delete(b.segments, trash.id)
	}
	failed := b.failed
	b.mu.Unlock()

	switch {
	case failed != nil:
		if trash != nil {
			_ = trash.file.Close()
		}
		return false
	case trash != nil:
		b.deleteSegment(trash)
		return true
	case sparse != nil:
		if err := b.compactStep(sparse); err != nil {
			// The segment stays as it is. A write that failed has stopped all others.
			b.logger.Error("compaction of bodies failed", "segment", sparse.id, "error", err)
			_ = b.fail(err)
			return false
		}
		return true
	}
	return false
}

// deleteSegment removes the file. A failure leaves a file that the next start removes.
func (b *Bodies) deleteSegment(seg *segment) {
	err := errors.Join(seg.file.Close(), b.fsys.Remove(segmentName(b.dir, seg.id)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.logger.Warn("segment of bodies not removed", "segment", seg.id, "error", err)
	}
}

// compactStep moves up to compactStepBytes of records out of a segment. A segment that is pinned is
// compacted too: later snapshots then name it no more.
func (b *Bodies) compactStep(from *segment) error {
	type move struct {
		index uint64
		at    recordAt
	}
	var moves []move
	var bytes, visited uint64
	last := from.hi // of the indexes looked at
	b.mu.Lock()
	b.index.Ascend(from.lo, func(index uint64, at recordAt) bool {
		if index > from.hi {
			return false
		}
		if at.seg == from.id {
			moves = append(moves, move{index, at})
			bytes += at.bytes()
		}
		visited++
		if bytes >= compactStepBytes || visited >= compactStepEntries {
			last = index
			return false
		}
		return true
	})
	b.mu.Unlock()
	for _, m := range moves {
		if err := b.moveRecord(from, m.index, m.at); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// A sealed segment gets no more entries, so the next step begins where this one ended.
	from.lo = last + 1
	switch {
	case from.entries == 0:
		b.stats.Compacted++
	case from.lo > from.hi:
		return fmt.Errorf("segment %d holds %d entries that the index does not know",
			from.id, from.entries)
	}
	return nil
}

// moveRecord copies one record to the cold segment and points the index to it, unless the entry was
// freed or replaced meanwhile. Only the sweeper calls it, so the cold segment has one writer.
func (b *Bodies) moveRecord(from *segment, index uint64, at recordAt) error {
	b.mu.Lock()
	if now, ok := b.index.Get(index); !ok || now.seg != at.seg || now.offset != at.offset {
		b.mu.Unlock()
		return nil
	}
	from.reads++
	dead := b.deadOfLocked(index)
	rec := bytes.Clone(b.buffer.record(at))
	b.mu.Unlock()
	var err error
	if rec == nil {
		rec, err = readRecord(from.file, at, index)
	}
	if err == nil {
		rec, err = pruned(rec, dead)
	}
	b.mu.Lock()
	from.reads--
	b.retireLocked(from)
	if err != nil {
		b.mu.Unlock()
		return fmt.Errorf("move bodies of entry %d: %w", index, err)
	}
	to, err := b.writableLocked(&b.cold, uint64(len(rec)))
	if err != nil {
		b.mu.Unlock()
		return err
	}
	offset, err := to.reserve(uint64(len(rec)))
	b.mu.Unlock()
	if err != nil {
		return err
	}
	putRecordHeader(rec, to.id, index)
	if _, err := to.file.WriteAt(rec, int64(offset)); err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	to.written = max(to.written, offset+uint32(len(rec)))
	now, ok := b.index.Get(index)
	if !ok || now.seg != at.seg || now.offset != at.offset {
		return nil // what was written is dead space in the cold segment
	}
	// Bodies that were freed meanwhile are still in the record.
	moved := recordAt{seg: to.id, offset: offset, length: uint32(len(rec) - recordHeaderBytes)}
	moved.waste = now.waste - (now.length - moved.length)
	for _, s := range dead {
		b.dead.Delete(deadBody{index, s})
	}
	b.holdLocked(to, index, moved)
	b.index.Set(index, moved)
	b.back.drop(index)
	b.stats.CompactedBytes += moved.bytes()
	b.releaseLocked(from, now)
	b.retireLocked(from)
	return nil
}
