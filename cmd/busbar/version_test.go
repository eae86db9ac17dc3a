package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/storage"
)

func TestTheReleaseIsThatOfTheClusterVersion(t *testing.T) {
	if !strings.HasPrefix(release, fsm.NewestVersion.Release()+".") {
		t.Errorf("release %s, and the newest cluster version is %s", release, fsm.NewestVersion)
	}
	was := version
	defer func() { version = was }()
	for built, want := range map[string]string{"v" + release: release, "4d226a1": release + "+4d226a1",
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-dirty": release + "+v1.2.3-dirty",
		"v0.0.9-3-g4d226a1": release + "+v0.0.9-3-g4d226a1"} {
		if version = built; programVersion() != want {
			t.Errorf("%s is %s, want %s", built, programVersion(), want)
		}
	}
}

// A directory of another cluster version than the program knows is refused by a sentence that names the release to run.
func TestADirectoryOfALaterVersionIsRefused(t *testing.T) {
	cfg := storageConfig(filepath.Join(t.TempDir(), "data"), storage.LogWAL)
	dir, err := storage.Open(cfg, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	formats(t, cfg.Dir)
	if err := dir.KeepVersion(int(fsm.NewestVersion)); err != nil {
		t.Fatal(err)
	}
	dir.Close()
	if dir, err = storage.Open(cfg, hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	if err := dir.KeepVersion(20103); err != nil {
		t.Fatal(err)
	}
	dir.Close()
	_, err = storage.Open(cfg, hclog.NewNullLogger())
	const want = "the data is of cluster version 2.1-3, and this program, 0.1.0-dev+development, knows versions up to 0.1-1: " +
		"start release 2.1 or later; an upgrade that is finalized is not taken back"
	if got := strings.NewReplacer(programVersion(), "0.1.0-dev+development", fsm.NewestVersion.String(), "0.1-1").Replace(
		errorText(err)); !strings.Contains(got, want) {
		t.Errorf("%q, want %q in it", got, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// formats checks that the table of versions has the forms that a data directory names.
func formats(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "hard.json"))
	if err != nil {
		t.Fatal(err)
	}
	content, _, _ := strings.Cut(string(text), "\ncrc32c ")
	var hard struct{ Formats, Rooms map[string]int }
	if err := json.Unmarshal([]byte(content), &hard); err != nil {
		t.Fatal(err)
	}
	known := map[string]int{}
	for _, f := range fsm.Formats() {
		known[f.Name] = max(known[f.Name], f.Number)
	}
	if len(hard.Formats) < 5 || len(hard.Rooms) < 2 {
		t.Errorf("the directory names %v and %v", hard.Formats, hard.Rooms)
	}
	for _, settings := range []map[string]int{hard.Formats, hard.Rooms} {
		for name, number := range settings {
			if known[name] != number {
				t.Errorf("form %s %d: fsm/versions.go has %d", name, number, known[name])
			}
		}
	}
}
