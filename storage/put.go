package storage

import "fmt"

// Put keeps the bodies of the entry with that index, of which there is at least one; spans says where
// they are, in ascending order, none empty. All of them live until they are freed. An index may be put
// again, when the log is replayed; the new bodies replace the old. Neither entry nor spans is
// retained. An error is for ever, unless it says that the arguments are impossible.
func (b *Bodies) Put(index uint64, entry []byte, spans []Span) error {
	if len(entry) > maxEntryBytes || index == 0 {
		return fmt.Errorf("put body of entry %d: %d bytes, want 1 to %d",
			index, len(entry), maxEntryBytes)
	}
	payload, err := checkSpans(spans, len(entry))
	if err != nil {
		return fmt.Errorf("put body of entry %d: %w", index, err)
	}
	b.putMu.Lock()
	defer b.putMu.Unlock()

	n := recordHeaderBytes + payload
	if n+segmentHeaderBytes > min(b.buffer.size, b.limit) {
		return b.putThrough(index, entry, spans, n)
	}
	b.mu.Lock()
	r, err := b.roomLocked(n)
	if err != nil {
		b.mu.Unlock()
		return err
	}
	offset, err := r.seg.reserve(uint64(n))
	if err != nil {
		b.mu.Unlock()
		return b.fail(err)
	}
	b.unread = min(b.unread+1, unreadPuts)
	from := len(r.buf)
	r.buf = r.buf[:from+n]
	rec := r.buf[from:]
	r.filling = true
	b.mu.Unlock()

	putPayload(rec[recordHeaderBytes:], spans, entry)
	putRecordHeader(rec, r.seg.id, index)

	b.mu.Lock()
	defer b.mu.Unlock()
	r.records = append(r.records, place{index, offset})
	r.filling = false
	if r.closed { // meanwhile, by who waits for it
		b.buffer.changed.Broadcast()
	}
	b.enterLocked(r.seg, index, offset, payload)
	return b.failed
}

// putThrough writes a record that no extent has room for.
func (b *Bodies) putThrough(index uint64, entry []byte, spans []Span, n int) error {
	b.mu.Lock()
	if r := b.buffer.open(); r != nil {
		b.closeExtentLocked(r)
	}
	seg, err := b.writableLocked(&b.hot, uint64(n))
	if err != nil {
		b.mu.Unlock()
		return err
	}
	offset, err := seg.reserve(uint64(n))
	b.mu.Unlock()
	if err != nil {
		return b.fail(err)
	}
	rec := b.passing(n)
	putPayload(rec[recordHeaderBytes:], spans, entry)
	putRecordHeader(rec, seg.id, index)
	if _, err := seg.file.WriteAt(rec, int64(offset)); err != nil {
		return b.fail(fmt.Errorf("put body of entry %d: %w", index, err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	seg.written = max(seg.written, offset+uint32(n))
	b.enterLocked(seg, index, offset, n-recordHeaderBytes)
	return b.failed
}

// enterLocked points the index to a record that was put.
func (b *Bodies) enterLocked(seg *segment, index uint64, offset uint32, payload int) {
	at := recordAt{seg: seg.id, offset: offset, length: uint32(payload)}
	b.forgetLocked(index)
	b.holdLocked(seg, index, at)
	b.index.Set(index, at)
	b.stats.Puts++
	b.stats.PutBytes += uint64(payload)
}
