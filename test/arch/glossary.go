package arch

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// retired are words of names that gave way to the field's own, which stand beside them (docs/GLOSSARY.md).
var retired = map[string]string{
	"mend": "repair", "mender": "repairer", "mending": "repair", "wedge": "stuck", "wedged": "stuck", "wedges": "stuck",
	"unwedge": "restart", "vouch": "verify", "vouched": "verified", "heir": "transfer target", "heirs": "transfer targets",
	"resign": "step down", "resigner": "step down", "resigned": "stepped down", "tidings": "freshness",
	"unheard": "unanswered", "homeless": "without a session", "grave": "dropped", "graves": "dropped", "bury": "reclaim",
	"buried": "reclaimed", "unborn": "not stored",
	"lane": "pump", "lanes": "pumps", "strand": "share pump", "strands": "share pumps", "taker": "receiver", "toucher": "activity",
}

// RetiredWords reports names in the code of a room that hold a retired word.
func RetiredWords(t *Tree) []string {
	var sins []string
	for _, f := range t.Files {
		if f.Test {
			continue
		}
		seen := map[string]bool{}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || seen[id.Name] {
				return true
			}
			seen[id.Name] = true
			for _, word := range wordsOf(id.Name) {
				if now, gone := retired[word]; gone {
					sins = append(sins, fmt.Sprintf("%s: %s says %q, the glossary says %q", t.Fset.Position(id.Pos()), id.Name, word, now))
				}
			}
			return true
		})
	}
	return sins
}

// wordsOf cuts a name into its words, in lower case.
func wordsOf(name string) []string {
	var words []string
	begin := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) || runes[i] == '_' {
			words = append(words, strings.ToLower(strings.Trim(string(runes[begin:i]), "_")))
			begin = i
		}
	}
	return words
}

// minGlossary is how many words the glossary explains at least.
const minGlossary = 70

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	inGo     = regexp.MustCompile(`^([a-z/]+)\.([A-Z]\w*)$`)
)

// Glossary reports rows of docs/GLOSSARY.md whose place in the code is not there, and words that it explains twice.
func Glossary(t *Tree, root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "GLOSSARY.md"))
	if err != nil {
		return nil, err
	}
	declared := exported(t)
	var sins, words []string
	for i, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[0], " word ") || strings.HasPrefix(cells[0], " ---") {
			continue
		}
		word := strings.TrimSpace(cells[0])
		if slices.Contains(words, word) {
			sins = append(sins, fmt.Sprintf("docs/GLOSSARY.md:%d: %q is explained twice", i+1, word))
		}
		words = append(words, word)
		for _, span := range codeSpan.FindAllStringSubmatch(cells[3], -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(span[1]))); err == nil {
				continue
			}
			if m := inGo.FindStringSubmatch(span[1]); m == nil || !declared[m[1]+"."+m[2]] {
				sins = append(sins, fmt.Sprintf("docs/GLOSSARY.md:%d: %s is neither a file nor a name", i+1, span[1]))
			}
		}
	}
	if len(words) < minGlossary {
		sins = append(sins, fmt.Sprintf("docs/GLOSSARY.md explains %d words, want %d", len(words), minGlossary))
	}
	return sins, nil
}

// exported returns the names that the packages of a tree declare, as "room.Name".
func exported(t *Tree) map[string]bool {
	names := map[string]bool{}
	for _, f := range t.Files {
		if f.Test {
			continue
		}
		for _, decl := range f.AST.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[f.Room+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						names[f.Room+"."+s.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range s.Names {
							names[f.Room+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}
