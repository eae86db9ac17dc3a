package languages

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// Scenario is one line of scenarios.txt.
type Scenario struct {
	ID    string // a short name that every runner knows it by
	Title string // what holds when it passes
	Group string // the heading that it stands below
}

// ReadScenarios reads the list of scenarios. Headings begin with "## ", comments with "# ", and the rest is "id |
// title". Behind another bar stand the statements that it proves, for scripts/coverage.
func ReadScenarios(file string) ([]Scenario, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Scenario
	group, seen := "", map[string]bool{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if title, ok := strings.CutPrefix(line, "## "); ok {
			group = title
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, title, ok := strings.Cut(line, " | ")
		title, _, _ = strings.Cut(title, " | ")
		if !ok || id == "" || title == "" || group == "" {
			return nil, fmt.Errorf("%s:%d: want a heading and below it id | title | statements", file, n)
		}
		if seen[id] {
			return nil, fmt.Errorf("%s:%d: scenario %s twice", file, n, id)
		}
		seen[id] = true
		all = append(all, Scenario{ID: id, Title: title, Group: group})
	}
	return all, lines.Err()
}
