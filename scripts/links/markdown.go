package main

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	inline  = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	heading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	code    = regexp.MustCompile("`[^`]*`")
)

// check returns the links of a file that lead nowhere.
func check(file string) ([]string, error) {
	lines, err := prose(file)
	if err != nil {
		return nil, err
	}
	var broken []string
	for i, line := range lines {
		for _, m := range inline.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			if why := follow(file, m[1]); why != "" {
				broken = append(broken, fmt.Sprintf("%s:%d: %s: %s", file, i+1, m[1], why))
			}
		}
	}
	return broken, nil
}

// untold reports whether a page is generated, or of the specification: these name tests of others.
func untold(file string) bool {
	return strings.HasPrefix(file, "docs/spec/") ||
		slices.Contains([]string{"docs/coverage.md", "docs/mission.md", "docs/compatibility.md"}, file)
}

var (
	spanOf = regexp.MustCompile("`([^`]+)`")
	// stop is a place in the code: a file, and a declaration in it.
	stop     = regexp.MustCompile(`^([\w./-]+\.go): (\w+(?:\.\w+)?)$`)
	goFile   = regexp.MustCompile(`^(?:[\w.*-]+/)*[\w.*-]+\.go$`)
	testSpan = regexp.MustCompile(`^(?:Test|Benchmark|Fuzz)[A-Z]\w*$`)
)

// checkSpans returns the code spans of a page that name a file, a declaration or a test that is not there.
func (t *tree) checkSpans(file string) ([]string, error) {
	if untold(filepath.ToSlash(file)) {
		return nil, nil
	}
	lines, err := prose(file)
	if err != nil {
		return nil, err
	}
	var broken []string
	for i, line := range lines {
		for _, m := range spanOf.FindAllStringSubmatch(line, -1) {
			if why := t.spanLacks(m[1]); why != "" {
				broken = append(broken, fmt.Sprintf("%s:%d: %s: %s", file, i+1, m[1], why))
			}
		}
	}
	return broken, nil
}

func (t *tree) spanLacks(span string) string {
	if m := stop.FindStringSubmatch(span); m != nil {
		switch names, ok := t.names[m[1]]; {
		case !ok:
			return "no such file"
		case !names[m[2]]:
			return "no such declaration in that file"
		}
		return ""
	}
	switch {
	case testSpan.MatchString(span) && !t.tests[span]:
		return "no such test"
	case goFile.MatchString(span) && !t.has(span) && len(t.bases[path.Base(span)]) == 0,
		goFile.MatchString(span) && strings.Contains(span, "/") && !t.has(span):
		return "no such file"
	}
	return ""
}

// follow returns why a link leads nowhere, "" if it does not or is not ours to judge.
func follow(from, link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	to := from
	if u.Path != "" {
		to = filepath.Join(filepath.Dir(from), filepath.FromSlash(u.Path))
	}
	if _, err := os.Stat(to); err != nil {
		return "no such file"
	}
	if u.Fragment == "" || filepath.Ext(to) != ".md" {
		return ""
	}
	lines, err := prose(to)
	if err != nil {
		return err.Error()
	}
	for _, line := range lines {
		if m := heading.FindStringSubmatch(line); m != nil && anchor(m[1]) == u.Fragment {
			return ""
		}
	}
	return "no such heading"
}

// prose returns the lines of a file with those of code blocks emptied.
func prose(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(b), "\n")
	fenced := false
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			lines[i] = ""
		} else if fenced {
			lines[i] = ""
		}
	}
	return lines, nil
}

// anchor is the name that a heading gets when it is shown.
func anchor(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}
