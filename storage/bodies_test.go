package storage_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 draws one")

func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	return rand.New(rand.NewPCG(s, 1))
}

func smallConfig() storage.Config {
	cfg := storage.Defaults()
	cfg.Dir = "/d"
	cfg.BodySegmentBytes = 4 << 10
	cfg.BodyCacheBytes = 8 << 10
	return cfg
}

func openReplica(t *testing.T, fsys storage.FS, cfg storage.Config) *storage.Replica {
	t.Helper()
	r, err := storage.OpenReplica(fsys, cfg.Dir, cfg, storage.Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Bodies.Close() })
	return r
}

func mustPut(t *testing.T, b *storage.Bodies, index uint64, entry []byte) {
	t.Helper()
	if err := b.Put(index, entry, whole(entry)); err != nil {
		t.Fatal(err)
	}
}

func whole(entry []byte) []storage.Span { return storage.Whole(entry) }

// pieces are n bodies of size bytes each with a gap of 5 before each; entry holds them.
func pieces(index uint64, n int, size uint32) (entry []byte, spans []storage.Span) {
	for i := range uint32(n) {
		spans = append(spans, storage.Span{Offset: i*(size+5) + 5, Length: size})
	}
	return bytesOf(index, n*int(size+5)), spans
}

func wantSpan(t *testing.T, b *storage.Bodies, index uint64, entry []byte, s storage.Span) {
	t.Helper()
	got, err := b.Read(index, s.Offset, s.Length)
	if err != nil || !bytes.Equal(got, entry[s.Offset:s.Offset+s.Length]) {
		t.Fatalf("body at %d of entry %d: %v", s.Offset, index, err)
	}
}

func wantBody(t *testing.T, b *storage.Bodies, index uint64, want []byte) {
	t.Helper()
	got, err := b.Read(index, 0, uint32(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("body of entry %d is %.20q, want %.20q", index, got, want)
	}
}

func bytesOf(i uint64, n int) []byte {
	return bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, n/3+1)[:n]
}

// image is a stand-in for the state's: every index and what lives of it.
const image = "the image of the state"

// takeSnapshot writes a snapshot as raft does: the image, the pin, Close.
func takeSnapshot(r *storage.Replica, index uint64) error { return takeSnapshotAs(r, index, 1) }

func takeSnapshotAs(r *storage.Replica, index, term uint64) error {
	return writePinned(r, r.Bodies.Pin(), index, term)
}

