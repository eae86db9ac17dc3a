package fsm

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
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

func sourceFiles(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || files == nil {
		t.Fatalf("%s: %v %v", pattern, files, err)
	}
	return files
}

// sources are the texts of the files that a pattern names, but for one.
func sources(t *testing.T, pattern, but string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range sourceFiles(t, pattern) {
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

// A command that was added and left out somewhere is found here. Each command has an encoding that is kept and told in
// docs/formats/entry.md, is done by a partition or by the catalog, has a script or a test in Go, and has a case in the
// independent model, which meets it by chance.
func TestEachCommandIsComplete(t *testing.T) {
	elsewhere := map[string]string{
		"Change": "the catalog's tests make and check catalog changes",
	}
	golden := map[string][]Command{}
	for _, c := range goldenCommands() {
		name := reflect.TypeOf(c).Elem().Name()
		golden[name] = append(golden[name], c)
	}
	format, scripts := sources(t, "../docs/formats/entry.md", ""), sources(t, "testdata/*.txt", "")
	tests, chance := sources(t, "*_test.go", "codec_golden_test.go"), sources(t, "../test/model/*_test.go", "")
	model := ""
	for _, c := range sourceFiles(t, "../test/model/*.go") {
		if !strings.HasSuffix(c, "_test.go") {
			model += sources(t, c, "")
		}
	}
	has := func(text, pattern string) bool { return regexp.MustCompile(pattern).MatchString(text) }
	for _, name := range commandTypes(t) {
		if golden[name] == nil {
			t.Errorf("%s: goldenCommands has none, so nothing keeps its encoding", name)
		}
		for _, c := range golden[name] {
			if kind := appendCommand(nil, c)[0]; !strings.Contains(format, fmt.Sprintf("\n| %d | ", kind)) {
				t.Errorf("%s: docs/formats/entry.md does not tell the fields of kind %d", name, kind)
			}
		}
		if elsewhere[name] != "" {
			continue
		}
		for _, c := range golden[name] {
			if o := afterQueue(c); strings.Contains(o.Detail, "not a command of a data partition") {
				t.Errorf("%s: State.Apply does not do it", name)
			}
		}
		if !has(tests, `\b`+name+`\{`) && !has(scripts, `(?m)^`+strings.ToLower(name)+`\b`) {
			t.Errorf("%s: no script and no test of the state machine makes one", name)
		}
		if !has(model, `\bfsm\.`+name+`\b`) {
			t.Errorf("%s: the model does not know it", name)
		}
		if !has(chance, `\bfsm\.`+name+`\{`) {
			t.Errorf("%s: the tests of the model never make one", name)
		}
	}
}

// afterQueue applies a command to a partition that has a queue.
func afterQueue(c Command) Outcome {
	s := New(1)
	s.Apply(1, &Entry{Wall: startWall, Requests: []Request{{Command: &BecomeLeader{Node: "n"}}}})
	put := queue(1, func(d *Descriptor) { d.Version = 1 })
	s.Apply(2, &Entry{Wall: startWall, Epoch: 1, Requests: []Request{{Command: put}}})
	return s.Apply(3, &Entry{Wall: startWall, Epoch: 1, Requests: []Request{{Entity: 1, Command: c}}}).Outcomes[0]
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
