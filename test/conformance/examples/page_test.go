package examples

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/busbar-mq/busbar/test/conformance/languages"
)

// root is where the examples are.
const root = "../../../docs/examples"

// names are the examples: the directories of root that have a page.
func names(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(root, "*", "README.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%s has no examples: %v", root, err)
	}
	var all []string
	for _, p := range pages {
		all = append(all, filepath.Base(filepath.Dir(p)))
	}
	return all
}

// output is what a page shows for a language. That is the block "```text LANGUAGE..." which names the language, or
// the block "```text", which is for all others.
func output(page, language string) (string, error) {
	var lines []string
	found, inside, mine := "", false, false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		named, opens := strings.CutPrefix(line, "```text")
		switch {
		case !inside && opens:
			of := strings.Fields(named)
			mine = slices.Contains(of, language) || len(of) == 0 && found == ""
			inside, lines = true, nil
		case inside && line == "```":
			if mine {
				found = strings.Join(lines, "\n")
			}
			inside = false
		case inside:
			lines = append(lines, line)
		}
	}
	if found == "" {
		return "", errors.New("the page shows no output: a block that begins with ```text")
	}
	return found, nil
}

// varies stands in a page for a number that is another one in each run.
var varies = regexp.MustCompile(`<[a-z]+>`)

// same returns an error that names the first line in which an output is not what a page shows.
func same(got, want string) error {
	g, w := strings.Split(strings.TrimRight(got, "\n"), "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			return fmt.Errorf("line %d is missing: %q", i+1, w[i])
		case i >= len(w):
			return fmt.Errorf("line %d is too much: %q", i+1, g[i])
		case !pattern(w[i]).MatchString(g[i]):
			return fmt.Errorf("line %d is %q, and the page shows %q", i+1, g[i], w[i])
		}
	}
	return nil
}

func pattern(line string) *regexp.Regexp {
	var b strings.Builder
	for i, part := range varies.Split(line, -1) {
		if i > 0 {
			b.WriteString(`\d+`)
		}
		b.WriteString(regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + b.String() + "$")
}

func TestOutputOfAPage(t *testing.T) {
	page := "# A\n\n```sh\nrun\n```\n\n```text\none\ntwo\n```\n\n```text java csharp\nthree\n```\n"
	for language, want := range map[string]string{"go": "one\ntwo", "java": "three", "csharp": "three"} {
		if got, err := output(page, language); err != nil || got != want {
			t.Errorf("%s: got %q and %v, want %q", language, got, err, want)
		}
	}
	if got, err := output("# A\n\n```sh\nrun\n```\n", "go"); err == nil {
		t.Errorf("a page without output shows %q", got)
	}
}

func TestSame(t *testing.T) {
	cases := []struct {
		name, got, want string
		same            bool
	}{
		{"the same", "a\nb (c)\n", "a\nb (c)", true},
		{"a number that varies", "took 12 ms\n", "took <ms> ms", true},
		{"a word where a number varies", "took long ms\n", "took <ms> ms", false},
		{"another line", "a\nc\n", "a\nb", false},
		{"a line less", "a\n", "a\nb", false},
		{"a line more", "a\nb\nc\n", "a\nb", false},
		{"lines in another order", "b\na\n", "a\nb", false},
		{"a point is a point", "axb\n", "a.b", false},
		{"nothing", "", "a", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := same(c.got, c.want); (err == nil) != c.same {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestEachExampleIsComplete: an example has its entities, its output, and a program in each language.
func TestEachExampleIsComplete(t *testing.T) {
	for _, name := range names(t) {
		page, err := os.ReadFile(filepath.Join(root, name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if _, err := output(string(page), l.name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(filepath.Join(root, name, l.file)); err != nil {
				t.Errorf("%s has no program in %s: %v", name, l.title, err)
			}
		}
		if _, err := os.Stat(filepath.Join(root, name, "Config.json")); err != nil {
			t.Errorf("%s has no entities: %v", name, err)
		}
	}
}

// TestExamplesNameTheNewestLibraries: what a reader installs for the examples is what the scenarios run with.
func TestExamplesNameTheNewestLibraries(t *testing.T) {
	versions, err := languages.ReadVersions("../versions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		b, err := os.ReadFile(filepath.Join(root, l.pin))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(versions, func(v languages.Version) bool { return v.Runner == l.runner && v.Always })
		if want := strings.ReplaceAll(l.pinned, "VERSION", versions[i].Version); !strings.Contains(string(b), want) {
			t.Errorf("%s does not have %q", l.pin, want)
		}
	}
}
