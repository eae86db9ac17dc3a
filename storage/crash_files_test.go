package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// openFaulty opens a data directory on a faulty file system.
func openFaulty(fsys *faultfs.FS, ballast int) (*storage.Dir, error) {
	cfg := storage.Defaults()
	cfg.Dir, cfg.FS, cfg.BallastBytes = "/d", fsys, ballast
	return storage.Open(cfg, hclog.NewNullLogger())
}

func mustOpenFaulty(t *testing.T, fsys *faultfs.FS, ballast int) *storage.Dir {
	t.Helper()
	d, err := openFaulty(fsys, ballast)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What a peer was told to be remembered is remembered, and a life is counted once: whatever step the
// crash hits, an old copy of either node's directory is found out (decision 0026).
func TestCrashWhileLivesAreRemembered(t *testing.T) {
	type s = storage.Sighting
	var life uint64 // the highest that the node has had
	acked := map[string]s{}
	told := []struct {
		node string
		now  s
	}{{"n2", s{5, 50}}, {"n3", s{2, 20}}, {"n2", s{6, 60}}}
	prepare := func(fsys *faultfs.FS) {
		clear(acked)
		d := mustOpenFaulty(t, fsys, 0)
		life = d.Life()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	op := func(fsys *faultfs.FS) error {
		d, err := openFaulty(fsys, 0)
		if err != nil {
			return err
		}
		life = d.Life()
		for _, it := range told {
			if _, err := d.Witness(it.node, it.now); err != nil {
				return err
			}
			acked[it.node] = it.now
		}
		return d.Close()
	}
	crashes(t, prepare, op, func(t *testing.T, fsys *faultfs.FS, _ error) {
		d := mustOpenFaulty(t, fsys, 0)
		defer d.Close() //nolint:errcheck // the check is done
		if d.Life() <= life {
			t.Errorf("life %d after life %d", d.Life(), life)
		}
		for _, node := range []string{"n2", "n3"} {
			before, err := d.Witness(node, s{})
			if err != nil {
				t.Fatal(err)
			}
			was := acked[node]
			if before.Life < was.Life || before.Life == was.Life && before != was {
				t.Errorf("%s: %v is remembered, %v was acknowledged", node, before, was)
			}
			if before.Life > 0 && before.Incarnation != 10*before.Life {
				t.Errorf("%s: %v was never told", node, before)
			}
		}
	})
}

// An old copy that was found out stays one: the count of lives passes that of the peers only when no
// group can be opened any more.
func TestCrashWhileAnOldCopyIsDistrusted(t *testing.T) {
	const known = 9 // the life that a peer knows of
	prepare := func(fsys *faultfs.FS) {
		d := mustOpenFaulty(t, fsys, 0)
		for id := range uint16(3) {
			if err := d.Admit(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	op := func(fsys *faultfs.FS) error {
		d, err := openFaulty(fsys, 0)
		if err != nil {
			return err
		}
		if err := d.Distrust("a peer knows better"); err != nil {
			return err
		}
		return errors.Join(d.Outlive(known), d.Close())
	}
	crashes(t, prepare, op, func(t *testing.T, fsys *faultfs.FS, done error) {
		d := mustOpenFaulty(t, fsys, 0)
		defer d.Close() //nolint:errcheck // the check is done
		if done == nil && d.Life() <= known {
			t.Fatalf("life %d, reported as above %d", d.Life(), known)
		}
		for id := range uint16(3) {
			err := d.Admit(id)
			if err != nil && !errors.Is(err, storage.ErrQuarantined) {
				t.Fatal(err)
			}
			if d.Life() > known && err == nil {
				t.Errorf("group %d is opened in life %d, which no peer will find out", id, d.Life())
			}
			if err == nil {
				continue
			}
			// The way back is open all the same.
			if err := errors.Join(d.Rebuild(id, 5), d.Admit(id)); err != nil || !d.Rejoins(id) {
				t.Errorf("group %d, rejoins %v: %v", id, d.Rejoins(id), err)
			}
		}
	})
}

// Whatever step the crash hits, there is the whole ballast or none: a part of it would be taken for all,
// and give back less than is needed when the disk is full.
func TestCrashWhileTheBallastIsTaken(t *testing.T) {
	const size = 3 << 20
	op := func(fsys *faultfs.FS) error {
		d, err := openFaulty(fsys, size)
		if err != nil {
			return err
		}
		for _, hold := range []bool{true, false, true} {
			if err := d.Ballast(hold); err != nil {
				return err
			}
		}
		return d.Close()
	}
	crashes(t, func(*faultfs.FS) {}, op, func(t *testing.T, fsys *faultfs.FS, done error) {
		d := mustOpenFaulty(t, fsys, size)
		defer d.Close() //nolint:errcheck // the check is done
		f, err := fsys.Open("/d/BALLAST")
		if err != nil && (done == nil || !errors.Is(err, os.ErrNotExist)) {
			t.Fatalf("the ballast was taken: %v", err)
		}
		if err == nil {
			text := make([]byte, size)
			if n, err := f.ReadAt(text, 0); n != size || bytes.IndexByte(text, 0) >= 0 {
				t.Fatalf("%d bytes, first hole at %d: %v", n, bytes.IndexByte(text, 0), err)
			}
		}
		for _, hold := range []bool{true, false} {
			before := fsys.Used()
			if err := d.Ballast(hold); err != nil {
				t.Fatal(err)
			}
			if freed := before - fsys.Used(); !hold && freed != size {
				t.Fatalf("%d bytes came back", freed)
			}
		}
	})
}

// An error of the disk leaves no part of a ballast either.
func TestBallastThatDoesNotFitLeavesNothing(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.Create, faultfs.Write, faultfs.Sync, faultfs.Rename} {
		fsys := faultfs.New()
		d := mustOpenFaulty(t, fsys, 3<<20)
		before := fsys.Used()
		disk := errors.New("the disk says no")
		fsys.Inject(faultfs.Fault{Op: op, Path: "BALLAST*", Err: disk})
		if err := d.Ballast(true); !errors.Is(err, disk) {
			t.Errorf("%s: %v", op, err)
		}
		if left := fsys.Used() - before; left != 0 {
			t.Errorf("%s: %d bytes are left", op, left)
		}
		fsys.Heal()
		if err := errors.Join(d.Ballast(true), d.Close()); err != nil || fsys.Used()-before != 3<<20 {
			t.Errorf("%s, healed: %d bytes, %v", op, fsys.Used()-before, err)
		}
	}
}

// A dropped group is whole, or gone: half of its files would be a replica that forgot its votes.
func TestCrashWhileAGroupIsDropped(t *testing.T) {
	for _, rebuilt := range []bool{false, true} {
		prepare := func(fsys *faultfs.FS) {
			d := mustOpenFaulty(t, fsys, 0)
			if rebuilt { // its record has a history that a new replica must not have
				if err := errors.Join(d.Admit(3), d.Rebuild(3, 7)); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Admit(3); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				name := fmt.Sprintf("/d/groups/00003/file%d", i)
				if err := storage.WriteSmall(fsys, name, []byte("data")); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		op := func(fsys *faultfs.FS) error {
			d, err := openFaulty(fsys, 0)
			if err != nil {
				return err
			}
			return errors.Join(d.DropGroup(3), d.Close())
		}
		crashes(t, prepare, op, func(t *testing.T, fsys *faultfs.FS, done error) {
			d := mustOpenFaulty(t, fsys, 0)
			defer d.Close() //nolint:errcheck // the check is done
			if ids, err := d.Groups(); err != nil || done == nil && len(ids) > 0 {
				t.Fatalf("groups %v, reported as dropped: %v", ids, err)
			}
			if err := d.Admit(3); err != nil {
				t.Fatal(err)
			}
			there := 0
			for i := range 3 {
				if _, err := storage.ReadSmall(fsys, fmt.Sprintf("/d/groups/00003/file%d", i)); err == nil {
					there++
				}
			}
			if there != 0 && there != 3 || done == nil && (there != 0 || d.Rejoins(3)) {
				t.Errorf("%d files of 3, rejoins %v, reported %v", there, d.Rejoins(3), done)
			}
		})
	}
}

// The note of where a log ended is never taken for that of another log, and never missing where an
// orderly stop was reported.
func TestCrashWhileALogIsOpenedAndClosed(t *testing.T) {
	const log = "/g/log"
	var last uint64 // of the log, which has its own ways to be durable
	var closed bool
	prepare := func(fsys *faultfs.FS) {
		last, closed = 10, true
		if err := errors.Join(fsys.Mkdir("/g"), fsys.SyncDir("/"), storage.WriteEnd(fsys, log, last)); err != nil {
			t.Fatal(err)
		}
	}
	op := func(fsys *faultfs.FS) error {
		for range 3 {
			closed = false
			if err := storage.TakeEnd(fsys, log, last); err != nil {
				return err
			}
			last++
			if err := storage.WriteEnd(fsys, log, last); err != nil {
				return err
			}
			closed = true
		}
		return nil
	}
	crashes(t, prepare, op, func(t *testing.T, fsys *faultfs.FS, _ error) {
		if err := storage.TakeEnd(fsys, log, last-1); closed && !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("a log that lost its last entry is opened: %v", err)
		}
		if err := storage.TakeEnd(fsys, log, last); err != nil {
			t.Fatalf("the log that ends at %d: %v", last, err)
		}
		if err := storage.TakeEnd(fsys, log, last+5); err != nil {
			t.Fatalf("the note was not taken away: %v", err)
		}
	})
}

// What a process reads whose predecessor was killed in mid-write is there for good, although nothing of
// it was synced by then: it has told others about it.
func TestWhatWasReadAfterAKillSurvivesThePower(t *testing.T) {
	cfg := smallConfig()
	open := func(fsys *faultfs.FS) (*storage.Replica, error) {
		return storage.OpenReplica(fsys, "/d/r", cfg, storage.Bounds{})
	}
	write := func(fsys *faultfs.FS) error {
		d, err := openFaulty(fsys, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Admit(1), d.WriteOnce("members", []byte("a b c"))); err != nil {
			return err
		}
		r, err := open(fsys)
		if err != nil {
			return err
		}
		for index := uint64(10); index <= 30; index += 10 {
			if err := r.Bodies.Put(index, bytesOf(index, 350), whole(bytesOf(index, 350))); err != nil {
				return err
			}
			if err := takeSnapshot(r, index); err != nil {
				return err
			}
		}
		return errors.Join(r.Bodies.Close(), d.Close())
	}
	type seen struct {
		node, members string
		snapshot      uint64
		groups        int
	}
	read := func(t *testing.T, fsys *faultfs.FS) (s seen) {
		t.Helper()
		d := mustOpenFaulty(t, fsys, 0)
		s.node = d.NodeID()
		if text, err := d.Read("members"); err == nil {
			s.members = string(text)
		}
		ids, err := d.Groups()
		if err != nil {
			t.Fatal(err)
		}
		s.groups = len(ids)
		r, err := open(fsys)
		if err != nil {
			t.Fatal(err)
		}
		if s.snapshot, err = restoreNewest(r); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for k, done := 0, false; !done; k++ {
		fsys := faultfs.New()
		fsys.StopAfter(k)
		err := write(fsys)
		if done = err == nil; !done && !errors.Is(err, faultfs.ErrCrashed) {
			t.Fatal(err)
		}
		next := fsys.Kill()
		before := read(t, next)
		if after := read(t, next.Crash(nil)); after != before {
			t.Errorf("killed at step %d, %+v was read, and %+v when the power was back", k, before, after)
		}
	}
}
