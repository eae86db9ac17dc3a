package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plant writes a small tree that obeys every rule, with files on top of it.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		"go.mod":         "module " + Module + "\n\ngo 1.26.0\n",
		"fsm/doc.go":     "// Package fsm is pure.\npackage fsm\n",
		"storage/doc.go": "// Package storage owns the disk.\npackage storage\n",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func load(t *testing.T, root string) *Tree {
	t.Helper()
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

type sin struct {
	name  string
	files map[string]string
	want  string // part of the one report; "" means that nothing may be reported
}

func judge(t *testing.T, sins []sin, rule func(root string) ([]string, error)) {
	t.Helper()
	for _, s := range sins {
		t.Run(s.name, func(t *testing.T) {
			got, err := rule(plant(t, s.files))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case s.want == "" && len(got) > 0:
				t.Fatalf("reported %q, want nothing", got)
			case s.want != "" && (len(got) != 1 || !strings.Contains(got[0], s.want)):
				t.Fatalf("reported %q, want one that contains %q", got, s.want)
			}
		})
	}
}

func imports(pkg, path string) string {
	return "package " + pkg + "\n\nimport _ \"" + path + "\"\n"
}

func TestDoors(t *testing.T) {
	ours := Module + "/"
	judge(t, []sin{
		{"the planted tree is innocent", nil, ""},
		{"a replica knows of no other one",
			map[string]string{"partition/replica/x.go": imports("replica", ours+"partition")}, "may not import"},
		{"a replica knows of no loop that looks after it",
			map[string]string{"partition/replica/x.go": imports("replica", ours+"partition/control")}, "may not import"},
		{"the loops know of no host but by its verbs",
			map[string]string{"partition/control/x.go": imports("control", ours+"partition")}, "may not import"},
		{"the loops look after replicas",
			map[string]string{"partition/control/x.go": imports("control", ours+"partition/replica")}, ""},
		{"raft's transport knows no replica",
			map[string]string{"partition/raftnet/x.go": imports("raftnet", ours+"partition/replica")}, "may not import"},
		{"an example imports nothing of ours",
			map[string]string{"docs/examples/rain/main.go": "// Command rain rains.\n" + imports("main", ours+"fsm")}, "may not import"},
		{"an example imports the SDK", map[string]string{"docs/examples/rain/main.go": "// Command rain rains.\n" +
			imports("main", "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus")}, ""},
		{"storage may not import partition",
			map[string]string{"storage/x.go": imports("storage", ours+"partition")},
			"storage may not import " + ours + "partition"},
		{"transport may not import partition",
			map[string]string{"transport/x.go": imports("transport", ours+"partition")},
			"may not import"},
		{"transport may not import the HTTP room",
			map[string]string{"transport/x.go": imports("transport", ours+"transport/rest")},
			"may not import"},
		{"the wire format knows no broker",
			map[string]string{"transport/amqp/x.go": imports("amqp", ours+"fsm")}, "may not import"},
		{"the form of rules knows no connection",
			map[string]string{"transport/rulemap/x.go": imports("rulemap", ours+"transport")}, "may not import"},
		{"the waist knows no frame",
			map[string]string{"transport/waist/x.go": imports("waist", ours+"transport/amqp")}, "may not import"},
		{"the waist knows no connection",
			map[string]string{"transport/waist/x.go": imports("waist", ours+"transport")}, "may not import"},
		{"the waist speaks the words of fsm",
			map[string]string{"transport/waist/x.go": imports("waist", ours+"fsm")}, ""},
		{"fsm may not import its catalog",
			map[string]string{"fsm/x.go": imports("fsm", ours+"fsm/catalog")}, "may not import"},
		{"the catalog may use fsm's words",
			map[string]string{"fsm/catalog/x.go": imports("catalog", ours+"fsm")}, ""},
		{"nobody imports the command",
			map[string]string{"cluster/x.go": imports("cluster", ours+"cmd/busbar")}, "may not import"},
		{"a room's test goes through the same doors",
			map[string]string{"storage/x_test.go": imports("storage", ours+"cluster")}, "may not import"},
		{"a room's external test may import its room",
			map[string]string{"storage/x_test.go": imports("storage_test", ours+"storage")}, ""},
		{"only tests inject faults",
			map[string]string{"storage/x.go": imports("storage", ours+"storage/faultfs")}, "may not import"},
		{"tests inject faults",
			map[string]string{"storage/x_test.go": imports("storage", ours+"storage/faultfs")}, ""},
		{"raft words stop in partition",
			map[string]string{"transport/x.go": imports("transport", "github.com/hashicorp/raft")},
			"may not import"},
		{"partition may speak raft",
			map[string]string{"partition/x.go": imports("partition", "github.com/hashicorp/raft")}, ""},
		{"raft-wal is not raft",
			map[string]string{"partition/x.go": imports("partition", "github.com/hashicorp/raft-wal")},
			"may not import"},
		{"a room without a door may not exist",
			map[string]string{"queue/x.go": "package queue\n"}, "has no door"},
		{"the command holds all keys",
			map[string]string{"cmd/busbar/x.go": imports("main", ours+"partition")}, ""},
		{"a package of the command holds no keys",
			map[string]string{"cmd/busbar/exit/x.go": imports("exit", ours+"fsm")}, "may not import"},
		{"a package of the command needs a door",
			map[string]string{"cmd/busbar/tools/x.go": "package tools\n"}, "has no door"},
		{"commands use the client library of AMQP",
			map[string]string{"cmd/busbar/dial/x.go": imports("dial", "github.com/Azure/go-amqp")}, ""},
	}, func(root string) ([]string, error) { return Doors(load(t, root)), nil })
}

