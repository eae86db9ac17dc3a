package storage

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/types"
)

const walTestBytes = 1 << 20

func newWALFile(t *testing.T) (types.WritableFile, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := newWALFiles(hclog.NewNullLogger()).Create(dir, "1.wal", walTestBytes)
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
	sizes := []int{32, 1000, 10_000, 64 << 10, 5, zeroAheadBytes, 7, 8, 9, 4000}
	for _, n := range sizes {
		put(n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := newWALFiles(hclog.NewNullLogger()).OpenWriter(filepath.Dir(name), filepath.Base(name))
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

// Zeros are written where they save more than they cost: for a run of small appends, once per stretch,
// and never over what was appended.
func TestZerosAreWrittenOncePerStretch(t *testing.T) {
	f, _ := newWALFile(t)
	w := f.(*walFile)
	ahead := func(n int) int64 {
		end := w.end(t)
		mustAppend(t, f, bytes.Repeat([]byte{1}, n), end)
		return w.written - end - int64(n)
	}
	first := ahead(100)
	if first < zeroPieceBytes {
		t.Errorf("a small append puts %d zeros behind itself, want at least %d", first, zeroPieceBytes)
	}
	if got := ahead(100); got != first-100 {
		t.Errorf("%d zeros behind the next one, want the %d that are left", got, first-100)
	}
	rest := func() int64 { // what is left of the last block, which a direct write fills
		if w.direct == nil {
			return 0
		}
		return -w.end(t) & (blockBytes - 1)
	}
	if got := ahead(300 << 10); got != rest() {
		t.Errorf("%d zeros behind a large append, want %d", got, rest())
	}
	if got := ahead(100); got != rest() {
		t.Errorf("%d zeros behind a small append among large ones, want %d", got, rest())
	}
	for range 50 {
		ahead(100)
	}
	if w.written <= w.end(t) {
		t.Error("no zeros behind the 50th small append in a row")
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

// The segments that we write hold the bytes that the library would have written, and zeros up to the end
// of a block, and it reads them back.
func TestSegmentsAreTheLibrarysOwn(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	filer := newWALFiler(ours, hclog.NewNullLogger())
	mine, err := wal.Open(ours, wal.WithSegmentSize(256<<10), wal.WithSegmentFiler(filer))
	if err != nil {
		t.Fatal(err)
	}
	store := &walStore{WAL: mine, filer: filer}
	library, err := wal.Open(theirs, wal.WithSegmentSize(256<<10))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1, 2).UTC()
	for first := uint64(7); first < 150; first += 3 { // across segments, from any index on
		var logs []*raft.Log
		for i := range uint64(3) {
			logs = append(logs, &raft.Log{
				Index: first + i, Term: 4, Type: raft.LogType(i), AppendedAt: at,
				Data: bytes.Repeat([]byte{byte(first + i)}, int(first*i*100)), Extensions: []byte{1, 2, byte(i)},
			})
		}
		for _, s := range []raft.LogStore{store, library} {
			if err := s.StoreLogs(logs); err != nil {
				t.Fatal(err)
			}
		}
	}
	for index := uint64(7); index < 151; index++ {
		var got, want raft.Log
		if err := errors.Join(store.GetLog(index, &got), library.GetLog(index, &want)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) || got.Index != index {
			t.Errorf("entry %d: %v, want %v", index, got, want)
		}
	}
	if err := errors.Join(mine.Close(), library.Close()); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(ours, "*.wal"))
	if err != nil || len(names) < 3 {
		t.Fatalf("%d segments, %v; want several", len(names), err)
	}
	for _, name := range names {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(theirs, filepath.Base(name)))
		if len(got)%blockBytes == 0 { // else the writes were plain ones
			want = append(want, make([]byte, -len(want)&(blockBytes-1))...)
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from the library's (%v)", filepath.Base(name), err)
		}
	}
}

// Some file systems let a file be opened for direct writes and then refuse them: the log goes on with
// plain ones, and holds the same.
func TestRefusedDirectWritesArePlainOnes(t *testing.T) {
	f, name := newWALFile(t)
	w := f.(*walFile)
	if w.direct == nil {
		t.Skip("the file system has no direct writes")
	}
	var want []byte
	for i, n := range []int{100, 5000, 70_000, 300} {
		if i == 2 { // memory that begins elsewhere is refused, as everything is by such a file system
			w.direct.buf.b = make([]byte, maxDirectBytes+1)[1:]
		}
		p := bytes.Repeat([]byte{byte(i + 1)}, n)
		mustAppend(t, f, p, int64(len(want)))
		want = append(want, p...)
		if refused := w.direct == nil; refused != (i >= 2) {
			t.Errorf("direct writes were given up: %t at append %d", refused, i)
		}
	}
	want = append(want, make([]byte, walTestBytes-len(want))...)
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file does not hold what was appended (%v)", err)
	}
}

// Appends of every size, larger than one direct write too, begin wherever the last one ended, in a file
// that is opened anew now and then.
func TestDirectAppendsOfEverySize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	f, name := newWALFile(t)
	var want []byte
	for range 60 {
		p := make([]byte, 1+rng.IntN([]int{20, 5000, 40_000, 2 * maxDirectBytes}[rng.IntN(4)]))
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		mustAppend(t, f, p, int64(len(want)))
		want = append(want, p...)
		if rng.IntN(5) > 0 {
			continue
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		if f, err = newWALFiles(hclog.NewNullLogger()).OpenWriter(filepath.Dir(name), filepath.Base(name)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
		t.Fatal("the file does not hold what was appended")
	}
	if len(bytes.Trim(got[len(want):], "\x00")) > 0 {
		t.Error("something stands behind the end")
	}
}
