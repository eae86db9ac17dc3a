package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree writes a small repository and makes it the working directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		"docs/spec/semantics.md":    "**S-1** One.\n\n**S-2** Two.\n\n**S-3** Three.\n",
		"docs/coverage-claimed.txt": "# nothing\n",
		"docs/coverage-waiting.txt": "# nothing\n",
		caseList:                    "# id | title\n\n## Sending\nsend | it is sent\n",
		rowsDoc:                     "## Article\n\n| F0-01 | It rains. | X | none (nothing to build) |\n",
		"fsm/x_test.go": "package fsm\n\n// S-1; T-4\nfunc TestOne(t *testing.T) {\n\t// S-2..S-3\n}\n" +
			"\nvar s = S-9 // not in a string, but in code: S-3 is\n",
		"fsm/testdata/a.txt": "# S-2 holds\n",
		exampleRows:          "# nothing\n",
		bugsDoc:              "# Bugs\n",
		sizePage:             "# Tests\n\n" + sizeBegin + sizeEnd,
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	return root
}

func TestCollect(t *testing.T) {
	tree(t, nil)
	found, err := collect(".")
	if err != nil {
		t.Fatal(err)
	}
	want := map[int][]string{
		1: {"fsm/x_test.go: TestOne"},
		2: {"fsm/testdata/a.txt", "fsm/x_test.go: TestOne"},
		3: {"fsm/x_test.go", "fsm/x_test.go: TestOne"},
	}
	for n := range 10 {
		if !slices.Equal(found[n], want[n]) {
			t.Errorf("S-%d: got %q, want %q", n, found[n], want[n])
		}
	}
}

