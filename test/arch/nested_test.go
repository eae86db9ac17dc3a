package arch

import (
	"strings"
	"testing"
)

// nested is a module below the root, as test and scripts/lint are.
const nested = "module " + Module + "/test\n\ngo 1.26.0\n"

func TestNestedModulesAreRead(t *testing.T) {
	tree := load(t, plant(t, map[string]string{
		"test/go.mod": nested, "test/check/x.go": "package check\n", "test/suites/go.mod": "module x\n",
		"test/suites/x_test.go": "package suites\n", "test/suites/testdata/y.go": "package y\n",
	}))
	var got []string
	for _, f := range tree.Files {
		if f.in("test") {
			got = append(got, f.Path)
		}
	}
	if want := "test/check/x.go test/suites/x_test.go"; strings.Join(got, " ") != want {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestDoorsOfTests(t *testing.T) {
	ours := Module + "/"
	plants := func(name, text string) map[string]string {
		return map[string]string{"test/go.mod": nested, name: text}
	}
	judge(t, []sin{
		{"the model knows the words of fsm", plants("test/model/x.go", imports("model", ours+"fsm")), ""},
		{"the model knows nothing else", plants("test/model/x.go", imports("model", ours+"fsm/stored")), "may not import"},
		{"tests of the model have the model's doors",
			plants("test/model/x_test.go", imports("model", ours+"partition")), "may not import"},
		{"checkers know no cluster", plants("test/check/x.go", imports("check", ours+"test/simulation")), "may not import"},
		{"the simulation uses the checkers", plants("test/simulation/x.go", imports("simulation", ours+"test/check")), ""},
		{"chaos stays outside of the broker", plants("test/chaos/x.go", imports("main", ours+"partition")), "may not import"},
		{"conformance stays outside of the broker",
			plants("test/conformance/x_test.go", imports("conformance", ours+"transport")), "may not import"},
		{"the scenarios for each SDK use nothing of ours",
			plants("test/conformance/go/x.go", imports("main", ours+"test/conformance/raw")), "may not import"},
		{"scripts use nothing of ours", plants("scripts/links/x.go", imports("main", ours+"fsm")), "may not import"},
		{"a package of tests needs a door", plants("test/tools/x_test.go", "package tools\n"), "has no door"},
		{"the broker does not use the SDK",
			plants("cmd/busbar/x.go", imports("main", "github.com/Azure/azure-sdk-for-go/sdk/azcore")), ""},
		{"a package of the broker does not use the SDK",
			plants("transport/x.go", imports("transport", "github.com/Azure/azure-sdk-for-go/sdk/azcore")), "may not import"},
		{"the simulation does not use the SDK",
			plants("test/simulation/x.go", imports("simulation", "github.com/Azure/azure-sdk-for-go/sdk/azcore")), "may not import"},
		{"chaos uses the SDK",
			plants("test/chaos/x.go", imports("main", "github.com/Azure/azure-sdk-for-go/sdk/azcore")), ""},
		{"the types of Kubernetes stay with the manifests",
			plants("test/chaos/x.go", imports("main", "k8s.io/api/core/v1")), "may not import"},
	}, func(root string) ([]string, error) { return Doors(load(t, root)), nil })
}

func TestTheModelIsPure(t *testing.T) {
	judge(t, []sin{
		{"a clock", map[string]string{"test/model/x.go": imports("model", "time")}, "may not import time"},
		{"a comparison of states", map[string]string{"test/model/x.go": imports("model", "reflect")}, ""},
		{"a comparison of states in fsm", map[string]string{"fsm/x.go": imports("fsm", "reflect")}, "may not import reflect"},
		{"a driver may read the clock", map[string]string{"test/model/x_test.go": imports("model", "time")}, ""},
		{"a range over a map", map[string]string{
			"test/model/x.go": "package model\n\nfunc f(m map[int]int) (n int) {\n\tfor k := range m {\n\t\tn = k\n\t}\n\treturn n\n}\n"},
			"map order"},
	}, func(root string) ([]string, error) { return Pure(load(t, root)) })
}

func TestDocsOfTests(t *testing.T) {
	judge(t, []sin{
		{"a package of tests without a comment",
			map[string]string{"test/suites/x_test.go": "package suites\n"}, "test/suites: no package comment"},
		{"a package of tests with one", map[string]string{"test/suites/x_test.go": "package suites\n",
			"test/suites/doc.go": "// Package suites is here.\npackage suites\n"}, ""},
	}, func(root string) ([]string, error) { return Docs(load(t, root)), nil })
}

func TestTablesOfTests(t *testing.T) {
	table := func(pkg string, entries, lines int) string {
		entry := "\t\tfunc() {" + strings.Repeat("\n", lines-1) + "\t\t},\n"
		return "package " + pkg + "\n\nfunc table() []func() {\n\treturn []func(){\n" + strings.Repeat(entry, entries) + "\t}\n}\n"
	}
	judge(t, []sin{
		{"a long table of short functions", map[string]string{"test/chaos/x.go": table("main", 6, 20)}, ""},
		{"a table with a function of 71 lines", map[string]string{"test/chaos/x.go": table("main", 1, 71)}, "71 lines, at most 70"},
		{"a long table of the broker", map[string]string{"fsm/x.go": table("fsm", 6, 20)}, "lines, at most 70"},
		{"a long function that is no table", map[string]string{
			"test/chaos/x.go": "package main\n\nfunc f() {" + strings.Repeat("\n", 70) + "}\n"}, "71 lines, at most 70"},
		{"a table behind a statement", map[string]string{
			"test/chaos/x.go": strings.Replace(table("main", 6, 20), "\treturn", "\tprintln()\n\treturn", 1)}, "lines, at most 70"},
	}, func(root string) ([]string, error) { return Sizes(load(t, root), nil), nil })
}
