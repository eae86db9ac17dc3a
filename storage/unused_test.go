package storage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// A directory that a process uses is not removed, nor one that was never opened.
func TestOnlyUnusedDirectoriesAreRemoved(t *testing.T) {
	cfg := Defaults()
	cfg.Dir = filepath.Join(t.TempDir(), "data")
	d, err := Open(cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := RemoveUnused(cfg.Dir); removed || err != nil {
		t.Errorf("in use: removed %v, %v", removed, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if removed, err := RemoveUnused(cfg.Dir); !removed || err != nil {
		t.Errorf("unused: removed %v, %v", removed, err)
	}
	if _, err := os.Stat(cfg.Dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	fresh := t.TempDir()
	if removed, err := RemoveUnused(fresh); removed || err != nil {
		t.Errorf("never opened: removed %v, %v", removed, err)
	}
}
