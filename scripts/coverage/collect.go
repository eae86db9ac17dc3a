package main

import (
	"bufio"
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
	// Statements and mentions: "S-58", and "S-285..S-290" or "S-285 to S-290" for a range.
	mention   = regexp.MustCompile(`\bS-(\d+)(?:(?:\.\.| to )S-(\d+))?`)
	statement = regexp.MustCompile(`^\*\*S-(\d+)\*\*`)
	testFunc  = regexp.MustCompile(`^func (Test\w+|Fuzz\w+|Benchmark\w+|\w+)\(`)
)

// statements returns the numbers that the specification has.
func statements(file string) (map[int]bool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for line := range strings.Lines(string(b)) {
		if m := statement.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			found[n] = true
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no statement", file)
	}
	return found, nil
}

// collect returns, by statement, the tests that speak of it: "path: function", or the path alone for
// a script of testdata.
func collect(root string) (map[int][]string, error) {
	found := map[int]map[string]bool{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "docs" || name == "scripts") {
				return filepath.SkipDir
			}
			return nil
		}
		script := filepath.Ext(name) == ".txt" && strings.Contains(filepath.ToSlash(p), "/testdata/")
		if strings.HasSuffix(name, "_test.go") || script {
			return collectFile(p, script, found)
		}
		return nil
	})
	out := map[int][]string{}
	for n, where := range found {
		out[n] = slices.Sorted(maps.Keys(where))
	}
	return out, err
}

// collectFile assigns a mention to the function it stands in, or to the one that follows it.
func collectFile(file string, script bool, found map[int]map[string]bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	rel := filepath.ToSlash(filepath.Clean(file))
	var waiting []int // mentions above the function that they belong to
	current := ""
	add := func(n int, where string) {
		if found[n] == nil {
			found[n] = map[string]bool{}
		}
		found[n][where] = true
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := testFunc.FindStringSubmatch(line); m != nil && !script {
			current = rel + ": " + m[1]
			for _, n := range waiting {
				add(n, current)
			}
			waiting = nil
		}
		if line == "}" {
			current = ""
		}
		text := line
		if !script {
			_, comment, ok := strings.Cut(line, "//")
			if !ok {
				comment = quoted(line)
			}
			text = comment
		}
		for _, n := range numbers(text) {
			switch {
			case script:
				add(n, rel)
			case current != "":
				add(n, current)
			default:
				waiting = append(waiting, n)
			}
		}
	}
	for _, n := range waiting {
		add(n, rel)
	}
	return lines.Err()
}

// quoted returns the line if it holds a string: the name of a case may name a statement too.
func quoted(line string) string {
	if strings.Contains(line, `"`) {
		return line
	}
	return ""
}

// numbers lists the statements that a text names.
func numbers(text string) []int {
	var out []int
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[1])
		last := first
		if m[2] != "" {
			last, _ = strconv.Atoi(m[2])
		}
		const widest = 50 // a longer range is a slip of the pen
		for n := first; n <= min(last, first+widest); n++ {
			out = append(out, n)
		}
	}
	return out
}
