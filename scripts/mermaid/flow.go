package main

import (
	"fmt"
	"regexp"
)

var (
	box   = regexp.MustCompile(`^(\w+)\["([^"]+)"\]$`)
	arrow = regexp.MustCompile(`^(\w+) (-->|-\.->) (\w+)$`)
)

// flow judges a flowchart: boxes with a text, and arrows between them. A box is declared once, above its arrows; an
// arrow is drawn once.
func flow(lines []string) (faults []fault) {
	boxes, arrows := map[string]bool{}, map[string]bool{}
	for i, line := range lines[1:] {
		add := func(format string, args ...any) { faults = append(faults, fault{i + 1, fmt.Sprintf(format, args...)}) }
		if m := box.FindStringSubmatch(line); m != nil {
			if boxes[m[1]] {
				add("%s is declared twice", m[1])
			}
			boxes[m[1]] = true
			for _, text := range m[1:] {
				if why := shown(text); why != "" {
					add("%s", why)
				}
			}
			continue
		}
		m := arrow.FindStringSubmatch(line)
		if m == nil {
			add("%q is no line of a flowchart", line)
			continue
		}
		for _, name := range []string{m[1], m[3]} {
			if !boxes[name] {
				add("no box %s", name)
			}
		}
		if between := m[1] + " " + m[3]; arrows[between] {
			add("a second arrow from %s to %s", m[1], m[3])
		} else {
			arrows[between] = true
		}
	}
	return faults
}
