package storage

import (
	"encoding/json"
	"errors"
	"fmt"
)

// sink is a snapshot being written. raft may close it twice: the state machine does, and then raft.
type sink struct {
	store  *Snapshots
	id     string
	head   snapshotHead
	file   File
	chunks *chunkWriter
	tail   []byte // the last bytes written, at most a trailer
	failed error
	closed bool
}

// ID returns the name of the snapshot.
func (k *sink) ID() string { return k.id }

// Write appends to the snapshot. After an error only Cancel or Close make sense.
func (k *sink) Write(p []byte) (int, error) {
	if k.closed {
		return 0, fmt.Errorf("write snapshot %s: %w", k.id, ErrClosed)
	}
	n, err := k.chunks.Write(p)
	k.tail = append(k.tail, p[max(0, n-blockTrailerBytes):n]...)
	if extra := len(k.tail) - blockTrailerBytes; extra > 0 {
		k.tail = append(k.tail[:0], k.tail[extra:]...)
	}
	if err != nil {
		k.failed = fmt.Errorf("write snapshot %s: %w", k.id, err)
		return n, k.failed
	}
	return n, nil
}

// Cancel throws the snapshot away.
func (k *sink) Cancel() error {
	if k.closed {
		return nil
	}
	k.closed = true
	err := errors.Join(k.file.Close(), k.store.fsys.Remove(k.store.file(k.id, dataSuffix)+tmpSuffix))
	k.store.giveID(k.id, errors.New("canceled"))
	if err != nil {
		return fmt.Errorf("cancel snapshot %s: %w", k.id, err)
	}
	return nil
}

// Close makes the snapshot durable and lists it. After an error there is no such snapshot.
func (k *sink) Close() error {
	if k.closed {
		return k.failed
	}
	k.closed = true
	snap, err := k.finish()
	if err != nil {
		k.failed = fmt.Errorf("finish snapshot %s: %w", k.id, err)
		k.store.giveID(k.id, k.failed)
		return k.failed
	}
	if err := k.store.add(snap); err != nil {
		// The snapshot itself is good. Files that could not be removed are tried again at the next start.
		k.store.logger.Warn("old snapshot not removed", "error", err)
	}
	return nil
}

func (k *sink) finish() (snap *snapshot, err error) {
	s := k.store
	data := s.file(k.id, dataSuffix)
	k.head.Stored, k.head.Image = k.chunks.total, k.chunks.total
	var segs []pinnedSegment
	defer func() {
		if err == nil {
			return
		}
		s.bodies.unpin(segs)
		// The header first, as in removeFiles; what cannot be removed is unfinished at the next start.
		_ = s.fsys.Remove(s.file(k.id, headerSuffix))
		_ = s.fsys.Remove(data)
		_ = s.fsys.Remove(data + tmpSuffix)
	}()
	if err = k.failed; err == nil {
		err = k.chunks.flush()
	}
	if err == nil {
		segs, err = k.claimManifest()
	}
	if err == nil {
		err = k.file.Sync()
	}
	if err = errors.Join(err, k.file.Close()); err != nil {
		return nil, err
	}
	if err := s.fsys.Rename(data+tmpSuffix, data); err != nil {
		return nil, err
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return nil, err
	}
	text, err := json.Marshal(k.head)
	if err != nil {
		return nil, err
	}
	if err := writeSmall(s.fsys, s.file(k.id, headerSuffix), text); err != nil {
		return nil, err
	}
	return &snapshot{id: k.id, head: k.head, segs: segs}, nil
}

// claimManifest looks for a manifest at the end of what was written, and if there is one keeps its
// segments for this snapshot. A stream from another node carries its bodies and never ends so.
func (k *sink) claimManifest() ([]pinnedSegment, error) {
	t, ok := parseTrailer(k.tail)
	if !ok || t.kind != kindManifest {
		return nil, nil
	}
	if t.length > uint64(k.chunks.total) {
		return nil, fmt.Errorf("%w: manifest longer than the snapshot", ErrCorrupt)
	}
	segs, err := k.store.bodies.claimPin(t)
	if err != nil {
		return nil, err
	}
	k.head.Image = k.head.Stored - int64(t.length)
	k.head.Manifest = &snapshotManifest{
		Nonce: fmt.Sprintf("%016x", t.nonce), Entries: t.entries, Bytes: t.bytes,
		Segments: make([]segmentExtent, 0, len(segs)),
	}
	for _, s := range segs {
		k.head.Manifest.Segments = append(k.head.Manifest.Segments, segmentExtent{s.seg.id, s.extent})
	}
	return segs, nil
}
