package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"
)

// A log that could not be opened for want of room or descriptors is opened again in the same process. The failed attempt
// must keep nothing: the library waits for the lock of its meta file for as long as it takes.
func TestALogThatCannotBeOpenedKeepsNothingOpen(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would close what was forgotten
	cfg := Defaults()
	cfg.LogSegmentBytes = minLogSegmentBytes
	for _, missing := range []int{0, 1, 2} { // the first segment, the next, and the open one
		dir := t.TempDir()
		l, err := openLog(dir, cfg, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		next, err := fill(t, l, 1, 2, cfg)
		if err == nil {
			err = l.StoreLog(entry(next, 1, "x"))
		}
		if err := errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		segments, err := filepath.Glob(filepath.Join(dir, "log", "*.wal"))
		if err != nil || len(segments) != 3 {
			t.Fatalf("%v, %v", segments, err)
		}
		name := segments[missing]
		if err := errors.Join(os.Rename(name, name+".away"), os.Mkdir(name, 0o700)); err != nil {
			t.Fatal(err)
		}
		if _, err := openLog(dir, cfg, hclog.NewNullLogger()); err == nil {
			t.Fatal("a log without a segment is opened")
		}
		if open := openBelow(t, dir); len(open) > 0 {
			t.Errorf("segment %d: open behind the error: %v", missing, open)
		}
		meta, err := bbolt.Open(filepath.Join(dir, "log", walMetaFile), 0o600, &bbolt.Options{Timeout: boltOpenTimeout})
		if err != nil {
			t.Fatalf("segment %d: the meta file behind the error: %v", missing, err)
		}
		if err := errors.Join(meta.Close(), os.Remove(name), os.Rename(name+".away", name)); err != nil {
			t.Fatal(err)
		}
		if l, err = openLog(dir, cfg, hclog.NewNullLogger()); err != nil {
			t.Fatalf("with the segment there again: %v", err)
		}
		if last, err := l.LastIndex(); err != nil || last != next {
			t.Errorf("last entry is %d, %v, want %d", last, err, next)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// openBelow lists the descriptors of this process that are below a directory.
func openBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		name, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, dir) {
			names = append(names, filepath.Base(name))
		}
	}
	return names
}
