package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/raft-wal/types"
)

// aheadName is the name of the file that becomes the next segment of the log. It does not end as segments do, so the
// library does not take it for one.
const aheadName = "next-segment"

// segmentAhead keeps the file of the next segment open before the log needs it. The library seals a full segment
// first and then opens the next. A process without a descriptor in between could not append any more.
//
// The file is empty until it is taken, so it costs two descriptors and no space. One goroutine at a time uses it.
type segmentAhead struct {
	dir    string
	file   *os.File // nil while there is none
	direct *os.File // the same file for direct writes, nil where there are none

	// failed is the error of the last attempt to open a segment, nil if that succeeded. Afterwards the library only
	// reports that the segment before is sealed.
	failed atomic.Pointer[error]
}

// prepare opens the file of the next segment of a log. Without one the next segment is opened when it is needed.
func (a *segmentAhead) prepare(dir string) {
	if a.file != nil {
		return
	}
	name := filepath.Join(dir, aheadName)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	a.dir, a.file = dir, file
	if direct, err := openDirect(name, true); err == nil {
		a.direct = direct
	}
}

// take makes the file that is open the segment of that name, size bytes long. Without an open file it returns nil.
func (a *segmentAhead) take(dir, name string, size uint64) (*walFile, error) {
	if a.file == nil || a.dir != dir {
		return nil, nil
	}
	target := filepath.Join(dir, name)
	if _, err := os.Lstat(target); err == nil {
		return nil, &fs.PathError{Op: "create", Path: target, Err: fs.ErrExist}
	}
	if err := os.Rename(filepath.Join(dir, aheadName), target); err != nil {
		return nil, err
	}
	file, direct := a.file, a.direct
	a.file, a.direct = nil, nil
	if err := preallocate(file, int64(size)); err != nil {
		a.discard(target, file, direct)
		return nil, err
	}
	f := &walFile{WritableFile: &newSegment{File: file, dir: dir}, file: file, size: int64(size)}
	if direct != nil {
		f.direct = &directWriter{file: direct, plain: file, end: -1}
	}
	return f, nil
}

// discard closes and removes a file that no segment refers to.
func (a *segmentAhead) discard(name string, files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing was written
		}
	}
	_ = os.Remove(name) // the library removes it when it opens the log, prepare empties it
}

// close gives back what is open.
func (a *segmentAhead) close() {
	if a.file != nil {
		a.discard(filepath.Join(a.dir, aheadName), a.file, a.direct)
		a.file, a.direct = nil, nil
	}
}

// note remembers whether a segment could be opened.
func (a *segmentAhead) note(err error) {
	if err == nil {
		a.failed.Store(nil)
		return
	}
	a.failed.Store(&err)
}

// explain adds to the error of an append why the next segment could not be opened, if that is the reason.
func (a *segmentAhead) explain(err error) error {
	if cause := a.failed.Load(); err != nil && cause != nil && errors.Is(err, types.ErrSealed) {
		return errors.Join(err, *cause)
	}
	return err
}

// newSegment is a file whose name is not durable yet.
type newSegment struct {
	*os.File
	dir string
}

// Sync makes the bytes of the file durable, and then its name.
func (s *newSegment) Sync() error {
	if err := s.File.Sync(); err != nil {
		return err
	}
	return (osFS{}).SyncDir(s.dir)
}
