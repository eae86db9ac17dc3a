package storage_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// crashes runs op on a machine that stops before its k-th step, for every k, with nothing and with
// some of what was not synced surviving, and gives check what is found afterwards.
func crashes(t *testing.T, prepare func(*faultfs.FS), op func(*faultfs.FS) error, check func(*testing.T, *faultfs.FS, error)) {
	t.Helper()
	rng := newRand(t)
	steps := func() int {
		fsys := faultfs.New()
		prepare(fsys)
		before := fsys.Steps()
		if err := op(fsys); err != nil {
			t.Fatal(err)
		}
		return fsys.Steps() - before
	}()
	if steps < 3 {
		t.Fatalf("only %d steps", steps)
	}
	for k := range steps + 1 {
		for round := range 5 {
			fsys := faultfs.New()
			prepare(fsys)
			fsys.StopAfter(k)
			err := op(fsys)
			if k == 0 && err == nil {
				t.Fatal("nothing could be written and nothing failed")
			}
			chance := rng
			if round == 0 {
				chance = nil
			}
			after := fsys.Crash(chance)
			t.Run(fmt.Sprintf("step %d round %d", k, round), func(t *testing.T) { check(t, after, err) })
		}
	}
}

func dirConfig(fsys storage.FS) storage.Config {
	cfg := smallConfig()
	cfg.FS = fsys
	cfg.Hard = map[string]int{"hash": 1}
	return cfg
}

