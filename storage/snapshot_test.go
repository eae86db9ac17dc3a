package storage_test

import (
	"bytes"
	"errors"
	"io"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// snapshotOf returns a store with one snapshot of a few bodies, and its files.
func snapshotOf(t *testing.T, fsys *faultfs.FS, indexes ...uint64) *storage.Replica {
	t.Helper()
	r := openReplica(t, fsys, smallConfig())
	for _, index := range indexes {
		mustPut(t, r.Bodies, index, bytesOf(index, 2000))
		if err := takeSnapshot(r, index); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func newestFile(t *testing.T, fsys *faultfs.FS, nth int, suffix string) string {
	t.Helper()
	entries, err := fsys.ReadDir("/d/snapshots")
	if err != nil {
		t.Fatal(err)
	}
	for i := len(entries) - 1; i >= 0; i-- {
		if strings.HasSuffix(entries[i].Name(), suffix) {
			if nth == 0 {
				return path.Join("/d/snapshots", entries[i].Name())
			}
			nth--
		}
	}
	t.Fatalf("no file %s", suffix)
	return ""
}

func TestSnapshotsAreListedNewestFirstAndReaped(t *testing.T) {
	fsys := faultfs.New()
	r := snapshotOf(t, fsys, 5, 9, 100, 1000)
	for range 2 {
		metas, err := r.Snapshots.List()
		if err != nil || len(metas) != 2 || metas[0].Index != 1000 || metas[1].Index != 100 {
			t.Fatalf("%d snapshots, %v", len(metas), err)
		}
		r = openReplica(t, fsys.Crash(nil), smallConfig())
	}
	if s := r.Snapshots.Stats(); s.Kept != 2 || s.NewestIndex != 1000 {
		t.Fatalf("stats %+v", s)
	}
}

func TestSnapshotKeepsItsMetadata(t *testing.T) {
	fsys := faultfs.New()
	r := openReplica(t, fsys, smallConfig())
	conf := raft.Configuration{Servers: []raft.Server{
		{Suffrage: raft.Voter, ID: "a", Address: "addr-a"}, {Suffrage: raft.Nonvoter, ID: "b", Address: "addr-b"}}}
	sink, err := r.Snapshots.Create(raft.SnapshotVersionMax, 12, 3, conf, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000) // several chunks
	for at := 0; at < len(data); at += 7777 {
		if _, err := sink.Write(data[at:min(at+7777, len(data))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(sink.Close(), sink.Close()); err != nil {
		t.Fatal(err)
	}
	r = openReplica(t, fsys.Crash(nil), smallConfig())
	meta, rc, err := r.Snapshots.Open(sink.ID())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(rc)
	if err != nil || !bytes.Equal(got, data) || meta.Size != int64(len(data)) {
		t.Fatalf("%d bytes of %d, size %d, %v", len(got), len(data), meta.Size, err)
	}
	want := raft.SnapshotMeta{Version: 1, ID: sink.ID(), Index: 12, Term: 3, Configuration: conf,
		ConfigurationIndex: 7, Size: int64(len(data))}
	if !reflect.DeepEqual(*meta, want) {
		t.Fatalf("got %+v, want %+v", *meta, want)
	}
	if err := r.Bodies.Restore(rc); err == nil {
		t.Fatal("a snapshot without bodies was restored")
	}
}

func TestUnfinishedSnapshotsAreGone(t *testing.T) {
	fsys := faultfs.New()
	r := snapshotOf(t, fsys, 5)
	sink, err := r.Snapshots.Create(raft.SnapshotVersionMax, 6, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := r.Snapshots.Create(raft.SnapshotVersionMax, 6, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if sink.ID() == other.ID() {
		t.Fatal("two snapshots have one name")
	}
	if err := errors.Join(other.Cancel(), other.Cancel(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Write([]byte("x")); err == nil {
		t.Fatal("a canceled snapshot takes bytes")
	}
	if _, err := io.WriteString(sink, "half"); err != nil {
		t.Fatal(err)
	}
	if err := fsys.SyncDir("/d/snapshots"); err != nil {
		t.Fatal(err)
	}
	fsys = fsys.Crash(nil)
	openReplica(t, fsys, smallConfig())
	left, err := fsys.ReadDir("/d/snapshots")
	if err != nil || len(left) != 2 {
		t.Fatalf("%v, %v", left, err)
	}
	if _, err := r.Snapshots.Create(raft.SnapshotVersionMin, 6, 1, raft.Configuration{}, 1, nil); err == nil {
		t.Fatal("a snapshot of version 0 was begun")
	}
}

func TestDamagedNewestSnapshotIsAnErrorThatNamesTheFile(t *testing.T) {
	tests := []struct {
		name   string
		damage func(t *testing.T, fsys *faultfs.FS) (file string)
		late   bool // found when it is read, not at open
	}{
		{"a bit of the header", func(t *testing.T, fsys *faultfs.FS) string {
			return flip(t, fsys, newestFile(t, fsys, 0, ".meta"), 30)
		}, false},
		{"a bit of the data's header", func(t *testing.T, fsys *faultfs.FS) string {
			return flip(t, fsys, newestFile(t, fsys, 0, ".data"), 9)
		}, false},
		{"a bit of the image", func(t *testing.T, fsys *faultfs.FS) string {
			return flip(t, fsys, newestFile(t, fsys, 0, ".data"), 16+8+3)
		}, true},
		{"a bit of the manifest", func(t *testing.T, fsys *faultfs.FS) string {
			return flip(t, fsys, newestFile(t, fsys, 0, ".data"), 16+8+int64(len(image))+30)
		}, true},
		{"no data", func(t *testing.T, fsys *faultfs.FS) string {
			name := newestFile(t, fsys, 0, ".data")
			if err := fsys.Remove(name); err != nil {
				t.Fatal(err)
			}
			return strings.TrimSuffix(name, ".data")
		}, false},
		{"data of another length", func(t *testing.T, fsys *faultfs.FS) string {
			name := newestFile(t, fsys, 0, ".data")
			f, err := fsys.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("BSNP"), 0); err != nil {
				t.Fatal(err)
			}
			return name
		}, false},
		{"a segment is gone", func(t *testing.T, fsys *faultfs.FS) string {
			if err := fsys.Remove("/d/bodies/0000000001.seg"); err != nil {
				t.Fatal(err)
			}
			return "0000000001.seg"
		}, false},
		{"a bit of a segment's header", func(t *testing.T, fsys *faultfs.FS) string {
			return flip(t, fsys, "/d/bodies/0000000001.seg", 8)
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := faultfs.New()
			if err := snapshotOf(t, fsys, 5).Bodies.Close(); err != nil {
				t.Fatal(err)
			}
			file := tt.damage(t, fsys)
			r, err := storage.OpenReplica(fsys, "/d", smallConfig(), storage.Bounds{})
			if tt.late && err == nil {
				t.Cleanup(func() { _ = r.Bodies.Close() })
				_, err = restoreNewest(r)
			}
			if err == nil || !strings.Contains(err.Error(), file) {
				t.Fatalf("got %v, want an error that names %s", err, file)
			}
			if !errors.Is(err, storage.ErrCorrupt) && tt.name != "a segment is gone" {
				t.Fatalf("got %v, want ErrCorrupt", err)
			}
		})
	}
}

func flip(t *testing.T, fsys *faultfs.FS, name string, at int64) string {
	t.Helper()
	if err := fsys.Flip(name, at); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDamagedOlderSnapshotIsRemoved(t *testing.T) {
	fsys := faultfs.New()
	if err := snapshotOf(t, fsys, 5, 9).Bodies.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, fsys, newestFile(t, fsys, 1, ".meta"), 30)
	r := openReplica(t, fsys, smallConfig())
	if metas, _ := r.Snapshots.List(); len(metas) != 1 || metas[0].Index != 9 {
		t.Fatalf("%d snapshots", len(metas))
	}
	if index, err := restoreNewest(r); err != nil || index != 9 {
		t.Fatalf("restored %d, %v", index, err)
	}
	if left, _ := fsys.ReadDir("/d/snapshots"); len(left) != 2 {
		t.Fatalf("left: %v", left)
	}
}

// raft falls back to an older snapshot when the newest cannot be read, and then misses entries.
func TestOlderSnapshotNeedsTheLogBehindIt(t *testing.T) {
	fsys := faultfs.New()
	if err := snapshotOf(t, fsys, 10, 20).Bodies.Close(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		log  storage.Bounds
		ok   bool
	}{
		{"no log", storage.Bounds{}, false},
		{"the log begins too late", storage.Bounds{First: 12, Last: 25}, false},
		{"the log ends too early", storage.Bounds{First: 8, Last: 19}, false},
		{"the log has what is between", storage.Bounds{First: 11, Last: 20}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := storage.OpenReplica(fsys, "/d", smallConfig(), tt.log)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Bodies.Close() //nolint:errcheck // the check is done
			metas, err := r.Snapshots.List()
			if err != nil {
				t.Fatal(err)
			}
			_, rc, err := r.Snapshots.Open(metas[1].ID)
			if (err == nil) != tt.ok {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				_ = rc.Close()
			}
			if _, rc, err = r.Snapshots.Open(metas[0].ID); err != nil {
				t.Fatal(err)
			}
			_ = rc.Close()
		})
	}
	r := openReplica(t, fsys, smallConfig())
	if _, _, err := r.Snapshots.Open("../../etc/passwd"); err == nil {
		t.Fatal("a snapshot of any name is opened")
	}
}

// plain hides the snapshot's own reader, as a wrapper that raft does not know would.
type plain struct{ io.Reader }

func TestBodiesTravelWithTheStream(t *testing.T) {
	src := snapshotOf(t, faultfs.New(), 5, 6, 7)
	metas, _ := src.Snapshots.List()
	meta, rc, err := src.Snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close() //nolint:errcheck // only read
	stream, err := io.ReadAll(rc)
	if err != nil || int64(len(stream)) != meta.Size {
		t.Fatalf("%d bytes, size %d, %v", len(stream), meta.Size, err)
	}
	if n, err := rc.Read(make([]byte, 1)); n != 0 || err != io.EOF { //nolint:errorlint // io.Reader says so
		t.Fatalf("behind the end: %d, %v", n, err)
	}
	if err := src.Bodies.Restore(rc); err == nil {
		t.Fatal("restored from the end of a stream")
	}

	dst := openReplica(t, faultfs.New(), smallConfig())
	mustPut(t, dst.Bodies, 1, []byte("older")) // replaced
	if err := dst.Bodies.Restore(plain{bytes.NewReader(stream[len(image):])}); err != nil {
		t.Fatal(err)
	}
	for index := uint64(5); index <= 7; index++ {
		wantBody(t, dst.Bodies, index, bytesOf(index, 2000))
	}
	if _, err := dst.Bodies.Read(1, 0, 1); !errors.Is(err, storage.ErrNoBody) {
		t.Fatalf("got %v", err)
	}
	// The same bytes over the wrapper on the node itself: the bodies are copied, not attached.
	_, rc, err = src.Snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close() //nolint:errcheck // only read
	if _, err := io.ReadFull(rc, make([]byte, len(image))); err != nil {
		t.Fatal(err)
	}
	if err := src.Bodies.Restore(plain{rc}); err != nil {
		t.Fatal(err)
	}
	wantBody(t, src.Bodies, 7, bytesOf(7, 2000))
}

func TestEveryDamagedByteOfAStreamIsFound(t *testing.T) {
	src := snapshotOf(t, faultfs.New(), 5, 6)
	metas, _ := src.Snapshots.List()
	_, rc, err := src.Snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close() //nolint:errcheck // only read
	stream, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	block := stream[len(image):]
	dst := openReplica(t, faultfs.New(), smallConfig())
	mustPut(t, dst.Bodies, 1, []byte("before"))
	for at := range block {
		bad := bytes.Clone(block)
		bad[at] ^= 0x20
		if err := dst.Bodies.Restore(bytes.NewReader(bad)); err == nil {
			t.Fatalf("byte %d of %d is damaged and nobody noticed", at, len(block))
		}
		if err := dst.Bodies.Restore(bytes.NewReader(block[:at])); err == nil {
			t.Fatalf("a stream of %d bytes instead of %d was restored", at, len(block))
		}
	}
	wantBody(t, dst.Bodies, 1, []byte("before")) // a failed restore changes nothing
	dst.Bodies.SweepAll()
	if s := dst.Bodies.Stats(); s.Entries != 1 || s.HeldBytes != 38 {
		t.Fatalf("left behind: %+v", s)
	}
}

// A peer must not make this node name segments of its own choice.
func TestManifestOfAnotherNodeIsRefused(t *testing.T) {
	src := openReplica(t, faultfs.New(), smallConfig())
	mustPut(t, src.Bodies, 1, bytesOf(1, 500))
	pin := src.Bodies.Pin()
	var manifest bytes.Buffer
	if _, err := pin.WriteTo(&manifest); err != nil {
		t.Fatal(err)
	}
	write := func(r *storage.Replica) error {
		sink, err := r.Snapshots.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write(append([]byte(image), manifest.Bytes()...)); err != nil {
			t.Fatal(err)
		}
		return sink.Close()
	}
	dst := openReplica(t, faultfs.New(), smallConfig())
	mustPut(t, dst.Bodies, 1, bytesOf(1, 500))
	if err := write(dst); !errors.Is(err, storage.ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
	if metas, _ := dst.Snapshots.List(); len(metas) != 0 {
		t.Fatal("it is listed")
	}
	if err := pin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := write(src); !errors.Is(err, storage.ErrCorrupt) {
		t.Fatalf("after the pin was closed: %v", err)
	}
}

func FuzzScanInline(f *testing.F) {
	src, err := storage.OpenReplica(faultfs.New(), "/d", smallConfig(), storage.Bounds{})
	if err != nil {
		f.Fatal(err)
	}
	for i := uint64(1); i <= 3; i++ {
		if err := src.Bodies.Put(i, bytesOf(i, 30), whole(bytesOf(i, 30))); err != nil {
			f.Fatal(err)
		}
	}
	if err := takeSnapshot(src, 3); err != nil {
		f.Fatal(err)
	}
	metas, _ := src.Snapshots.List()
	_, rc, err := src.Snapshots.Open(metas[0].ID)
	if err != nil {
		f.Fatal(err)
	}
	stream, err := io.ReadAll(rc)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stream[len(image):])
	f.Add([]byte("BBOD"))
	f.Fuzz(func(t *testing.T, b []byte) {
		last := uint64(0)
		_ = storage.ScanInline(bytes.NewReader(b), func(index uint64, rec []byte) error {
			if index <= last || len(rec) > len(b)+20 {
				t.Fatalf("entry %d after %d, %d bytes", index, last, len(rec))
			}
			last = index
			return nil
		})
	})
}

func FuzzReadSmall(f *testing.F) {
	f.Add([]byte("{}\ncrc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := faultfs.New()
		file, err := fsys.Create("/x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		got, err := storage.ReadSmall(fsys, "/x")
		if err != nil {
			return
		}
		if err := storage.WriteSmall(fsys, "/y", got); err != nil {
			t.Fatal(err)
		}
		if again, err := storage.ReadSmall(fsys, "/y"); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q, %v", again, err)
		}
	})
}

// A snapshot from the leader carries its bodies. A restart takes them out of it again, into the room of those that the
// process before has taken out, or of what it could not finish on a full disk.
func TestARestartNeedsNoRoomForTheBodiesTwice(t *testing.T) {
	src := openReplica(t, faultfs.New(), smallConfig())
	for i := uint64(1); i <= 40; i++ {
		mustPut(t, src.Bodies, i, bytesOf(i, 2000))
	}
	if err := takeSnapshot(src, 40); err != nil {
		t.Fatal(err)
	}
	metas, _ := src.Snapshots.List()
	_, rc, err := src.Snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close() //nolint:errcheck // only read

	fsys := faultfs.New()
	dst := openReplica(t, fsys, smallConfig())
	sink, err := dst.Snapshots.Create(raft.SnapshotVersionMax, 40, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(sink, rc); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	snapshot := fsys.Used()
	for _, room := range []int64{50_000, 100_000, 100_000} { // too little at first
		fsys.Limit(snapshot + room)
		if _, err := restoreNewest(dst); (err != nil) != (room < 80_000) {
			t.Fatalf("with room for %d bytes: %v", room, err)
		}
		if err := dst.Bodies.Close(); err != nil {
			t.Fatal(err)
		}
		dst = openReplica(t, fsys, smallConfig())
	}
}
