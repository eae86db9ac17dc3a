package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository writes files into a directory of the test's own and reads them as a repository.
func repository(t *testing.T, files map[string]string) *tree {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// house is a small repository with one comment in it.
func house(t *testing.T, comment string) *tree {
	t.Helper()
	return repository(t, map[string]string{
		"docs/waves.md":               "# Waves\n\n## 1. Sea\n\n### 1.2 Tide\n\n## 12. Deep\n",
		"docs/spec/rows.md":           "# Rows\n",
		"docs/decisions/0007-salt.md": "# Salt\n",
		"scripts/run.sh":              "",
		"store/a.go": "package store\n\n// " + strings.ReplaceAll(comment, "\n", "\n// ") + "\nfunc open() {}\n\n" +
			"type box[T any] struct{}\n\nfunc (b *box[T]) close() {}\n\ntype port interface{ Put() }\n\nconst limit = 1\n",
		"store/a_test.go":      "package store\n\nfunc TestOpenTwice(t *T) {}\n\nfunc FuzzOpen(f *F) {}\n",
		"store/inner/b.go":     "package inner\n",
		"store/testdata/c.go":  "// none.md\npackage c\n",
		"store/testdata/d.txt": "",
		".git/HEAD":            "",
	})
}

func TestReferencesOfComments(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"a page of docs by its last name", "as waves.md says", ""},
		{"a page by its path", "as docs/spec/rows.md says", ""},
		{"a page that is not there", "as tides.md says", "tides.md: no such page"},
		{"a page that moved", "as docs/rows.md says", "docs/rows.md: no such page"},
		{"a section", "see waves.md, section 1", ""},
		{"a section below one", "see waves.md 1.2", ""},
		{"a section on the next line", "see waves.md,\nsection 12", ""},
		{"two sections of which one is not there", "see waves.md 1.2 and 1.3", "waves.md has no section 1.3"},
		{"a range of sections", "see waves.md 1.2 to 1.4", "waves.md has no section 1.4"},
		{"a section that only begins like one", "see waves.md 1.20", "waves.md has no section 1.20"},
		{"a section that is not there", "see waves.md section 2", "waves.md has no section 2"},
		{"a section in front of its page", "section 3 of docs/waves.md", "docs/waves.md has no section 3"},
		{"a page without its suffix", "waves 1.2 has it", ""},
		{"a page without its suffix, and no such section", "waves 6.2 has it", "docs/waves.md has no section 6.2"},
		{"a rule of a page", "(waves rule 4)", "docs/waves.md has no section 4"},
		{"a word and a number", "three waves 4 times, version 1.7 of it", ""},
		{"a file beside it", "as a_test.go shows", ""},
		{"a file of its repository", "as store/inner/b.go shows", ""},
		{"a file below its own directory", "as inner/b.go shows", ""},
		{"a file above", "as scripts/run.sh shows", ""},
		{"files with a star", "the a*.go files", ""},
		{"no file with that star", "the ops_*.go files", "ops_*.go: no such file"},
		{"a script of many directories", "what each run.sh does", ""},
		{"a script of none", "what each walk.sh does", "walk.sh: no such file"},
		{"an ending is no file", "all but *_test.go and _test.go", ""},
		{"a file of elsewhere without its directory", "as b.go shows", "b.go: no such file"},
		{"a file that is not there", "as queue.go shows", "queue.go: no such file"},
		{"a path", "what store/testdata holds", ""},
		{"a path that is not there", "what store/outer holds", "store/outer: no such path"},
		{"a path of something else", "what other/outer holds", ""},
		{"a decision", "as decision 0007 has it, docs/decisions/0007", ""},
		{"a decision that was not made", "as decision 0008 has it", "decision 0008: no such page"},
		{"a path to a decision that was not made", "as docs/decisions/0008 has it", "docs/decisions/0008: no such"},
		{"a test", "TestOpenTwice shows it, and FuzzOpen", ""},
		{"a test that was renamed", "TestOpenedTwice shows it", "TestOpenedTwice: no such test"},
		{"tests that begin so", "each TestOpen... is one", ""},
		{"no test begins so", "each TestShut... is one", "TestShut: no such test"},
		{"a subtest", "run Suite/TestOfOthers of it", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(house(t, c.text).checkComments(), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q: got %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func TestAReferenceIsFoundOnItsLine(t *testing.T) {
	got := house(t, "one\ntwo none.md").checkComments()
	if len(got) != 1 || !strings.HasPrefix(got[0], "store/a.go:4: ") {
		t.Errorf("got %q", got)
	}
}

func TestCodeSpansOfPages(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"a function", "`store/a.go: open`", ""},
		{"a method of a generic type", "`store/a.go: box.close`", ""},
		{"a method of an interface", "`store/a.go: port.Put`", ""},
		{"a type", "`store/a.go: box`", ""},
		{"a constant", "`store/a.go: limit`", ""},
		{"a function that was renamed", "`store/a.go: openAll`", "no such declaration"},
		{"a method that moved to another type", "`store/a.go: port.close`", "no such declaration"},
		{"a file that was renamed", "`store/b.go: open`", "no such file"},
		{"a stop needs the path", "`a.go: open`", "no such file"},
		{"a file", "`store/a.go`, `a.go`", ""},
		{"a file that is gone", "`store/z.go`", "no such file"},
		{"a file of no package", "`z.go`", "no such file"},
		{"a test", "`TestOpenTwice`", ""},
		{"a test that is gone", "`TestClosedTwice`", "no such test"},
		{"a code block is no claim", "```\n`store/z.go`\n```", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			page := filepath.Join(t.TempDir(), "page.md")
			if err := os.WriteFile(page, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			broken, err := house(t, "").checkSpans(page)
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
