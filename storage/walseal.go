package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	wal "github.com/hashicorp/raft-wal"
	walmeta "github.com/hashicorp/raft-wal/metadb"
	walsegment "github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// The last append to a segment seals it: it also writes the index of its entries. The library notes the seal in its
// meta file, and opens the next segment, afterwards. The process may end in between, or in the middle of that append.
// Then the library takes the segment for sealed at the next open, and refuses every append to it from then on. This
// file finishes the one and undoes the other.

// A frame of raft-wal's segments begins with its type and, in the last four of eight bytes, its length.
const (
	walFrameHeaderBytes = 8
	walFrameIndex       = 2
)

// fullTail is the last segment of a log that was sealed without its meta file saying so.
type fullTail struct {
	id         uint64
	last       uint64 // its last entry
	indexStart uint64 // where its index begins in the file
}

// openWAL opens the write-ahead log in dir.
func openWAL(dir string, segmentBytes int, logger hclog.Logger) (*wal.WAL, *walFiler, error) {
	for finished := false; ; finished = true {
		filer, meta := newWALFiler(dir, logger), &walmeta.BoltMetaDB{}
		w, err := wal.Open(dir, wal.WithSegmentSize(segmentBytes), wal.WithSegmentFiler(filer), wal.WithLogger(logger),
			wal.WithMetaStore(meta))
		if err != nil {
			// The library forgets what it has open. It would wait for its own lock of the meta file at the next attempt.
			filer.ahead.close()
			filer.opened.close()
			return nil, nil, errors.Join(err, meta.Close())
		}
		filer.opened.keep()
		if filer.full == nil {
			return w, filer, nil
		}
		err = w.Close()
		filer.gone.wait()
		filer.ahead.close()
		if finished {
			err = errors.Join(err, fmt.Errorf("segment %d is sealed and has no successor: %w", filer.full.id, ErrCorrupt))
		}
		if err == nil {
			err = finishSeal(dir, segmentBytes, filer.full)
		}
		if err != nil {
			return nil, nil, err
		}
		logger.Info("the last segment was sealed when the process ended: the next one follows it", "entry", filer.full.last)
	}
}

// finishSeal notes in the meta file that a segment is sealed, and its successor, which the library creates when it
// opens the log. One commit of the file has both, as when the library does it.
func finishSeal(dir string, segmentBytes int, full *fullTail) error {
	meta := &walmeta.BoltMetaDB{}
	state, err := meta.Load(dir)
	if err != nil {
		return errors.Join(err, meta.Close())
	}
	n := len(state.Segments)
	if n == 0 || state.Segments[n-1].ID != full.id || !state.Segments[n-1].SealTime.IsZero() {
		return errors.Join(fmt.Errorf("segment %d is not the open one: %w", full.id, ErrCorrupt), meta.Close())
	}
	tail := &state.Segments[n-1]
	tail.SealTime, tail.MaxIndex, tail.IndexStart = time.Now(), full.last, full.indexStart
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: full.last + 1, MinIndex: full.last + 1,
		SizeLimit: uint32(segmentBytes), Codec: tail.Codec, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	return errors.Join(meta.CommitState(state), meta.Close())
}

// RecoverTail implements types.SegmentFiler.
func (f *walFiler) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := f.Filer.RecoverTail(info)
	if err != nil {
		return nil, err
	}
	sealed, indexStart, err := w.Sealed()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if !sealed {
		return &walWriter{w, f}, nil
	}
	name := filepath.Join(f.dir, walsegment.FileName(info))
	whole, err := indexesAll(name, indexStart, w.LastIndex(), info.BaseIndex)
	switch {
	case err != nil:
		return nil, errors.Join(err, w.Close())
	case whole:
		f.full = &fullTail{id: info.ID, last: w.LastIndex(), indexStart: indexStart}
		return &walWriter{w, f}, nil
	}
	// The append that would have sealed the segment is not whole, so nobody has been told of it. Without the index the
	// library ignores the rest of it as well.
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := clearFrom(name, int64(indexStart)-walFrameHeaderBytes); err != nil {
		return nil, err
	}
	if w, err = f.Filer.RecoverTail(info); err != nil {
		return nil, err
	}
	return &walWriter{w, f}, nil
}

// indexesAll reports whether the index at an offset of a segment has all entries from base to last, and no others.
// Entries of an append that is not whole do not count.
func indexesAll(name string, indexStart, last, base uint64) (bool, error) {
	file, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer file.Close()
	var head [walFrameHeaderBytes]byte
	if _, err := file.ReadAt(head[:], int64(indexStart)-walFrameHeaderBytes); err != nil {
		return false, err
	}
	entries := uint64(binary.LittleEndian.Uint32(head[4:])) / 4
	return head[0] == walFrameIndex && last >= base && entries == last-base+1, nil
}

// clearFrom fills a file with zeros from an offset to its end, and syncs it.
func clearFrom(name string, at int64) error {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	for at < info.Size() {
		n, err := file.WriteAt(zeros[:min(zeroPieceBytes, info.Size()-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return file.Sync()
}
