package faultfs

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// Op is an operation on the file system.
type Op string

// The operations. Open and Read are not mutating: they are not traced and do not count as steps.
const (
	Mkdir   Op = "mkdir"
	Create  Op = "create"
	Open    Op = "open"
	Read    Op = "read"
	Write   Op = "write"
	Sync    Op = "sync"
	Rename  Op = "rename"
	Remove  Op = "remove"
	SyncDir Op = "syncdir"
)

// Fault plans an error.
type Fault struct {
	Op Op
	// Path is a pattern of path/filepath.Match for the last element of the path; "" is any.
	Path string
	// Skip is how many matching operations succeed before.
	Skip int
	// Times is how many fail; 0 means all from then on.
	Times int
	Err   error
	// After performs the operation and reports the error all the same, as a disk may (R3).
	After bool
	// Short makes a write keep its first half before it fails.
	Short bool
}

// Inject plans an error. Faults are tried in the order in which they came.
func (f *FS) Inject(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault)
}

// Heal takes every planned error back.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Flip inverts one bit of a file behind everybody's back.
func (f *FS) Flip(path string, offset int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, name, err := f.find(path)
	if err != nil {
		return err
	}
	n, ok := d.names[name].(*file)
	if !ok || offset >= int64(len(n.data)) {
		return fmt.Errorf("flip %s at %d: %w", path, offset, fs.ErrNotExist)
	}
	n.data[offset] ^= 1
	n.synced = slices.Clone(n.data)
	n.writes = nil
	return nil
}

// hit returns the fault that is due for an operation, nil if it shall succeed.
func (f *FS) hit(op Op, path string) *Fault {
	for i, fault := range f.faults {
		if fault.Op != op {
			continue
		}
		if ok, _ := filepath.Match(fault.Path, filepath.Base(path)); fault.Path != "" && !ok {
			continue
		}
		if fault.Skip > 0 {
			fault.Skip--
			continue
		}
		if fault.Times > 0 {
			if fault.Times--; fault.Times == 0 {
				f.faults = slices.Delete(f.faults, i, i+1)
			}
		}
		return fault
	}
	return nil
}

// handle is an open file. It stays usable after the file's name is gone, as on Unix.
type handle struct {
	fs     *FS
	node   *file
	closed bool
}

func (h *handle) ReadAt(p []byte, at int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	switch {
	case h.fs.crashed:
		return 0, ErrCrashed
	case h.closed:
		return 0, fs.ErrClosed
	}
	if fault := h.fs.hit(Read, h.node.path); fault != nil {
		return 0, &fs.PathError{Op: "read", Path: h.node.path, Err: fault.Err}
	}
	if at >= int64(len(h.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, h.node.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(p []byte, at int64) (n int, err error) {
	h.fs.mu.Lock()
	short := false
	for _, fault := range h.fs.faults {
		if fault.Op == Write && fault.Short && fault.Skip == 0 {
			ok, _ := filepath.Match(fault.Path, filepath.Base(h.node.path))
			short = short || ok || fault.Path == ""
		}
	}
	path := h.node.path
	h.fs.mu.Unlock()
	err = h.fs.do(Write, path, fmt.Sprintf("%d+%d", at, len(p)), func() error {
		if h.closed {
			return fs.ErrClosed
		}
		if grown := at + int64(len(p)) - int64(len(h.node.data)); grown > 0 {
			if room := h.fs.limit - h.fs.used; h.fs.limit > 0 && grown > room {
				// The bytes that fit are written, as on a real disk.
				n = max(0, len(p)-int(grown-max(room, 0)))
				h.put(p[:n], at)
				return syscall.ENOSPC
			}
		}
		n = len(p)
		h.put(p, at)
		return nil
	})
	if err != nil && short && n == 0 {
		h.fs.mu.Lock()
		n = len(p) / 2
		h.put(p[:n], at)
		h.fs.mu.Unlock()
	}
	return n, err
}

func (h *handle) put(p []byte, at int64) {
	before := len(h.node.data)
	h.node.data = overwrite(h.node.data, p, at)
	h.node.writes = append(h.node.writes, write{at, slices.Clone(p)})
	h.fs.used += int64(len(h.node.data) - before)
}

func (h *handle) Sync() error {
	h.fs.mu.Lock()
	path := h.node.path
	h.fs.mu.Unlock()
	return h.fs.do(Sync, path, "", func() error {
		if h.closed {
			return fs.ErrClosed
		}
		h.node.synced, h.node.writes = slices.Clone(h.node.data), nil
		return nil
	})
}

func (h *handle) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.fs.crashed {
		return 0, ErrCrashed
	}
	return int64(len(h.node.data)), nil
}

func (h *handle) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return fs.ErrClosed
	}
	h.closed = true
	return nil
}
