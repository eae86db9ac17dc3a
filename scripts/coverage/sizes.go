package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	sizeDir  = "test/simulation/scenario"
	sizePage = "docs/testing.md"
	// The table stands between two lines of the page.
	sizeBegin = "<!-- sizes: written by make coverage -->\n"
	sizeEnd   = "<!-- end of sizes -->\n"
)

// scenarioSize is one call of the scenarios' function size.
type scenarioSize struct {
	scenario    int
	what        string
	full, short int
}

// collectSizes reads every call size("T-46", "sends", 10_000, 2_000) of the tests in dir. A call whose
// arguments are no literals is an error.
func collectSizes(dir string) ([]scenarioSize, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var all []scenarioSize
	for _, file := range files {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || err != nil {
				return err == nil
			}
			if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "size" {
				var s scenarioSize
				if s, err = readSize(call); err != nil {
					err = fmt.Errorf("%s: %w", set.Position(call.Pos()), err)
				}
				all = append(all, s)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b scenarioSize) int { return cmp.Compare(a.scenario, b.scenario) })
	return all, nil
}

func readSize(call *ast.CallExpr) (s scenarioSize, err error) {
	if len(call.Args) != 4 {
		return s, fmt.Errorf("size has four arguments")
	}
	var text [4]string
	for i, a := range call.Args {
		l, ok := a.(*ast.BasicLit)
		if !ok {
			return s, fmt.Errorf("argument %d of size is not a literal", i+1)
		}
		text[i] = l.Value
	}
	name, err := strconv.Unquote(text[0])
	number, isScenario := strings.CutPrefix(name, "T-")
	if err != nil || !isScenario {
		return s, fmt.Errorf("%s is not a scenario: write T-46", text[0])
	}
	if s.scenario, err = strconv.Atoi(number); err != nil {
		return s, fmt.Errorf("%s is not a scenario: write T-46", text[0])
	}
	if s.what, err = strconv.Unquote(text[1]); err != nil {
		return s, err
	}
	for i, to := range []*int{&s.full, &s.short} {
		n, err := strconv.ParseInt(text[2+i], 0, 0)
		if err != nil {
			return s, err
		}
		*to = int(n)
	}
	if s.short <= 0 || s.full < s.short {
		return s, fmt.Errorf("%s %s: %d in full and %d in short", name, s.what, s.full, s.short)
	}
	return s, nil
}

// checkSizes returns an error if a size belongs to no scenario of the specification.
func checkSizes(all []scenarioSize, stated map[int]bool) error {
	for _, s := range all {
		if !stated[s.scenario] {
			return fmt.Errorf("%s: there is no T-%d to have %d %s", sizeDir, s.scenario, s.full, s.what)
		}
	}
	return nil
}

// renderSizes returns the page with the table of sizes between its two lines.
func renderSizes(page []byte, all []scenarioSize) ([]byte, error) {
	head, rest, ok := bytes.Cut(page, []byte(sizeBegin))
	_, tail, ended := bytes.Cut(rest, []byte(sizeEnd))
	if !ok || !ended {
		return nil, fmt.Errorf("%s has no place for the sizes of scenarios", sizePage)
	}
	out := bytes.NewBuffer(bytes.Clone(head))
	out.WriteString(sizeBegin + "\n| scenario | what | full | with -short |\n| --- | --- | --- | --- |\n")
	for _, s := range all {
		fmt.Fprintf(out, "| T-%d | %s | %d | %d |\n", s.scenario, s.what, s.full, s.short)
	}
	out.WriteString("\n" + sizeEnd)
	out.Write(tail)
	return out.Bytes(), nil
}

// sizes writes the table of sizes, or compares it.
func sizes(stated map[int]bool, check bool) error {
	all, err := collectSizes(sizeDir)
	if err != nil {
		return err
	}
	if err := checkSizes(all, stated); err != nil {
		return err
	}
	old, err := os.ReadFile(sizePage)
	if err != nil {
		return err
	}
	page, err := renderSizes(old, all)
	if err != nil {
		return err
	}
	if bytes.Equal(old, page) {
		return nil
	}
	if check {
		return fmt.Errorf("the sizes in %s are stale: run make coverage", sizePage)
	}
	return os.WriteFile(sizePage, page, 0o644)
}
