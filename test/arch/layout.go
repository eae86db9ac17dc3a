package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// topLevel is all that may stand at the root of the repository, besides dot files.
var topLevel = []string{
	"cmd", "fsm", "partition", "transport", "cluster", "storage", "docs", "test", "scripts",
	"go.mod", "go.sum", "Makefile", "README.md", "LICENSE",
}

// built is what the Makefile may leave at the root; .gitignore names it.
var built = []string{"bin", "dist", "cover.out", "cover.html"}

// modules are all modules of the repository; decisions 0024, 0055, 0068, 0092, 0093 and 0098 say why each is one.
var modules = []string{"go.mod", "test/go.mod", "test/suites/go.mod", "test/monitoring/go.mod", "scripts/lint/go.mod", "scripts/release/go.mod", "docs/examples/go.mod",
	"test/kits/go/go.mod"}

// badDirs are names that say nothing: a thing belongs to the room whose word it is.
var badDirs = []string{"util", "utils", "common", "helper", "helpers", "misc", "pkg", "internal", "types"}

// Layout reports directories and modules that the design does not have.
func Layout(root string) ([]string, error) {
	var sins []string
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || slices.Contains(topLevel, name) || slices.Contains(built, name) {
			continue
		}
		sins = append(sins, fmt.Sprintf("%s: not one of the top-level names of the design", name))
	}
	err = walkText(root, func(rel string, d fs.DirEntry) error {
		if d.IsDir() && slices.Contains(badDirs, d.Name()) {
			sins = append(sins, fmt.Sprintf("%s: a name that says nothing", rel))
		}
		if d.Name() == "go.mod" && !slices.Contains(modules, rel) {
			sins = append(sins, fmt.Sprintf("%s: not one of the modules of the design", rel))
		}
		return nil
	})
	return sins, err
}

// walkText visits everything that is kept in the repository.
func walkText(root string, visit func(rel string, d fs.DirEntry) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if rel == ".git" || rel == "bin" || rel == "dist" || rel == ".cluster" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		return visit(filepath.ToSlash(rel), d)
	})
}
