package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

const walTestBytes = 1 << 20

func newWALFile(t *testing.T) (types.WritableFile, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := walFiles{walfs.New()}.Create(dir, "1.wal", walTestBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, filepath.Join(dir, "1.wal")
}

func mustAppend(t *testing.T, f types.WritableFile, p []byte, at int64) {
	t.Helper()
	if n, err := f.WriteAt(p, at); n != len(p) || err != nil {
		t.Fatalf("write %d bytes at %d: %d, %v", len(p), at, n, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// What a segment holds is what was appended and zeros behind it, whatever the sizes and however often
// it was opened: writing zeros ahead changes no byte that a reader sees.
func TestZerosAheadChangeNothing(t *testing.T) {
	f, name := newWALFile(t)
	want := make([]byte, walTestBytes)
	at := int64(0)
	put := func(n int) {
		p := bytes.Repeat([]byte{byte(at>>10) | 1}, n)
		copy(want[at:], p)
		mustAppend(t, f, p, at)
		at += int64(n)
	}
	sizes := []int{32, 1000, zeroAheadBelow - 1, zeroAheadBelow, 5, zeroAheadBytes, 7, 8}
	for _, n := range sizes {
		put(n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := walFiles{walfs.New()}.OpenWriter(filepath.Dir(name), filepath.Base(name))
	if err != nil {
		t.Fatal(err)
	}
	f = again
	t.Cleanup(func() { again.Close() })
	for _, n := range sizes {
		put(n)
	}
	put(walTestBytes - int(at) - 1) // nearly full: no zeros behind the end of the file
	put(1)
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes differ from what was appended (%d bytes)", len(got), len(want))
	}
}

// Zeros are written for small appends alone, once, and never over what was appended.
func TestZerosAreWrittenOncePerStretch(t *testing.T) {
	f, _ := newWALFile(t)
	w := f.(*walFile)
	for _, c := range []struct {
		name    string
		n       int
		written int64
	}{
		{"a small append fills the stretch behind it", 100, 100 + zeroAheadBytes},
		{"the next one stays within", 100, 100 + zeroAheadBytes},
		{"a large one within, too", zeroAheadBytes - 200, 100 + zeroAheadBytes},
		{"a large one across pays for itself", zeroAheadBelow, zeroAheadBytes + zeroAheadBelow},
		{"a small one behind fills anew", 1, zeroAheadBytes + zeroAheadBelow + 1 + zeroAheadBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			end := w.end(t)
			mustAppend(t, f, bytes.Repeat([]byte{1}, c.n), end)
			if w.written != c.written {
				t.Errorf("written to %d, want %d", w.written, c.written)
			}
		})
	}
}

// end is behind the last byte that is not zero.
func (f *walFile) end(t *testing.T) int64 {
	t.Helper()
	b := make([]byte, f.size)
	if _, err := f.file.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return int64(len(bytes.TrimRight(b, "\x00")))
}
