package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Forms of references in comments. A comment may break a line anywhere in them, so spaces are any white space.
var (
	// pageRef is a page, perhaps with numbers of its sections: "semantics.md, section 9", "amqp-protocol.md 8.1 to 8.3".
	pageRef = regexp.MustCompile(`((?:[\w.-]+/)*[\w-]+\.md)(?:,?\s+(?:sections?\s+)?(\d+(?:\.\d+)*(?:(?:,|\s+and|\s+to)\s+\d+(?:\.\d+)+)*))?`)
	// sectionOf is the same the other way round: "section 8.10 of docs/spec/semantics.md".
	sectionOf = regexp.MustCompile(`[Ss]ection\s+(\d+(?:\.\d+)*)\s+of\s+((?:[\w.-]+/)*[\w-]+\.md)`)
	// bareRef is a page without its suffix, known by the number behind it: "amqp-protocol 8.1", "semantics, section 9".
	bareRef = regexp.MustCompile(`\b([\w-]+),?\s+(?:(?:section|rule)\s+(\d+(?:\.\d+)*)|(\d+(?:\.\d+)+))`)
	// fileRef is a file by the endings that only our files have; it may have stars. A name such as _test.go is an ending.
	fileRef = regexp.MustCompile(`(^|[^\w.*/-])((?:[\w.*-]+/)*[a-zA-Z*][\w.*-]*\.(?:go|sh|txt))\b`)
	// pathRef is a path from the root of the repository, if its first part is there.
	pathRef = regexp.MustCompile(`(?:^|[\s("'])((?:\w+)/[\w./*-]*\w)`)
	testRef = regexp.MustCompile(`(^|[^\w/.'])((?:Test|Benchmark|Fuzz)[A-Z]\w{2,})(\.\.\.|…|\*)?`)
	// decisionRef is a page of docs/decisions by its number.
	decisionRef = regexp.MustCompile(`\bdecisions?[\s/]+(\d{4})\b`)
	numbers     = regexp.MustCompile(`\d+(?:\.\d+)*`)
)

// checkComments returns the references of comments that lead nowhere.
func (t *tree) checkComments() []string {
	var broken []string
	for _, n := range t.notes {
		for _, ref := range t.references(n) {
			broken = append(broken, fmt.Sprintf("%s:%d: %s", n.file, n.line+strings.Count(n.text[:ref.at], "\n"), ref.why))
		}
	}
	return broken
}

// reference is one that leads nowhere, and where it stands in its text.
type reference struct {
	at  int
	why string
}

func (t *tree) references(n note) []reference {
	var bad []reference
	add := func(at int, format string, args ...any) {
		bad = append(bad, reference{at, fmt.Sprintf(format, args...)})
	}
	for _, m := range pageRef.FindAllStringSubmatchIndex(n.text, -1) {
		page, section := n.text[m[2]:m[3]], ""
		if m[4] >= 0 {
			section = n.text[m[4]:m[5]]
		}
		if why := t.pageLacks(path.Dir(n.file), page, section); why != "" {
			add(m[0], "%s", why)
		}
	}
	for _, m := range sectionOf.FindAllStringSubmatchIndex(n.text, -1) {
		if why := t.pageLacks(path.Dir(n.file), n.text[m[4]:m[5]], n.text[m[2]:m[3]]); why != "" {
			add(m[0], "%s", why)
		}
	}
	for _, m := range bareRef.FindAllStringSubmatchIndex(n.text, -1) {
		page, section := t.pageNamed(n.text[m[2]:m[3]]), numbers.FindString(n.text[m[3]:m[1]])
		if page == "" {
			continue
		}
		if why := t.pageLacks(".", page, section); why != "" {
			add(m[0], "%s", why)
		}
	}
	for _, m := range fileRef.FindAllStringSubmatchIndex(n.text, -1) {
		name := n.text[m[4]:m[5]]
		// Scripts and lists have one name in many directories, and stand for all of them.
		if !t.above(path.Dir(n.file), name) && (path.Ext(name) == ".go" || len(t.bases[name]) == 0) {
			add(m[4], "%s: no such file", name)
		}
	}
	for _, m := range pathRef.FindAllStringSubmatchIndex(n.text, -1) {
		p := n.text[m[2]:m[3]]
		top, _, _ := strings.Cut(p, "/")
		if t.paths[top] && !fileRef.MatchString(p) && !t.has(p) && !t.has(p+"*") {
			add(m[2], "%s: no such path", p)
		}
	}
	for _, m := range testRef.FindAllStringSubmatchIndex(n.text, -1) {
		if name := n.text[m[4]:m[5]]; !t.hasTest(name, m[6] >= 0) {
			add(m[4], "%s: no such test", name)
		}
	}
	for _, m := range decisionRef.FindAllStringSubmatchIndex(n.text, -1) {
		if number := n.text[m[2]:m[3]]; !t.has("docs/decisions/" + number + "-*.md") {
			add(m[0], "decision %s: no such page", number)
		}
	}
	return bad
}

// hasTest reports whether a test exists, or one whose name begins so.
func (t *tree) hasTest(name string, begins bool) bool {
	if !begins {
		return t.tests[name]
	}
	for known := range t.tests {
		if strings.HasPrefix(known, name) {
			return true
		}
	}
	return false
}

// pageNamed returns the page of docs with that name, "" if there is none.
func (t *tree) pageNamed(word string) string {
	for _, p := range []string{"docs/" + word + ".md", "docs/" + strings.ToUpper(word) + ".md",
		"docs/spec/" + word + ".md", "docs/formats/" + word + ".md"} {
		if t.paths[p] {
			return p
		}
	}
	return ""
}

// pageLacks says why a page, or one of its sections, is not there. A page without a directory lies in docs, or
// beside the comment.
func (t *tree) pageLacks(dir, page, sections string) string {
	var found []string
	if strings.Contains(page, "/") {
		if t.paths[page] {
			found = []string{page}
		} else if t.paths[path.Join(dir, page)] {
			found = []string{path.Join(dir, page)}
		}
	} else {
		for _, p := range t.bases[page] {
			if strings.HasPrefix(p, "docs/") || path.Dir(p) == dir || path.Dir(p) == "." {
				found = append(found, p)
			}
		}
	}
	if len(found) == 0 {
		return page + ": no such page"
	}
	for _, number := range numbers.FindAllString(sections, -1) {
		if !slices.ContainsFunc(found, func(p string) bool { return t.hasSection(p, number) }) {
			return fmt.Sprintf("%s has no section %s", page, number)
		}
	}
	return ""
}

// hasSection reports whether a heading of a page begins with a number.
func (t *tree) hasSection(page, number string) bool {
	lines, err := prose(filepath.Join(t.root, filepath.FromSlash(page)))
	if err != nil && !os.IsNotExist(err) {
		return false
	}
	for _, line := range lines {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if rest, ok := strings.CutPrefix(m[1], number); ok && (rest == "" || rest[0] == ' ' || strings.HasPrefix(rest, ". ")) {
			return true
		}
	}
	return false
}