func writePinned(r *storage.Replica, pin interface {
	io.WriterTo
	io.Closer
}, index, term uint64) error {
	defer pin.Close() //nolint:errcheck // never fails
	sink, err := r.Snapshots.Create(raft.SnapshotVersionMax, index, term, raft.Configuration{
		Servers: []raft.Server{{ID: "n1", Address: "n1"}},
	}, 1, nil)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(sink, image); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if _, err := pin.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// restoreNewest restores the newest snapshot as raft does after a start.
func restoreNewest(r *storage.Replica) (index uint64, err error) {
	metas, err := r.Snapshots.List()
	if err != nil || len(metas) == 0 {
		return 0, err
	}
	meta, rc, err := r.Snapshots.Open(metas[0].ID)
	if err != nil {
		return 0, err
	}
	defer rc.Close() //nolint:errcheck // only read
	got := make([]byte, len(image))
	if _, err := io.ReadFull(rc, got); err != nil {
		return 0, err
	}
	if string(got) != image {
		return 0, fmt.Errorf("image is %q", got)
	}
	return meta.Index, r.Bodies.Restore(rc)
}

func TestBodyReads(t *testing.T) {
	b := openReplica(t, faultfs.New(), smallConfig()).Bodies
	mustPut(t, b, 5, []byte("0123456789"))
	tests := []struct {
		name           string
		index          uint64
		offset, length uint32
		want           string
		err            error
	}{
		{"the whole entry", 5, 0, 10, "0123456789", nil},
		{"a part of the entry", 5, 3, 4, "3456", nil},
		{"nothing at the end", 5, 10, 0, "", nil},
		{"one byte too many", 5, 3, 8, "", storage.ErrBodyRange},
		{"an offset behind the end", 5, 11, 0, "", storage.ErrBodyRange},
		{"a sum that overflows 32 bits", 5, 1 << 31, 1 << 31, "", storage.ErrBodyRange},
		{"an entry that was never put", 6, 0, 1, "", storage.ErrNoBody},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := b.Read(tt.index, tt.offset, tt.length)
			if !errors.Is(err, tt.err) || string(got) != tt.want {
				t.Fatalf("got %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestPutTakesNoEntryOfImpossibleSize(t *testing.T) {
	b := openReplica(t, faultfs.New(), smallConfig()).Bodies
	for name, entry := range map[string][]byte{"empty": nil, "larger than the log takes": make([]byte, 60<<20+1)} {
		if err := b.Put(1, entry, whole(entry)); err == nil {
			t.Fatalf("%s: no error", name)
		}
	}
	if err := b.Put(0, []byte("x"), whole([]byte("x"))); err == nil {
		t.Fatal("index 0: no error")
	}
	mustPut(t, b, 1, []byte("x")) // a refused argument is not a failed disk
}

func TestReplayedEntryReplacesTheOldOne(t *testing.T) {
	b := openReplica(t, faultfs.New(), smallConfig()).Bodies
	for round := range 3 {
		for i := uint64(1); i <= 20; i++ {
			mustPut(t, b, i, bytesOf(i+uint64(round), 200))
		}
		for i := uint64(1); i <= 20; i++ {
			wantBody(t, b, i, bytesOf(i+uint64(round), 200))
		}
	}
	b.SweepAll()
	if s := b.Stats(); s.Entries != 20 || s.LiveBytes != 20*232 || s.HeldBytes != 20*232 {
		t.Fatalf("stats %+v", s)
	}
}

func TestEmptySegmentsAreUsedAgain(t *testing.T) {
	fsys := faultfs.New()
	b := openReplica(t, fsys, smallConfig()).Bodies
	for i := uint64(1); i <= 500; i++ {
		mustPut(t, b, i, bytesOf(i, 900))
		if i > 8 {
			b.Free(i-8, 0, 900)
		}
	}
	b.SweepAll()
	s := b.Stats()
	if s.Recycled < 100 {
		t.Fatalf("%d segments recycled of %d", s.Recycled, s.Rotations)
	}
	if used := fsys.Used(); used > 6*4096 {
		t.Fatalf("%d bytes of files for 8 entries of 900", used)
	}
	for i := uint64(493); i <= 500; i++ {
		wantBody(t, b, i, bytesOf(i, 900))
	}
}

func TestSparseSegmentsAreCompacted(t *testing.T) {
	fsys := faultfs.New()
	cfg := smallConfig()
	cfg.BodyCacheBytes = 0
	b := openReplica(t, fsys, cfg).Bodies
	const n = 400
	for i := uint64(1); i <= n; i++ {
		mustPut(t, b, i, bytesOf(i, 300))
	}
	for i := uint64(1); i <= n; i++ {
		if i%13 != 0 {
			b.Free(i, 0, 300)
		}
	}
	b.SweepAll()
	s := b.Stats()
	if s.Compacted == 0 || s.DiskBytes > 2*s.LiveBytes+6*4096 {
		t.Fatalf("%d bytes left, %d compacted", s.DiskBytes, s.Compacted)
	}
	for i := uint64(13); i <= n; i += 13 {
		wantBody(t, b, i, bytesOf(i, 300))
	}
}

// A segment of old messages spans many indexes of others; compaction finds its own step by step.
func TestCompactionFindsEntriesFarApart(t *testing.T) {
	b := openReplica(t, faultfs.New(), smallConfig()).Bodies
	const n = 40_000
	for i := uint64(1); i <= n; i++ {
		mustPut(t, b, i, bytesOf(i, 10))
	}
	old := func(i uint64) bool { return (i-1)/5000%4 != 3 } // the last quarter of each half is young
	for i := uint64(1); i <= n; i++ {
		if old(i) && i%100 != 0 {
			b.Free(i, 0, 10)
		}
	}
	b.SweepAll()
	first := b.Stats().Compacted
	for i := uint64(1); i <= n; i++ {
		if (!old(i) || i%100 == 0) && i%1000 != 0 {
			b.Free(i, 0, 10)
		}
	}
	b.SweepAll()
	if s := b.Stats(); first == 0 || s.Entries != n/1000 || s.DiskBytes > 2*s.LiveBytes+6*4096 {
		t.Fatalf("%d segments compacted first, then %+v", first, s)
	}
	for i := uint64(1000); i <= n; i += 1000 {
		wantBody(t, b, i, bytesOf(i, 10))
	}
}

func TestCompactedSegmentLivesWhileASnapshotNamesIt(t *testing.T) {
	fsys := faultfs.New()
	r := openReplica(t, fsys, smallConfig())
	for i := uint64(1); i <= 400; i++ {
		mustPut(t, r.Bodies, i, bytesOf(i, 300))
	}
	if err := takeSnapshot(r, 400); err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 400; i++ {
		if i%20 != 0 {
			r.Bodies.Free(i, 0, 300)
		}
	}
	r.Bodies.SweepAll()
	if s := r.Bodies.Stats(); s.Compacted == 0 || s.Pinned == 0 {
		t.Fatalf("stats %+v", s)
	}
	// The snapshot has all of them, after a crash too.
	after := openReplica(t, fsys.Crash(nil), smallConfig())
	if _, err := restoreNewest(after); err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 400; i++ {
		wantBody(t, after.Bodies, i, bytesOf(i, 300))
	}
}

func TestSegmentsGoWithTheLastSnapshotThatNamesThem(t *testing.T) {
	r := openReplica(t, faultfs.New(), smallConfig())
	for i := uint64(1); i <= 60; i++ {
		mustPut(t, r.Bodies, i, bytesOf(i, 300))
	}
	if err := takeSnapshot(r, 60); err != nil {
		t.Fatal(err)
	}
	metas, _ := r.Snapshots.List()
	meta, rc, err := r.Snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 60; i++ {
		r.Bodies.Free(i, 0, 300)
	}
	for i := uint64(61); i <= 62; i++ {
		mustPut(t, r.Bodies, i, []byte("later"))
		if err := takeSnapshot(r, i); err != nil {
			t.Fatal(err)
		}
	}
	r.Bodies.SweepAll()
	// Reaped, but a reader sends it to another node.
	stream, err := io.ReadAll(rc)
	if err != nil || int64(len(stream)) != meta.Size {
		t.Fatalf("read %d of %d bytes: %v", len(stream), meta.Size, err)
	}
	before := r.Bodies.Stats().Segments
	if err := rc.Close(); err != nil {
		t.Fatal(err)
	}
	r.Bodies.SweepAll()
	if s := r.Bodies.Stats(); s.Segments >= before || s.Segments > 2 {
		t.Fatalf("%d segments before, %d after the last reader", before, s.Segments)
	}
}

func TestDamagedBodyIsAnError(t *testing.T) {
	fsys := faultfs.New()
	cfg := smallConfig()
	cfg.BodyCacheBytes = 0
	b := openReplica(t, fsys, cfg).Bodies
	mustPut(t, b, 1, bytesOf(1, 300))
	if err := fsys.Flip("/d/bodies/0000000001.seg", 32+20+100); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(1, 0, 10); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "entry 1") {
		t.Fatalf("got %v", err)
	}
}

// R3
func TestFailedWriteOfABodyIsForEver(t *testing.T) {
	tests := []struct {
		name  string
		fault faultfs.Fault
	}{
		{"write error", faultfs.Fault{Op: faultfs.Write, Skip: 3, Times: 1, Err: syscall.EIO}},
		{"short write", faultfs.Fault{Op: faultfs.Write, Skip: 3, Times: 1, Err: syscall.EIO, Short: true}},
		{"error after the write", faultfs.Fault{Op: faultfs.Write, Skip: 3, Times: 1, Err: syscall.EIO, After: true}},
		{"new segment", faultfs.Fault{Op: faultfs.Create, Times: 1, Err: syscall.ENOSPC}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := faultfs.New()
			b := openReplica(t, fsys, smallConfig()).Bodies
			fsys.Inject(tt.fault)
			var err error
			for i := uint64(1); i < 40 && err == nil; i++ {
				err = b.Put(i, bytesOf(i, 300), whole(bytesOf(i, 300)))
			}
			if !errors.Is(err, tt.fault.Err) {
				t.Fatalf("got %v, want %v", err, tt.fault.Err)
			}
			if err := b.Put(50, []byte("x"), whole([]byte("x"))); !errors.Is(err, tt.fault.Err) {
				t.Fatalf("a later put answers %v", err)
			}
		})
	}
}

func TestFullDiskFailsPutAndSnapshot(t *testing.T) {
	fsys := faultfs.New()
	r := openReplica(t, fsys, smallConfig())
	mustPut(t, r.Bodies, 1, bytesOf(1, 300))
	fsys.Limit(fsys.Used() + 10)
	if err := takeSnapshot(r, 1); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("snapshot: %v", err)
	}
	if metas, _ := r.Snapshots.List(); len(metas) != 0 {
		t.Fatal("a snapshot that did not fit is listed")
	}
	left, err := fsys.ReadDir("/d/snapshots")
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
	err = nil
	for i := uint64(2); i < 1000 && err == nil; i++ { // the first are kept in memory
		err = r.Bodies.Put(i, bytesOf(i, 300), whole(bytesOf(i, 300)))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("put: %v", err)
	}
}

func TestFailedSyncOfBodiesMakesNoSnapshot(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.Sync, faultfs.SyncDir} {
		fsys := faultfs.New()
		r := openReplica(t, fsys, smallConfig())
		mustPut(t, r.Bodies, 1, bytesOf(1, 300))
		fsys.Inject(faultfs.Fault{Op: op, Times: 1, Err: syscall.EIO})
		if err := takeSnapshot(r, 1); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: %v", op, err)
		}
		if metas, _ := r.Snapshots.List(); len(metas) != 0 {
			t.Fatalf("%s: a snapshot is listed", op)
		}
		if err := r.Bodies.Put(2, []byte("x"), whole([]byte("x"))); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: a later put answers %v", op, err)
		}
	}
}