func TestRun(t *testing.T) {
	cases := []struct {
		name  string
		files map[string]string
		check bool
		fault string
	}{
		{"writes a page", nil, false, ""},
		{"a missing page is stale", nil, true, "stale"},
		{"an old page is stale", map[string]string{"docs/coverage.md": "old\n"}, true, "stale"},
		{"a claim with a test holds", map[string]string{"docs/coverage-claimed.txt": "S-1..S-3\n"}, false, ""},
		{"a claim without a test does not", map[string]string{
			"docs/coverage-claimed.txt": "S-1 S-2\nS-3 # three\n",
			"fsm/x_test.go":             "package fsm\n", "fsm/testdata/a.txt": "# S-1\n",
		}, false, "no test speaks of: S-2, S-3"},
		{"a claim that is no number", map[string]string{"docs/coverage-claimed.txt": "T-1\n"}, false, "neither"},
		{"a scenario that waits", map[string]string{
			"docs/spec/semantics.md":    "**S-1** One.\n**S-2** Two.\n**S-3** Three.\n* **T-4** Four.\n* **T-5** Five.\n",
			"docs/coverage-waiting.txt": "T-4..T-5: rain\n",
		}, false, ""},
		{"a scenario with a test", map[string]string{
			"docs/spec/semantics.md": "**S-1** One.\n**S-2** Two.\n**S-3** Three.\n* **T-4** Four.\n",
			"fsm/y_test.go":          "package fsm\n\nfunc TestT4ItRains(t *testing.T) {\n}\n",
		}, false, ""},
		{"a scenario with neither", map[string]string{
			"docs/spec/semantics.md": "**S-1** One.\n**S-2** Two.\n**S-3** Three.\n* **T-4** Four.\n",
		}, false, "T-4 has no test"},
		{"a scenario with both", map[string]string{
			"docs/spec/semantics.md":    "**S-1** One.\n**S-2** Two.\n**S-3** Three.\n* **T-4** Four.\n",
			"docs/coverage-waiting.txt": "T-4: rain\n",
			"fsm/y_test.go":             "package fsm\n\nfunc TestT4ItRains(t *testing.T) {\n}\n",
		}, false, "T-4 waits although"},
		{"a test of no scenario", map[string]string{
			"fsm/y_test.go": "package fsm\n\nfunc TestT4ItRains(t *testing.T) {\n}\n",
		}, false, "there is no T-4"},
		{"a statement and a scenario of a client library", map[string]string{
			"docs/spec/semantics.md":    "**S-1** One.\n**S-2** Two.\n**S-3** Three.\n**S-4** Four.\n* **T-4** Four.\n",
			"docs/coverage-claimed.txt": "S-4\n",
			caseList:                    "send | it is sent | S-4 T-4\n",
		}, false, ""},
		{"a case that proves what is no number", map[string]string{
			caseList: "send | it is sent | S-1, S-2\n"}, false, "neither S-n nor T-n"},
		{"a case that proves what there is not", map[string]string{
			caseList: "send | it is sent | S-44\n"}, false, "does not have"},
		{"a case of no scenario", map[string]string{
			caseList: "send | it is sent | T-44\n"}, false, "there is no T-44"},
		{"waiting for nothing", map[string]string{"docs/coverage-waiting.txt": "T-4\n"}, false, "waits for"},
		{"a row whose statement is claimed", map[string]string{
			rowsDoc:                     "## Article\n\n| F0-01 | It rains. | B | S-1, S-2 (often) |\n",
			"docs/coverage-claimed.txt": "S-1..S-2\n",
		}, false, ""},
		{"a row whose statement is not claimed", map[string]string{
			rowsDoc: "## Article\n\n| F0-01 | It rains. | B | S-1 |\n",
		}, false, "F0-01: S-1 is not claimed"},
		{"guidance may lean on what is not claimed", map[string]string{
			rowsDoc:     "## Article\n\n| F0-01 | It rains. | G | S-1 |\n",
			exampleRows: "F0-01 | none | rain is rain\n",
		}, false, ""},
		{"guidance with an example", map[string]string{
			rowsDoc:     "## Article\n\n| F0-01 | It rains. | G | S-1 |\n| F0-02 | It snows. | L | S-1 |\n",
			exampleRows: "F0-01 F0-02 | rain\n", "docs/examples/rain/README.md": "# Rain\n",
		}, false, ""},
		{"guidance with a section of the guide", map[string]string{
			rowsDoc:     "## Article\n\n| F0-01 | It rains. | G | S-1 |\n",
			exampleRows: "F0-01 | guide/rain.md#how-it-rains\n", "docs/guide/rain.md": "# Rain\n",
		}, false, ""},
		{"a page of the guide that is not there", map[string]string{
			exampleRows: "F0-01 | guide/snow.md#how\n"}, false, "there is no page guide/snow.md"},
		{"guidance in no line", map[string]string{
			rowsDoc: "## Article\n\n| F0-01 | It rains. | G | S-1 |\n",
		}, false, "F0-01 is guidance and in no line"},
		{"guidance without a reason", map[string]string{
			rowsDoc:     "## Article\n\n| F0-01 | It rains. | G | S-1 |\n",
			exampleRows: "F0-01 | none\n",
		}, false, "rows | none | reason"},
		{"an example that is not there", map[string]string{exampleRows: "F0-01 | rain\n"}, false, "there is no example rain"},
		{"an example of a row that is not there", map[string]string{
			exampleRows: "F0-07 | none | rain is rain\n"}, false, "there is no row F0-07"},
		{"a row in two lines", map[string]string{
			exampleRows: "F0-01 | none | rain\nF0-01 | none | snow\n"}, false, "stands in two lines"},
		{"a row without a statement", map[string]string{
			rowsDoc: "## Article\n\n| F0-01 | It rains. | B | none |\n",
		}, false, "F0-01 names no statement"},
		{"a row of a statement that does not exist", map[string]string{
			rowsDoc: "## Article\n\n| F0-01 | It rains. | L | S-44 |\n",
		}, false, "F0-01: there is no S-44"},
		{"a row with a cell too few", map[string]string{
			rowsDoc: "## Article\n\n| F0-01 | It rains. | S-1 |\n",
		}, false, "is not a row"},
		{"a statement that does not exist", map[string]string{"fsm/testdata/a.txt": "# S-77\n"}, false, "does not have"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, c.files)
			err := run(root, c.check)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Fatalf("got %v, want %q", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := run(root, true); err != nil {
				t.Errorf("the page that was just written: %v", err)
			}
		})
	}
}
