package arch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestDecisionsHaveDateAndStatus(t *testing.T) {
	sins, err := Decisions("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, sin := range sins {
		t.Error(sin)
	}
}

func TestADecisionWithoutDateOrStatusIsReported(t *testing.T) {
	const want = `docs/decisions/0001-a.md: the third line must read "Date: YYYY-MM-DD, changed YYYY-MM-DD. Status: accepted."`
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"date and status", "# 0001 A\n\nDate: 2026-11-20. Status: accepted.\n", nil},
		{"a change as well", "# 0001 A\n\nDate: 2026-11-20, changed 2026-11-21. Status: accepted.\n", nil},
		{"names behind it", "# 0001 A\n\nDate: 2026-11-20. Status: accepted. Names: A1.\n", nil},
		{"superseded by a page", "# 0001 A\n\nDate: 2026-11-20. Status: superseded by [0002](0002-b.md).\n", nil},
		{"no date", "# 0001 A\n\nNames: A1.\n", []string{want}},
		{"no status", "# 0001 A\n\nDate: 2026-11-20.\n", []string{want}},
		{"an unknown status", "# 0001 A\n\nDate: 2026-11-20. Status: done.\n", []string{want}},
		{"an empty page", "", []string{want}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "docs", "decisions")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "0001-a.md"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Decisions(root)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