func TestReadersAndTheSweeperDoNotDisturbTheWriter(t *testing.T) {
	cfg := smallConfig()
	cfg.BodyCacheBytes = 2 << 10
	cfg.FS = nil
	r, err := storage.OpenReplica(faultfs.New(), "/d", cfg, storage.Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	const n, window = 3000, 40
	var mu sync.Mutex
	done := uint64(0) // entries up to here may be read if they are in the window
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			for {
				mu.Lock()
				last := done
				mu.Unlock()
				if last == n {
					return
				}
				if last == 0 {
					continue
				}
				index := last - uint64(rng.IntN(int(min(last, window))))
				got, err := r.Bodies.Read(index, 0, 200)
				if errors.Is(err, storage.ErrNoBody) {
					continue // freed meanwhile
				}
				if err != nil || !bytes.Equal(got, bytesOf(index, 200)) {
					t.Errorf("entry %d: %v", index, err)
					return
				}
			}
		})
	}
	for i := uint64(1); i <= n; i++ {
		mustPut(t, r.Bodies, i, bytesOf(i, 200))
		if i > window && i%17 != 0 {
			r.Bodies.Free(i-window, 0, 200)
		}
		if i%500 == 0 {
			if err := takeSnapshot(r, i); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		done = i
		mu.Unlock()
	}
	wg.Wait()
	if err := r.Bodies.Close(); err != nil {
		t.Fatal(err)
	}
}
