package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	// An acceptance scenario of the specification, and the test that is named after it.
	scenario     = regexp.MustCompile(`(?m)^\* \*\*T-(\d+)\*\*`)
	scenarioTest = regexp.MustCompile(`(?m)^func (TestT(\d+)\w*)\(`)
)

// scenarios returns the numbers of the scenarios that the specification has.
func scenarios(file string) (map[int]bool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, m := range scenario.FindAllSubmatch(b, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		found[n] = true
	}
	return found, nil
}

// collectScenarios returns, by scenario, the tests named after it.
func collectScenarios(root string) (map[int][]string, error) {
	found := map[int][]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(d.Name(), "_test.go") {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for _, m := range scenarioTest.FindAllSubmatch(b, -1) {
			n, _ := strconv.Atoi(string(m[2]))
			found[n] = append(found[n], filepath.ToSlash(filepath.Clean(p))+": "+string(m[1]))
		}
		return nil
	})
	return found, err
}

// readWaiting reads lines such as "T-5 T-7..T-9: topics": the scenarios without a test, and for what
// each waits.
func readWaiting(file string) (map[int]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	waiting := map[int]string{}
	for line := range strings.Lines(string(b)) {
		text, _, _ := strings.Cut(line, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		list, reason, ok := strings.Cut(text, ":")
		if reason = strings.TrimSpace(reason); !ok || reason == "" {
			return nil, fmt.Errorf("%s: %q does not say what it waits for", file, text)
		}
		for _, field := range strings.Fields(list) {
			ns := numbers(strings.ReplaceAll(field, "T-", "S-"))
			if len(ns) == 0 {
				return nil, fmt.Errorf("%s: %q is neither T-n nor T-n..T-m", file, field)
			}
			for _, n := range ns {
				waiting[n] = reason
			}
		}
	}
	return waiting, nil
}

// checkScenarios returns an error unless every scenario either has a test or waits for something.
func checkScenarios(stated map[int]bool, found map[int][]string, waiting map[int]string) error {
	var wrong []string
	for _, n := range slices.Sorted(maps.Keys(stated)) {
		_, waits := waiting[n]
		switch tested := len(found[n]) > 0; {
		case tested && waits:
			wrong = append(wrong, fmt.Sprintf("T-%d waits although it has a test", n))
		case !tested && !waits:
			wrong = append(wrong, fmt.Sprintf("T-%d has no test TestT%d… and waits for nothing", n, n))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(found)) {
		if !stated[n] {
			wrong = append(wrong, fmt.Sprintf("%s: there is no T-%d", found[n][0], n))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(waiting)) {
		if !stated[n] {
			wrong = append(wrong, fmt.Sprintf("there is no T-%d to wait", n))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s: %s", waits, strings.Join(wrong, "; "))
	}
	return nil
}

// renderScenarios writes the part of the page about scenarios.
func renderScenarios(b *bytes.Buffer, stated map[int]bool, found map[int][]string, waiting map[int]string) {
	tested := 0
	for n := range stated {
		if len(found[n]) > 0 {
			tested++
		}
	}
	fmt.Fprintf(b, "\n## Acceptance scenarios\n\nOf the %d scenarios of section 9, %d are tests of that name.\n\n",
		len(stated), tested)
	fmt.Fprintf(b, "| scenario | test, or what it waits for |\n| --- | --- |\n")
	for _, n := range slices.Sorted(maps.Keys(stated)) {
		cells := []string{"waits: " + waiting[n]}
		if len(found[n]) > 0 {
			cells = nil
			for _, t := range found[n] {
				cells = append(cells, "`"+t+"`")
			}
		}
		fmt.Fprintf(b, "| T-%d | %s |\n", n, strings.Join(cells, "<br>"))
	}
}
