package rule

import (
	"fmt"
	"strings"
	"testing"
)

// S-219: what a user or client may send to keep the broker busy ends in an error or in bounded
// work.
func TestHostileExpressions(t *testing.T) {
	deep := func(open, inner, closing string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(closing, n)
	}
	for name, c := range map[string]struct{ text, want string }{
		"a mebibyte":            {strings.Repeat("a", 1<<20), "longer than 1024 characters"},
		"1025 characters":       {"a = '" + strings.Repeat("é", 1019) + "'", "longer than 1024 characters"},
		"1024 characters":       {"a = '" + strings.Repeat("é", 1018) + "'", ""},
		"64 parentheses":        {deep("(", "1=1", ")", 64), ""},
		"65 parentheses":        {deep("(", "1=1", ")", 65), "character 65: nested deeper than 64"},
		"500 parentheses":       {deep("(", "1=1", ")", 500), "nested deeper than 64"},
		"open parentheses":      {strings.Repeat("(", 1024), "nested deeper than 64"},
		"65 functions":          {deep("p(", "a", ")", 65) + " = 1", "nested deeper than 64"},
		"64 signs":              {strings.Repeat("-", 64) + "1 = 1", ""},
		"65 signs":              {strings.Repeat("+", 65) + "1 = 1", "nested deeper than 64"},
		"64 negations":          {strings.Repeat("NOT ", 64) + "1 = 1", ""},
		"65 negations":          {strings.Repeat("NOT ", 65) + "1 = 1", "nested deeper than 64"},
		"negated parentheses":   {deep("NOT (", "1=1", ")", 33), "nested deeper than 64"},
		"70 groups in a row":    {"1 = 1" + strings.Repeat("+(1)", 70), ""},
		"70 calls in a row":     {"1 = 1" + strings.Repeat("+p(a)", 70), ""},
		"70 signs in a row":     {"1 = 1" + strings.Repeat("+-1", 70), ""},
		"70 negations in a row": {"a = 1" + strings.Repeat(" AND NOT a", 70), ""},
		"a long chain of ANDs":  {strings.Repeat("a AND ", 169) + "a", ""},
		"a long sum":            {"1" + strings.Repeat("+1", 509) + " = 1", ""},
		"a long list":           {"a IN (1" + strings.Repeat(",1", 500) + ")", ""},
		"control characters":    {"a = 1\x00", "unexpected character '\\x00'"},
		"half a character":      {"a = '\xe2\x82'", "character 6: the expression is not valid UTF-8"},
	} {
		f, err := Parse(c.text, nil)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		case err != nil && len(err.Error()) > 200:
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		case err == nil:
			_, _ = f.Match(sample()) // must end and not panic, whatever it says
		}
	}
}

// A string cannot be doubled without end, neither by one expression nor from statement to
// statement.
func TestComputedStringsAreBounded(t *testing.T) {
	long := &message{user: []Property{{Name: "a", Value: OfString(strings.Repeat("x", 1<<20))}}}
	want := fmt.Sprintf("a string longer than %d bytes", MaxTextBytes)
	f, err := Parse("a + a = a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.Match(long); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	a, err := ParseAction("SET a = '0123456789' "+strings.Repeat("SET a = a + a ", 31), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = a.Apply(&message{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Steps are counted over the whole evaluation: many searches that are each in bounds run out too.
func TestEvaluationRunsOutOfSteps(t *testing.T) {
	long := &message{user: []Property{{Name: "a", Value: OfString(strings.Repeat("x", 1<<20))},
		{Name: "b", Value: OfString(strings.Repeat("x", 1<<20) + "y")}}}
	want := fmt.Sprintf("more than %d steps", MaxSteps)
	for _, predicate := range []string{
		strings.Repeat("a LIKE '%y%' OR ", 60) + "a LIKE '%z%'",
		strings.Repeat("a = b OR ", 100) + "a = b",
		"a LIKE b",
		"p(a + '') = 1",
		strings.Repeat("p(a) = 1 OR ", 80) + "p(a) = 1",
	} {
		f, err := Parse(predicate, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Match(long)
		if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "a string longer") {
			t.Errorf("%.30s…: got %v, want %q", predicate, err, want)
		}
	}
}
