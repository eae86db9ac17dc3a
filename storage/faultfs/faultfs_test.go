package faultfs_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, f *faultfs.FS, name, text string) storage.File {
	t.Helper()
	file, err := f.Create(name)
	must(t, err)
	_, err = file.WriteAt([]byte(text), 0)
	must(t, err)
	return file
}

// read returns the text of a file, "-" if there is none.
func read(t *testing.T, f *faultfs.FS, name string) string {
	t.Helper()
	file, err := f.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	size, err := file.Size()
	must(t, err)
	b := make([]byte, size)
	if size > 0 {
		_, err = file.ReadAt(b, 0)
		must(t, err)
	}
	return string(b)
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	tests := []struct {
		name string
		do   func(f *faultfs.FS, file storage.File) error
		a, b string // what is in the files a and b afterwards
	}{
		{"nothing was synced", func(*faultfs.FS, storage.File) error { return nil }, "-", "-"},
		{"the file without its name", func(_ *faultfs.FS, a storage.File) error { return a.Sync() }, "-", "-"},
		{"the name without the bytes", func(f *faultfs.FS, _ storage.File) error { return f.SyncDir("/") }, "", "-"},
		{"both", func(f *faultfs.FS, a storage.File) error {
			return errors.Join(a.Sync(), f.SyncDir("/"))
		}, "first", "-"},
		{"a later write is lost", func(f *faultfs.FS, a storage.File) error {
			err := errors.Join(a.Sync(), f.SyncDir("/"))
			_, err2 := a.WriteAt([]byte("SECOND"), 0)
			return errors.Join(err, err2)
		}, "first", "-"},
		{"a later rename is lost", func(f *faultfs.FS, a storage.File) error {
			return errors.Join(a.Sync(), f.SyncDir("/"), f.Rename("/a", "/b"))
		}, "first", "-"},
		{"a synced rename is kept", func(f *faultfs.FS, a storage.File) error {
			return errors.Join(a.Sync(), f.Rename("/a", "/b"), f.SyncDir("/"))
		}, "-", "first"},
		{"a later removal is lost", func(f *faultfs.FS, a storage.File) error {
			return errors.Join(a.Sync(), f.SyncDir("/"), f.Remove("/a"))
		}, "first", "-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := faultfs.New()
			a := create(t, f, "/a", "first")
			must(t, tt.do(f, a))
			after := f.Crash(nil)
			if got := read(t, after, "/a"); got != tt.a {
				t.Errorf("a is %q, want %q", got, tt.a)
			}
			if got := read(t, after, "/b"); got != tt.b {
				t.Errorf("b is %q, want %q", got, tt.b)
			}
			if _, err := f.Open("/a"); !errors.Is(err, faultfs.ErrCrashed) {
				t.Errorf("the old machine goes on: %v", err)
			}
			if _, err := a.WriteAt([]byte("x"), 0); !errors.Is(err, faultfs.ErrCrashed) {
				t.Errorf("an old file goes on: %v", err)
			}
		})
	}
}

func TestChanceTearsWritesAndKeepsTheOrderOfNames(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	for range 300 {
		f := faultfs.New()
		a := create(t, f, "/a", "0000")
		must(t, errors.Join(a.Sync(), f.SyncDir("/")))
		_, err := a.WriteAt([]byte("11"), 0)
		must(t, err)
		_, err = a.WriteAt([]byte("22"), 2)
		must(t, err)
		must(t, f.Rename("/a", "/b"))
		must(t, f.Rename("/b", "/c"))
		after := f.Crash(rng)
		a1, b, c := read(t, after, "/a"), read(t, after, "/b"), read(t, after, "/c")
		names := 0
		for _, text := range []string{a1, b, c} {
			if text != "-" {
				names++
				seen[text] = true
			}
		}
		if names != 1 {
			t.Fatalf("a %q, b %q, c %q: a file has one name", a1, b, c)
		}
		seen["a"], seen["b"], seen["c"] = seen["a"] || a1 != "-", seen["b"] || b != "-", seen["c"] || c != "-"
	}
	for _, want := range []string{"0000", "1100", "1122", "0022", "1120", "0020", "a", "b", "c"} {
		if !seen[want] {
			t.Errorf("%q never happened", want)
		}
	}
}

func TestPlannedErrorsHappenWhenTheyShould(t *testing.T) {
	f := faultfs.New()
	f.Inject(faultfs.Fault{Op: faultfs.Write, Path: "*.log", Skip: 1, Times: 2, Err: syscall.EIO, After: true})
	a, other := create(t, f, "/a.log", "1"), create(t, f, "/b", "1")
	for i, fails := range []bool{true, true, false} {
		_, err := a.WriteAt([]byte{byte('2' + i)}, 0)
		if errors.Is(err, syscall.EIO) != fails {
			t.Fatalf("write %d: %v", i, err)
		}
		_, err = other.WriteAt([]byte("x"), 0)
		must(t, err)
		if got := read(t, f, "/a.log"); got != string(rune('2'+i)) {
			t.Fatalf("the write did not reach the disk: %q", got)
		}
	}
	f.Inject(faultfs.Fault{Op: faultfs.Write, Err: syscall.EIO, Short: true})
	if n, err := other.WriteAt([]byte("abcdef"), 0); n != 3 || !errors.Is(err, syscall.EIO) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if got := read(t, f, "/b"); got != "abc" {
		t.Fatalf("b is %q", got)
	}
	f.Heal()
	f.Limit(f.Used() + 2)
	if n, err := other.WriteAt([]byte("12345678"), 0); n != 5 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if free, total, err := f.Space("/"); err != nil || free != 0 || total == 0 {
		t.Fatalf("%d of %d, %v", free, total, err)
	}
}

func TestStopAndTraceCountMutatingOperations(t *testing.T) {
	f := faultfs.New()
	a := create(t, f, "/a", "1")
	f.StopAfter(1)
	must(t, a.Sync())
	if got := read(t, f, "/a"); got != "1" {
		t.Fatalf("a is %q", got)
	}
	if err := f.SyncDir("/"); !errors.Is(err, faultfs.ErrCrashed) {
		t.Fatalf("got %v", err)
	}
	want := []string{"create /a", "write /a 0+1", "sync /a"}
	if got := f.Trace(); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if f.Steps() != 4 {
		t.Fatalf("%d steps", f.Steps())
	}
}
