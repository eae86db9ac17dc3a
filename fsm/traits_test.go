package fsm

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// commandTypes are the names of the types of this package that have a method Traits.
func commandTypes(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			method, ok := d.(*ast.FuncDecl)
			if !ok || method.Recv == nil || method.Name.Name != "Traits" {
				continue
			}
			if star, ok := method.Recv.List[0].Type.(*ast.StarExpr); ok {
				names = append(names, star.X.(*ast.Ident).Name)
			}
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %v are commands", names)
	}
	return names
}

// sources are the texts of the files that a pattern names, but for one.
func sources(t *testing.T, pattern, but string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || files == nil {
		t.Fatalf("%s: %v %v", pattern, files, err)
	}
	var all strings.Builder
	for _, name := range files {
		if name == but {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// A command that was added and left out somewhere is found here: each has an encoding that is kept, a test of the state
// machine that makes one, by a word of a script or in Go, and a case in the independent model.
func TestEachCommandIsComplete(t *testing.T) {
	elsewhere := map[string]string{
		"Change": "the catalog's tests make and check catalog changes",
	}
	golden := map[string]bool{}
	for _, c := range goldenCommands() {
		golden[reflect.TypeOf(c).Elem().Name()] = true
	}
	tests, model := sources(t, "*_test.go", "codec_test.go"), sources(t, "../test/model/*.go", "")
	for _, name := range commandTypes(t) {
		if !golden[name] {
			t.Errorf("%s: goldenCommands has none, so nothing keeps its encoding", name)
		}
		if elsewhere[name] != "" {
			continue
		}
		if !strings.Contains(tests, name+"{") {
			t.Errorf("%s: no test of the state machine makes one", name)
		}
		if !strings.Contains(model, "fsm."+name) {
			t.Errorf("%s: the model does not know it", name)
		}
	}
}

// A Waiter waits for as long as it says, and its copy waits for another time and is alike otherwise.
func TestCommandsThatWait(t *testing.T) {
	for name, c := range goldenCommands() {
		w, can := c.(Waiter)
		if c.Traits().Has(Waits) && !can {
			t.Errorf("%s waits and is no Waiter", name)
		}
		if !c.Traits().Has(Waits) {
			if WaitOf(c) != 0 || WithWait(c, 5) != c {
				t.Errorf("%s does not wait, and WaitOf says %d ms", name, WaitOf(c))
			}
			continue
		}
		other := WithWait(c, 5)
		if WaitOf(other) != 5 || reflect.TypeOf(other) != reflect.TypeOf(c) {
			t.Errorf("%s: the copy is %#v", name, other)
		}
		if back := WithWait(other, WaitOf(w)); back == c || !reflect.DeepEqual(back, c) {
			t.Errorf("%s: %#v came back as %#v", name, c, back)
		}
	}
}
