package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestFill(t *testing.T) {
	programs := fstest.MapFS{"a/main.py": {Data: []byte("def f():\n    x = 1\n\n    if x:\n        y()\n    return x\n\ndef g():\n    return 2\n")}}
	page := func(comment, block string) string {
		return "# A\n\n" + comment + "\n```python\n" + block + "```\n\nText.\n"
	}
	cases := []struct{ name, comment, block, want, wrong string }{
		{"a function", "<!-- cut: a/main.py | def g | return 2 -->", "old\n", "def g():\n    return 2\n", ""},
		{"a part of a function loses its indent", "<!-- cut: a/main.py | if x | return x -->", "", "if x:\n    y()\nreturn x\n", ""},
		{"an empty line has no indent", "<!-- cut: a/main.py | x = 1 | if x -->", "", "x = 1\n\nif x:\n", ""},
		{"to a line that begins so", "<!-- cut: a/main.py | def f | ^def g -->", "", "def f():\n    x = 1\n\n    if x:\n        y()\n    return x\n\ndef g():\n", ""},
		{"no line begins so", "<!-- cut: a/main.py | ^return | return x -->", "", "", `no line with "^return"`},
		{"one line", "<!-- cut: a/main.py | def f | def f -->", "", "def f():\n", ""},
		{"no such first line", "<!-- cut: a/main.py | def h | return -->", "", "", `no line with "def h"`},
		{"no such last line", "<!-- cut: a/main.py | def g | return x -->", "", "", `no line with "return x" behind`},
		{"no such file", "<!-- cut: b/main.py | def g | return x -->", "", "", "b/main.py"},
		{"a comment without its last line", "<!-- cut: a/main.py | def g -->", "", "", "line 3 is not"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, cuts, err := fill(page(c.comment, c.block), programs)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("got %v, want an error with %q", err, c.wrong)
				}
				return
			}
			if want := page(c.comment, c.want); err != nil || got != want || cuts != 1 {
				t.Errorf("got %q, %d, %v, want %q", got, cuts, err, want)
			}
		})
	}
	for name, page := range map[string]string{
		"no block":             "<!-- cut: a/main.py | def g | return 2 -->\nText.\n",
		"a block that is open": "<!-- cut: a/main.py | def g | return 2 -->\n```python\nx\n",
	} {
		if _, _, err := fill(page, programs); err == nil {
			t.Errorf("%s is no fault", name)
		}
	}
}
