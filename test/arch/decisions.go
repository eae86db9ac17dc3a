package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// dated is the third line of a page in docs/decisions. It has the day of the decision, the day of its last change if
// that is another one, and whether the decision still holds. The names of its statements may follow.
var dated = regexp.MustCompile(`^Date: \d{4}-\d\d-\d\d(, changed \d{4}-\d\d-\d\d)?\. ` +
	`Status: (accepted|superseded by \[\d{4}\]\(\d{4}-[a-z0-9-]+\.md\))\.( Names: .*)?$`)

// Decisions reports pages of docs/decisions whose third line does not give date and status.
func Decisions(root string) ([]string, error) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "decisions", "[0-9]*.md"))
	if err != nil {
		return nil, err
	}
	if len(pages) == 0 {
		return []string{"docs/decisions: no page was found"}, nil
	}
	var sins []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		lines := strings.SplitN(string(text), "\n", 4)
		if len(lines) < 4 || !dated.MatchString(lines[2]) {
			sins = append(sins, fmt.Sprintf("docs/decisions/%s: the third line must read %q", filepath.Base(page),
				"Date: YYYY-MM-DD, changed YYYY-MM-DD. Status: accepted."))
		}
	}
	return sins, nil
}
