package storage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

func openDir(t *testing.T, dir string) *storage.Dir {
	t.Helper()
	cfg := storage.Defaults()
	cfg.Dir = dir
	d, err := storage.Open(cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// useGroup opens a group, appends an entry, and closes it.
func useGroup(t *testing.T, d *storage.Dir, id uint16) (rejoins bool) {
	t.Helper()
	g, err := d.Group(id)
	if err != nil {
		t.Fatal(err)
	}
	last, err := g.Log().LastIndex()
	if err == nil {
		err = g.Log().StoreLog(&raft.Log{Index: last + 1, Term: 1, Data: []byte("x")})
	}
	if err := errors.Join(err, g.Close()); err != nil {
		t.Fatal(err)
	}
	return g.Rejoins()
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// R8
func TestLostGroupIsNotFoundedAgain(t *testing.T) {
	root := t.TempDir()
	group := filepath.Join(root, "groups", "00003")
	tests := []struct {
		name   string
		damage func(t *testing.T)
		want   error
	}{
		{"its directory is gone", func(t *testing.T) {
			if err := os.RemoveAll(group); err != nil {
				t.Fatal(err)
			}
		}, storage.ErrLost},
		{"its directory is empty", func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(group), os.Mkdir(group, 0o700)); err != nil {
				t.Fatal(err)
			}
		}, storage.ErrOld},
		{"an old copy of it was put back", func(t *testing.T) {
			copyDir(t, filepath.Join(root, "copy"), group)
		}, storage.ErrOld},
		{"its count of opens is damaged", func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(group, "opened.json"), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, storage.ErrCorrupt},
		{"the record beside it is damaged", func(t *testing.T) {
			name := filepath.Join(root, "replicas", "00003.json")
			text, err := os.ReadFile(name)
			if err == nil {
				text[3] ^= 1
				err = os.WriteFile(name, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, storage.ErrCorrupt},
	}
	d := openDir(t, root)
	if useGroup(t, d, 3) {
		t.Fatal("a new group rejoins")
	}
	copyDir(t, group, filepath.Join(root, "copy"))
	if useGroup(t, d, 3) {
		t.Fatal("a group that is well rejoins")
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.damage(t)
			if _, err := d.Group(3); !errors.Is(err, tt.want) {
				t.Fatalf("opened: %v, want %v", err, tt.want)
			}
			removed := uint64(10 * (i + 1))
			if err := d.Rebuild(3, removed); err != nil {
				t.Fatal(err)
			}
			if !useGroup(t, d, 3) {
				t.Fatal("after a rebuild it may found the group")
			}
			if err := d.Rebuild(3, removed); !errors.Is(err, storage.ErrRebuilt) {
				t.Fatalf("the same rebuild again: %v", err)
			}
			useGroup(t, d, 3)
		})
	}
	t.Run("a copy from before the rebuild", func(t *testing.T) {
		for range 5 {
			useGroup(t, d, 3)
		}
		copyDir(t, group, filepath.Join(root, "copy"))
		if err := d.Rebuild(3, 1000); err != nil {
			t.Fatal(err)
		}
		copyDir(t, filepath.Join(root, "copy"), group)
		if _, err := d.Group(3); !errors.Is(err, storage.ErrOld) {
			t.Fatalf("opened: %v", err)
		}
	})
}

func TestDistrustedGroupIsClosedUntilItIsRebuilt(t *testing.T) {
	root := t.TempDir()
	d := openDir(t, root)
	useGroup(t, d, 1)
	useGroup(t, d, 2)
	if err := d.Distrust("a peer knows better"); err != nil {
		t.Fatal(err)
	}
	if err := d.Outlive(7); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, root)
	if d.Life() != 8 {
		t.Errorf("life %d, want 8", d.Life())
	}
	if _, err := d.Group(1); !errors.Is(err, storage.ErrQuarantined) {
		t.Fatalf("opened: %v", err)
	}
	if err := d.Rebuild(1, 5); err != nil {
		t.Fatal(err)
	}
	useGroup(t, d, 1)
	if _, err := d.Group(2); !errors.Is(err, storage.ErrQuarantined) {
		t.Fatalf("opened the other: %v", err)
	}
}

func TestWitnessRemembersTheHighestLife(t *testing.T) {
	root := t.TempDir()
	d := openDir(t, root)
	type s = storage.Sighting
	for i, tt := range []struct{ now, before s }{
		{s{1, 11}, s{}},
		{s{1, 11}, s{1, 11}},
		{s{3, 33}, s{1, 11}},
		{s{3, 99}, s{3, 33}}, // another life under the same number
		{s{2, 22}, s{3, 33}},
		{s{3, 33}, s{3, 33}},
	} {
		if i == 4 { // over a restart
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = openDir(t, root)
		}
		before, err := d.Witness("n2", tt.now)
		if err != nil || before != tt.before {
			t.Errorf("told of %v: known was %v, %v, want %v", tt.now, before, err, tt.before)
		}
	}
	if d.Life() != 2 {
		t.Errorf("own life %d, want 2", d.Life())
	}
}

// Whatever step of a rebuild a crash hits, the group is as it was or empty, and never founds itself.
func TestCrashDuringARebuild(t *testing.T) {
	cfg := storage.Defaults()
	cfg.Dir = "/d"
	open := func(fsys *faultfs.FS) *storage.Dir {
		cfg.FS = fsys
		d, err := storage.Open(cfg, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	prepare := func(fsys *faultfs.FS) {
		d := open(fsys)
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
		cfg.FS = fsys
		d, err := storage.Open(cfg, hclog.NewNullLogger())
		if err != nil {
			return err
		}
		return errors.Join(d.Rebuild(3, 9), d.Admit(3), d.Close())
	}
	crashes(t, prepare, op, func(t *testing.T, fsys *faultfs.FS, done error) {
		d := open(fsys)
		defer d.Close() //nolint:errcheck // the check is done
		if err := d.Admit(3); err != nil {
			t.Fatal(err)
		}
		_, err := storage.ReadSmall(fsys, "/d/groups/00003/file0")
		rejoins, there := d.Rejoins(3), err == nil
		if rejoins == there || done == nil && !rejoins {
			t.Fatalf("rejoins %v with the old data %v, reported %v", rejoins, there, done)
		}
		if there {
			for i := range 3 {
				if _, err := storage.ReadSmall(fsys, fmt.Sprintf("/d/groups/00003/file%d", i)); err != nil {
					t.Fatalf("half of the data is gone: %v", err)
				}
			}
		}
	})
}

func TestBallastIsTakenOnceAndGivenBack(t *testing.T) {
	fsys := faultfs.New()
	cfg := storage.Defaults()
	cfg.Dir, cfg.FS, cfg.BallastBytes = "/d", fsys, 3<<20
	d, err := storage.Open(cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // the check is done
	before := fsys.Used()
	for _, step := range []struct {
		hold bool
		want int64
	}{{true, 3 << 20}, {true, 3 << 20}, {false, 0}, {false, 0}, {true, 3 << 20}} {
		if err := d.Ballast(step.hold); err != nil {
			t.Fatal(err)
		}
		if got := fsys.Used() - before; got != step.want {
			t.Fatalf("hold %v: %d bytes, want %d", step.hold, got, step.want)
		}
	}
	if err := d.Ballast(false); err != nil {
		t.Fatal(err)
	}
	fsys.Limit(fsys.Used() + 100<<20) // a 64th of it is less than what is asked for
	if err := d.Ballast(true); err != nil {
		t.Fatal(err)
	}
	if got := fsys.Used() - before; got > 2<<20 || got == 0 {
		t.Fatalf("%d bytes of a disk of 100 MiB", got)
	}
}
