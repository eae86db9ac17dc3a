package storage_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/busbar-mq/busbar/storage"
)

// What was not finished beside any file of a node, a good beginning of it or something else, changes
// nothing that is read, and goes: at the next start, or when the file is written again.
func TestStaleTemporaryFilesChangeNothing(t *testing.T) {
	for _, kind := range []string{storage.LogWAL, storage.LogBolt} {
		t.Run(kind, func(t *testing.T) {
			root := t.TempDir()
			whole := filepath.Join(root, "whole")
			cfg := storage.Defaults()
			cfg.Dir, cfg.Log, cfg.LogSegmentBytes, cfg.BodyCacheBytes = whole, kind, 1<<20, 0
			cfg.BodySegmentBytes = 8 << 10
			d := &damaged{cfg: cfg}
			d.fill(t)
			want := d.digest(t, whole, filepath.Join(root, "first"))
			for name, content := range map[string]func([]byte) []byte{
				"half of the file": func(b []byte) []byte { return b[:len(b)/2] },
				"another file":     func([]byte) []byte { return bytes.Repeat([]byte("stale "), 1000) },
				"nothing":          func([]byte) []byte { return nil },
				"the whole file":   func(b []byte) []byte { return b },
			} {
				dir := filepath.Join(root, "stale")
				copyDir(t, whole, dir)
				for _, f := range files(t, whole) {
					text, err := os.ReadFile(filepath.Join(whole, f))
					if err == nil {
						err = os.WriteFile(filepath.Join(dir, f)+".tmp", content(text), 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				d.cfg.Dir = dir
				got, err := d.read()
				if err != nil || got != want {
					t.Errorf("%s: what is read is not what was written: %v", name, err)
				}
				if left := unfinished(t, dir); len(left) > 0 {
					t.Errorf("%s: left behind: %q", name, left)
				}
			}
		})
	}
}

// unfinished opens a directory once more and lists the temporary files that are then left.
func unfinished(t *testing.T, root string) (left []string) {
	t.Helper()
	cfg := storage.Defaults()
	cfg.Dir = root
	if hard, err := os.ReadFile(filepath.Join(root, "hard.json")); err == nil && bytes.Contains(hard, []byte("boltdb")) {
		cfg.Log = storage.LogBolt
	}
	dir, err := storage.Open(cfg, hclog.NewNullLogger())
	if err == nil {
		err = errors.Join(dir.Ballast(false), dir.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files(t, root) {
		// The libraries of the log, and segments of bodies, write nothing under another name first.
		if strings.HasSuffix(f, ".tmp") && !strings.Contains(f, "/log/") && !strings.Contains(f, "/bodies/") {
			left = append(left, f)
		}
	}
	return left
}
