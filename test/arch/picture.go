package arch

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// testsPage is the page that shows the packages below test.
const testsPage = "test/README.md"

var (
	pictureBox   = regexp.MustCompile(`^\s*(\w+)\["([^"]+)"\]$`)
	pictureArrow = regexp.MustCompile(`^\s*(\w+) --> (\w+)$`)
	tableRow     = regexp.MustCompile("^\\| `([a-z/]+)` \\|")
)

// Picture reports where test/README.md and the imports of the packages below test differ. Its picture has a box for each
// package and an arrow for each import among them; dotted arrows and boxes of other things are not looked at. Its table
// has a row for each package, whose last cell names the rooms of the broker that the package imports.
func Picture(t *Tree, root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(testsPage)))
	if err != nil {
		return nil, err
	}
	packages, arrows, rooms := testImports(t)
	drawn, rows := map[string]string{}, map[string]string{}
	var shown []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if m := pictureBox.FindStringSubmatch(line); m != nil {
			drawn[m[1]] = m[2]
		} else if m := pictureArrow.FindStringSubmatch(line); m != nil {
			shown = append(shown, drawn[m[1]]+" -> "+drawn[m[2]])
		} else if m := tableRow.FindStringSubmatch(line); m != nil {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			rows[m[1]] = strings.TrimSpace(cells[len(cells)-1])
		}
	}
	var sins []string
	report := func(format string, args ...any) {
		sins = append(sins, testsPage+": "+fmt.Sprintf(format, args...))
	}
	for _, p := range packages {
		boxes := 0
		for _, label := range drawn {
			if label == p {
				boxes++
			}
		}
		if boxes != 1 {
			report("the picture has %d boxes for %s", boxes, p)
		}
		if cell, ok := rows[p]; !ok {
			report("the table has no row for %s", p)
		} else if want := spans(rooms[p]); cell != want {
			report("the row of %s says that it imports %q of the broker: %q", p, cell, want)
		}
	}
	for p := range rows {
		if !slices.Contains(packages, p) {
			report("the table has %s, which is no package", p)
		}
	}
	for _, a := range arrows {
		if !slices.Contains(shown, a) {
			report("the picture lacks the arrow %s", a)
		}
	}
	for _, a := range shown {
		if !slices.Contains(arrows, a) {
			report("nothing in the code stands for the arrow %s", a)
		}
	}
	slices.Sort(sins)
	return sins, nil
}

// testImports returns the packages below test by their paths there, and the imports among them as "from -> to". rooms
// are those of the broker that each package imports, by the first folder of their paths.
func testImports(t *Tree) (packages, arrows []string, rooms map[string][]string) {
	rooms = map[string][]string{}
	add := func(list []string, s string) []string {
		if slices.Contains(list, s) {
			return list
		}
		return append(list, s)
	}
	for _, f := range t.Files {
		from, ok := strings.CutPrefix(f.Room, "test/")
		if !ok {
			continue
		}
		packages = add(packages, from)
		for _, spec := range f.AST.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			to, ours := strings.CutPrefix(name, Module+"/")
			if err != nil || !ours || to == f.Room {
				continue
			}
			if to, below := strings.CutPrefix(to, "test/"); below {
				arrows = add(arrows, from+" -> "+to)
				continue
			}
			for path.Dir(to) != "." {
				to = path.Dir(to)
			}
			rooms[from] = add(rooms[from], to)
		}
	}
	return packages, arrows, rooms
}

// spans are names as a cell of a table shows them, in their order.
func spans(names []string) string {
	names = slices.Sorted(slices.Values(names))
	for i, n := range names {
		names[i] = "`" + n + "`"
	}
	return strings.Join(names, ", ")
}
