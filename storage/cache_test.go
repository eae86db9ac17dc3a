package storage_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// runsConfig has runs of 64 KiB, of which 16 are kept in memory and four may wait to be written.
func runsConfig() storage.Config {
	cfg := smallConfig()
	cfg.BodySegmentBytes, cfg.BodyCacheBytes = 256<<10, 1<<20
	return cfg
}

// perRun is how many entries of 1,000 bytes a run has about.
const perRun = 60

// A9: what is settled while it is in memory is never written.
func TestWhatIsFreedSoonIsNeverWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openReplica(t, faultfs.New(), runsConfig()).Bodies
		for i := uint64(1); i <= 100*perRun; i++ {
			mustPut(t, b, i, bytesOf(i, 1000))
			if i > 2*perRun {
				b.Free(i-2*perRun, 0, 1000)
			}
		}
		synctest.Wait()
		if s := b.Stats(); s.Runs != 0 || s.Entries != 2*perRun {
			t.Errorf("%d runs were written, %d entries are kept", s.Runs, s.Entries)
		}
	})
}

// A9: what is written is kept in memory where somebody reads, and not where nobody does, as on a follower;
// the first who reads is given it from the disk.
func TestBodiesAreKeptInMemoryWhereSomebodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openReplica(t, faultfs.New(), runsConfig()).Bodies
		index := uint64(0)
		put := func(n int, alsoRead bool) {
			for range n {
				index++
				mustPut(t, b, index, bytesOf(index, 1000))
				if alsoRead {
					wantBody(t, b, index, bytesOf(index, 1000))
				}
				synctest.Wait()
			}
		}
		read := func(runsAgo int, fromMemory bool) {
			t.Helper()
			i := index - uint64(runsAgo*perRun)
			before := b.Stats().CacheHits
			wantBody(t, b, i, bytesOf(i, 1000))
			if hit := b.Stats().CacheHits > before; hit != fromMemory {
				t.Errorf("what is %d runs old comes from memory: %v", runsAgo, hit)
			}
		}
		put(30*perRun, false)
		read(2, true)
		read(12, false)
		put(30*perRun, true)
		read(12, true)
		read(20, false)
		if s := b.Stats(); s.Runs < 50 {
			t.Errorf("only %d runs were written", s.Runs)
		}
	})
}

// A snapshot has what lived when it was pinned, although it was freed before the bodies were written.
func TestSnapshotHasWhatWasFreedAfterItsPin(t *testing.T) {
	fsys := faultfs.New()
	r := openReplica(t, fsys, runsConfig())
	for i := uint64(1); i <= 3*perRun; i++ {
		mustPut(t, r.Bodies, i, bytesOf(i, 1000))
	}
	pin := r.Bodies.Pin()
	for i := uint64(1); i <= 3*perRun; i++ {
		r.Bodies.Free(i, 0, 1000)
		mustPut(t, r.Bodies, 1000+i, bytesOf(i, 1000)) // runs are closed, and dropped if nobody needs them
	}
	if err := writePinned(r, pin, 3*perRun, 1); err != nil {
		t.Fatal(err)
	}
	again := openReplica(t, fsys.Crash(nil), runsConfig())
	if _, err := restoreNewest(again); err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 3*perRun; i++ {
		wantBody(t, again.Bodies, i, bytesOf(i, 1000))
	}
}

// inlineOf is what a replica sends of its bodies.
func inlineOf(t *testing.T, r *storage.Replica) []byte {
	t.Helper()
	if err := takeSnapshot(r, 1<<20); err != nil {
		t.Fatal(err)
	}
	metas, err := r.Snapshots.List()
	if err != nil {
		t.Fatal(err)
	}
	_, rc, err := r.Snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := io.ReadAll(rc)
	if err := errors.Join(err, rc.Close()); err != nil {
		t.Fatal(err)
	}
	return stream[len(image):]
}

