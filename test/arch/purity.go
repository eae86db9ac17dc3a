package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// pureImports is what the pure part may use: values, text, ordered collections. No clock, no chance
// but a seeded generator, no files, no goroutines.
var pureImports = []string{
	"errors", "fmt", "io", "bytes", "strings", "sort", "slices", "maps", "math", "math/big", "math/bits",
	"crypto/sha256",
	"math/rand/v2", "cmp", "strconv", "iter", "unicode", "encoding", "hash", "bufio",
	"github.com/tidwall/btree",
}

// pureRooms are the state machine and the model, which must come to the same answers from the same entries. The
// checkers are not among them: they stamp what clients did with the clock, and search with goroutines.
var pureRooms = []string{"fsm", "test/model"}

// modelImports is what the model may use besides: it compares its state with that of fsm field by field.
var modelImports = []string{"reflect"}

// pureChance is all that math/rand/v2 may be used for: a generator that starts from a given seed.
var pureChance = []string{"NewChaCha8", "ChaCha8"}

// Pure reports what would make two replicas differ: forbidden imports, goroutines, ambient chance,
// and map iteration that no comment justifies. Test files are free.
func Pure(t *Tree) ([]string, error) {
	var sins []string
	rooms := map[string][]*File{}
	for _, f := range t.Files {
		if f.Test || !within(f, pureRooms) {
			continue
		}
		rooms[f.Room] = append(rooms[f.Room], f)
		sins = append(sins, impureSyntax(t, f)...)
	}
	ranges, err := mapRanges(t, rooms)
	return append(sins, ranges...), err
}

func impureSyntax(t *Tree, f *File) []string {
	var sins []string
	for _, spec := range f.AST.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err == nil && !pureImport(name) && !(f.in("test/model") && slices.Contains(modelImports, name)) {
			sins = append(sins, fmt.Sprintf("%s: the pure part may not import %s", t.at(spec), name))
		}
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			sins = append(sins, fmt.Sprintf("%s: the pure part starts no goroutine", t.at(n)))
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ok && x.Name == "rand" && !slices.Contains(pureChance, n.Sel.Name) {
				sins = append(sins, fmt.Sprintf("%s: rand.%s is not a function of the entry",
					t.at(n), n.Sel.Name))
			}
		}
		return true
	})
	return sins
}

func pureImport(name string) bool {
	return slices.ContainsFunc(pureImports, func(p string) bool {
		return name == p || (p == "encoding" || p == "hash" || p == "unicode") &&
			strings.HasPrefix(name, p+"/")
	}) || strings.HasPrefix(name, Module+"/fsm")
}

// mapRanges type-checks the pure rooms, because only the type tells a map from a slice.
func mapRanges(t *Tree, rooms map[string][]*File) ([]string, error) {
	w, err := newWorld(t, rooms)
	if err != nil {
		return nil, err
	}
	var sins []string
	names := make([]string, 0, len(rooms))
	for r := range rooms {
		names = append(names, r)
	}
	sort.Strings(names)
	for _, r := range names {
		if _, err := w.Import(Module + "/" + r); err != nil {
			return nil, err
		}
		for _, f := range rooms[r] {
			sins = append(sins, unorderedIn(t, f, w.info)...)
		}
	}
	return sins, nil
}

func unorderedIn(t *Tree, f *File, info *types.Info) []string {
	var sins []string
	ast.Inspect(f.AST, func(n ast.Node) bool {
		r, ok := n.(*ast.RangeStmt)
		if !ok || !unordered(r.X, info) || justified(f, t.Fset.Position(r.Pos()).Line) {
			return true
		}
		sins = append(sins, fmt.Sprintf("%s: map order reaches the state: say how order is restored "+
			"(// ordered: …) or why it does not matter (// order-free: …)", t.at(r)))
		return true
	})
	return sins
}

// unordered reports whether ranging over x follows the order of a map: the map itself, or an
// iterator of package maps.
func unordered(x ast.Expr, info *types.Info) bool {
	if call, ok := x.(*ast.CallExpr); ok {
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "maps" {
				return true
			}
		}
	}
	tv, ok := info.Types[x]
	if !ok || tv.Type == nil {
		return false
	}
	_, isMap := tv.Type.Underlying().(*types.Map)
	return isMap
}

// justified looks for the reason on the line of the loop or the line above.
func justified(f *File, line int) bool { return marked(f, line, "ordered:", "order-free:") }

// world resolves imports: our rooms from the tree, the rest from compiled export data.
type world struct {
	t     *Tree
	rooms map[string][]*File
	done  map[string]*types.Package
	info  *types.Info
	std   types.Importer
}

func newWorld(t *Tree, rooms map[string][]*File) (*world, error) {
	var foreign []string
	for _, files := range rooms { // the order of foreign does not matter
		for _, f := range files {
			for _, spec := range f.AST.Imports {
				name, err := strconv.Unquote(spec.Path.Value)
				if err == nil && !strings.HasPrefix(name, Module) {
					foreign = append(foreign, name)
				}
			}
		}
	}
	slices.Sort(foreign)
	exports, err := exportData(t.Root, slices.Compact(foreign))
	if err != nil {
		return nil, err
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	return &world{
		t: t, rooms: rooms, done: map[string]*types.Package{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}},
		std:  importer.ForCompiler(t.Fset, "gc", lookup),
	}, nil
}

// Import type-checks a room of ours once, or loads another package.
func (w *world) Import(path string) (*types.Package, error) {
	room, ours := strings.CutPrefix(path, Module+"/")
	if !ours {
		return w.std.Import(path)
	}
	if p := w.done[room]; p != nil {
		return p, nil
	}
	files := make([]*ast.File, 0, len(w.rooms[room]))
	for _, f := range w.rooms[room] {
		files = append(files, f.AST)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("the pure part imports %s, which is not pure or not there", path)
	}
	conf := types.Config{Importer: w}
	p, err := conf.Check(path, w.t.Fset, files, w.info)
	if err != nil {
		return nil, fmt.Errorf("type-check %s: %w", room, err)
	}
	w.done[room] = p
	return p, nil
}

// exportData asks the go command where the compiled form of each package lies.
func exportData(root string, paths []string) (map[string]string, error) {
	found := map[string]string{}
	if len(paths) == 0 {
		return found, nil
	}
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, paths...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w: %s", err, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		path, file, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if ok && file != "" {
			found[path] = file
		}
	}
	return found, nil
}
