package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/busbar-mq/busbar/storage"
)

// ErrCrashed is what every operation answers after a crash or a stop.
var ErrCrashed = errors.New("the machine has crashed")

// FS is the file system. Its methods may be called concurrently.
type FS struct {
	mu      sync.Mutex
	root    *dir
	faults  []*Fault
	trace   []string
	steps   int // mutating operations so far
	stop    int // the operation before which the machine stops; 0 never
	crashed bool
	limit   int64 // bytes that fit; 0 is no limit
	used    int64
	locks   map[string]bool
}

var _ storage.FS = (*FS)(nil)

// dir is a directory: the names in it now, the names at its last sync, and the changes between.
type dir struct {
	names   map[string]any // *dir or *file
	synced  map[string]any
	pending []change
}

// change is one change of names: a name set to a node, a name taken away, or both at once.
type change struct {
	set, gone string
	node      any
}

func newDir() *dir { return &dir{names: map[string]any{}, synced: map[string]any{}} }

func (d *dir) apply(c change) {
	d.pending = append(d.pending, c)
	c.on(d.names)
}

func (c change) on(names map[string]any) {
	if c.gone != "" {
		delete(names, c.gone)
	}
	if c.set != "" {
		names[c.set] = c.node
	}
}

// file is a file: its bytes now, those at its last sync, and the writes between.
type file struct {
	path   string // its name now, for traces and faults
	data   []byte
	synced []byte
	writes []write
}

type write struct {
	at   int64
	data []byte
}

// New returns an empty file system with a root directory.
func New() *FS { return &FS{root: newDir(), locks: map[string]bool{}} }

// Limit makes the disk full at so many bytes of files; 0 takes the limit away.
func (f *FS) Limit(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = bytes
}

// Used returns the bytes of all files.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

// StopAfter stops the machine before the operation that comes after n more mutating ones: every
// operation from there on answers ErrCrashed.
func (f *FS) StopAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = f.steps + n + 1
}

// Steps returns how many mutating operations were begun.
func (f *FS) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.steps
}

// Trace returns the mutating operations since the last call, one per line.
func (f *FS) Trace() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trace
	f.trace = nil
	return t
}

// Crash stops this file system and returns that of the machine after its next start. rng decides what survives of
// what was not synced; nil lets nothing survive.
func (f *FS) Crash(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
	next := New()
	next.root = survivor(f.root, rng, map[any]any{})
	next.used = next.root.bytes(map[*file]bool{})
	return next
}

// Kill stops this file system as the end of its process does, and returns that of the next process. All written bytes
// are there, and unsynced ones can still be lost.
func (f *FS) Kill() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
	next := New()
	next.root, next.used = f.root, f.used
	return next
}

// survivor returns what is left of a directory. seen keeps a file with two names one file.
func survivor(d *dir, rng *rand.Rand, seen map[any]any) *dir {
	names := maps.Clone(d.synced)
	if rng != nil {
		for _, c := range d.pending[:rng.IntN(len(d.pending)+1)] {
			c.on(names)
		}
	}
	out := newDir()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		node := names[name]
		if seen[node] == nil {
			switch n := node.(type) {
			case *dir:
				seen[node] = survivor(n, rng, seen)
			case *file:
				seen[node] = n.survivor(rng)
			}
		}
		out.names[name], out.synced[name] = seen[node], seen[node]
	}
	return out
}

func (n *file) survivor(rng *rand.Rand) *file {
	data := slices.Clone(n.synced)
	for i, w := range n.writes {
		if rng == nil || rng.IntN(2) == 0 {
			continue
		}
		b := w.data
		if i == len(n.writes)-1 && len(b) > 0 {
			b = b[:rng.IntN(len(b)+1)]
		}
		data = overwrite(data, b, w.at)
	}
	return &file{path: n.path, data: data, synced: slices.Clone(data)}
}

func (d *dir) bytes(seen map[*file]bool) (n int64) {
	for _, node := range d.names {
		switch node := node.(type) {
		case *dir:
			n += node.bytes(seen)
		case *file:
			if !seen[node] {
				seen[node] = true
				n += int64(len(node.data))
			}
		}
	}
	return n
}

func overwrite(data, b []byte, at int64) []byte {
	if end := int(at) + len(b); end > len(data) {
		data = append(data, make([]byte, end-len(data))...)
	}
	copy(data[at:], b)
	return data
}

// find returns the directory that holds a path, and the last element of the path.
func (f *FS) find(path string) (*dir, string, error) {
	path = filepath.Clean(path)
	d := f.root
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for _, p := range parts[:len(parts)-1] {
		if p == "." || p == "" {
			continue
		}
		sub, ok := d.names[p].(*dir)
		if !ok {
			return nil, "", &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
		}
		d = sub
	}
	return d, parts[len(parts)-1], nil
}

func (f *FS) findDir(path string) (*dir, error) {
	d, name, err := f.find(path)
	if err != nil {
		return nil, err
	}
	if name == "" || name == "." {
		return d, nil
	}
	sub, ok := d.names[name].(*dir)
	if !ok {
		return nil, &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
	}
	return sub, nil
}

