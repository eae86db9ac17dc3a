package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	unknownKey = regexp.MustCompile(`^line (\d+): field (\S+) not found in type .*$`)
	wrongKind  = regexp.MustCompile("^line (\\d+): cannot unmarshal !!\\w+ `(.*)` into (int|bool|time\\.Duration)$")
)

// forPeople says the faults of a file without the names of types of Go.
func forPeople(err error) error {
	var faults *yaml.TypeError
	if !errors.As(err, &faults) {
		return err
	}
	var lines []string
	for _, text := range faults.Errors {
		if m := unknownKey.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("line %s: there is no setting %s%s", m[1], m[2], likeliest(m[2]))
		} else if m := wrongKind.FindStringSubmatch(text); m != nil {
			want, ok := map[string]string{"int": "a number", "bool": "true or false", "time.Duration": "a duration such as 90s or 5m"}[m[3]]
			if ok {
				text = fmt.Sprintf("line %s: %q is not %s", m[1], m[2], want)
			}
		}
		lines = append(lines, text)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// likeliest asks whether another name was meant that differs by two letters at most.
func likeliest(name string) string {
	best, least := "", 3
	for _, known := range settingNames() {
		known = strings.TrimPrefix(known, "limits.")
		if d := distance(name, known); d < least {
			best, least = known, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance is how many letters are to be added, taken away or exchanged.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
