package arch

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxFlatFiles is how many files a package may have without a list of them in its doc.go.
	MaxFlatFiles = 30
	// MaxBackward is how many of a hundred arrows between the files of such a package may point up its list. An arrow
	// leads from a file to another one that declares something it uses.
	MaxBackward = 15
	// MaxGroupFiles is how many files one group of the list may have.
	MaxGroupFiles = 14
)

// orderHeading begins the list in a doc.go. Its items are groups: files from the top down, a colon, and what they are.
const orderHeading = "# Where things are"

// orderClaim stands in front of a list that goes from the top down.
const orderClaim = "From the top down"

// Order reports large packages whose doc.go does not list all files in groups, and those whose files use what stands
// above them in that list. A smaller package whose list says that it goes from the top down is held to that, too.
func Order(t *Tree) ([]string, error) {
	var sins []string
	for _, room := range orderedRooms(t) {
		found, err := orderOf(t, room)
		if err != nil {
			return nil, err
		}
		sins = append(sins, found...)
	}
	return sins, nil
}

// roomFiles are the files of a package that are no tests; of a package that has nothing but tests, all files.
type roomFiles struct {
	name  string
	files []*File
	doc   *File // nil without
}

// list returns what stands in doc.go under the heading, empty without it.
func (r *roomFiles) list() string {
	if r.doc == nil || r.doc.AST.Doc == nil {
		return ""
	}
	_, text, _ := strings.Cut(r.doc.AST.Doc.Text(), orderHeading+"\n")
	text, _, _ = strings.Cut(text, "\n# ")
	return text
}

// orderedRooms are the packages that are large, or whose list claims an order.
func orderedRooms(t *Tree) []*roomFiles {
	var rooms []*roomFiles
	byName, code := map[string]*roomFiles{}, map[string]bool{}
	for _, f := range t.Files {
		if !f.Test && path.Base(f.Path) != "doc.go" {
			code[f.Room] = true
		}
	}
	for _, f := range t.Files {
		if f.Test && code[f.Room] {
			continue
		}
		r := byName[f.Room]
		if r == nil {
			r = &roomFiles{name: f.Room}
			byName[f.Room] = r
			rooms = append(rooms, r)
		}
		if path.Base(f.Path) == "doc.go" {
			r.doc = f
		} else {
			r.files = append(r.files, f)
		}
	}
	return slices.DeleteFunc(rooms, func(r *roomFiles) bool {
		return len(r.files) <= MaxFlatFiles && !strings.Contains(r.list(), orderClaim)
	})
}

func orderOf(t *Tree, r *roomFiles) ([]string, error) {
	places, sins := r.listed()
	if len(sins) > 0 {
		return sins, nil
	}
	arrows, err := r.arrows(t)
	if err != nil {
		return nil, err
	}
	var back []string
	for _, a := range arrows {
		if places[a.from] > places[a.to] {
			back = append(back, fmt.Sprintf("%s -> %s (%s)", a.from, a.to, a.by))
		}
	}
	if 100*len(back) > MaxBackward*len(arrows) {
		return []string{fmt.Sprintf("%s: %d of %d arrows between its files point up the list of doc.go, at most %d %%:\n\t%s",
			r.name, len(back), len(arrows), MaxBackward, strings.Join(back, "\n\t"))}, nil
	}
	return nil, nil
}

var goFile = regexp.MustCompile(`\b[a-z0-9_]+\.go\b`)

// listed returns the place of each file in the list of doc.go.
func (r *roomFiles) listed() (places map[string]int, sins []string) {
	text := r.list()
	if text == "" {
		return nil, []string{fmt.Sprintf("%s: %d files, and doc.go has no list of them under %q", r.name, len(r.files), orderHeading)}
	}
	places = map[string]int{}
	for i, item := range strings.Split(text, "\n  - ") {
		if i == 0 { // what stands in front of the list
			continue
		}
		item, _, _ = strings.Cut(item, "\n\n") // what stands behind it
		names := goFile.FindAllString(item, -1)
		if len(names) > MaxGroupFiles {
			sins = append(sins, fmt.Sprintf("%s: a group of doc.go has %d files, at most %d: %s", r.name, len(names), MaxGroupFiles, item))
		}
		for _, file := range names {
			if _, twice := places[file]; twice {
				sins = append(sins, fmt.Sprintf("%s: doc.go lists %s twice", r.name, file))
			}
			places[file] = len(places)
		}
	}
	for _, f := range r.files {
		if _, ok := places[path.Base(f.Path)]; !ok {
			sins = append(sins, fmt.Sprintf("%s: doc.go does not list it", f.Path))
		}
	}
	for file := range places {
		if !slices.ContainsFunc(r.files, func(f *File) bool { return path.Base(f.Path) == file }) {
			sins = append(sins, fmt.Sprintf("%s: doc.go lists %s, which is not there", r.name, file))
		}
	}
	slices.Sort(sins)
	return places, sins
}

// arrow says that a file uses what another one declares, and gives one example.
type arrow struct{ from, to, by string }

// arrows are the uses between the files of a package, one for each pair. Files for other systems are left out.
func (r *roomFiles) arrows(t *Tree) ([]arrow, error) {
	var files []*ast.File
	var imported []string
	for _, f := range r.files {
		dir, base := path.Split(f.Path)
		if ok, err := build.Default.MatchFile(filepath.Join(t.Root, filepath.FromSlash(dir)), base); err != nil || !ok {
			continue
		}
		files = append(files, f.AST)
		for _, spec := range f.AST.Imports {
			if name, err := strconv.Unquote(spec.Path.Value); err == nil {
				imported = append(imported, name)
			}
		}
	}
	slices.Sort(imported)
	exports, err := exportData(moduleOf(t.Root, r.name), slices.Compact(imported))
	if err != nil {
		return nil, err
	}
	lookup := func(p string) (io.ReadCloser, error) { return os.Open(exports[p]) }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(t.Fset, "gc", lookup)}
	if _, err := conf.Check(Module+"/"+r.name, t.Fset, files, info); err != nil {
		return nil, fmt.Errorf("type-check %s: %w", r.name, err)
	}
	type pair struct{ from, to string }
	by := map[pair]string{}
	for ident, obj := range info.Uses {
		if obj.Pkg() == nil || obj.Pkg().Path() != Module+"/"+r.name || !obj.Pos().IsValid() {
			continue
		}
		from, to := path.Base(t.Fset.Position(ident.Pos()).Filename), path.Base(t.Fset.Position(obj.Pos()).Filename)
		if p := (pair{from, to}); from != to && (by[p] == "" || obj.Name() < by[p]) {
			by[p] = obj.Name()
		}
	}
	arrows := make([]arrow, 0, len(by))
	for p, name := range by {
		arrows = append(arrows, arrow{p.from, p.to, name})
	}
	slices.SortFunc(arrows, func(a, b arrow) int {
		return strings.Compare(a.from+" "+a.to, b.from+" "+b.to)
	})
	return arrows, nil
}