// An install that replaces everything leaves a pin of before what it needs.
func TestRestoreLeavesAPinItsBodies(t *testing.T) {
	from, fsys := openReplica(t, faultfs.New(), runsConfig()), faultfs.New()
	mustPut(t, from.Bodies, 9000, bytesOf(7, 1000))
	r := openReplica(t, fsys, runsConfig())
	for i := uint64(1); i <= 3*perRun; i++ {
		mustPut(t, r.Bodies, i, bytesOf(i, 1000))
	}
	pin := r.Bodies.Pin()
	if err := r.Bodies.Restore(bytes.NewReader(inlineOf(t, from))); err != nil {
		t.Fatal(err)
	}
	mustPut(t, r.Bodies, 9001, bytesOf(8, 1000))
	if err := writePinned(r, pin, 3*perRun, 1); err != nil {
		t.Fatal(err)
	}
	wantBody(t, r.Bodies, 9000, bytesOf(7, 1000))
	wantBody(t, r.Bodies, 9001, bytesOf(8, 1000))
	again := openReplica(t, fsys.Crash(nil), runsConfig())
	if _, err := restoreNewest(again); err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 3*perRun; i++ {
		wantBody(t, again.Bodies, i, bytesOf(i, 1000))
	}
}

// A segment whose last run was never written, for nothing in it lived, is as long as the manifest says.
func TestASegmentMayEndWithWhatWasNeverWritten(t *testing.T) {
	fsys := faultfs.New()
	r := openReplica(t, fsys, runsConfig())
	last := uint64(0)
	for r.Bodies.Stats().Rotations == 0 { // until the segment is full
		last++
		mustPut(t, r.Bodies, last, bytesOf(last, 1000))
	}
	for i := uint64(2); i < last; i++ {
		r.Bodies.Free(i, 0, 1000)
	}
	for i := last + 1; i < last+5*perRun; i++ { // the memory is used for others
		mustPut(t, r.Bodies, i, bytesOf(i, 1000))
		r.Bodies.Free(i, 0, 1000)
	}
	if err := takeSnapshot(r, last+5*perRun); err != nil {
		t.Fatal(err)
	}
	again := openReplica(t, fsys.Crash(nil), runsConfig())
	if _, err := restoreNewest(again); err != nil {
		t.Fatal(err)
	}
	wantBody(t, again.Bodies, 1, bytesOf(1, 1000))
	wantBody(t, again.Bodies, last, bytesOf(last, 1000))
}

// refusing is a file system that opens files for direct writes and does not take them.
type refusing struct{ *faultfs.FS }

func (f refusing) OpenDirect(name string) (storage.DirectFile, error) {
	file, err := f.Open(name)
	return refusingFile{file}, err
}

type refusingFile struct{ storage.File }

func (refusingFile) WriteAt([]byte, int64) (int, error) {
	return 0, os.NewSyscallError("pwrite", syscall.EINVAL)
}

func TestDirectWritesThatAreRefusedGoThroughThePageCache(t *testing.T) {
	fsys := faultfs.New()
	r := openReplica(t, refusing{fsys}, runsConfig())
	mustPut(t, r.Bodies, 1, bytesOf(1, 1000))
	if err := takeSnapshot(r, 1); err != nil {
		t.Fatal(err)
	}
	again := openReplica(t, fsys.Crash(nil), runsConfig())
	if _, err := restoreNewest(again); err != nil {
		t.Fatal(err)
	}
	wantBody(t, again.Bodies, 1, bytesOf(1, 1000))
}

// A write of a run that fails, fails every later Put, and every snapshot (R3).
func TestFailedWriteOfARunIsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		r := openReplica(t, fsys, runsConfig())
		fsys.Inject(faultfs.Fault{Op: faultfs.Write, Skip: 1, Times: 1, Err: syscall.EIO})
		var err error
		for i := uint64(1); err == nil && i < 100*perRun; i++ {
			err = r.Bodies.Put(i, bytesOf(i, 1000), whole(bytesOf(i, 1000)))
			synctest.Wait()
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("put: %v", err)
		}
		if err := takeSnapshot(r, 1); !errors.Is(err, syscall.EIO) {
			t.Errorf("snapshot: %v", err)
		}
	})
}
