package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A change is told when the files are at rest, once, and one that goes through a link of a mounted secret, too.
func TestFilesAreWatchedThroughLinks(t *testing.T) {
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		mustRename(t, filepath.Join(dir, "new"), filepath.Join(dir, name))
	}
	put := func(version, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "tls.crt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("..1", "one")
	link("..1", "..data")
	link("..data/tls.crt", "tls.crt")
	w := newFileWatch(func() []string { return []string{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "missing")} })
	steps := []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"another version of the secret", func() { put("..2", "two"); link("..2", "..data") }, false},
		{"at rest", func() {}, true},
		{"still, as long as nobody has read it", func() {}, true},
		{"read", func() { w.accept() }, false},
		{"the same text anew", func() { put("..3", "two"); link("..3", "..data") }, false},
		{"at rest with the same text", func() {}, false},
		{"a change", func() { put("..3", "three") }, false},
		{"another one before it is at rest", func() { put("..3", "four") }, false},
		{"both at rest", func() {}, true},
		{"a file that comes", func() { w.accept(); _ = os.WriteFile(filepath.Join(dir, "missing"), []byte("x"), 0o600) }, false},
		{"and stays", func() {}, true},
		{"and goes again", func() {
			_ = os.Remove(filepath.Join(dir, "missing"))
			mustRename(t, filepath.Join(dir, "..3"), filepath.Join(dir, "..4"))
		}, false},
		{"and stays away", func() {}, true},
	}
	for _, s := range steps {
		s.do()
		if got := w.changed(); got != s.want {
			t.Errorf("%s: %t", s.name, got)
		}
	}
}

// A file that changes while the files are read is read again: nobody knows which text was read.
func TestAFileThatChangesDuringAReloadIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tls.crt")
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	w := newFileWatch(func() []string { return []string{file} })
	put("two")
	w.reread(func() { put("three") })
	if first, second := w.changed(), w.changed(); first || !second {
		t.Errorf("told %t, and at rest %t", first, second)
	}
	w.reread(func() {})
	for range 2 {
		if w.changed() {
			t.Error("what was read is told")
		}
	}
}

// A certificate that is renewed while a node waits for its cluster is the one that it shows later.
func TestAChangeBeforeANodeServesIsSeen(t *testing.T) {
	r := openReloading(t, rootPolicy+"log-level: trace\n")
	if err := os.WriteFile(r.file, []byte(rootPolicy+"log-level: warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.reloader.run(ctx, nil) }()
	defer func() { cancel(); <-done }()
	for range 3_000 {
		if r.reloader.running.Load().LogLevel == "warn" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the change is not seen")
}
