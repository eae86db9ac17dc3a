package arch

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// pile is a package of 33 files. In each one a function calls the one of the next file. The last files also use the
// first one, back of them. doc is the list of its doc.go.
func pile(doc string, back int) map[string]string {
	const files = MaxFlatFiles + 3
	all := map[string]string{}
	for i := range files {
		body := fmt.Sprintf("func f%02d() {\n", i)
		if i+1 < files {
			body += fmt.Sprintf("\tf%02d()\n", i+1)
		}
		if i >= files-back {
			body += "\t_ = f00\n"
		}
		all[fmt.Sprintf("cluster/f%02d.go", i)] = "package cluster\n\n" + body + "}\n"
	}
	all["cluster/doc.go"] = "// Package cluster is a pile.\n" + doc + "package cluster\n"
	return all
}

// listOf lists the files from first to last in groups of eleven.
func listOf(first, last int) string {
	var b strings.Builder
	b.WriteString("//\n// # Where things are\n//\n// From the top down:\n//\n")
	for i := first; i <= last; i++ {
		if (i-first)%11 == 0 {
			fmt.Fprintf(&b, "//   - group %d:", i)
		}
		fmt.Fprintf(&b, " f%02d.go", i)
		if (i-first)%11 == 10 || i == last {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// asTests makes a pile a package that has nothing but tests, below test.
func asTests(files map[string]string) map[string]string {
	all := map[string]string{}
	for name, text := range files {
		name = strings.Replace(name, "cluster/", "test/suites/", 1)
		if strings.HasSuffix(name, "/doc.go") {
			text = strings.ReplaceAll(text, ".go", "_test.go")
		} else {
			name = strings.Replace(name, ".go", "_test.go", 1)
		}
		all[name] = text
	}
	return all
}

func TestOrder(t *testing.T) {
	const last = MaxFlatFiles + 2
	small := pile("", 0)
	for i := MaxFlatFiles; i <= last; i++ {
		delete(small, fmt.Sprintf("cluster/f%02d.go", i))
	}
	small[fmt.Sprintf("cluster/f%02d.go", MaxFlatFiles-1)] = "package cluster\n\nfunc f29() {}\n"
	claimed := maps.Clone(small)
	claimed["cluster/doc.go"] = pile(listOf(0, MaxFlatFiles-2), 0)["cluster/doc.go"]
	twice := strings.Replace(listOf(0, last), "f01.go", "f01.go f00.go", 1)
	gone := strings.Replace(listOf(0, last), "f01.go", "f01.go gone.go", 1)
	large := strings.Replace(listOf(0, last), "\n//   - group 11:", "", 1)
	judge(t, []sin{
		{"thirty files need no list", small, ""},
		{"a list that claims an order is held", claimed, "cluster/f29.go: doc.go does not list it"},
		{"more files and no list", pile("", 0), "cluster: 33 files, and doc.go has no list of them"},
		{"files from the top down", pile(listOf(0, last), 0), ""},
		{"a few arrows up", pile(listOf(0, last), 5), ""},
		{"many tests beside code", func() map[string]string {
			files := asTests(pile("", 0))
			files["test/suites/x.go"] = "package cluster\n"
			return files
		}(), ""},
		{"a package of many tests and no list", asTests(pile("", 0)), "test/suites: 33 files, and doc.go has no list of them"},
		{"tests from the top down", asTests(pile(listOf(0, last), 5)), ""},
		{"tests with too many arrows up", asTests(pile(listOf(0, last), 6)), "test/suites: 6 of 38 arrows between its files"},
		{"too many arrows up", pile(listOf(0, last), 6), "cluster: 6 of 38 arrows between its files point up"},
		{"a file that is not listed", pile(listOf(0, last-1), 0), "cluster/f32.go: doc.go does not list it"},
		{"a file that is listed twice", pile(twice, 0), "doc.go lists f00.go twice"},
		{"a file that is not there", pile(gone, 0), "doc.go lists gone.go, which is not there"},
		{"a large group", pile(large, 0), "a group of doc.go has 22 files, at most 14"},
	}, func(root string) ([]string, error) { return Order(load(t, root)) })
}
