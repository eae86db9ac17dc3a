package arch

import (
	"bufio"
	"fmt"
	"go/ast"
	"os"
	"sort"
	"strconv"
	"strings"
)

// The sizes that a tired person can hold in the head. A test may be longer by a table.
const (
	MaxFileLines     = 500
	MaxTestFileLines = 600
	MaxFunctionLines = 70
)

// Ratchet lists the functions that are longer than MaxFunctionLines and how long they may be. It
// only ever turns one way: a function that shrank must have its number lowered.
type Ratchet map[string]int

// ReadRatchet reads lines of "path function lines"; # starts a comment.
func ReadRatchet(file string) (Ratchet, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := Ratchet{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: want path, function and lines: %q", file, lines.Text())
		}
		n, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		r[fields[0]+" "+fields[1]] = n
	}
	return r, lines.Err()
}

// Sizes reports files and functions that are too long. Tests may have long tables, so the rule for
// functions does not look at them.
func Sizes(t *Tree, ratchet Ratchet) []string {
	var sins []string
	met := map[string]bool{}
	for _, f := range t.Files {
		limit := MaxFileLines
		if f.Test {
			limit = MaxTestFileLines
		}
		if f.Lines > limit {
			sins = append(sins, fmt.Sprintf("%s: %d lines, at most %d: one concept per file",
				f.Path, f.Lines, limit))
		}
		if f.Test {
			continue
		}
		for _, decl := range f.AST.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			key, lines := f.Path+" "+funcName(fn), linesOf(t, fn)
			if table := tableOf(f, fn); table != nil {
				lines = longestOf(t, table)
			}
			if sin := tooLong(key, lines, ratchet, met); sin != "" {
				sins = append(sins, sin)
			}
		}
	}
	for key := range ratchet {
		if !met[key] {
			sins = append(sins, fmt.Sprintf("%s: no longer too long: take it off the ratchet", key))
		}
	}
	sort.Strings(sins)
	return sins
}

func tooLong(key string, lines int, ratchet Ratchet, met map[string]bool) string {
	limit, listed := ratchet[key]
	switch {
	case lines <= MaxFunctionLines:
		return ""
	case !listed:
		return fmt.Sprintf("%s: %d lines, at most %d", key, lines, MaxFunctionLines)
	}
	met[key] = true
	switch {
	case lines > limit:
		return fmt.Sprintf("%s: grew to %d lines, the ratchet stands at %d", key, lines, limit)
	case lines < limit:
		return fmt.Sprintf("%s: shrank to %d lines: lower the ratchet from %d", key, lines, limit)
	}
	return ""
}

func linesOf(t *Tree, n ast.Node) int {
	return t.Fset.Position(n.End()).Line - t.Fset.Position(n.Pos()).Line + 1
}

// tableOf returns the table that a function below test consists of, nil if it is no such function. Its body is one
// statement, which returns a literal. Such a table of scenarios is as long as a test's own. A reader holds one function of it
// in the head at a time, so each of them is measured.
func tableOf(f *File, fn *ast.FuncDecl) ast.Expr {
	if !f.in("test") || fn.Body == nil || len(fn.Body.List) != 1 {
		return nil
	}
	ret, ok := fn.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 {
		return nil
	}
	if table, ok := ret.Results[0].(*ast.CompositeLit); ok {
		return table
	}
	return nil
}

// longestOf is the length of the longest function in a table.
func longestOf(t *Tree, table ast.Expr) (lines int) {
	ast.Inspect(table, func(n ast.Node) bool {
		if fn, ok := n.(*ast.FuncLit); ok {
			lines = max(lines, linesOf(t, fn))
		}
		return true
	})
	return lines
}

// funcName is Name or Type.Name.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	x := fn.Recv.List[0].Type
	for {
		switch v := x.(type) {
		case *ast.StarExpr:
			x = v.X
		case *ast.IndexExpr:
			x = v.X
		case *ast.IndexListExpr:
			x = v.X
		case *ast.Ident:
			return v.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}
