package arch

import (
	"path/filepath"
	"testing"
)

// TestHouse judges the repository itself.
func TestHouse(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Files) < 20 {
		t.Fatalf("only %d Go files found below %s: the walls would hold by looking away",
			len(tree.Files), root)
	}
	ratchet, err := ReadRatchet("ratchet.txt")
	if err != nil {
		t.Fatal(err)
	}
	rules := []struct {
		name string
		run  func() ([]string, error)
	}{
		{"rooms import only through their doors", func() ([]string, error) { return Doors(tree), nil }},
		{"fsm is pure", func() ([]string, error) { return Pure(tree) }},
		{"every package has one comment in doc.go", func() ([]string, error) { return Docs(tree), nil }},
		{"files and functions stay small", func() ([]string, error) { return Sizes(tree, ratchet), nil }},
		{"the top level is the design's", func() ([]string, error) { return Layout(root) }},
		{"scenarios look at the codes of failures", func() ([]string, error) { return Scenarios(root) }},
		{"the loop's methods assert that they are on it", func() ([]string, error) { return Looped(tree), nil }},
		{"no word of a machine", func() ([]string, error) { return Words(root) }},
		{"files of large packages are in order", func() ([]string, error) { return Order(tree) }},
		{"no error is told by its text", func() ([]string, error) { return ErrorTexts(tree), nil }},
		{"runs from a seed draw from it", func() ([]string, error) { return Chance(tree), nil }},
		{"no bound on the machine's clock", func() ([]string, error) { return Clocks(tree), nil }},
		{"the picture of the tests is theirs", func() ([]string, error) { return Picture(tree, root) }},
		{"no retired word in a name", func() ([]string, error) { return RetiredWords(tree), nil }},
		{"the glossary names what is there", func() ([]string, error) { return Glossary(tree, root) }},
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			sins, err := r.run()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range sins {
				t.Error(s)
			}
		})
	}
}
