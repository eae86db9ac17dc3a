// Command links checks that every relative link and every anchor in Markdown files leads somewhere:
// go run ./scripts/links README.md docs.
package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

var (
	inline  = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	heading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	code    = regexp.MustCompile("`[^`]*`")
)

func main() {
	files, err := markdown(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(2)
	}
	var broken []string
	for _, f := range files {
		bad, err := check(f)
		if err != nil {
			fmt.Fprintln(os.Stderr, "links:", err)
			os.Exit(2)
		}
		broken = append(broken, bad...)
	}
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, b)
	}
	if len(broken) > 0 || len(files) == 0 {
		fmt.Fprintf(os.Stderr, "links: %d broken links in %d files\n", len(broken), len(files))
		os.Exit(1)
	}
}

func markdown(roots []string) ([]string, error) {
	var files []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(p) == ".md" {
				files = append(files, p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

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
