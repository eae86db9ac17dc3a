package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// exhaust leaves the process that many free descriptors, until the test ends or restore is called.
func exhaust(t *testing.T, left int) (restore func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: min(was.Cur, 1024), Max: was.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var held []*os.File
	restore = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
		for _, f := range held {
			_ = f.Close()
		}
		held = nil
	}
	t.Cleanup(restore)
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, f)
		if uint64(len(held)) > few.Cur {
			t.Fatal("there is no end of descriptors")
		}
	}
	for range left {
		_ = held[len(held)-1].Close()
		held = held[:len(held)-1]
	}
	return restore
}

// fill appends entries of 64 KiB until n segments of the log are full.
func fill(t *testing.T, l *Log, from uint64, segments int, cfg Config) (next uint64, err error) {
	t.Helper()
	data := make([]byte, 64<<10)
	for range segments * cfg.LogSegmentBytes / len(data) {
		if err := l.StoreLog(&raft.Log{Index: from, Term: 1, Type: raft.LogCommand, Data: data}); err != nil {
			return from, err
		}
		from++
	}
	return from, nil
}

// awaitAhead waits until the log has so many segments, and the file of the next one is open.
func awaitAhead(t *testing.T, dir string, segments int) {
	t.Helper()
	for range 10_000 {
		files, err := filepath.Glob(filepath.Join(dir, "log", "*.wal"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "log", aheadName)); err == nil && len(files) == segments {
			return
		}
		time.Sleep(time.Millisecond)
	}
	files, _ := os.ReadDir(filepath.Join(dir, "log"))
	t.Fatalf("the log has %v, want %d segments and the next one", files, segments)
}

// F1: a process without a free descriptor appends on into the next segment, which is open already.
func TestTheNextSegmentIsOpenBeforeItIsNeeded(t *testing.T) {
	cfg := Defaults()
	cfg.LogSegmentBytes = minLogSegmentBytes
	dir := t.TempDir()
	l, err := openLog(dir, cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next, err := fill(t, l, 1, 2, cfg)
	if err != nil {
		t.Fatal(err)
	}
	awaitAhead(t, dir, 3)    // what is opened behind the append would take the descriptor that is left
	restore := exhaust(t, 1) // the library opens the directory to sync the name of a new segment
	if _, err = fill(t, l, next, 1, cfg); err != nil {
		t.Errorf("append without descriptors: %v", err)
	}
	restore()
}

// F1: when not even that helps, the error names the descriptors and not only the segment before.
func TestAnAppendWithoutDescriptorsSaysSo(t *testing.T) {
	cfg := Defaults()
	cfg.LogSegmentBytes = minLogSegmentBytes
	dir := t.TempDir()
	l, err := openLog(dir, cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	next, err := fill(t, l, 1, 1, cfg)
	if err != nil {
		t.Fatal(err)
	}
	restore := exhaust(t, 0)
	end, err := fill(t, l, next, 4, cfg)
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("got %v, want an error of descriptors", err)
	}
	restore()
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	// What was acknowledged is there, and the log goes on.
	l, err = openLog(dir, cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	last, err := l.LastIndex()
	if err != nil || last < end-1 {
		t.Errorf("last entry is %d, %v; %d was acknowledged", last, err, end-1)
	}
	if _, err := fill(t, l, last+1, 2, cfg); err != nil {
		t.Error(err)
	}
}

// F8: nobody but the owner of the process reads the log, whoever made its files.
func TestFilesOfTheLogArePrivate(t *testing.T) {
	cfg := Defaults()
	cfg.LogSegmentBytes = minLogSegmentBytes
	dir := t.TempDir()
	check := func(when string) {
		t.Helper()
		names, err := os.ReadDir(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		segments := 0
		for _, e := range names {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s has mode %v", when, e.Name(), info.Mode())
			}
			if strings.HasSuffix(e.Name(), ".wal") {
				segments++
			}
		}
		if segments == 0 {
			t.Errorf("%s: no segment among %v", when, names)
		}
	}
	for range 2 {
		l, err := openLog(dir, cfg, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		last, err := l.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		next, err := fill(t, l, last+1, 2, cfg)
		if err != nil {
			t.Fatal(err)
		}
		// The log opens a segment in the background, and the next append waits for that.
		if err := l.StoreLog(&raft.Log{Index: next, Term: 1, Type: raft.LogCommand, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		check("open")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		check("closed")
		if _, err := os.Stat(filepath.Join(dir, "log", aheadName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file of the next segment stays behind: %v", err)
		}
		entries, _ := os.ReadDir(filepath.Join(dir, "log"))
		for _, e := range entries { // as earlier versions left them
			if err := os.Chmod(filepath.Join(dir, "log", e.Name()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
