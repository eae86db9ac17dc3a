package main

import (
	"strings"
	"testing"
)

func TestCheckBugs(t *testing.T) {
	const head = "# Bugs\n\n| bug | found by | regression test |\n| --- | --- | --- |\n"
	for rows, fault := range map[string]string{
		"| it rained | a walk | `fsm` `TestOne` |\n":                   "",
		"| it rained | a walk | `cmd/busbar` `serve`, every start |\n": "",
		"| it rained | a walk | `fsm` `TestTwo` |\n":                   "names TestTwo",
		"| it rained | a walk |  |\n":                                  "without a test",
		"| it rained | a walk |\n":                                     "2 cells",
	} {
		err := checkBugs(tree(t, map[string]string{bugsDoc: head + rows}))
		if fault == "" && err != nil || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%q: got %v, want %q", rows, err, fault)
		}
	}
}
