package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

const (
	// zeroAheadBytes is how far a small write to the log's tail fills the file with zeros behind
	// itself, at most. A sync of blocks that were never written also writes where they are; in blocks
	// that hold zeros it writes the data and no more, in half the time.
	zeroAheadBytes = 256 << 10
	// zeroAheadWrites is for how many writes of the largest recent size zeros are to last. When it
	// would take more than zeroAheadBytes, writes are so large that zeros cost as much as they save.
	zeroAheadWrites = 16
	// peakWeight is by what part of it the largest recent size falls with every smaller write.
	peakWeight = 8
)

// walFiles are raft-wal's files with cheaper writes and syncs. Their bytes are the same: behind the end of the log a
// segment holds zeros, written by this package or preallocated.
type walFiles struct {
	*walfs.FS
	buf    *directBuf // of the writes to the last segment, whichever it is
	gone   *sweeper
	ahead  *segmentAhead
	opened *openedFiles
}

func newWALFiles(logger hclog.Logger) walFiles {
	return walFiles{walfs.New(), &directBuf{}, &sweeper{logger: logger, delete: os.Remove}, &segmentAhead{}, &openedFiles{}}
}

// openedFiles are the files that the library opened while it opens a log. It leaves them open when it cannot.
type openedFiles struct {
	files []io.Closer
	kept  bool // the log is open, and closes them
}

func (o *openedFiles) note(f io.Closer) {
	if !o.kept {
		o.files = append(o.files, f)
	}
}

func (o *openedFiles) keep() { o.files, o.kept = nil, true }

func (o *openedFiles) close() {
	for _, f := range o.files {
		_ = f.Close() // nothing was written, and some are closed already
	}
}

// Delete implements types.VFS. The library calls it between two appends, once for every segment that a snapshot made
// superfluous. The library's own way syncs the directory each time. A segment that is still there after a crash is
// none that the library's index names, and it deletes those when it opens.
func (w walFiles) Delete(dir, name string) error {
	w.gone.remove(filepath.Join(dir, name))
	return nil
}

// Create implements types.VFS.
func (w walFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	w.gone.release(filepath.Join(dir, name))
	f, err := w.ahead.take(dir, name, size)
	if f == nil && err == nil {
		f, err = w.create(dir, name, size)
	}
	w.ahead.note(err)
	if err != nil {
		return nil, err
	}
	if f.direct != nil {
		f.direct.buf = w.buf
	}
	w.opened.note(f)
	w.ahead.prepare(dir)
	return f, nil
}

// create opens a new segment.
func (w walFiles) create(dir, name string, size uint64) (*walFile, error) {
	f, err := w.FS.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	inner, ok := f.(*walfs.File)
	if !ok {
		return nil, fmt.Errorf("create %s: the library made a %T", name, f)
	}
	if err := inner.Chmod(0o600); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return w.open(&walFile{WritableFile: f, file: &inner.File, size: int64(size)}), nil
}

// OpenReader implements types.VFS.
func (w walFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	f, err := w.FS.OpenReader(dir, name)
	if err == nil {
		w.opened.note(f)
	}
	return f, err
}

// OpenWriter implements types.VFS.
func (w walFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := w.FS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	inner, ok := f.(*os.File)
	if !ok {
		return nil, fmt.Errorf("open %s: the library made a %T", name, f)
	}
	// A process that was killed may have left entries, or the whole file, where only the kernel knows of
	// them. They are read, and count as stored from here on.
	err = inner.Sync()
	if err == nil {
		err = (osFS{}).SyncDir(dir)
	}
	info, statErr := inner.Stat()
	if err = errors.Join(err, statErr); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	w.ahead.prepare(dir)
	file := w.open(&walFile{WritableFile: f, file: inner, size: info.Size(), named: true})
	w.opened.note(file)
	return file, nil
}

// open makes f write past the page cache, where the file system can.
func (w walFiles) open(f *walFile) *walFile {
	if file, err := openDirect(f.file.Name(), true); err == nil {
		f.direct = &directWriter{file: file, plain: f.file, buf: w.buf, end: -1}
	}
	return f
}

// walFile is one segment. It is appended to, by one goroutine.
type walFile struct {
	types.WritableFile
	file   *os.File
	direct *directWriter // nil where only plain writes are to be had
	size   int64         // as preallocated
	// written is the end of the blocks that were written, as far as known: what lies behind the last
	// append is zeros up to here.
	written int64
	peak    int64 // the largest recent write, falling slowly
	named   bool  // a sync of everything, and of the directory, has been done
	dirty   bool  // something was written that no sync has covered
}

// WriteAt implements io.WriterAt.
func (f *walFile) WriteAt(p []byte, at int64) (int, error) {
	f.peak = max(int64(len(p)), f.peak-f.peak/peakWeight)
	end := at + int64(len(p))
	zeros := f.ahead(end)
	if f.direct != nil {
		written, err := f.direct.writeAt(p, at, zeros)
		if err == nil {
			f.written = max(f.written, written)
			return len(p), nil
		}
		if !refused(err) {
			return 0, err
		}
		if err := f.plainly(); err != nil {
			return 0, err
		}
	}
	f.dirty = true
	n, err := f.file.WriteAt(p, at)
	if err != nil {
		return n, err
	}
	f.written = max(f.written, end)
	return n, f.putZeros(end + zeros)
}

// ahead is how many zeros are to be written behind an append that ends there.
func (f *walFile) ahead(end int64) int64 {
	n := max(zeroAheadWrites*f.peak, zeroPieceBytes)
	if end <= f.written || n > zeroAheadBytes {
		return 0
	}
	return max(0, min(n, f.size-end))
}

// plainly gives direct writes up.
func (f *walFile) plainly() error {
	err := f.direct.file.Close()
	f.direct = nil
	return err
}

// putZeros fills the file with zeros up to an offset.
func (f *walFile) putZeros(until int64) error {
	for f.written < until {
		piece := min(zeroPieceBytes-f.written%zeroPieceBytes, until-f.written)
		if _, err := f.file.WriteAt(zeros[:piece], f.written); err != nil {
			return fmt.Errorf("zeros behind the log's end: %w", err)
		}
		f.written += piece
	}
	return nil
}

// Close implements io.Closer.
func (f *walFile) Close() error {
	if f.direct == nil {
		return f.WritableFile.Close()
	}
	return errors.Join(f.plainly(), f.WritableFile.Close())
}

// zeroPieceBytes is what a plain write of zeros brings at once. The kernel keeps what one write brought
// as one piece, and would count, and look through, all of it with every append to a part.
const zeroPieceBytes = 4 << 10

// zeros is never written to.
var zeros [zeroPieceBytes]byte

// Sync implements types.WritableFile. The first sync is the library's, which also makes the file's
// name last; behind direct writes the others have nothing left to do.
func (f *walFile) Sync() error {
	switch {
	case !f.named:
		if err := f.WritableFile.Sync(); err != nil {
			return err
		}
	case f.dirty:
		if err := dataSync(f.file); err != nil {
			return err
		}
	}
	f.named, f.dirty = true, false
	return nil
}
