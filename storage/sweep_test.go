package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// What a snapshot makes superfluous goes while the log is appended to, read and cut again, and none of it
// is left when the log is closed.
func TestNothingWaitsForSegmentsThatGo(t *testing.T) {
	cfg := logConfig(t, LogWAL)
	cfg.LogSegmentBytes = minLogSegmentBytes
	l := mustOpenLog(t, cfg)
	var next uint64
	fill := func(until uint64) {
		for next < until {
			next++
			if err := l.StoreLog(entry(next, 1, strings.Repeat("x", minLogSegmentBytes/2))); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(20)
	held, goOn := make(chan string), make(chan struct{})
	l.store.(*walStore).filer.gone.delete = func(name string) error {
		select {
		case held <- name:
			<-goOn
		case <-goOn:
		}
		return os.Remove(name)
	}
	if err := l.DeleteRange(1, 15); err != nil {
		t.Fatal(err)
	}
	first := <-held
	if _, err := os.Stat(first); err != nil {
		t.Fatalf("the first segment: %v, want it to be there still", err)
	}
	fill(40)
	if err := l.DeleteRange(16, 30); err != nil {
		t.Fatal(err)
	}
	var got raft.Log
	if err := l.GetLog(40, &got); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(l.name, "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > 7 || slices.Contains(files, first) {
		t.Errorf("%d segments are left for entries 31 to 40, two in each: %q", len(files), files)
	}
	l = mustOpenLog(t, cfg)
	if first, err := l.FirstIndex(); first != 31 || err != nil {
		t.Errorf("the log begins at %d, %v; want 31", first, err)
	}
}

func TestSweeperRemovesInTurn(t *testing.T) {
	dir := t.TempDir()
	goOn := make(chan struct{})
	var gone []string
	s := &sweeper{logger: hclog.NewNullLogger(), delete: func(name string) error {
		<-goOn
		gone = append(gone, filepath.Base(name))
		return os.Remove(name)
	}}
	s.wait() // there is nothing
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.remove(filepath.Join(dir, name))
	}
	s.remove(filepath.Join(dir, "never made"))
	s.release(filepath.Join(dir, "c")) // nobody removes it: no wait
	close(goOn)
	s.release(filepath.Join(dir, "b")) // whoever makes it anew keeps it
	if _, err := os.Stat(filepath.Join(dir, "b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("b after its release: %v", err)
	}
	s.wait()
	s.remove(filepath.Join(dir, "again"))
	s.wait()
	if want := []string{"a", "b", "never made", "again"}; !slices.Equal(gone, want) {
		t.Errorf("removed %q, want %q", gone, want)
	}
}
