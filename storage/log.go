package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"
)

const (
	// maxEntryBytes bounds one entry: raft-wal takes no larger record. A message is at most 16 MiB
	// (RUL-9), so this is a limit against damage, not for users.
	maxEntryBytes = 60 << 20
	// verifyBytes is how much of the log's tail is read at open. Then raft itself reads everything above the
	// snapshot, through GetLog. So the check here is for order more than for bytes.
	verifyBytes = 64 << 20
	// boltOpenTimeout bounds the wait for bolt's own file lock, which nobody else can hold while we
	// hold the directory's; without it a leaked handle would hang the start for ever.
	boltOpenTimeout = time.Second

	// walMetaFile is raft-wal's own bolt file: which segments there are.
	walMetaFile = "wal-meta.db"

	logTrailerBytes   = 5
	logTrailerVersion = formatLogRecord
)

// Log is a raft.LogStore that trusts neither the disk nor the library below. Every entry carries a checksum of ours
// over index, term, type, data and extensions, in the last five bytes of the stored Extensions; the log has no holes
// and terms do not go back; and after one failed write nothing more is written (R3). Any error but
// raft.ErrLogNotFound means that the replica must stop.
type Log struct {
	store  raft.LogStore
	closer io.Closer
	name   string

	mu     sync.Mutex
	failed error // sticky; set by the first failed write and by Close
	first  uint64
	last   position
	stats  LogStats
}

// position is the end of the log; index 0 means that it is empty.
type position struct{ index, term uint64 }

// LogStats are counters of a log since it was opened.
type LogStats struct {
	Appends uint64 // calls that stored entries, one sync each
	Entries uint64
	Bytes   uint64 // of entry data
}

// openLog opens the log of a group in dir, which exists, and verifies its tail.
func openLog(dir string, cfg Config, logger hclog.Logger) (*Log, error) {
	l := &Log{}
	switch cfg.Log {
	case LogWAL:
		l.name = filepath.Join(dir, "log")
		if err := makeDirs(osFS{}, l.name); err != nil {
			return nil, err
		}
		var w *wal.WAL
		if err := checkBolt(filepath.Join(l.name, walMetaFile)); err != nil {
			return nil, fmt.Errorf("open log %s: %w", l.name, err)
		}
		logger := logger.Named("wal")
		var filer *walFiler
		err := guard(l.name, func() (err error) {
			w, filer, err = openWAL(l.name, cfg.LogSegmentBytes, logger)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("open log %s: %w", l.name, err)
		}
		store := &walStore{WAL: w, filer: filer}
		l.store, l.closer = store, store
		if err := keepPrivate(l.name); err != nil {
			return nil, errors.Join(fmt.Errorf("open log %s: %w", l.name, err), store.Close())
		}
	case LogBolt:
		l.name = filepath.Join(dir, "log.db")
		b, err := openBolt(l.name, nil)
		if err != nil {
			return nil, fmt.Errorf("open log %s: %w", l.name, err)
		}
		l.store, l.closer = b, b
	}
	err := l.verify()
	if err == nil {
		err = takeEnd(osFS{}, l.name, l.last)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", l.name, err), l.closer.Close())
	}
	return l, nil
}

// keepPrivate takes the files of a directory away from other users of the machine: the library makes its files
// readable for all.
func keepPrivate(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // the sweeper was faster
		}
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 == 0 {
			continue
		}
		if err := os.Chmod(filepath.Join(dir, e.Name()), 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openBolt opens a bolt file. A new one is made, filled by init, under another name and renamed: bolt
// cannot tell a torn first initialisation from later damage.
func openBolt(name string, init func(*raftboltdb.BoltStore) error) (*raftboltdb.BoltStore, error) {
	options := &bbolt.Options{Timeout: boltOpenTimeout, FreelistType: bbolt.FreelistMapType}
	open := func(name string) (b *raftboltdb.BoltStore, err error) {
		err = guard(name, func() (err error) {
			b, err = raftboltdb.New(raftboltdb.Options{
				Path:                    name,
				BoltOptions:             options,
				MsgpackUseNewTimeFormat: true,
			})
			return err
		})
		return b, err
	}
	_, err := os.Stat(name)
	if err == nil {
		if err := checkBolt(name); err != nil {
			return nil, err
		}
		return open(name)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	tmp := name + tmpSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	b, err := open(tmp)
	if err != nil {
		return nil, err
	}
	if init != nil {
		err = init(b)
	}
	if err := errors.Join(err, b.Close()); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, name); err != nil {
		return nil, err
	}
	if err := (osFS{}).SyncDir(filepath.Dir(name)); err != nil {
		return nil, err
	}
	return open(name)
}

// guard turns a panic of a library that reads damaged bytes into an error. Both bbolt (assertions on pages) and
// raft-wal's decoder (a malformed varint) panic on what a broken disk may give. So does a page of a mapped file that
// the disk does not have any more, because the file was cut or the read failed. That would end the process with every
// other group in it.
func guard(name string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, name, p)
		}
	}()
	return f()
}

