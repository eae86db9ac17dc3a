package arch

import (
	"fmt"
	"path"
	"sort"
	"strings"
)

// Docs reports packages without exactly one package comment in doc.go, and comments that are the
// licence or do not begin as Go expects. A package of tests alone needs its comment, too.
func Docs(t *Tree) []string {
	has, code := map[string]string{}, map[string]bool{}
	var sins []string
	for _, f := range t.Files {
		code[f.Room] = true
		if f.Test || f.AST.Doc == nil {
			continue
		}
		text := f.AST.Doc.Text()
		switch first, _, _ := strings.Cut(text, "\n"); {
		case has[f.Room] != "":
			sins = append(sins, fmt.Sprintf("%s: second package comment, the first is in %s",
				f.Path, has[f.Room]))
		case path.Base(f.Path) != "doc.go" && !single(t, f.Room):
			sins = append(sins, fmt.Sprintf("%s: the package comment belongs in doc.go", f.Path))
		case strings.Contains(text, "Licensed under") || strings.Contains(text, "Copyright"):
			sins = append(sins, fmt.Sprintf("%s: the package comment is a licence", f.Path))
		case !strings.HasPrefix(first, "Package ") && !strings.HasPrefix(first, "Command "):
			sins = append(sins, fmt.Sprintf("%s: the comment begins %q, not with Package or Command",
				f.Path, first))
		}
		has[f.Room] = f.Path
	}
	for room := range code {
		if has[room] == "" {
			sins = append(sins, fmt.Sprintf("%s: no package comment: write doc.go", room))
		}
	}
	sort.Strings(sins)
	return sins
}

// single reports whether a script or an example consists of one file, which then is its own doc.go.
func single(t *Tree, room string) bool {
	n := 0
	for _, f := range t.Files {
		if f.Room == room && !f.Test {
			n++
		}
	}
	return n == 1 && (strings.HasPrefix(room, "scripts/") || strings.HasPrefix(room, examples))
}