// do runs one mutating operation under mu, with the faults that were planned for it.
func (f *FS) do(op Op, path, what string, run func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.crashed {
		f.steps++
		f.crashed = f.stop != 0 && f.steps >= f.stop
	}
	if f.crashed {
		return ErrCrashed
	}
	if what != "" {
		what = " " + what
	}
	line := fmt.Sprintf("%s %s%s", op, path, what)
	if fault := f.hit(op, path); fault != nil {
		f.trace = append(f.trace, line+" -> "+fault.Err.Error())
		if fault.After {
			_ = run()
		}
		return &fs.PathError{Op: string(op), Path: path, Err: fault.Err}
	}
	err := run()
	if err != nil {
		line += " -> " + err.Error()
	}
	f.trace = append(f.trace, line)
	return err
}

// Mkdir implements storage.FS.
func (f *FS) Mkdir(path string) error {
	return f.do(Mkdir, path, "", func() error {
		d, name, err := f.find(path)
		if err != nil {
			return err
		}
		if d.names[name] != nil {
			return &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrExist}
		}
		d.apply(change{set: name, node: newDir()})
		return nil
	})
}

// Create implements storage.FS.
func (f *FS) Create(path string) (storage.File, error) {
	n := &file{path: path}
	err := f.do(Create, path, "", func() error {
		d, name, err := f.find(path)
		if err != nil {
			return err
		}
		switch old := d.names[name].(type) {
		case *dir:
			return &fs.PathError{Op: "create", Path: path, Err: syscall.EISDIR}
		case *file:
			f.used -= int64(len(old.data))
		}
		d.apply(change{set: name, node: n})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &handle{fs: f, node: n}, nil
}

// Open implements storage.FS.
func (f *FS) Open(path string) (storage.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, ErrCrashed
	}
	if fault := f.hit(Open, path); fault != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fault.Err}
	}
	d, name, err := f.find(path)
	if err != nil {
		return nil, err
	}
	n, ok := d.names[name].(*file)
	if ok {
		n.path = path // it may have been renamed before a crash that undid it
	}
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return &handle{fs: f, node: n}, nil
}

// Remove implements storage.FS.
func (f *FS) Remove(path string) error {
	return f.do(Remove, path, "", func() error {
		d, name, err := f.find(path)
		if err != nil {
			return err
		}
		switch n := d.names[name].(type) {
		case nil:
			return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
		case *dir:
			if len(n.names) > 0 {
				return &fs.PathError{Op: "remove", Path: path, Err: syscall.ENOTEMPTY}
			}
		case *file:
			f.used -= int64(len(n.data))
		}
		d.apply(change{gone: name})
		return nil
	})
}

// Rename implements storage.FS, within one directory.
func (f *FS) Rename(from, to string) error {
	return f.do(Rename, from, filepath.Base(to), func() error {
		d, old, err := f.find(from)
		if err != nil {
			return err
		}
		d2, name, err := f.find(to)
		if err != nil {
			return err
		}
		if d != d2 {
			return &fs.PathError{Op: "rename", Path: to, Err: syscall.EXDEV}
		}
		node := d.names[old]
		if node == nil {
			return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
		}
		if over, ok := d.names[name].(*file); ok {
			f.used -= int64(len(over.data))
		}
		if n, ok := node.(*file); ok {
			n.path = to
		}
		d.apply(change{gone: old, set: name, node: node})
		return nil
	})
}

// ReadDir implements storage.FS.
func (f *FS) ReadDir(path string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, ErrCrashed
	}
	d, err := f.findDir(path)
	if err != nil {
		return nil, err
	}
	out := make([]fs.DirEntry, 0, len(d.names))
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		i := info{name: name}
		switch n := d.names[name].(type) {
		case *dir:
			i.dir = true
		case *file:
			i.size = int64(len(n.data))
		}
		out = append(out, fs.FileInfoToDirEntry(i))
	}
	return out, nil
}

// SyncDir implements storage.FS.
func (f *FS) SyncDir(path string) error {
	return f.do(SyncDir, path, "", func() error {
		d, err := f.findDir(path)
		if err != nil {
			return err
		}
		d.synced, d.pending = maps.Clone(d.names), nil
		return nil
	})
}

// Lock implements storage.FS.
func (f *FS) Lock(path string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return nil, ErrCrashed
	}
	if f.locks[path] {
		return nil, &storage.LockedError{File: path}
	}
	f.locks[path] = true
	return unlock(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.locks[path] = false
	}), nil
}

// Space implements storage.FS; without a limit the disk has a terabyte.
func (f *FS) Space(string) (free, total uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return 0, 0, ErrCrashed
	}
	limit := f.limit
	if limit == 0 {
		limit = 1 << 40
	}
	return uint64(max(0, limit-f.used)), uint64(limit), nil
}

type unlock func()

func (u unlock) Close() error { u(); return nil }

// info describes a file or directory.
type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}
