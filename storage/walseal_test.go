package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	walmeta "github.com/hashicorp/raft-wal/metadb"
	walsegment "github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// unfinish takes a closed log back to where its last full segment is sealed and its meta file does not say so, and
// returns the segment's file.
func unfinish(t *testing.T, dir string) (name string, info types.SegmentInfo) {
	t.Helper()
	if err := os.Remove(dir + logEndSuffix); err != nil { // a process that ends like this does not close the log
		t.Fatal(err)
	}
	meta := &walmeta.BoltMetaDB{}
	state, err := meta.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := len(state.Segments)
	if n < 2 {
		t.Fatalf("%d segments", n)
	}
	if err := os.Remove(filepath.Join(dir, walsegment.FileName(state.Segments[n-1]))); err != nil {
		t.Fatal(err)
	}
	state.Segments = state.Segments[:n-1]
	full := &state.Segments[n-2]
	info = *full
	full.SealTime, full.MaxIndex, full.IndexStart = time.Time{}, 0, 0
	state.NextSegmentID--
	if err := meta.CommitState(state); err != nil {
		t.Fatal(err)
	}
	if err := meta.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, walsegment.FileName(info)), info
}

// A process may end between the append that seals a segment and the note of it, or in the middle of that append. The
// log opens with all that was acknowledged, and goes on.
func TestALogWhoseLastSegmentWasBeingSealedGoesOn(t *testing.T) {
	cfg := Defaults()
	cfg.LogSegmentBytes = minLogSegmentBytes
	damage := func(t *testing.T, name string, at int64, p []byte) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(p, at); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		tear func(t *testing.T, name string, info types.SegmentInfo)
		lost uint64 // entries of the append that was never acknowledged
	}{
		"before the note": {func(*testing.T, string, types.SegmentInfo) {}, 0},
		"without the commit": {func(t *testing.T, name string, i types.SegmentInfo) {
			damage(t, name, int64(i.IndexStart)+indexBytes(i), zeros[:8])
		}, 1},
		"with half an entry": {func(t *testing.T, name string, i types.SegmentInfo) {
			damage(t, name, int64(i.IndexStart)-4096, zeros[:512])
		}, 1},
		"with half an index": {func(t *testing.T, name string, i types.SegmentInfo) {
			damage(t, name, int64(i.IndexStart)+8, zeros[:8])
		}, 1},
		"with a torn last byte": {func(t *testing.T, name string, i types.SegmentInfo) {
			damage(t, name, int64(i.IndexStart)-9, []byte{0x55})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "log")
			l, err := openLog(root, cfg, hclog.NewNullLogger())
			if err != nil {
				t.Fatal(err)
			}
			put := func(from, to uint64) {
				t.Helper()
				for i := from; i <= to; i++ {
					if err := l.StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: entryOf(i)}); err != nil {
						t.Fatalf("append %d: %v", i, err)
					}
				}
			}
			put(1, 40)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			file, info := unfinish(t, dir)
			c.tear(t, file, info)
			want := info.MaxIndex - c.lost
			for range 2 { // the second time nothing is left to mend
				if l, err = openLog(root, cfg, hclog.NewNullLogger()); err != nil {
					t.Fatal(err)
				}
				last, err := l.LastIndex()
				if err != nil || last != want {
					t.Fatalf("last entry is %d, %v, want %d", last, err, want)
				}
				put(last+1, last+60)
				want += 60
				for i := uint64(1); i <= want; i++ {
					var got raft.Log
					if err := l.GetLog(i, &got); err != nil || !bytes.Equal(got.Data, entryOf(i)) {
						t.Fatalf("entry %d: %d bytes, %v", i, len(got.Data), err)
					}
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// indexBytes is the length of a sealed segment's index.
func indexBytes(i types.SegmentInfo) int64 {
	n := int64(i.MaxIndex-i.BaseIndex+1) * 4
	return n + n%8
}

// entryOf is the data of an entry, 64 KiB that no other has.
func entryOf(index uint64) []byte {
	return bytes.Repeat([]byte{byte(index), byte(index >> 8), 0x7f}, 64<<10/3)
}

// A crash may leave files of a log that nothing refers to: a segment whose removal did not last, and the file that was
// open ahead. The log opens without them, and goes on.
func TestALogWithFilesOfNobodyGoesOn(t *testing.T) {
	cfg := Defaults()
	cfg.LogSegmentBytes = minLogSegmentBytes
	root := t.TempDir()
	dir := filepath.Join(root, "log")
	open := func() *Log {
		t.Helper()
		l, err := openLog(root, cfg, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	put := func(l *Log, from, to uint64) {
		t.Helper()
		for i := from; i <= to; i++ {
			if err := l.StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: entryOf(i)}); err != nil {
				t.Fatalf("append %d: %v", i, err)
			}
		}
	}
	l := open()
	put(l, 1, 60)
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) < 3 {
		t.Fatal(segments, err)
	}
	first, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := l.DeleteRange(1, 40); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(segments[0]); !os.IsNotExist(err) {
		t.Fatalf("the first segment is still there: %v", err)
	}
	for name, text := range map[string][]byte{segments[0]: first, filepath.Join(dir, aheadName): []byte("half a segment")} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(dir + logEndSuffix); err != nil { // a process that ends like this does not close the log
		t.Fatal(err)
	}
	l = open()
	if from, _ := l.FirstIndex(); from != 41 {
		t.Fatalf("the log begins at %d", from)
	}
	put(l, 61, 120)
	for i := uint64(41); i <= 120; i++ {
		var got raft.Log
		if err := l.GetLog(i, &got); err != nil || !bytes.Equal(got.Data, entryOf(i)) {
			t.Fatalf("entry %d: %d bytes, %v", i, len(got.Data), err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{segments[0], filepath.Join(dir, aheadName)} {
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", filepath.Base(name), err)
		}
	}
}
