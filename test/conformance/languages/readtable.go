package languages

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	headingRow = regexp.MustCompile(`^\| scenario \|(.*)\|$`)
	cellRow    = regexp.MustCompile(`^\| .* <!-- ([a-z0-9-]+) --> \|(.*)\|$`)
	totalRow   = regexp.MustCompile("^\\| ([^|]+) \\| `([^`]+)` \\| .* \\| \\d+ \\| \\d+ \\|$")
	reasonRow  = regexp.MustCompile(`^(\d+)\. (.*)$`)
)

// ReadTable reads what Render wrote, without the wires. It refuses a table with a scenario that the
// list does not have, with one twice, or in another order than the list.
func ReadTable(text string, scenarios []Scenario) ([]Column, error) {
	place := map[string]int{}
	for i, s := range scenarios {
		place[s.ID] = i
	}
	var columns []Column
	reasons := map[string]string{}
	last := -1
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := headingRow.FindStringSubmatch(line); m != nil {
			if err := headings(&columns, cells(m[1])); err != nil {
				return nil, err
			}
		} else if m := cellRow.FindStringSubmatch(line); m != nil {
			at, ok := place[m[1]]
			if !ok || at <= last {
				return nil, fmt.Errorf("the row of %s is not at its place in the list of scenarios", m[1])
			}
			last = at
			if err := row(columns, m[1], cells(m[2])); err != nil {
				return nil, err
			}
		} else if m := totalRow.FindStringSubmatch(line); m != nil {
			for i := range columns {
				if columns[i].Heading == m[1] {
					columns[i].Library = m[2]
				}
			}
		} else if m := reasonRow.FindStringSubmatch(line); m != nil {
			reasons[m[1]] = m[2]
		}
	}
	return columns, resolve(columns, reasons)
}

func cells(row string) []string {
	all := strings.Split(row, "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// headings begins the columns with the first row of headings; all others must be like it.
func headings(columns *[]Column, names []string) error {
	if *columns == nil {
		for _, n := range names {
			*columns = append(*columns, Column{Heading: n, Cells: map[string]Outcome{}})
		}
	}
	if len(names) != len(*columns) {
		return fmt.Errorf("a row of %d headings below one of %d", len(names), len(*columns))
	}
	for i, n := range names {
		if (*columns)[i].Heading != n {
			return fmt.Errorf("column %d is headed %q and %q", i+1, (*columns)[i].Heading, n)
		}
	}
	return nil
}

// row fills in the outcomes of one scenario; the text of a reason is its number still.
func row(columns []Column, id string, got []string) error {
	if len(got) != len(columns) {
		return fmt.Errorf("the row of %s has %d cells, want %d", id, len(got), len(columns))
	}
	for i, text := range got {
		switch text {
		case "":
		case "yes":
			columns[i].Cells[id] = Outcome{State: "pass"}
		default:
			if _, err := strconv.Atoi(text); err != nil {
				return fmt.Errorf("the row of %s has a cell %q", id, text)
			}
			columns[i].Cells[id] = Outcome{State: "skip", Text: text}
		}
	}
	return nil
}

// resolve puts the reasons in the place of their numbers.
func resolve(columns []Column, reasons map[string]string) error {
	if columns == nil {
		return errors.New("no table")
	}
	for _, c := range columns {
		for id, o := range c.Cells {
			if o.State != "skip" {
				continue
			}
			text, ok := reasons[o.Text]
			if !ok {
				return fmt.Errorf("the row of %s names a reason %s, which is not there", id, o.Text)
			}
			o.Text = text
			c.Cells[id] = o
		}
		if c.Library == "" {
			return fmt.Errorf("%s is missing below In all", c.Heading)
		}
	}
	return nil
}

// Span is the oldest and the newest version of a client library that the scenarios are run with.
type Span struct{ Language, Oldest, Newest string }

const spanBegin, spanEnd = "<!-- versions: make compatibility -->\n", "<!-- /versions -->"

// WithVersions returns the text of the README with the versions in their place, which two comments
// mark.
func WithVersions(readme string, spans []Span) (string, error) {
	before, rest, ok := strings.Cut(readme, spanBegin)
	_, after, ended := strings.Cut(rest, spanEnd)
	if !ok || !ended {
		return "", fmt.Errorf("no lines %q and %q", strings.TrimSpace(spanBegin), spanEnd)
	}
	var b strings.Builder
	b.WriteString("| client | oldest version known to work | newest |\n| --- | --- | --- |\n")
	for _, s := range spans {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.Language, s.Oldest, s.Newest)
	}
	return before + spanBegin + b.String() + spanEnd + after, nil
}