// verify reads the tail backwards: it must be contiguous, checksummed and of non-decreasing
// terms. A failure here means that the whole replica is thrown away.
func (l *Log) verify() error {
	var first, last uint64
	err := guard(l.name, func() (err error) {
		if first, err = l.store.FirstIndex(); err == nil {
			last, err = l.store.LastIndex()
		}
		return err
	})
	if err != nil {
		return err
	}
	if last == 0 {
		return nil
	}
	if first == 0 || first > last {
		return fmt.Errorf("%w: entries %d to %d", ErrCorrupt, first, last)
	}
	budget := verifyBytes
	var entry raft.Log
	for index, above := last, uint64(0); index >= first && budget > 0; index-- {
		entry = raft.Log{}
		if err := l.read(index, &entry); err != nil {
			if errors.Is(err, raft.ErrLogNotFound) {
				return fmt.Errorf("%w: entry %d is missing between %d and %d", ErrCorrupt, index, first, last)
			}
			return err
		}
		if index == last {
			l.first, l.last = first, position{last, entry.Term}
		} else if entry.Term > above {
			return fmt.Errorf("%w: term goes back from %d to %d at entry %d",
				ErrCorrupt, entry.Term, above, index+1)
		}
		above = entry.Term
		budget -= len(entry.Data) + 64
	}
	return nil
}

// reconcile makes the log fit the newest snapshot. A crash between an installed snapshot and the end of the old log
// leaves a log of one of two kinds. One ends below the snapshot, and the next entry would make a hole in it. The
// other conflicts with the snapshot, and raft would never come to rest on it (R7). All of it is covered by the
// snapshot, or was never committed. A log that begins above the snapshot has lost entries.
func (l *Log) reconcile(snap position) error {
	first, err := l.FirstIndex()
	if err != nil || first == 0 {
		return err
	}
	if first > snap.index+1 {
		return fmt.Errorf("%w: log %s begins at entry %d, the newest snapshot ends at %d",
			ErrCorrupt, l.name, first, snap.index)
	}
	if snap.index == 0 {
		return nil
	}
	stale := l.last.index < snap.index
	if !stale && first <= snap.index {
		var entry raft.Log
		if err := l.GetLog(snap.index, &entry); err != nil {
			return err
		}
		stale = entry.Term != snap.term
	}
	if !stale {
		return nil
	}
	return l.DeleteRange(first, l.last.index)
}

// IsMonotonic tells raft that the log has no holes, with either library. After a snapshot from the leader raft then
// empties it instead of leaving a gap. A wrapper must pass this method on.
func (l *Log) IsMonotonic() bool { return true }

// FirstIndex returns the first index of the log, 0 if it is empty.
func (l *Log) FirstIndex() (uint64, error) {
	first, _, err := l.bounds()
	return first, err
}

// LastIndex returns the last index of the log, 0 if it is empty.
func (l *Log) LastIndex() (uint64, error) {
	_, last, err := l.bounds()
	return last, err
}

// GetLog reads an entry and verifies it. The error is raft.ErrLogNotFound, or wraps ErrCorrupt.
// raft-wal goes on giving out entries of its last segment that were deleted from the front; raft
// must not find them, so the bounds are checked here.
func (l *Log) GetLog(index uint64, log *raft.Log) error {
	first, last, err := l.bounds()
	if err != nil {
		return err
	}
	if index == 0 || index < first || index > last {
		return raft.ErrLogNotFound
	}
	return l.read(index, log)
}

func (l *Log) bounds() (first, last uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.failed, ErrClosed) {
		return 0, 0, ErrClosed
	}
	return l.first, l.last.index, nil
}

