package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/storage"
	"github.com/busbar-mq/busbar/storage/faultfs"
)

// A quarantined group stays shut through a power loss at any step, and the others stay open.
func TestCrashWhileAGroupIsQuarantined(t *testing.T) {
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
		return errors.Join(d.Quarantine(1, "it differs"), d.Close())
	}
	crashes(t, prepare, op, func(t *testing.T, fsys *faultfs.FS, done error) {
		d := mustOpenFaulty(t, fsys, 0)
		defer d.Close() //nolint:errcheck // the check is done
		err := d.Admit(1)
		if err != nil && !errors.Is(err, storage.ErrQuarantined) {
			t.Fatal(err)
		}
		if done == nil && err == nil {
			t.Error("it is opened although the quarantine was reported as kept")
		}
		if err != nil {
			if err := errors.Join(d.Rebuild(1, 5), d.Admit(1)); err != nil || !d.Rejoins(1) {
				t.Errorf("the way back: rejoins %v, %v", d.Rejoins(1), err)
			}
		}
		if err := errors.Join(d.Admit(0), d.Admit(2)); err != nil {
			t.Errorf("the others: %v", err)
		}
	})
}

func TestQuarantinedGroupSaysWhy(t *testing.T) {
	d := openDir(t, t.TempDir())
	useGroup(t, d, 7)
	if err := d.Quarantine(7, "digest 1 behind entry 2, a majority has 3"); err != nil {
		t.Fatal(err)
	}
	_, err := d.Group(7)
	want := "quarantined: digest 1 behind entry 2, a majority has 3"
	if !errors.Is(err, storage.ErrQuarantined) || !strings.Contains(err.Error(), want) {
		t.Errorf("opened: %v", err)
	}
}
