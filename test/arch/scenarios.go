package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// scenarioDir is where the acceptance scenarios are.
const scenarioDir = "test/simulation/scenario"

// examiners are the functions that look at the code of an error.
var examiners = []string{"refused", "refusedAs", "unanswered", "unauthorized", "conditionOf", "Is", "As"}

// Scenarios reports expected failures of which a scenario sees only that there was an error: a
// time-out would pass for a refusal. Two patterns are such:
//
//	if err == nil { b.Fatal("taken") }    without b.refused("…", err, condition) behind it
//	want(b, "send", err == nil, allowed)  without one in the same function
func Scenarios(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(scenarioDir), "*_test.go"))
	if err != nil {
		return nil, err
	}
	var sins []string
	for _, file := range files {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			return nil, err
		}
		report := func(at token.Pos) {
			sins = append(sins, fmt.Sprintf("%s/%s:%d: any error passes here: look at its code with refused, "+
				"refusedAs or errors.Is", scenarioDir, filepath.Base(file), set.Position(at).Line))
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				anyError(fn.Body, report)
			}
		}
	}
	return sins, nil
}

// anyError reports both patterns in a function.
func anyError(body *ast.BlockStmt, report func(token.Pos)) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			anyErrorIn(n.List, report)
		case *ast.CaseClause:
			anyErrorIn(n.Body, report)
		case *ast.CallExpr:
			if calledName(n) != "want" {
				break
			}
			for _, a := range n.Args {
				if e, ok := errorIsNil(a, token.EQL, token.NEQ); ok && !examined(body, e) {
					report(n.Pos())
				}
			}
		}
		return true
	})
}

// anyErrorIn reports the conditions of a list of statements that do nothing but fail if there is no error. A
// statement behind such a condition may make up for it.
func anyErrorIn(list []ast.Stmt, report func(token.Pos)) {
	for i, s := range list {
		cond, ok := s.(*ast.IfStmt)
		if !ok || cond.Else != nil || !onlyFails(cond.Body) {
			continue
		}
		e, ok := errorIsNil(cond.Cond, token.EQL)
		if !ok || slices.ContainsFunc(list[i+1:], func(s ast.Stmt) bool { return examined(s, e) }) {
			continue
		}
		report(cond.Pos())
	}
}

// errorIsNil finds a comparison of an error with nil, also as a part of a condition, and returns the error. By their
// names, err and names that begin or end with it are errors. So is the value of a function whose name begins with
// try.
func errorIsNil(cond ast.Expr, ops ...token.Token) (e ast.Expr, ok bool) {
	b, isBinary := cond.(*ast.BinaryExpr)
	if !isBinary {
		return nil, false
	}
	if b.Op == token.LOR || b.Op == token.LAND {
		if e, ok := errorIsNil(b.X, ops...); ok {
			return e, true
		}
		return errorIsNil(b.Y, ops...)
	}
	if id, isName := b.Y.(*ast.Ident); !isName || id.Name != "nil" || !slices.Contains(ops, b.Op) {
		return nil, false
	}
	switch x := b.X.(type) {
	case *ast.Ident:
		name := strings.ToLower(x.Name)
		return x, strings.HasPrefix(name, "err") || strings.HasSuffix(name, "err")
	case *ast.CallExpr:
		return x, strings.HasPrefix(strings.ToLower(calledName(x)), "try")
	}
	return nil, false
}

// onlyFails tells a body that ends the test or marks it as failed, and does nothing else.
func onlyFails(body *ast.BlockStmt) bool {
	if len(body.List) != 1 {
		return false
	}
	s, ok := body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	return ok && slices.Contains([]string{"Fatal", "Fatalf", "Error", "Errorf"}, calledName(call))
}

// examined reports whether an examiner gets the error, which must have a name for that.
func examined(in ast.Node, e ast.Expr) (yes bool) {
	name, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	ast.Inspect(in, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !slices.Contains(examiners, calledName(call)) {
			return !yes
		}
		for _, a := range call.Args {
			if id, ok := a.(*ast.Ident); ok && id.Name == name.Name {
				yes = true
			}
		}
		return !yes
	})
	return yes
}

// calledName is the last name of what is called.
func calledName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
