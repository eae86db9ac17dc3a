package arch

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesAreCutIntoWords(t *testing.T) {
	for name, want := range map[string][]string{
		"mender": {"mender"}, "lastWedge": {"last", "wedge"}, "HTTPMend": {"httpmend"}, "mend_it": {"mend", "it"},
		"amendment": {"amendment"}, "aB": {"a", "b"},
	} {
		if got := wordsOf(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestRetiredWords(t *testing.T) {
	judge(t, []sin{
		{"other words are innocent", map[string]string{"fsm/x.go": "package fsm\n\ntype amendment int // a wedge\n"}, ""},
		{"a type", map[string]string{"fsm/x.go": "package fsm\n\ntype mender int\n"}, `mender says "mender", the glossary says "repairer"`},
		{"a part of a name", map[string]string{"fsm/x.go": "package fsm\n\nfunc isWedged() {}\n"}, `isWedged says "wedged"`},
		{"a local name", map[string]string{"fsm/x.go": "package fsm\n\nfunc f() { heir := 1; _ = heir }\n"}, "heir says"},
	}, func(root string) ([]string, error) { return RetiredWords(load(t, root)), nil })
}

func TestGlossary(t *testing.T) {
	row := func(word, place string) string { return "| " + word + " | a meaning | | " + place + " |\n" }
	many := "| word | means | other | place |\n| --- | --- | --- | --- |\n"
	for i := range minGlossary {
		many += row(strings.Repeat("w", i+1), "")
	}
	judge(t, []sin{
		{"places that are there", map[string]string{"docs/GLOSSARY.md": many + row("a", "`fsm`") + row("b", "`fsm/doc.go`") +
			row("c", "`fsm.There`"), "fsm/x.go": "package fsm\n\ntype There int\n"}, ""},
		{"a file that is gone", map[string]string{"docs/GLOSSARY.md": many + row("a", "`fsm/gone.go`")}, "fsm/gone.go is neither"},
		{"a name that is gone", map[string]string{"docs/GLOSSARY.md": many + row("a", "`fsm.Gone`")}, "fsm.Gone is neither"},
		{"a word twice", map[string]string{"docs/GLOSSARY.md": many + row("w", "")}, `"w" is explained twice`},
		{"too few words", map[string]string{"docs/GLOSSARY.md": row("w", "")}, "explains 1 words"},
	}, func(root string) ([]string, error) { return Glossary(load(t, root), root) })
}
