package main

import (
	"os"
	"strings"
	"testing"
)

// The page of tests has a row for each fault.
func TestEachFaultIsInThePageOfTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n| fault of chaos |")
	if !found {
		t.Fatal("docs/testing.md has no table of the faults of chaos")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, k := range nemeses() {
		if !strings.Contains(table, "\n| `"+k.name+"` |") {
			t.Errorf("docs/testing.md has no row of the fault %q", k.name)
		}
	}
}
