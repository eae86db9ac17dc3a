package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// textSearches are functions of package strings that tell one text from another.
var textSearches = map[string]bool{
	"Contains": true, "ContainsAny": true, "HasPrefix": true, "HasSuffix": true, "Index": true, "LastIndex": true,
	"EqualFold": true, "Cut": true, "CutPrefix": true, "CutSuffix": true, "Compare": true, "Count": true,
}

// ErrorTexts reports code that finds the kind of an error by its text. The text is for people; a kind has a type, a
// sentinel or a code. Where a library gives nothing else, "// by text: …" on the line or the one above says so. Test
// files are free.
func ErrorTexts(t *Tree) []string {
	var sins []string
	for _, f := range t.Files {
		if f.Test {
			continue
		}
		for _, decl := range f.AST.Decls {
			texts := errorTexts(decl)
			ast.Inspect(decl, func(n ast.Node) bool {
				if n == nil || !looksAtText(n, texts) || marked(f, t.Fset.Position(n.Pos()).Line, "by text:") {
					return true
				}
				sins = append(sins, fmt.Sprintf("%s: the kind of an error is found by its text: give it a type, a "+
					"sentinel or a code, or say why there is none (// by text: …)", t.at(n)))
				return false
			})
		}
	}
	return sins
}

// errorTexts are the variables of a declaration that hold the text of an error.
func errorTexts(decl ast.Node) map[string]bool {
	texts := map[string]bool{}
	ast.Inspect(decl, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != len(assign.Rhs) {
			return true
		}
		for i, right := range assign.Rhs {
			if left, ok := assign.Lhs[i].(*ast.Ident); ok && errorText(right, texts) {
				texts[left.Name] = true
			}
		}
		return true
	})
	return texts
}

// errorText reports whether an expression is the text of an error: err.Error(), the description of an AMQP error, or
// something made of them.
func errorText(x ast.Expr, texts map[string]bool) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return texts[x.Name]
	case *ast.ParenExpr:
		return errorText(x.X, texts)
	case *ast.SelectorExpr:
		return x.Sel.Name == "Description"
	case *ast.CallExpr:
		sel, ok := x.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if sel.Sel.Name == "Error" && len(x.Args) == 0 {
			return true
		}
		pkg, ok := sel.X.(*ast.Ident)
		return ok && pkg.Name == "strings" && !textSearches[sel.Sel.Name] && len(x.Args) > 0 && errorText(x.Args[0], texts)
	}
	return false
}

// looksAtText reports whether a node compares the text of an error, or searches in it. To be empty is no kind.
func looksAtText(n ast.Node, texts map[string]bool) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) == 0 || !textSearches[sel.Sel.Name] {
			return false
		}
		pkg, ok := sel.X.(*ast.Ident)
		return ok && pkg.Name == "strings" && errorText(n.Args[0], texts)
	case *ast.BinaryExpr:
		if n.Op != token.EQL && n.Op != token.NEQ || empty(n.X) || empty(n.Y) {
			return false
		}
		return errorText(n.X, texts) || errorText(n.Y, texts)
	case *ast.SwitchStmt:
		return n.Tag != nil && errorText(n.Tag, texts)
	}
	return false
}

// empty reports whether an expression is the empty text, or the nil of an error. A future of raft has a method Error that
// returns one.
func empty(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.BasicLit:
		return x.Kind == token.STRING && len(x.Value) == 2
	case *ast.Ident:
		return x.Name == "nil"
	}
	return false
}

// marked reports whether a comment with that mark stands on a line or on the line above.
func marked(f *File, line int, marks ...string) bool {
	for _, i := range []int{line - 1, line - 2} {
		if i < 0 || i >= len(f.Source) {
			continue
		}
		_, comment, ok := strings.Cut(f.Source[i], "//")
		for _, mark := range marks {
			if ok && strings.Contains(comment, mark) {
				return true
			}
		}
	}
	return false
}
