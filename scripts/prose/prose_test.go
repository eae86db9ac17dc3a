package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const long = "A node that has been away for an hour gets a snapshot from the leader and then the entries behind it, " +
	"one after the other, until it has caught up."

// TestPlantedSentencesAreFound plants sentences of both kinds, and others that look like them.
func TestPlantedSentencesAreFound(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"README.md":          "# What is it\n\n" + long + "\n\n| What stands in a table counts not |\n",
		"docs/page.md":       "Who asks gets an answer. Those two nodes agree. What now? One entry is enough.\n\n* Whatever comes is read.\n",
		"docs/spec/page.md":  long,
		"docs/spec.md":       "```\n" + long + "\n```\n",
		"fsm/a.go":           "// Package fsm is short.\npackage fsm\n\n// X is what " + long + "\nconst X = 1 // What is this.\n",
		"fsm/a_test.go":      "package fsm\n\n// What a test says is not read.\n",
		"fsm/testdata/b.md":  long,
		"partition/doc.go":   "// Package partition: those that lead.\n//\n//\tWhat is indented is code.\npackage partition\n",
		"transport/plain.go": "package transport\n\n// Those who wait get `one two three four five six seven eight nine ten eleven twelve` words more, as they should.\nvar x int\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	faults, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range faults {
		first, _, _ := strings.Cut(f.Text, " ")
		got = append(got, strings.Join([]string{f.Room, f.Path, string(f.Kind), first}, " "))
	}
	want := []string{
		"docs README.md long A",
		"docs docs/page.md names nobody Who",
		"docs docs/page.md names nobody Whatever",
		"fsm fsm/a.go long X",
		"fsm fsm/a.go names nobody What",
		"transport transport/plain.go names nobody Those",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCountsOnlyGoDown(t *testing.T) {
	allowed := map[string]Counts{"fsm": {2, 1}}
	for name, tc := range map[string]struct {
		now  map[string]Counts
		want int
	}{
		"as many":         {map[string]Counts{"fsm": {2, 1}}, 0},
		"fewer":           {map[string]Counts{"fsm": {0, 0}}, 0},
		"one long more":   {map[string]Counts{"fsm": {3, 0}}, 1},
		"one nobody more": {map[string]Counts{"fsm": {0, 2}}, 1},
		"a new room":      {map[string]Counts{"fsm": {2, 1}, "console": {1, 0}}, 1},
	} {
		if got := Worse(tc.now, allowed); len(got) != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWriteLowersOnly(t *testing.T) {
	allowed := map[string]Counts{"fsm": {2, 1}, "cluster": {3, 3}, "cmd": {1, 5}}
	lower(allowed, map[string]Counts{"fsm": {3, 0}, "cmd": {1, 4}, "console": {1, 1}})
	want := map[string]Counts{"fsm": {2, 0}, "cluster": {}, "cmd": {1, 4}, "console": {1, 1}}
	if !maps.Equal(allowed, want) {
		t.Errorf("got %v, want %v", allowed, want)
	}
}
