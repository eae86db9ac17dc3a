package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// pages are looked at if the command line names none.
var pages = []string{"README.md", "docs", ".github", "test/README.md"}

func main() {
	roots := os.Args[1:]
	if len(roots) == 0 {
		roots = pages
	}
	broken, pages, err := run(".", roots)
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(2)
	}
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, b)
	}
	if len(broken) > 0 || pages == 0 {
		fmt.Fprintf(os.Stderr, "links: %d broken references in %d pages and the comments of the code\n", len(broken), pages)
		os.Exit(1)
	}
}

// run checks the pages below some roots and the comments of all Go files below root.
func run(root string, roots []string) (broken []string, pages int, err error) {
	t, err := readTree(root)
	if err != nil {
		return nil, 0, err
	}
	files, err := markdown(roots)
	if err != nil {
		return nil, 0, err
	}
	for _, f := range files {
		bad, err := check(f)
		if err != nil {
			return nil, 0, err
		}
		broken = append(broken, bad...)
		if bad, err = t.checkSpans(f); err != nil {
			return nil, 0, err
		}
		broken = append(broken, bad...)
	}
	return append(broken, t.checkComments()...), len(files), nil
}

func markdown(roots []string) ([]string, error) {
	var files []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(p) == ".md" {
				files = append(files, p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