func TestPurity(t *testing.T) {
	body := func(s string) map[string]string {
		return map[string]string{"fsm/x.go": "package fsm\n\n" + s + "\n"}
	}
	judge(t, []sin{
		{"a clock", map[string]string{"fsm/x.go": imports("fsm", "time")}, "may not import time"},
		{"a file", map[string]string{"fsm/rule/x.go": imports("rule", "os")}, "may not import os"},
		{"a mutex", map[string]string{"fsm/x.go": imports("fsm", "sync")}, "may not import sync"},
		{"a test may read the clock",
			map[string]string{"fsm/x_test.go": imports("fsm", "time")}, ""},
		{"encoding/binary is pure",
			map[string]string{"fsm/x.go": imports("fsm", "encoding/binary")}, ""},
		{"a goroutine", body("func f() { go f() }"), "no goroutine"},
		{"ambient chance",
			body("import \"math/rand/v2\"\n\nfunc f() int { return rand.IntN(3) }"), "rand.IntN"},
		{"seeded chance",
			body("import \"math/rand/v2\"\n\nfunc f() uint64 { return rand.NewChaCha8([32]byte{}).Uint64() }"),
			""},
		{"a range over a map",
			body("func f(m map[string]int) (n int) {\n\tfor _, v := range m {\n\t\tn = v\n\t}\n\treturn n\n}"),
			"map order"},
		{"a range over a named map type of another file", map[string]string{
			"fsm/x.go": "package fsm\n\nfunc f(s state) (n int) {\n\tfor _, v := range s.byName {\n\t\tn = v\n\t}\n\treturn n\n}\n",
			"fsm/y.go": "package fsm\n\ntype names map[string]int\n\ntype state struct{ byName names }\n",
		}, "map order"},
		{"a range over the keys of a map",
			body("import \"maps\"\n\nfunc f(m map[int]int) (n int) {\n\tfor k := range maps.Keys(m) {\n\t\tn = k\n\t}\n\treturn n\n}"),
			"map order"},
		{"a range over a copy of a map",
			body("import \"maps\"\n\nfunc f(m map[int]int) (n int) {\n\tc := maps.Clone(m)\n\tfor k := range c {\n\t\tn = k\n\t}\n\treturn n\n}"),
			"map order"},
		{"a range over a map with a reason",
			body("func f(m map[int]int) (n int) {\n\t// order-free: a sum.\n\tfor _, v := range m {\n\t\tn += v\n\t}\n\treturn n\n}"),
			""},
		{"a range over sorted keys",
			body("import (\n\t\"maps\"\n\t\"slices\"\n)\n\nfunc f(m map[int]int) (n int) {\n\tfor _, k := range slices.Sorted(maps.Keys(m)) {\n\t\tn = k\n\t}\n\treturn n\n}"),
			""},
		{"a range over a slice",
			body("func f(m []int) (n int) {\n\tfor _, v := range m {\n\t\tn = v\n\t}\n\treturn n\n}"), ""},
	}, func(root string) ([]string, error) { return Pure(load(t, root)) })
}

