package arch

import (
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	const page = "# Tests\n\n```mermaid\nflowchart TD\n    a[\"check\"]\n    b[\"model\"]\n    c[\"bin/busbar\"]\n    a --> b\n    b -.-> c\n```\n\n" +
		"| package | finds | of the broker |\n| --- | --- | --- |\n| `check` | lies | `fsm`, `transport` |\n| `model` | faults |  |\n"
	tree := func(page string) map[string]string {
		ours := Module + "/"
		return map[string]string{
			testsPage:         page,
			"test/check/x.go": imports("check", ours+"test/model"), "test/check/y.go": imports("check", ours+"transport/amqp"),
			"test/check/x_test.go": imports("check", ours+"fsm"), "test/model/x.go": "package model\n",
		}
	}
	change := func(from, to string) map[string]string {
		if !strings.Contains(page, from) {
			t.Fatalf("the page has no %q", from)
		}
		return tree(strings.Replace(page, from, to, 1))
	}
	judge(t, []sin{
		{"a page that is true", tree(page), ""},
		{"an arrow that is missing", change("    a --> b\n", ""), "lacks the arrow check -> model"},
		{"an arrow that nothing stands for", change("a --> b\n", "a --> b\n    b --> a\n"), "stands for the arrow model -> check"},
		{"a box that is missing", change("    b[\"model\"]\n", "    b[\"tools\"]\n    d[\"model\"]\n    a --> d\n"), "the arrow check -> tools"},
		{"a package without a box", change("    c[\"bin/busbar\"]\n", "    d[\"model\"]\n"), "2 boxes for model"},
		{"a package without a row", change("| `model` | faults |  |\n", ""), "no row for model"},
		{"a row of nothing", change("| `model`", "| `tools` | x |  |\n| `model`"), "tools, which is no package"},
		{"a room that is not imported", change("`fsm`, `transport`", "`fsm`, `storage`, `transport`"), "the row of check"},
		{"a room that is not told", change("`fsm`, `transport`", "`fsm`"), "the row of check"},
	}, func(root string) ([]string, error) { return Picture(load(t, root), root) })
}
