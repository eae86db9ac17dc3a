package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSizesAreReadFromTheCode(t *testing.T) {
	for name, tc := range map[string]struct {
		code string
		want string // the row, or a part of the error
		bad  bool
	}{
		"a size":                {`size("T-46", "sends", 10_000, 2_000)`, "| T-46 | sends | 10000 | 2000 |", false},
		"full smaller":          {`size("T-46", "sends", 10, 20)`, "10 in full and 20 in short", true},
		"none in short":         {`size("T-46", "sends", 10, 0)`, "10 in full and 0 in short", true},
		"a number of its own":   {`size("T-46", "sends", n, 20)`, "argument 3 of size is not a literal", true},
		"another kind of thing": {`size("S-46", "sends", 40, 20)`, "is not a scenario", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			code := "package x\n\nfunc TestT46(t *testing.T) { _ = " + tc.code + " }\n"
			if err := os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(code), 0o644); err != nil {
				t.Fatal(err)
			}
			all, err := collectSizes(dir)
			if tc.bad {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			page, err := renderSizes([]byte("a\n"+sizeBegin+"old\n"+sizeEnd+"b\n"), all)
			if err != nil {
				t.Fatal(err)
			}
			text := string(page)
			if !strings.Contains(text, tc.want) || strings.Contains(text, "old") ||
				!strings.HasPrefix(text, "a\n") || !strings.HasSuffix(text, "b\n") {
				t.Fatalf("got %s", text)
			}
		})
	}
}

func TestASizeNeedsItsScenario(t *testing.T) {
	if err := checkSizes([]scenarioSize{{scenario: 999, what: "x", full: 2, short: 1}}, map[int]bool{46: true}); err == nil ||
		!strings.Contains(err.Error(), "no T-999") {
		t.Fatalf("got %v", err)
	}
	if _, err := renderSizes([]byte("no place"), nil); err == nil {
		t.Fatal("a page without a place for the table was taken")
	}
}
