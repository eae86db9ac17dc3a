package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Kind is what is wrong with a sentence.
type Kind string

const (
	Long   Kind = "long"
	Nobody Kind = "names nobody"
)

// Fault is a sentence that docs/STYLE.md forbids.
type Fault struct {
	Room string // the first folder of its path; docs for README.md and .github
	Path string
	Line int // of the paragraph's first line
	Kind Kind
	Text string
}

// others are pages that are generated, that quote the specification, or that are kept as they were decided.
var others = []string{
	"docs/spec", "docs/decisions", "docs/coverage.md", "docs/cli.md", "docs/coverage-judged.md", "docs/prose-judged.md",
	"docs/mission.md", "docs/compatibility.md",
}

// Read returns the faults of all pages and Go comments below root, in the order of their paths.
func Read(root string) ([]Fault, error) {
	var faults []Fault
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && rel != ".github" && (d.Name()[0] == '.' || d.Name() == "bin" || d.Name() == "testdata" ||
				d.Name() == "node_modules") || slices.Contains(others, rel) {
				return filepath.SkipDir
			}
			return nil
		}
		var paragraphs []paragraph
		switch {
		case slices.Contains(others, rel):
		case strings.HasSuffix(rel, ".md"):
			paragraphs, err = page(path)
		case strings.HasSuffix(rel, ".go") && !strings.HasSuffix(rel, "_test.go"):
			paragraphs, err = comments(path)
		}
		if err != nil {
			return err
		}
		for _, p := range paragraphs {
			for _, f := range judge(p) {
				f.Room, f.Path = room(rel), rel
				faults = append(faults, f)
			}
		}
		return nil
	})
	return faults, err
}

func room(rel string) string {
	first, _, deeper := strings.Cut(rel, "/")
	if !deeper || first == ".github" {
		return "docs"
	}
	return first
}

// paragraph is a text without marks of lists and tables.
type paragraph struct {
	line int
	text string
}

var (
	item   = regexp.MustCompile(`^\s*(?:[-*+]|\d+[.)])\s+`)
	link   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	quoted = regexp.MustCompile("`[^`]*`")
	marked = regexp.MustCompile(`<!--.*?-->|\*+`)
	named  = regexp.MustCompile(`\[([^\]]*)\]`)
)

// page reads the paragraphs and list items of a Markdown file. Code, headings and tables are left out.
func page(path string) ([]paragraph, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return paragraphs(string(raw), 1, true), nil
}

func paragraphs(text string, first int, markdown bool) []paragraph {
	var all []paragraph
	var now paragraph
	end := func() {
		if now.text != "" {
			all = append(all, now)
		}
		now = paragraph{}
	}
	code := false
	for i, line := range strings.Split(text, "\n") {
		bare := strings.TrimSpace(line)
		if strings.HasPrefix(bare, "```") {
			code = !code
			end()
			continue
		}
		switch {
		case code, bare == "", strings.HasPrefix(bare, "|"), strings.HasPrefix(bare, "#"),
			strings.HasPrefix(line, "\t"), markdown && strings.HasPrefix(line, "    ") && now.text == "":
			end()
			continue
		case item.MatchString(line):
			end()
			bare = item.ReplaceAllString(line, "")
		}
		if now.text == "" {
			now.line = first + i
		}
		now.text += " " + bare
	}
	end()
	return all
}

// comments reads the comments of a Go file. A directive such as go:build is none.
func comments(path string) ([]paragraph, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(f) {
		return nil, nil
	}
	var all []paragraph
	for _, g := range f.Comments {
		all = append(all, paragraphs(g.Text(), set.Position(g.Pos()).Line, false)...)
	}
	return all, nil
}

// nobodies are first words that name no subject (docs/STYLE.md).
var nobodies = []string{"Who", "Whoever", "Whom", "Whose", "What", "Whatever", "Whichever", "That", "Those", "One"}

// judge returns the faults of a paragraph's sentences. "Those two nodes" and "One entry" name somebody: only a
// relative clause or a verb behind the word makes it a fault.
func judge(p paragraph) []Fault {
	var faults []Fault
	for _, s := range sentences(p.text) {
		words := strings.Fields(s)
		if len(words) > MaxWords {
			faults = append(faults, Fault{Line: p.line, Kind: Long, Text: s})
		}
		if len(words) > 2 && namesNobody(words) {
			faults = append(faults, Fault{Line: p.line, Kind: Nobody, Text: s})
		}
	}
	return faults
}

func namesNobody(words []string) bool {
	if strings.HasSuffix(words[len(words)-1], "?") || !slices.Contains(nobodies, words[0]) {
		return false
	}
	switch words[0] {
	case "That", "Those", "One":
		return slices.Contains([]string{"who", "that", "which", "whose", "is", "are", "was", "were"}, words[1])
	}
	return true
}

// abbreviated reports whether a text ends with a word whose full stop ends no sentence.
func abbreviated(text string) bool {
	words := strings.Fields(text)
	return slices.Contains([]string{"e.g.", "i.e.", "cf.", "etc.", "vs."}, words[len(words)-1])
}

// sentences cuts a paragraph where a sentence ends. It ends behind a full stop or semicolon, and behind another mark
// if a capital letter or a digit follows. A sentence may begin with a name in lower case.
func sentences(text string) []string {
	text = marked.ReplaceAllString(text, "")
	text = link.ReplaceAllString(text, "$1")
	text = named.ReplaceAllString(text, "$1") // a name in a Go comment
	text = quoted.ReplaceAllString(text, "X") // one word, whatever it holds
	var all []string
	runes := []rune(strings.TrimSpace(text))
	begin := 0
	for i := 0; i+2 < len(runes); i++ {
		if !strings.ContainsRune(".!?:;", runes[i]) || runes[i+1] != ' ' {
			continue
		}
		next := runes[i+2]
		if unicode.IsUpper(next) || unicode.IsDigit(next) || runes[i] == ';' || runes[i] == '.' && !abbreviated(string(runes[begin:i+1])) {
			all = append(all, strings.TrimSpace(string(runes[begin:i+1])))
			begin = i + 2
		}
	}
	if last := strings.TrimSpace(string(runes[begin:])); last != "" {
		all = append(all, last)
	}
	return all
}
