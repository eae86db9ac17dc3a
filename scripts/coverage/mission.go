package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	rowsDoc     = "docs/spec/mission-rows.md"
	missionPage = "docs/mission.md"
)

// missionRow is a line of a table in mission-rows.md: "| F0-01 | claim | B | S-56, S-60 (remark) |".
var missionRow = regexp.MustCompile(`^\| (F\d-\d+) \| (.+) \| ([BLGX]) \| (.+) \|$`)

// A row is one feature or claim of the mission.
type row struct {
	id, claim, kind, remark string
	statements              []int
}

// A chapter is the rows of one article.
type chapter struct {
	title string
	rows  []row
}

// readMission reads the rows, chapter by chapter. A row of kind B without a statement is an error:
// nothing could prove it.
func readMission(file string) ([]chapter, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var chapters []chapter
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			chapters = append(chapters, chapter{title: title})
			continue
		}
		if !strings.HasPrefix(line, "| F") {
			continue
		}
		m := missionRow.FindStringSubmatch(line)
		if m == nil || len(chapters) == 0 {
			return nil, fmt.Errorf("%s: %q is not a row: id, claim, kind, statements", file, line)
		}
		r := row{id: m[1], claim: m[2], kind: m[3], statements: numbers(m[4])}
		if at := strings.Index(m[4], "("); at >= 0 {
			r.remark = strings.Trim(m[4][at:], "()")
		}
		if r.kind == "B" && len(r.statements) == 0 {
			return nil, fmt.Errorf("%s: %s names no statement", file, r.id)
		}
		last := &chapters[len(chapters)-1]
		last.rows = append(last.rows, r)
	}
	return chapters, nil
}

// checkMission returns an error unless the statements of every row of kind B exist, are claimed and
// have a test.
func checkMission(chapters []chapter, stated, claimed map[int]bool, found map[int][]string) error {
	var wrong []string
	for _, c := range chapters {
		for _, r := range c.rows {
			for _, n := range r.statements {
				switch {
				case !stated[n]:
					wrong = append(wrong, fmt.Sprintf("%s: there is no S-%d", r.id, n))
				case r.kind == "B" && (!claimed[n] || len(found[n]) == 0):
					wrong = append(wrong, fmt.Sprintf("%s: S-%d is not claimed or has no test", r.id, n))
				}
			}
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s: %s", rowsDoc, strings.Join(wrong, "; "))
	}
	return nil
}

// renderMission writes the page that leads from each row to its statements and their tests, and to examples.
func renderMission(chapters []chapter, found map[int][]string, examples map[string]string) []byte {
	var b bytes.Buffer
	total, bound := 0, 0
	for _, c := range chapters {
		total += len(c.rows)
		for _, r := range c.rows {
			if r.kind == "B" {
				bound++
			}
		}
	}
	fmt.Fprintf(&b, "# The mission and its tests\n\nWritten by `make coverage` from [mission-rows.md](spec/mission-rows.md); "+
		"do not edit.\n\nThe mission has %d rows. %d of them bind the broker (kind B), and each of those names statements that a test holds.\n"+
		"This page shows one test for each statement; [coverage.md](coverage.md) has all of them.\n"+
		"Rows of guidance (kind G) have an [example](examples/README.md) or a section of the [guide](guide/README.md), or a reason why there is none.\n\n", total, bound)
	for _, c := range chapters {
		fmt.Fprintf(&b, "## %s\n\n| row | claim | kind | statement: test | example |\n| --- | --- | --- | --- | --- |\n", c.title)
		for _, r := range c.rows {
			var cells []string
			for _, n := range r.statements {
				cells = append(cells, fmt.Sprintf("S-%d: %s", n, oneTest(found[n])))
			}
			if r.remark != "" {
				cells = append(cells, r.remark)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.id, r.claim, r.kind, strings.Join(cells, "<br>"), examples[r.id])
		}
		fmt.Fprintln(&b)
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

// oneTest chooses the test that is nearest to a user: a scenario of a whole cluster, then one with a
// client library, then any other.
func oneTest(tests []string) string {
	if len(tests) == 0 {
		return "no test"
	}
	for _, near := range []string{"test/simulation/scenario/", "test/conformance/"} {
		if i := slices.IndexFunc(tests, func(t string) bool { return strings.HasPrefix(t, near) }); i >= 0 {
			return "`" + tests[i] + "`"
		}
	}
	return "`" + tests[0] + "`"
}
