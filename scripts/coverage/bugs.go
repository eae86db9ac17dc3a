package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const bugsDoc = "docs/bugs.md"

var (
	namedTest   = regexp.MustCompile("`(Test[A-Z0-9]\\w*)`")
	definedTest = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// checkBugs returns an error if a bug has no test, or if the repository lacks a test that the page of bugs names.
func checkBugs(root string) error {
	page, err := os.ReadFile(bugsDoc)
	if err != nil {
		return err
	}
	defined, err := definedTests(root)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(page)) {
		for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
			if !defined[m[1]] {
				return fmt.Errorf("%s names %s, and no test has that name: write the name that it has now", bugsDoc, m[1])
			}
		}
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if strings.HasPrefix(line, "| ") && len(cells) != 3 {
			return fmt.Errorf("%s: a row has %d cells and not 3: %.80s", bugsDoc, len(cells), line)
		}
		if strings.HasPrefix(line, "| ") && strings.Trim(cells[2], " |") == "" {
			return fmt.Errorf("%s: a bug without a test: %.80s", bugsDoc, line)
		}
	}
	return nil
}

// definedTests returns the names of all tests in the Go files below root.
func definedTests(root string) (map[string]bool, error) {
	defined := map[string]bool{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(p)
		for _, m := range definedTest.FindAllSubmatch(text, -1) {
			defined[string(m[1])] = true
		}
		return err
	})
	return defined, err
}
