package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
)

const (
	page    = "docs/coverage.md"
	claims  = "docs/coverage-claimed.txt"
	waits   = "docs/coverage-waiting.txt"
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
	tests, err := collectScenarios(".")
	if err != nil {
		return err
	}
	if err := collectCases(found, tests); err != nil {
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
	named, err := scenarios(specDoc)
	if err != nil {
		return err
	}
	waiting, err := readWaiting(waits)
	if err != nil {
		return err
	}
	text := bytes.NewBuffer(render(stated, found, claimed))
	renderScenarios(text, named, tests, waiting)
	mission, err := readMission(rowsDoc)
	if err != nil {
		return err
	}
	examples, err := readExamples(exampleRows)
	if err != nil {
		return err
	}
	return errors.Join(
		write(page, text.Bytes(), check),
		write(missionPage, renderMission(mission, found, examples), check),
		checkClaims(claimed, stated, found),
		checkScenarios(named, tests, waiting),
		checkMission(mission, stated, claimed, found),
		checkExamples(mission, examples),
		checkBugs("."),
		sizes(named, check))
}

// write writes a generated page, or with check returns an error if the page on disk differs.
func write(page string, want []byte, check bool) error {
	if !check {
		return os.WriteFile(page, want, 0o644)
	}
	if got, err := os.ReadFile(page); err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%s is stale: run make coverage", page)
	}
	return nil
}