func TestDocs(t *testing.T) {
	judge(t, []sin{
		{"one comment", nil, ""},
		{"none", map[string]string{"cluster/x.go": "package cluster\n"}, "no package comment"},
		{"two", map[string]string{"fsm/x.go": "// Package fsm again.\npackage fsm\n"}, "second package comment"},
		{"in the wrong file", map[string]string{
			"cluster/node.go": "// Package cluster is here.\npackage cluster\n"}, "belongs in doc.go"},
		{"a licence", map[string]string{
			"cluster/doc.go": "// Copyright of somebody.\npackage cluster\n"}, "licence"},
		{"a sentence that begins otherwise", map[string]string{
			"cluster/doc.go": "// This package is here.\npackage cluster\n"}, "not with Package"},
	}, func(root string) ([]string, error) { return Docs(load(t, root)), nil })
}

func TestSizes(t *testing.T) {
	long := func(lines int) string {
		return "package fsm\n\nfunc (s *state) long() {" + strings.Repeat("\n", lines-1) + "}\n\ntype state struct{}\n"
	}
	key := "fsm/x.go state.long"
	cases := []struct {
		sin
		ratchet Ratchet
	}{
		{sin{"a file of 501 lines",
			map[string]string{"fsm/x.go": "package fsm\n" + strings.Repeat("\n//", 499) + "\n"}, "501 lines"}, nil},
		{sin{"a file of 500 lines",
			map[string]string{"fsm/x.go": "package fsm\n" + strings.Repeat("\n//", 498) + "\n"}, ""}, nil},
		{sin{"a test file of 600 lines",
			map[string]string{"fsm/x_test.go": "package fsm\n" + strings.Repeat("\n//", 598) + "\n"}, ""}, nil},
		{sin{"a test file of 601 lines",
			map[string]string{"fsm/x_test.go": "package fsm\n" + strings.Repeat("\n//", 599) + "\n"}, "601 lines"}, nil},
		{sin{"a function of 71 lines", map[string]string{"fsm/x.go": long(71)}, "71 lines, at most 70"}, nil},
		{sin{"a function of 70 lines", map[string]string{"fsm/x.go": long(70)}, ""}, nil},
		{sin{"a known long function", map[string]string{"fsm/x.go": long(80)}, ""}, Ratchet{key: 80}},
		{sin{"a long function that grew", map[string]string{"fsm/x.go": long(81)}, "grew"}, Ratchet{key: 80}},
		{sin{"a long function that shrank", map[string]string{"fsm/x.go": long(79)}, "lower the ratchet"},
			Ratchet{key: 80}},
		{sin{"a long function that is gone", nil, "take it off"}, Ratchet{key: 80}},
		{sin{"a long test function", map[string]string{"fsm/x_test.go": long(90)}, ""}, nil},
	}
	for _, c := range cases {
		judge(t, []sin{c.sin}, func(root string) ([]string, error) {
			return Sizes(load(t, root), c.ratchet), nil
		})
	}
}

func TestLayout(t *testing.T) {
	judge(t, []sin{
		{"the design", map[string]string{".ci/run": "", "README.md": "", "bin/busbar": ""}, ""},
		{"a further directory", map[string]string{"web/x.txt": ""}, "web: not one of"},
		{"a stray file", map[string]string{"notes.txt": ""}, "notes.txt: not one of"},
		{"a name that says nothing", map[string]string{"fsm/util/doc.go": "package util\n"}, "says nothing"},
		{"a further module", map[string]string{"test/deep/go.mod": "module deep\n"}, "test/deep/go.mod: not one of the modules"},
	}, Layout)
}

func TestWords(t *testing.T) {
	judge(t, []sin{
		{"a clean page", map[string]string{"docs/x.md": "see /var/lib/busbar\n"}, ""},
		{"a path of a machine", map[string]string{"docs/x.md": "one\nsee /ro" + "ot/x\n"}, "docs/x.md:2"},
		{"a registry host", map[string]string{"scripts/x.sh": "GOPROXY=https://pro" + "xy.golang.org\n"},
			"belongs to a machine"},
		{"a binary file is not text", map[string]string{"docs/x.bin": "\x00/ro" + "ot/x"}, ""},
	}, Words)
}
