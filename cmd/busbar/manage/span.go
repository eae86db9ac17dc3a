package manage

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/busbar-mq/busbar/cmd/busbar/entities"
)

// days finds the days at the front of a duration such as 14d or 1d12h.
var days = regexp.MustCompile(`^(\d{1,7})d(.*)$`)

// parseSpan reads a duration as people write one (90s, 36h, 14d, 1d12h), as ISO 8601 has it (PT1M30S), or "unlimited".
// It returns what the management API takes.
func parseSpan(text string) (string, error) {
	switch {
	case strings.EqualFold(text, "unlimited"):
		return entities.Unlimited, nil
	case strings.HasPrefix(text, "P"), strings.HasPrefix(text, "p"):
		return strings.ToUpper(text), nil // the broker says what is wrong with it
	}
	rest, whole := text, ""
	if m := days.FindStringSubmatch(text); m != nil {
		whole, rest = m[1]+"D", m[2]
		if rest == "" {
			return "P" + whole, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return "", fmt.Errorf("%q is no duration: want 90s, 36h, 14d, PT1M30S or unlimited", text)
	}
	return "P" + whole + "T" + strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "S", nil
}

// shortSpan writes a duration of the management API as a table shows it: "1m30s", "14d", "unlimited", "" for none.
func shortSpan(text string) string {
	if text == entities.Unlimited {
		return "unlimited"
	}
	text = strings.TrimPrefix(text, "P")
	date, clock, _ := strings.Cut(text, "T")
	return strings.ToLower(date + clock)
}
