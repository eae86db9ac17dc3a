package main

import (
	"fmt"
	"strings"
)

// circleWarnings names every entity of a file whose messages come back to it (RUL-24). That is no error: the
// hop limit ends such a message (S-208).
func circleWarnings(all []entitySpec) []string {
	next := map[string][]string{} // by path in lower case: where its messages go
	for _, e := range all {
		path := strings.ToLower(e.path)
		if topic, _, below := strings.Cut(path, "/subscriptions/"); below && e.kind == "Subscription" {
			next[topic] = append(next[topic], path)
		}
		for _, p := range e.props {
			if strings.HasPrefix(p.name, "Forward") && p.value != "" {
				next[path] = append(next[path], strings.ToLower(entityOf(p.value)))
			}
		}
	}
	var warnings []string
	for _, e := range all {
		path := strings.ToLower(e.path)
		seen, todo := map[string]bool{}, next[path]
		for len(todo) > 0 && !seen[path] {
			at := todo[0]
			todo = todo[1:]
			if !seen[at] {
				seen[at] = true
				todo = append(todo[:len(todo):len(todo)], next[at]...)
			}
		}
		if seen[path] && e.kind != "Topic" {
			warnings = append(warnings, fmt.Sprintf("line %d, %s: %s forwards to itself or in a circle: its messages "+
				"end as transfer dead letters after four moves", e.line, e.pointer, e.path))
		}
	}
	return warnings
}
