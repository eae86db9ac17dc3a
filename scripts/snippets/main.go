// Command snippets cuts the programs of docs/examples for the pages that show parts of them. A page has a comment before a
// fenced block. The comment names a file of docs/examples, a part of the first line and a part of the last. A file that begins
// with test/ is one of the repository:
//
//	<!-- cut: fifo/main.py | def consume | return lines -->
//
// A part that begins with ^ stands at the beginning of its line. The block is what stands from the one line to the
// other, without the indent that all its lines share. Without -write the command fails for each block that is not so. With
// -write it writes the blocks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// examples is the directory of the programs.
const examples = "docs/examples"

var marker = regexp.MustCompile(`^<!-- cut: (\S+) \| (.+?) \| (.+?) -->$`)

// pages are looked at if the command line names none.
var pages = []string{"README.md", "docs/guide", "docs/patterns.md"}

func main() {
	write := flag.Bool("write", false, "write the blocks into the pages")
	flag.Parse()
	roots := flag.Args()
	if len(roots) == 0 {
		roots = pages
	}
	cuts, err := run(roots, *write)
	if err == nil && cuts == 0 {
		err = errors.New("no page has a comment that begins with \"<!-- cut:\", so nothing was compared")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "snippets: %v\n", err)
		os.Exit(1)
	}
}

// run looks at all pages below the roots, and returns how many blocks they have.
func run(roots []string, write bool) (cuts int, err error) {
	var faults []error
	for _, root := range roots {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".md" {
				return err
			}
			was, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			is, n, err := fill(string(was), os.DirFS(examples))
			cuts += n
			switch {
			case err != nil:
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
			case is == string(was):
			case write:
				return os.WriteFile(name, []byte(is), 0o644)
			default:
				faults = append(faults, fmt.Errorf("%s shows what %s has no more: run go run ./scripts/snippets -write %s",
					name, examples, strings.Join(roots, " ")))
			}
			return nil
		})
		if err != nil {
			return cuts, err
		}
	}
	return cuts, errors.Join(faults...)
}

// fill returns a page with the blocks that its comments ask for, and how many these are.
func fill(page string, programs fs.FS) (filled string, cuts int, err error) {
	lines := strings.Split(page, "\n")
	var out []string
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		m := marker.FindStringSubmatch(lines[i])
		if m == nil {
			if strings.HasPrefix(lines[i], "<!-- cut:") {
				return "", cuts, fmt.Errorf("line %d is not <!-- cut: FILE | FIRST LINE | LAST LINE -->", i+1)
			}
			continue
		}
		cuts++
		if i+1 >= len(lines) || !strings.HasPrefix(lines[i+1], "```") || lines[i+1] == "```" {
			return "", cuts, fmt.Errorf("line %d: the line behind it does not begin a block with the name of a language", i+1)
		}
		end := i + 2
		for end < len(lines) && lines[end] != "```" {
			end++
		}
		if end == len(lines) {
			return "", cuts, fmt.Errorf("line %d: the block does not end", i+1)
		}
		block, err := cut(programs, m[1], m[2], m[3])
		if err != nil {
			return "", cuts, fmt.Errorf("line %d: %w", i+1, err)
		}
		out = append(append(append(out, lines[i+1]), block...), "```")
		i = end
	}
	return strings.Join(out, "\n"), cuts, nil
}

// cut returns the lines of a program from the first that contains first to the next that contains last.
func cut(programs fs.FS, name, first, last string) ([]string, error) {
	if strings.HasPrefix(name, "test/") {
		programs = os.DirFS(".")
	}
	b, err := fs.ReadFile(programs, name)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	from := 0
	for from < len(lines) && !has(lines[from], first) {
		from++
	}
	if from == len(lines) {
		return nil, fmt.Errorf("%s has no line with %q", name, first)
	}
	to := from
	for to < len(lines) && !has(lines[to], last) {
		to++
	}
	if to == len(lines) {
		return nil, fmt.Errorf("%s has no line with %q behind the one with %q", name, last, first)
	}
	return outdent(lines[from : to+1]), nil
}

// has reports whether a line contains part, or begins with it if part has a ^ before it.
func has(line, part string) bool {
	if start, ok := strings.CutPrefix(part, "^"); ok {
		return strings.HasPrefix(line, start)
	}
	return strings.Contains(line, part)
}

// outdent takes the indent away that all lines share which are not empty.
func outdent(lines []string) []string {
	indent := strings.TrimRight(lines[0], "\n")
	indent = indent[:len(indent)-len(strings.TrimLeft(indent, " \t"))]
	for _, l := range lines {
		for l != "" && !strings.HasPrefix(l, indent) {
			indent = indent[:len(indent)-1]
		}
	}
	var out []string
	for _, l := range lines {
		out = append(out, strings.TrimPrefix(l, indent))
	}
	return out
}
