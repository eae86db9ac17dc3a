package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pages are looked at if the command line names none.
var pages = []string{"README.md", "docs", "test/README.md"}

func main() {
	diagrams, faults := 0, []string(nil)
	roots := os.Args[1:]
	if len(roots) == 0 {
		roots = pages
	}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".md" {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			n, bad := Check(name, string(text))
			diagrams += n
			faults = append(faults, bad...)
			return nil
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "mermaid:", err)
			os.Exit(2)
		}
	}
	for _, f := range faults {
		fmt.Fprintln(os.Stderr, f)
	}
	if len(faults) > 0 || diagrams == 0 {
		fmt.Fprintf(os.Stderr, "mermaid: %d faults in %d diagrams\n", len(faults), diagrams)
		os.Exit(1)
	}
}

// Check returns how many diagrams a page has and what is wrong with them.
func Check(name, page string) (diagrams int, faults []string) {
	var body []string
	first, inside := 0, false
	for i, line := range strings.Split(page, "\n") {
		bare := strings.TrimSpace(line)
		switch {
		case inside && bare == "```":
			inside = false
			diagrams++
			for _, f := range diagram(body) {
				faults = append(faults, fmt.Sprintf("%s:%d: %s", name, first+f.line, f.text))
			}
		case inside:
			body = append(body, bare)
		case bare == "```mermaid":
			inside, first, body = true, i+2, nil
		}
	}
	if inside {
		faults = append(faults, fmt.Sprintf("%s:%d: the diagram does not end", name, first-1))
	}
	return diagrams, faults
}

// fault is what is wrong in a line of a diagram; the first line has the number 0.
type fault struct {
	line int
	text string
}

func diagram(lines []string) []fault {
	if len(lines) == 0 {
		return []fault{{0, "an empty diagram"}}
	}
	switch lines[0] {
	case "sequenceDiagram":
		return sequence(lines)
	case "stateDiagram-v2":
		return states(lines)
	case "flowchart TD", "flowchart LR":
		return flow(lines)
	}
	return []fault{{0, fmt.Sprintf("%q is no kind of diagram that is used here", lines[0])}}
}

var (
	participant = regexp.MustCompile(`^participant (\w+) as (.+)$`)
	message     = regexp.MustCompile(`^(\w+?)(->>|-->>|-x|--x)(\w+): (.+)$`)
	noteOver    = regexp.MustCompile(`^Note (?:over|left of|right of) (\w+)(?:,(\w+))?: (.+)$`)
	block       = regexp.MustCompile(`^(alt|else|opt|loop) (.+)$`)
	transition  = regexp.MustCompile(`^(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: (.+))?$`)
	// breaking are texts that end a statement, begin an entity, or end a block in Mermaid.
	breaking = regexp.MustCompile(`[;#]|\bend\b`)
)

// shown judges a text that a viewer shows.
func shown(text string) string {
	if m := breaking.FindString(text); m != "" {
		return fmt.Sprintf("%q breaks a text", m)
	}
	return ""
}

func sequence(lines []string) (faults []fault) {
	known := map[string]bool{}
	var open []string // blocks that have not ended
	for i, line := range lines[1:] {
		add := func(format string, args ...any) { faults = append(faults, fault{i + 1, fmt.Sprintf(format, args...)}) }
		says := func(text string, names ...string) {
			for _, n := range names {
				if n != "" && !known[n] {
					add("no participant %s", n)
				}
			}
			if why := shown(text); why != "" {
				add("%s", why)
			}
		}
		if m := participant.FindStringSubmatch(line); m != nil {
			if known[m[1]] {
				add("%s is declared twice", m[1])
			}
			known[m[1]] = true
			says(m[2])
		} else if m := message.FindStringSubmatch(line); m != nil {
			says(m[4], m[1], m[3])
		} else if m := noteOver.FindStringSubmatch(line); m != nil {
			says(m[3], m[1], m[2])
		} else if m := block.FindStringSubmatch(line); m != nil {
			says(m[2])
			if m[1] != "else" {
				open = append(open, m[1])
			} else if len(open) == 0 || open[len(open)-1] != "alt" {
				add("else without alt")
			}
		} else if line == "end" {
			if len(open) == 0 {
				add("end without a block")
				continue
			}
			open = open[:len(open)-1]
		} else {
			add("%q is no line of a sequence diagram", line)
		}
	}
	if len(open) > 0 {
		faults = append(faults, fault{len(lines) - 1, fmt.Sprintf("%s does not end", open[len(open)-1])})
	}
	return faults
}

func states(lines []string) (faults []fault) {
	from := map[string][]string{}
	at := map[string]int{}
	for i, line := range lines[1:] {
		m := transition.FindStringSubmatch(line)
		if m == nil {
			faults = append(faults, fault{i + 1, fmt.Sprintf("%q is no transition", line)})
			continue
		}
		if why := shown(m[3]); why != "" {
			faults = append(faults, fault{i + 1, why})
		}
		if strings.Contains(m[3], ":") {
			faults = append(faults, fault{i + 1, "a second colon"})
		}
		from[m[1]] = append(from[m[1]], m[2])
		for _, s := range m[1:3] {
			if _, seen := at[s]; !seen {
				at[s] = i + 1
			}
		}
	}
	reached := map[string]bool{"[*]": true}
	for next := []string{"[*]"}; len(next) > 0; {
		s := next[0]
		next = next[1:]
		for _, to := range from[s] {
			if !reached[to] {
				reached[to] = true
				next = append(next, to)
			}
		}
	}
	for s, line := range at {
		if !reached[s] {
			faults = append(faults, fault{line, fmt.Sprintf("%s cannot be reached", s)})
		}
	}
	slices.SortFunc(faults, func(a, b fault) int { return a.line - b.line })
	return faults
}
