package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	other := "# One thing\n\n## S-1: two `words`, here\n"
	if err := os.WriteFile(filepath.Join(dir, "other.md"), []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, text, want string
	}{
		{"a file", "[x](other.md)", ""},
		{"a directory", "[x](.)", ""},
		{"an anchor", "[x](other.md#s-1-two-words-here)", ""},
		{"an anchor of the same page", "# Top\n\n[x](#top)", ""},
		{"the world", "[x](https://example.net/none)", ""},
		{"code is no link", "`[x](none.md)`", ""},
		{"a code block is no link", "```\n[x](none.md)\n```", ""},
		{"a missing file", "[x](none.md)", "no such file"},
		{"a missing anchor", "[x](other.md#three)", "no such heading"},
		{"a title does not hide it", `[x](none.md "title")`, "no such file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "page.md")
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			broken, err := check(file)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(broken, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