// R8: a node has one identity, or none.
func TestCrashWhileTheDirectoryIsMade(t *testing.T) {
	var nodeID string
	open := func(fsys *faultfs.FS) error {
		nodeID = ""
		d, err := storage.Open(dirConfig(fsys), hclog.NewNullLogger())
		if err != nil {
			return err
		}
		nodeID = d.NodeID()
		return d.WriteOnce("members", []byte("a b c"))
	}
	crashes(t, func(*faultfs.FS) {}, open, func(t *testing.T, fsys *faultfs.FS, err error) {
		d, openErr := storage.Open(dirConfig(fsys), hclog.NewNullLogger())
		if openErr != nil {
			t.Fatal(openErr)
		}
		if nodeID != "" && d.NodeID() != nodeID {
			t.Fatalf("node %s has become %s", nodeID, d.NodeID())
		}
		members, readErr := d.Read("members")
		if err == nil && (readErr != nil || string(members) != "a b c") {
			t.Fatalf("what was written once: %q, %v", members, readErr)
		}
		if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
			t.Fatal(readErr)
		}
		if err := d.WriteOnce("members", []byte("a b c")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCrashDuringSnapshots(t *testing.T) {
	t.Run("little memory", func(t *testing.T) { crashDuringSnapshots(t, smallConfig()) })
	t.Run("runs of blocks", func(t *testing.T) { crashDuringSnapshots(t, runsConfig()) })
}

func crashDuringSnapshots(t *testing.T, cfg storage.Config) {
	var acked uint64                                       // index of the newest snapshot that was reported done
	states := map[uint64]map[uint64][]byte{}               // by snapshot
	fill := func(r *storage.Replica, index uint64) error { // ten bodies up to index, and the state then
		for i := index - 9; i <= index; i++ {
			if err := r.Bodies.Put(i, bytesOf(i, 350), whole(bytesOf(i, 350))); err != nil {
				return err
			}
			if i > 25 {
				r.Bodies.Free(i-25, 0, 350)
			}
		}
		state := map[uint64][]byte{}
		for i := max(26, index) - 25 + 1; i <= index; i++ {
			if i >= 1 && i+25 > index {
				state[i] = bytesOf(i, 350)
			}
		}
		states[index] = state
		if err := takeSnapshot(r, index); err != nil {
			return err
		}
		acked = index
		return nil
	}
	start := func(fsys *faultfs.FS) (*storage.Replica, error) {
		return storage.OpenReplica(fsys, "/d", cfg, storage.Bounds{})
	}
	var running *storage.Replica
	prepare := func(fsys *faultfs.FS) {
		acked = 0
		r, err := start(fsys)
		if err != nil {
			t.Fatal(err)
		}
		for _, index := range []uint64{10, 20, 30} {
			if err := fill(r, index); err != nil {
				t.Fatal(err)
			}
		}
		running = r
	}
	op := func(*faultfs.FS) (err error) {
		for _, index := range []uint64{40, 50, 60} { // the first reaps, the others too
			if err = fill(running, index); err != nil {
				break
			}
		}
		return errors.Join(err, running.Bodies.Close())
	}
	crashes(t, prepare, op, func(t *testing.T, fsys *faultfs.FS, _ error) {
		r, err := start(fsys)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Bodies.Close() //nolint:errcheck // the check is done
		index, err := restoreNewest(r)
		if err != nil {
			t.Fatal(err)
		}
		if index < acked {
			t.Fatalf("newest snapshot is %d, %d was acknowledged", index, acked)
		}
		for i, want := range states[index] {
			wantBody(t, r.Bodies, i, want)
		}
		if got := r.Bodies.Stats().Entries; got != uint64(len(states[index])) {
			t.Fatalf("%d entries, want %d", got, len(states[index]))
		}
		if err := fill(r, 100); err != nil { // and it goes on
			t.Fatal(err)
		}
	})
}

// Entries of eight bodies lose seven of them, and are moved: whatever step the crash hits, the newest
// snapshot has its eighth ones.
func TestCrashDuringCompaction(t *testing.T) {
	cfg := smallConfig()
	cfg.BodyCacheBytes = 0
	var acked uint64
	fill := func(r *storage.Replica, last uint64) error {
		for i := last - 29; i <= last; i++ {
			entry, spans := pieces(i, 8, 80)
			if err := r.Bodies.Put(i, entry, spans); err != nil {
				return err
			}
			for k, s := range spans {
				if k != int(i%8) {
					r.Bodies.Free(i, s.Offset, s.Length)
				}
			}
		}
		r.Bodies.SweepAll()
		if err := takeSnapshot(r, last); err != nil {
			return err
		}
		acked = last
		return nil
	}
	start := func(fsys *faultfs.FS) (*storage.Replica, error) {
		return storage.OpenReplica(fsys, "/d", cfg, storage.Bounds{})
	}
	var running *storage.Replica
	prepare := func(fsys *faultfs.FS) {
		acked = 0
		r, err := start(fsys)
		if err != nil {
			t.Fatal(err)
		}
		if err := fill(r, 30); err != nil {
			t.Fatal(err)
		}
		running = r
	}
	op := func(*faultfs.FS) error {
		return errors.Join(fill(running, 60), running.Bodies.Close())
	}
	crashes(t, prepare, op, func(t *testing.T, fsys *faultfs.FS, _ error) {
		r, err := start(fsys)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Bodies.Close() //nolint:errcheck // the check is done
		index, err := restoreNewest(r)
		if err != nil || index < acked {
			t.Fatalf("newest snapshot is %d, %d was acknowledged: %v", index, acked, err)
		}
		for i := uint64(1); i <= index; i++ {
			entry, spans := pieces(i, 8, 80)
			wantSpan(t, r.Bodies, i, entry, spans[i%8])
		}
		if err := fill(r, 120); err != nil { // and it goes on
			t.Fatal(err)
		}
	})
}

// TestErrorAtEveryStepOfASnapshot: whatever operation fails, there is no half snapshot, and the
// snapshot before can be restored.
func TestErrorAtEveryStepOfASnapshot(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.Create, faultfs.Write, faultfs.Sync, faultfs.Rename, faultfs.SyncDir} {
		for skip := range 12 {
			fsys := faultfs.New()
			r := openReplica(t, fsys, smallConfig())
			mustPut(t, r.Bodies, 1, bytesOf(1, 300))
			if err := takeSnapshot(r, 1); err != nil {
				t.Fatal(err)
			}
			mustPut(t, r.Bodies, 2, bytesOf(2, 300))
			disk := errors.New("the disk says no")
			fsys.Inject(faultfs.Fault{Op: op, Skip: skip, Times: 1, Err: disk})
			err := takeSnapshot(r, 2)
			fsys.Heal()
			if err != nil && !errors.Is(err, disk) {
				t.Fatalf("%s after %d: %v", op, skip, err)
			}
			again := openReplica(t, fsys.Crash(nil), smallConfig())
			index, restoreErr := restoreNewest(again)
			if restoreErr != nil {
				t.Fatalf("%s after %d: %v", op, skip, restoreErr)
			}
			if err == nil && index != 2 {
				t.Fatalf("%s after %d: the snapshot was acknowledged and is gone", op, skip)
			}
			wantBody(t, again.Bodies, 1, bytesOf(1, 300))
		}
	}
}

func TestInlineRestoreOverACrash(t *testing.T) {
	src := openReplica(t, faultfs.New(), smallConfig())
	for i := uint64(1); i <= 50; i++ {
		mustPut(t, src.Bodies, i, bytesOf(i, 333))
	}
	if err := takeSnapshot(src, 50); err != nil {
		t.Fatal(err)
	}
	metas, _ := src.Snapshots.List()
	_, rc, err := src.Snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := io.ReadAll(rc)
	if err := errors.Join(err, rc.Close()); err != nil {
		t.Fatal(err)
	}
	if int64(len(stream)) != metas[0].Size {
		t.Fatalf("the stream has %d bytes, its size is %d", len(stream), metas[0].Size)
	}
	install := func(fsys *faultfs.FS) error {
		r, err := storage.OpenReplica(fsys, "/d", smallConfig(), storage.Bounds{})
		if err != nil {
			return err
		}
		sink, err := r.Snapshots.Create(raft.SnapshotVersionMax, 50, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(sink, bytes.NewReader(stream)); err != nil {
			return errors.Join(err, sink.Cancel())
		}
		if err := sink.Close(); err != nil {
			return err
		}
		_, err = restoreNewest(r)
		return errors.Join(err, r.Bodies.Close())
	}
	crashes(t, func(*faultfs.FS) {}, install, func(t *testing.T, fsys *faultfs.FS, err error) {
		r := openReplica(t, fsys, smallConfig())
		index, restoreErr := restoreNewest(r)
		if restoreErr != nil {
			t.Fatal(restoreErr)
		}
		if err == nil && index != 50 {
			t.Fatal("the installed snapshot is gone")
		}
		if index == 50 {
			for i := uint64(1); i <= 50; i++ {
				wantBody(t, r.Bodies, i, bytesOf(i, 333))
			}
		}
	})
}

var update = flag.Bool("update", false, "rewrite testdata; then read the diff")

// TestTraces pins the order of every create, write, sync and rename: what is durable when.
func TestTraces(t *testing.T) {
	cfg := smallConfig()
	withReplica := func(run func(*testing.T, *faultfs.FS, *storage.Replica)) func(*testing.T, *faultfs.FS) {
		return func(t *testing.T, fsys *faultfs.FS) {
			r := openReplica(t, fsys, cfg)
			for i := uint64(1); i <= 3; i++ {
				mustPut(t, r.Bodies, i, bytesOf(i, 1000))
			}
			fsys.Trace()
			run(t, fsys, r)
		}
	}
	tests := []struct {
		name string
		run  func(t *testing.T, fsys *faultfs.FS)
	}{
		{"first_open", func(t *testing.T, fsys *faultfs.FS) {
			d, err := storage.Open(dirConfig(fsys), hclog.NewNullLogger())
			if err != nil {
				t.Fatal(err)
			}
			if err := d.WriteOnce("members", []byte("[]")); err != nil {
				t.Fatal(err)
			}
		}},
		{"snapshot", withReplica(func(t *testing.T, _ *faultfs.FS, r *storage.Replica) {
			if err := takeSnapshot(r, 3); err != nil {
				t.Fatal(err)
			}
		})},
		{"snapshot_reaps", withReplica(func(t *testing.T, fsys *faultfs.FS, r *storage.Replica) {
			for i := uint64(3); i <= 5; i++ {
				fsys.Trace()
				if err := takeSnapshot(r, i); err != nil {
					t.Fatal(err)
				}
			}
		})},
		{"segment_rotation", withReplica(func(t *testing.T, _ *faultfs.FS, r *storage.Replica) {
			for i := uint64(4); i <= 12; i++ {
				r.Bodies.Free(i-3, 0, 1000)
				mustPut(t, r.Bodies, i, bytesOf(i, 1000))
			}
		})},
		{"restart", withReplica(func(t *testing.T, fsys *faultfs.FS, r *storage.Replica) {
			if err := takeSnapshot(r, 3); err != nil {
				t.Fatal(err)
			}
			for i := uint64(4); i <= 8; i++ {
				mustPut(t, r.Bodies, i, bytesOf(i, 1000))
			}
			if err := r.Bodies.Close(); err != nil {
				t.Fatal(err)
			}
			fsys.Trace()
			again := openReplica(t, fsys, cfg)
			if _, err := restoreNewest(again); err != nil {
				t.Fatal(err)
			}
			mustPut(t, again.Bodies, 4, bytesOf(4, 1000))
		})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := faultfs.New()
			tt.run(t, fsys)
			got := strings.Join(fsys.Trace(), "\n") + "\n"
			name := filepath.Join("testdata", tt.name+".txt")
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
