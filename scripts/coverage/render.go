package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// readClaims reads lines such as "S-5" or "S-88..S-93"; # starts a comment.
func readClaims(file string) (map[int]bool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	claimed := map[int]bool{}
	for line := range strings.Lines(string(b)) {
		text, _, _ := strings.Cut(line, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		for _, field := range strings.Fields(text) {
			ns := numbers(field)
			if len(ns) == 0 {
				return nil, fmt.Errorf("%s: %q is neither S-n nor S-n..S-m", file, field)
			}
			for _, n := range ns {
				claimed[n] = true
			}
		}
	}
	return claimed, nil
}

// checkClaims returns an error that names every claimed statement without a test.
func checkClaims(claimed, stated map[int]bool, found map[int][]string) error {
	var bare []string
	for _, n := range slices.Sorted(maps.Keys(claimed)) {
		if len(found[n]) == 0 || !stated[n] {
			bare = append(bare, fmt.Sprintf("S-%d", n))
		}
	}
	if len(bare) > 0 {
		return fmt.Errorf("%s claims what no test speaks of: %s", claims, strings.Join(bare, ", "))
	}
	return nil
}

// render writes the page.
func render(stated map[int]bool, found map[int][]string, claimed map[int]bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Coverage of the specification\n\n")
	fmt.Fprintf(&b, "Written by `make coverage`; do not edit. Of the %d statements of "+
		"[semantics](spec/semantics.md) tests speak of %d;\n%d are claimed in "+
		"[coverage-claimed.txt](coverage-claimed.txt) and must have a test.\n\n", len(stated), len(found), len(claimed))
	fmt.Fprintf(&b, "| statement | claimed | tests |\n| --- | --- | --- |\n")
	var bare []string
	for _, n := range slices.Sorted(maps.Keys(stated)) {
		if len(found[n]) == 0 {
			bare = append(bare, fmt.Sprintf("S-%d", n))
			continue
		}
		mark := ""
		if claimed[n] {
			mark = "yes"
		}
		var cells []string
		for _, t := range found[n] {
			cells = append(cells, "`"+t+"`")
		}
		fmt.Fprintf(&b, "| S-%d | %s | %s |\n", n, mark, strings.Join(cells, "<br>"))
	}
	fmt.Fprintf(&b, "\n## Without a test yet\n\n%s\n", wrap(bare, 100))
	return b.Bytes()
}

// wrap joins words into lines of at most width characters.
func wrap(words []string, width int) string {
	if len(words) == 0 {
		return "None."
	}
	var b strings.Builder
	used := 0
	for i, w := range words {
		if i < len(words)-1 {
			w += ","
		}
		if used > 0 && used+1+len(w) > width {
			b.WriteByte('\n')
			used = 0
		}
		if used > 0 {
			b.WriteByte(' ')
			used++
		}
		b.WriteString(w)
		used += len(w)
	}
	return b.String()
}
