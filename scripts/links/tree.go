package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tree is what a repository holds. All paths are relative to its root and have slashes.
type tree struct {
	root  string
	paths map[string]bool            // of files and directories
	bases map[string][]string        // files by their last name
	names map[string]map[string]bool // the declarations of each Go file: "name" and "Type.name"
	tests map[string]bool            // the names of all tests, benchmarks and fuzz targets
	notes []note
}

// note is one comment, or several on lines that follow each other.
type note struct {
	file string
	line int // of its first line
	text string
}

// readTree reads a repository. Directories with a name that begins with a dot, built files and test data have no
// comments of ours; their paths count all the same, but for those of git.
func readTree(root string) (*tree, error) {
	t := &tree{root: root, paths: map[string]bool{}, bases: map[string][]string{},
		names: map[string]map[string]bool{}, tests: map[string]bool{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() && slices.Contains([]string{".git", ".cluster", "bin", "node_modules"}, d.Name()) {
			return filepath.SkipDir
		}
		t.paths[rel] = true
		if d.IsDir() {
			return nil
		}
		t.bases[path.Base(rel)] = append(t.bases[path.Base(rel)], rel)
		if path.Ext(rel) != ".go" || strings.Contains("/"+rel, "/testdata/") {
			return nil
		}
		return t.readGo(name, rel)
	})
	return t, err
}

func (t *tree) readGo(name, rel string) error {
	src, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	t.names[rel] = names
	for _, decl := range f.Decls {
		declare(names, decl)
	}
	if strings.HasSuffix(rel, "_test.go") {
		for n := range names {
			if testName.MatchString(n) {
				t.tests[n] = true
			}
		}
	}
	for _, group := range f.Comments {
		t.notes = append(t.notes, note{rel, set.Position(group.Pos()).Line, commentText(group)})
	}
	return nil
}

// testName is the name of a test, a benchmark or a fuzz target, and of nothing below it.
var testName = regexp.MustCompile(`^(?:Test|Benchmark|Fuzz)(?:[A-Z]\w*)?$`)

func declare(names map[string]bool, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names[d.Name.Name] = true
			return
		}
		names[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names[s.Name.Name] = true
				if i, ok := s.Type.(*ast.InterfaceType); ok {
					for _, m := range i.Methods.List {
						for _, n := range m.Names {
							names[s.Name.Name+"."+n.Name] = true
						}
					}
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names[n.Name] = true
				}
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch r := e.(type) {
	case *ast.StarExpr:
		return receiver(r.X)
	case *ast.IndexExpr:
		return receiver(r.X)
	case *ast.IndexListExpr:
		return receiver(r.X)
	case *ast.Ident:
		return r.Name
	}
	return ""
}

// commentText is the text of comments, line for line as in the file.
func commentText(group *ast.CommentGroup) string {
	var lines []string
	for _, c := range group.List {
		text := strings.TrimPrefix(c.Text, "//")
		text = strings.TrimSuffix(strings.TrimPrefix(text, "/*"), "*/")
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// has reports whether a path is there; it may have stars.
func (t *tree) has(p string) bool {
	p = path.Clean(p)
	if !strings.Contains(p, "*") {
		return t.paths[p]
	}
	for known := range t.paths {
		if ok, err := path.Match(p, known); err == nil && ok {
			return true
		}
	}
	return false
}

// above reports whether a name is there in a directory or in one above it.
func (t *tree) above(dir, name string) bool {
	for {
		if t.has(path.Join(dir, name)) {
			return true
		}
		if dir == "." {
			return false
		}
		dir = path.Dir(dir)
	}
}
