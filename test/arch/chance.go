package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// seeded are packages whose runs are repeated from a printed seed. The tests of conformance are not among them: they
// draw ports, names and pauses, and run against real processes that no seed repeats.
var seeded = []string{"test/model", "test/check", "test/simulation", "test/chaos"}

// seedless are the names of math/rand/v2 that draw nothing by themselves: a generator from a seed, and its type.
var seedless = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}

// Chance reports draws in seeded packages that no seed repeats. "// by chance: …" on the line or the one above says why
// one may be; the seed itself is drawn so.
func Chance(t *Tree) []string {
	var sins []string
	for _, f := range t.Files {
		if !within(f, seeded) || !importsAny(f, "math/rand", "math/rand/v2") {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok || pkg.Name != "rand" || slices.Contains(seedless, sel.Sel.Name) ||
				marked(f, t.Fset.Position(n.Pos()).Line, "by chance:") {
				return true
			}
			sins = append(sins, fmt.Sprintf("%s: rand.%s: no seed repeats it: draw from the generator of the run, or say why "+
				"it may differ (// by chance: …)", t.at(n), sel.Sel.Name))
			return true
		})
	}
	return sins
}

func importsAny(f *File, paths ...string) bool {
	return slices.ContainsFunc(f.AST.Imports, func(spec *ast.ImportSpec) bool {
		name, err := strconv.Unquote(spec.Path.Value)
		return err == nil && slices.Contains(paths, name)
	})
}

// virtual are packages whose tests run in bubbles although they do not import testing/synctest: package simulation
// makes the bubble.
var virtual = []string{"test/simulation"}

// Clocks reports tests that fail because something took long by the clock of the machine: a busy machine is no defect.
// Packages with bubbles of virtual time are free, for a helper does not show whether it runs in one. So is a loop that
// waits for a process until a deadline. "// by the clock: …" says why a bound may be.
func Clocks(t *Tree) []string {
	bubbles := map[string]bool{}
	for _, f := range t.Files {
		if importsAny(f, "testing/synctest") {
			bubbles[f.Room] = true
		}
	}
	var sins []string
	for _, f := range t.Files {
		if !f.Test || bubbles[f.Room] || within(f, virtual) {
			continue
		}
		for _, decl := range f.AST.Decls {
			spans := timeSpans(decl)
			ast.Inspect(decl, func(n ast.Node) bool {
				cond, ok := n.(*ast.IfStmt)
				if ok && fails(cond.Body) && comparesSpan(cond.Cond, spans) && !marked(f, t.Fset.Position(n.Pos()).Line, "by the clock:") {
					sins = append(sins, fmt.Sprintf("%s: a bound on the machine's clock: assert it in virtual time "+
						"(testing/synctest), or say why it holds on a busy machine (// by the clock: …)", t.at(n)))
				}
				return true
			})
		}
	}
	return sins
}

// timeSpans are the variables of a declaration that were set by time.Since.
func timeSpans(decl ast.Node) map[string]bool {
	spans := map[string]bool{}
	ast.Inspect(decl, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != len(assign.Rhs) {
			return true
		}
		for i, right := range assign.Rhs {
			if left, ok := assign.Lhs[i].(*ast.Ident); ok && isSince(right) {
				spans[left.Name] = true
			}
		}
		return true
	})
	return spans
}

func isSince(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Since" {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "time"
}

// comparesSpan reports whether a condition compares a span of time, alone or beside other conditions.
func comparesSpan(cond ast.Expr, spans map[string]bool) (yes bool) {
	ast.Inspect(cond, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if !ok || !strings.Contains("< > <= >= == !=", b.Op.String()) {
			return !yes
		}
		for _, x := range []ast.Expr{b.X, b.Y} {
			id, named := x.(*ast.Ident)
			yes = yes || isSince(x) || named && spans[id.Name]
		}
		return !yes
	})
	return yes
}

// fails reports whether a body has a statement that fails the test.
func fails(body *ast.BlockStmt) bool {
	return slices.ContainsFunc(body.List, func(s ast.Stmt) bool {
		expr, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := expr.X.(*ast.CallExpr)
		return ok && slices.Contains([]string{"Fatal", "Fatalf", "Error", "Errorf"}, calledName(call))
	})
}
