package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// caseList is the list of scenarios that the client libraries of other languages run. A line is "id | title | S-1
// T-2". The statements behind the second bar are proved wherever the scenario passes, and docs/compatibility.md tells
// where that is.
const caseList = "test/conformance/scenarios.txt"

var proved = regexp.MustCompile(`^([ST])-(\d+)$`)

// collectCases adds the scenarios of client libraries to the tests by statement and by scenario.
func collectCases(statements, scenarios map[int][]string) error {
	b, err := os.ReadFile(caseList)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), " | ")
		if strings.HasPrefix(line, "#") || len(f) < 3 {
			continue
		}
		where := caseList + ": " + f[0]
		for _, field := range strings.Fields(f[2]) {
			m := proved.FindStringSubmatch(field)
			if m == nil {
				return fmt.Errorf("%s: %q is neither S-n nor T-n", where, field)
			}
			n, _ := strconv.Atoi(m[2])
			if m[1] == "S" {
				statements[n] = append(statements[n], where)
			} else {
				scenarios[n] = append(scenarios[n], where)
			}
		}
	}
	return nil
}
