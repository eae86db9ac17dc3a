package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const exampleRows = "docs/examples/rows.txt"

// readExamples reads which examples show which row, as the cell of docs/mission.md for each row. A line is
// "F0-12 F0-13 | fifo order" or "F3-10 | none | reason". A section of a page of docs/guide may stand where an example
// stands. A line that begins with # is a comment.
func readExamples(file string) (map[string]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	cells := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if text := strings.TrimSpace(line); text == "" || text[0] == '#' {
			continue
		}
		fields := strings.Split(line, "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		cell, err := exampleCell(filepath.Dir(file), fields)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, strings.TrimSpace(line), err)
		}
		for _, id := range strings.Fields(fields[0]) {
			if cells[id] != "" {
				return nil, fmt.Errorf("%s: %s stands in two lines", file, id)
			}
			cells[id] = cell
		}
	}
	return cells, nil
}

// exampleCell is what the page says of the rows of a line.
func exampleCell(dir string, fields []string) (string, error) {
	switch {
	case len(fields) == 3 && fields[1] == "none" && fields[2] != "":
		return "none: " + fields[2], nil
	case len(fields) != 2 || fields[1] == "" || fields[1] == "none":
		return "", fmt.Errorf("a line is rows | examples, or rows | none | reason")
	}
	var links []string
	for _, name := range strings.Fields(fields[1]) {
		if page, section, ok := guidePage(name); ok {
			if _, err := os.Stat(filepath.Join(dir, "..", page)); err != nil {
				return "", fmt.Errorf("there is no page %s: %w", page, err)
			}
			links = append(links, fmt.Sprintf("[%s](%s)", strings.ReplaceAll(section, "-", " "), name))
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, name, "README.md")); err != nil {
			return "", fmt.Errorf("there is no example %s: %w", name, err)
		}
		links = append(links, fmt.Sprintf("[%s](examples/%s/README.md)", name, name))
	}
	return strings.Join(links, ", "), nil
}

// guidePage splits the name of a section of the guide into the path of its page and the anchor. Whether the section is
// there is for scripts/links to say.
func guidePage(name string) (page, section string, ok bool) {
	page, section, ok = strings.Cut(name, "#")
	return page, section, ok && strings.HasPrefix(page, "guide/") && section != ""
}

// checkExamples returns an error unless every row of guidance has a cell, and every cell a row. An example may serve
// what is in no row.
func checkExamples(chapters []chapter, cells map[string]string) error {
	var wrong, known []string
	for _, c := range chapters {
		for _, r := range c.rows {
			known = append(known, r.id)
			if r.kind == "G" && cells[r.id] == "" {
				wrong = append(wrong, r.id+" is guidance and in no line")
			}
		}
	}
	for id := range cells {
		if !slices.Contains(known, id) {
			wrong = append(wrong, "there is no row "+id)
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("%s: %s", exampleRows, strings.Join(wrong, "; "))
	}
	return nil
}
