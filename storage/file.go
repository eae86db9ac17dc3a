package storage

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// ErrCorrupt is wrapped by every error that says bytes on the disk are not what was written.
// Nothing may be retried: the replica, or the node, has to be rebuilt from its peers.
var ErrCorrupt = errors.New("corrupt")

// ErrClosed says that the directory or the group was closed.
var ErrClosed = errors.New("storage is closed")

// maxSmallFileBytes bounds a small file: the largest is the header of a snapshot, with 24 bytes of
// text for each segment it names.
const maxSmallFileBytes = 16 << 20

// tmpSuffix marks a file that was not finished; it is removed when found at open.
const tmpSuffix = ".tmp"

// sumPrefix begins the last line of a small file. The rest is text, so that a person can read it.
const sumPrefix = "crc32c "

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func sum(parts ...[]byte) uint32 {
	var c uint32
	t := castagnoli()
	for _, p := range parts {
		c = crc32.Update(c, t, p)
	}
	return c
}

// writeSmall writes a small file so that a crash leaves the old one, or none, or the new one. It writes a temporary
// file, syncs and renames it, and syncs the directory.
func writeSmall(fsys FS, name string, payload []byte) error {
	if len(payload) > maxSmallFileBytes {
		return fmt.Errorf("write %s: %d bytes, at most %d", name, len(payload), maxSmallFileBytes)
	}
	text := make([]byte, 0, len(payload)+len(sumPrefix)+10)
	text = append(text, payload...)
	text = append(text, '\n')
	text = fmt.Appendf(text, "%s%08x\n", sumPrefix, sum(payload))

	if err := writeSynced(fsys, name+tmpSuffix, text); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.Rename(name+tmpSuffix, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("write %s: sync directory: %w", name, err)
	}
	return nil
}

func writeSynced(fsys FS, name string, text []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readSmall reads back what writeSmall wrote. The error wraps fs.ErrNotExist or ErrCorrupt.
func readSmall(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	const tail = len(sumPrefix) + 8 + 1
	if size < int64(tail)+1 || size > maxSmallFileBytes+int64(tail)+1 {
		return nil, fmt.Errorf("read %s: %w: %d bytes long", name, ErrCorrupt, size)
	}
	text := make([]byte, size)
	if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	payload, last := text[:len(text)-tail-1], text[len(text)-tail-1:]
	if want := fmt.Appendf(nil, "\n%s%08x\n", sumPrefix, sum(payload)); !bytes.Equal(last, want) {
		return nil, fmt.Errorf("read %s: %w: checksum", name, ErrCorrupt)
	}
	return payload, nil
}

// makeDirs creates a directory and its missing parents, and makes each new name durable.
func makeDirs(fsys FS, dir string) error {
	_, err := fsys.ReadDir(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDirs(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

// removeTree deletes a directory and everything in it.
func removeTree(fsys FS, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = removeTree(fsys, name)
		} else {
			err = fsys.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

// removeTmp deletes the unfinished files of a directory.
func removeTmp(fsys FS, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), tmpSuffix) {
			if err := fsys.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFull reads exactly len(b) bytes; a file that ends before is corrupt.
func readFull(f io.ReaderAt, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: file ends at %d", ErrCorrupt, at+int64(n))
	}
	return err
}