func (l *Log) read(index uint64, log *raft.Log) error {
	err := guard(l.name, func() error { return l.store.GetLog(index, log) })
	if errors.Is(err, raft.ErrLogNotFound) {
		return raft.ErrLogNotFound // raft compares the error itself
	}
	if err != nil {
		return fmt.Errorf("read entry %d: %w", index, err)
	}
	if log.Index != index {
		return fmt.Errorf("read entry %d: %w: it says it is entry %d", index, ErrCorrupt, log.Index)
	}
	n := len(log.Extensions) - logTrailerBytes
	if n < 0 || log.Extensions[n] != logTrailerVersion {
		return fmt.Errorf("read entry %d: %w: no checksum", index, ErrCorrupt)
	}
	want := binary.LittleEndian.Uint32(log.Extensions[n+1:])
	log.Extensions = log.Extensions[:n:n]
	if entrySum(log) != want {
		return fmt.Errorf("read entry %d: %w: checksum", index, ErrCorrupt)
	}
	if n == 0 {
		log.Extensions = nil
	}
	return nil
}

// StoreLog appends one entry.
func (l *Log) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries with one sync. They must follow what is there, without a hole.
func (l *Log) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	last, bytes := l.last, 0
	sealed := make([]raft.Log, len(logs))
	refs := make([]*raft.Log, len(logs))
	for i, log := range logs {
		if last.index != 0 && (log.Index != last.index+1 || log.Term < last.term) {
			return l.failLocked(fmt.Errorf("append entry %d of term %d after %d of term %d: %w",
				log.Index, log.Term, last.index, last.term, ErrCorrupt))
		}
		if len(log.Data)+len(log.Extensions) > maxEntryBytes {
			return l.failLocked(fmt.Errorf("append entry %d: %d bytes, at most %d",
				log.Index, len(log.Data)+len(log.Extensions), maxEntryBytes))
		}
		last = position{log.Index, log.Term}
		bytes += len(log.Data)
		sealed[i] = sealEntry(log)
		refs[i] = &sealed[i]
	}
	if err := guard(l.name, func() error { return l.store.StoreLogs(refs) }); err != nil {
		return l.failLocked(fmt.Errorf("append entries %d to %d: %w", logs[0].Index, last.index, err))
	}
	if l.first == 0 {
		l.first = logs[0].Index
	}
	l.last = last
	l.stats.Appends++
	l.stats.Entries += uint64(len(logs))
	l.stats.Bytes += uint64(bytes)
	return nil
}

// sealEntry returns the entry as it is stored. The caller's is shared with raft and stays as it is.
func sealEntry(log *raft.Log) raft.Log {
	s := *log
	s.Extensions = make([]byte, 0, len(log.Extensions)+logTrailerBytes)
	s.Extensions = append(s.Extensions, log.Extensions...)
	s.Extensions = append(s.Extensions, logTrailerVersion)
	s.Extensions = binary.LittleEndian.AppendUint32(s.Extensions, entrySum(log))
	return s
}

// entrySum is the CRC-32C over index, term, type, the length of the extensions, extensions, data.
func entrySum(log *raft.Log) uint32 {
	var head [21]byte
	binary.LittleEndian.PutUint64(head[0:], log.Index)
	binary.LittleEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	binary.LittleEndian.PutUint32(head[17:], uint32(len(log.Extensions)))
	return sum(head[:], log.Extensions, log.Data)
}

// DeleteRange deletes a prefix or a suffix of the log, bounds included.
func (l *Log) DeleteRange(lo, hi uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	if err := guard(l.name, func() error { return l.store.DeleteRange(lo, hi) }); err != nil {
		return l.failLocked(fmt.Errorf("delete entries %d to %d: %w", lo, hi, err))
	}
	if err := l.findBoundsLocked(); err != nil {
		return l.failLocked(fmt.Errorf("delete entries %d to %d: %w", lo, hi, err))
	}
	return nil
}

// findBoundsLocked asks the library what is left after a deletion.
func (l *Log) findBoundsLocked() error {
	first, err := l.store.FirstIndex()
	if err != nil {
		return err
	}
	last, err := l.store.LastIndex()
	if err != nil {
		return err
	}
	if last == 0 {
		l.first, l.last = 0, position{}
		return nil
	}
	l.first = first
	if last == l.last.index {
		return nil
	}
	var entry raft.Log
	if err := l.read(last, &entry); err != nil {
		return err
	}
	l.last = position{last, entry.Term}
	return nil
}

// Stats returns the counters.
func (l *Log) Stats() LogStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Close closes the files. Later calls answer ErrClosed.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.failed, ErrClosed) {
		return nil
	}
	good := l.failed == nil
	l.failed = ErrClosed
	if err := l.closer.Close(); err != nil || !good {
		return err
	}
	return writeEnd(osFS{}, l.name, l.last)
}

func (l *Log) failLocked(err error) error {
	l.failed = fmt.Errorf("log %s takes no more writes: %w", l.name, err)
	return err
}
