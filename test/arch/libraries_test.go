package arch

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// The tests are built with the versions of libraries that a node is built with, or they would test another node.
func TestTestsHaveTheLibrariesOfANode(t *testing.T) {
	type module struct {
		Path, Version string
		Indirect      bool
		Main          bool
		Replace       *struct{ Version string }
	}
	list := func(dir string, of ...string) map[string]module {
		cmd := exec.Command("go", append([]string{"list", "-m", "-json"}, of...)...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		found := map[string]module{}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var m module
			if err := d.Decode(&m); err != nil {
				t.Fatal(err)
			}
			if m.Replace != nil && m.Replace.Version != "" {
				m.Version = m.Replace.Version
			}
			found[m.Path] = m
		}
		return found
	}
	const top = "../.."
	node := list(top, "all")
	tests := list(filepath.Join(top, "test"), "all")
	for name, m := range node {
		if got, used := tests[name]; used && !m.Main && !m.Indirect && got.Version != m.Version {
			t.Errorf("%s is %s in a node and %s in the tests: say so by replace in test/go.mod", name, m.Version, got.Version)
		}
	}
}
