package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
)

const (
	page    = "docs/coverage.md"
	claims  = "docs/coverage-claimed.txt"
	specDoc = "docs/spec/semantics.md"
)

func main() {
	check := flag.Bool("check", false, "compare instead of writing")
	root := flag.String("root", ".", "root of the repository")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	stated, err := statements(specDoc)
	if err != nil {
		return err
	}
	found, err := collect(".")
	if err != nil {
		return err
	}
	for n := range found {
		if !stated[n] {
			return fmt.Errorf("%s speaks of S-%d, which %s does not have", found[n][0], n, specDoc)
		}
	}
	claimed, err := readClaims(claims)
	if err != nil {
		return err
	}
	want := render(stated, found, claimed)
	if !check {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			return err
		}
	} else if got, err := os.ReadFile(page); err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%s is stale: run make coverage", page)
	}
	return checkClaims(claimed, stated, found)
}
