package storage

import (
	"io"
	"io/fs"
	"os"
)

// File is an open file. Offsets are explicit, so one handle serves many readers at once.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes what was written durable, not the file's name: that is SyncDir's.
	Sync() error
	// Size returns the length in bytes.
	Size() (int64, error)
}

// FS is the seam to the file system: the operating system's in
// production, faultfs in tests. Errors wrap fs.ErrNotExist and fs.ErrExist as package os does.
type FS interface {
	// Mkdir creates one directory with mode 0700.
	Mkdir(dir string) error
	// Create opens a new file for reading and writing, mode 0600; an existing one is emptied.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// Rename moves a file or a directory, replacing a file of that name, at once.
	Rename(from, to string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes the lock file of a data directory and writes the own process id into it. If
	// another process holds it, the error is a *LockedError.
	Lock(name string) (io.Closer, error)
	// Space returns the free bytes and all bytes of the disk that holds a directory.
	Space(dir string) (free, total uint64, err error)
}

// osFS is the operating system's file system.
type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (osFS) Mkdir(dir string) error { return os.Mkdir(dir, 0o700) }

func (osFS) Create(name string) (File, error) { return openFile(name, os.O_CREATE|os.O_TRUNC) }

func (osFS) Open(name string) (File, error) { return openFile(name, 0) }

// OpenDirect implements directFS.
func (osFS) OpenDirect(name string) (directFile, error) { return openDirect(name, false) }

func openFile(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }

// directFS is a file system that can write past the page cache.
type directFS interface {
	// OpenDirect opens an existing file for writes of whole blocks from memory that begins at one.
	OpenDirect(name string) (directFile, error)
}

type directFile interface {
	io.WriterAt
	io.Closer
}
