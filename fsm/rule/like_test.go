package rule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// S-219, T-202: % is any run, _ one character, and the escape character takes their meaning away.
func TestLike(t *testing.T) {
	for _, c := range []struct {
		text, pattern, escape string
		want                  bool
	}{
		{"", "", "", true},
		{"a", "", "", false},
		{"", "%", "", true},
		{"", "%%", "", true},
		{"", "_", "", false},
		{"abc", "abc", "", true},
		{"abc", "ABC", "", false},
		{"abc", "ab", "", false},
		{"abc", "abcd", "", false},
		{"abc", "a%", "", true},
		{"abc", "%c", "", true},
		{"abc", "%b%", "", true},
		{"abc", "b%", "", false},
		{"abc", "%b", "", false},
		{"abc", "___", "", true},
		{"abc", "__", "", false},
		{"abc", "a_c", "", true},
		{"abc", "%_%", "", true},
		{"abc", "_%_%_", "", true},
		{"ab", "_%_%_", "", false},
		{"abab", "ab%ab", "", true},
		{"aba", "ab%ba", "", false}, // the ends may not overlap
		{"abcabcd", "%abcd", "", true},
		{"mississippi", "m%iss%ip%i", "", true},
		{"mississippi", "m%iss%iss%iss%", "", false},
		{"xaybzc", "%a_b_c", "", true},
		{"xaybzcaybzd", "%a_b_d%", "", true},
		{"größe", "gr__e", "", true},
		{"größe", "gr_%ß_", "", true},
		{"日本語", "_本_", "", true},
		{"日本語", "__", "", false},
		{"a\xffb", "a_b", "", true}, // a broken byte is one character
		{"a.c", "a.c", "", true},
		{"abc", "a.c", "", false},
		{"ABC_1", "ABC\\_%", "\\", true},
		{"ABCx1", "ABC\\_%", "\\", false},
		{"ABC%", "ABC\\%", "\\", true},
		{"ABCD", "ABC\\%", "\\", false},
		{"100%", "%!%", "!", true},
		{"a!b", "a!!b", "!", true},
		{"ab", "a!b", "!", true}, // escaping what needs it not
		{"a_b", "a__b", "_", true},
		{"axb", "a__b", "_", false},
		{"a%b", "a%%b", "%", true},
		{"größe", "grä_ßä_", "ä", false},
		{"gr_ß%", "grä_ßä%", "ä", true},
		{"line\nbreak", "line%k", "", true},
	} {
		predicate := "text LIKE @pattern"
		parameters := []Property{{Name: "pattern", Value: OfString(c.pattern)},
			{Name: "mark", Value: OfString(c.escape)}}
		if c.escape != "" {
			predicate += " ESCAPE @mark"
		}
		m := &message{user: []Property{{Name: "text", Value: OfString(c.text)},
			{Name: "pattern", Value: OfString(c.pattern)}, {Name: "mark", Value: OfString(c.escape)}}}
		want := isFalse
		if c.want {
			want = isTrue
		}
		if got := ask(t, m, predicate, parameters...); got != want {
			t.Errorf("%q LIKE %q ESCAPE %q: got %s", c.text, c.pattern, c.escape, answerNames[got])
		}
		// The same pattern from the message instead of the filter.
		if got := ask(t, m, strings.ReplaceAll(predicate, "@", "")); got != want {
			t.Errorf("%q LIKE %q ESCAPE %q, computed: got %s", c.text, c.pattern, c.escape, answerNames[got])
		}
	}
}

func TestLikeInExpressions(t *testing.T) {
	askAll(t, []question{
		{`percent LIKE '100\%' ESCAPE '\'`, isTrue},
		{`color LIKE '100\%' ESCAPE '\'`, isFalse},
		{`color NOT LIKE 'b%'`, isTrue},
		{`color NOT LIKE 'r%'`, isFalse},
		{`color LIKE 'r' + '%'`, isTrue},
		{`color LIKE color`, isTrue},
		{`color + percent LIKE 'red%!%' ESCAPE '!'`, isTrue},
	})
}

// plainLike is the definition of LIKE without an escape, as slow as it is clear.
func plainLike(text, pattern []rune) bool {
	switch {
	case len(pattern) == 0:
		return len(text) == 0
	case pattern[0] == '%':
		return plainLike(text, pattern[1:]) || len(text) > 0 && plainLike(text[1:], pattern)
	case len(text) == 0:
		return false
	}
	return (pattern[0] == '_' || pattern[0] == text[0]) && plainLike(text[1:], pattern[1:])
}

func TestLikeAgreesWithItsDefinition(t *testing.T) {
	const seed = 219
	chance := rand.New(rand.NewPCG(seed, seed))
	draw := func(alphabet string, most int) string {
		letters := []rune(alphabet)
		var b strings.Builder
		for range chance.IntN(most + 1) {
			b.WriteRune(letters[chance.IntN(len(letters))])
		}
		return b.String()
	}
	hits := 0
	for range 20_000 {
		text, pattern := draw("abß", 9), draw("abß%%_", 7)
		like, failure := compilePattern(pattern, noEscape)
		if failure != "" {
			t.Fatal(failure)
		}
		fuel := MaxSteps
		got, want := like.matches(text, &fuel), plainLike([]rune(text), []rune(pattern))
		if got != want {
			t.Fatalf("%q LIKE %q: got %v, want %v (seed %d)", text, pattern, got, want, seed)
		}
		if got {
			hits++
		}
	}
	if hits < 1000 {
		t.Errorf("only %d of the drawn pairs match", hits)
	}
}

// The cost of a pattern grows with the text, not with the ways to divide it.
func TestLikeDoesNotBacktrack(t *testing.T) {
	for _, pattern := range []string{
		strings.Repeat("%a", 500) + "b",
		strings.Repeat("a%", 500) + "b",
		"%" + strings.Repeat("a%_%", 250) + "b",
		strings.Repeat("%_a", 300) + "b",
	} {
		like, _ := compilePattern(pattern, noEscape)
		fuel := MaxSteps
		if like.matches(strings.Repeat("a", 30_000), &fuel) {
			t.Errorf("%.20s… matches", pattern)
		}
		if used := MaxSteps - fuel; used > 100_000 { // three for every character of the text
			t.Errorf("%.20s… takes %d steps", pattern, used)
		}
	}
	// The worst that is left is a long segment with single characters in it: it runs out of steps.
	long := &message{user: []Property{{Name: "text", Value: OfString(strings.Repeat("a", 1<<20))}}}
	worst := fmt.Sprintf("text LIKE '%%%s_b%%'", strings.Repeat("_a", 500))
	if got := ask(t, long, worst); got != fails {
		t.Errorf("the worst pattern: got %s, want an error", answerNames[got])
	}
	if got := ask(t, long, "text LIKE '%aaaab%'"); got != isFalse {
		t.Errorf("an honest pattern on a long text: got %s", answerNames[got])
	}
}
