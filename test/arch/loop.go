package arch

import (
	"fmt"
	"go/ast"
	"slices"
)

// looped are the types of transport that the loop of a connection owns.
var looped = []string{"channel", "link", "ingress", "egress", "browser", "settler", "heldSession", "requests", "replies",
	"coordinator", "txn"}

// Looped reports methods of these types that do not begin with the assertion that they run on the loop.
func Looped(t *Tree) []string {
	var sins []string
	for _, f := range t.Files {
		if f.Room != "transport" || f.Test {
			continue
		}
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || !slices.Contains(looped, receiver(fn)) || asserts(fn) {
				continue
			}
			sins = append(sins, fmt.Sprintf("%s: %s does not begin with onLoop()", t.at(fn), funcName(fn)))
		}
	}
	return sins
}

// receiver is the name of the type that a method is of.
func receiver(fn *ast.FuncDecl) string {
	x := fn.Recv.List[0].Type
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	if id, ok := x.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// asserts reports whether the first statement of a function is a call of onLoop.
func asserts(fn *ast.FuncDecl) bool {
	if len(fn.Body.List) == 0 {
		return false
	}
	stmt, ok := fn.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := stmt.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "onLoop"
}
