package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Module is the import path of the repository's root.
const Module = "github.com/busbar-mq/busbar"

// Tree is the parsed Go source of a repository, nested modules included: the rules hold for tests and scripts, too.
type Tree struct {
	Root  string
	Fset  *token.FileSet
	Files []*File
}

// File is one Go file of a tree.
type File struct {
	Path   string // slash separated, from the root
	Room   string // the directory: "fsm", "transport/amqp"
	Test   bool   // a _test.go file
	Lines  int
	Source []string // the lines of the file
	AST    *ast.File
}

// Load parses every Go file below root.
func Load(root string) (*Tree, error) {
	t := &Tree{Root: root, Fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipDir(rel, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		return t.add(p, filepath.ToSlash(rel))
	})
	return t, err
}

// skipDir leaves out what was built or is data of a test.
func skipDir(rel, name string) bool {
	return rel != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata")
}

// moduleOf is the directory of the module that a room belongs to.
func moduleOf(root, room string) string {
	for dir := room; dir != "" && dir != "."; dir = path.Dir(dir) {
		at := filepath.Join(root, filepath.FromSlash(dir))
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
	}
	return root
}

func (t *Tree) add(file, rel string) error {
	src, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(t.Fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", rel, err)
	}
	room := path.Dir(rel)
	if room == "." {
		room = ""
	}
	lines := strings.Split(strings.TrimSuffix(string(src), "\n"), "\n")
	t.Files = append(t.Files, &File{
		Path: rel, Room: room, Test: strings.HasSuffix(rel, "_test.go"),
		Lines: len(lines), Source: lines, AST: parsed,
	})
	return nil
}

// in reports whether f belongs to room or one of its sub-rooms.
func (f *File) in(room string) bool {
	return f.Room == room || strings.HasPrefix(f.Room, room+"/")
}

// at names the place of a node.
func (t *Tree) at(n ast.Node) string {
	p := t.Fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}
