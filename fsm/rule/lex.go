package rule

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxExpressionChars is the longest filter or action (management quotas).
const MaxExpressionChars = 1024

type tokenKind uint8

const (
	tokenEnd       tokenKind = iota
	tokenName                // a word that is no keyword
	tokenKeyword             // text in upper case
	tokenDelimited           // [name] or "name", text without the delimiters
	tokenText                // 'string', text without the quotes
	tokenInteger
	tokenFloat
	tokenParameter // text without @
	tokenSymbol    // one of the operators and punctuation
)

// token is one word of an expression; at is its byte offset.
type token struct {
	kind    tokenKind
	at      int
	end     int
	text    string
	integer uint64
	float   float64
}

func (t token) is(symbol string) bool { return t.kind == tokenSymbol && t.text == symbol }
func (t token) isWord(w string) bool  { return t.kind == tokenKeyword && t.text == w }

// keywords cannot be names unless they are delimited. SET and REMOVE are names in a filter.
var filterKeywords = []string{"AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS",
	"TRUE", "FALSE"}

// symbols with two characters come before those they begin with.
var symbols = []string{"<>", "<=", ">=", "!=", "<", ">", "=", "+", "-", "*", "/", "%", "(", ")",
	",", ".", ";"}

type lexer struct {
	source string
	pos    int
	action bool // SET and REMOVE are keywords
}

// checkSource refuses what no expression can be before anything looks at it twice.
func checkSource(source string) *SyntaxError {
	if len(source) > MaxExpressionChars*utf8.UTFMax ||
		utf8.RuneCountInString(source) > MaxExpressionChars {
		return &SyntaxError{long: true, Text: fmt.Sprintf("the expression is longer than %d characters",
			MaxExpressionChars)}
	}
	for i, r := range source {
		if r == utf8.RuneError && !strings.HasPrefix(source[i:], "\uFFFD") {
			return &SyntaxError{At: character(source, i), Text: "the expression is not valid UTF-8"}
		}
	}
	return nil
}

func (l *lexer) errorAt(offset int, format string, args ...any) *SyntaxError {
	return &SyntaxError{At: character(l.source, offset), Text: fmt.Sprintf(format, args...)}
}

// next returns the next token; after the last one it returns tokenEnd for ever.
func (l *lexer) next() (token, *SyntaxError) {
	for l.pos < len(l.source) {
		r, n := utf8.DecodeRuneInString(l.source[l.pos:])
		if !unicode.IsSpace(r) {
			break
		}
		l.pos += n
	}
	start, rest := l.pos, l.source[l.pos:]
	if rest == "" {
		return token{kind: tokenEnd, at: start, end: start}, nil
	}
	t, err := l.token(rest)
	t.at, t.end = start, l.pos
	return t, err
}

func (l *lexer) token(rest string) (token, *SyntaxError) {
	first, _ := utf8.DecodeRuneInString(rest)
	switch {
	case unicode.IsLetter(first):
		return l.word(), nil
	case digit(rest[0]) || rest[0] == '.' && len(rest) > 1 && digit(rest[1]):
		return l.number()
	case first == '\'':
		text, err := l.delimited('\'', "a string")
		return token{kind: tokenText, text: text}, err
	case first == '"' || first == '[':
		start := l.pos
		closing := byte('"')
		if first == '[' {
			closing = ']'
		}
		text, err := l.delimited(closing, "a name")
		if err == nil && text == "" {
			err = l.errorAt(start, "a name must not be empty")
		}
		return token{kind: tokenDelimited, text: text}, err
	case first == '@':
		start := l.pos
		l.pos++
		if r, _ := utf8.DecodeRuneInString(l.source[l.pos:]); !unicode.IsLetter(r) {
			return token{}, l.errorAt(start, "expected the name of a parameter after @")
		}
		return token{kind: tokenParameter, text: l.letters()}, nil
	}
	for _, s := range symbols {
		if strings.HasPrefix(rest, s) {
			l.pos += len(s)
			return token{kind: tokenSymbol, text: s}, nil
		}
	}
	return token{}, l.errorAt(l.pos, "unexpected character %q", first)
}

// letters reads letters, digits and underscores.
func (l *lexer) letters() string {
	start := l.pos
	for l.pos < len(l.source) {
		r, n := utf8.DecodeRuneInString(l.source[l.pos:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		l.pos += n
	}
	return l.source[start:l.pos]
}

func (l *lexer) word() token {
	text := l.letters()
	upper := strings.ToUpper(text)
	for _, k := range filterKeywords {
		if upper == k {
			return token{kind: tokenKeyword, text: k}
		}
	}
	if l.action && (upper == "SET" || upper == "REMOVE") {
		return token{kind: tokenKeyword, text: upper}
	}
	return token{kind: tokenName, text: text}
}

// delimited reads from the opening character to closing; a doubled closing stands for itself.
func (l *lexer) delimited(closing byte, what string) (string, *SyntaxError) {
	start := l.pos
	var doubled strings.Builder
	for from := start + 1; ; {
		i := strings.IndexByte(l.source[from:], closing)
		if i < 0 {
			return "", l.errorAt(start, "%s is not closed by %c", what, closing)
		}
		end := from + i
		if end+1 < len(l.source) && l.source[end+1] == closing {
			doubled.WriteString(l.source[from : end+1])
			from = end + 2
			continue
		}
		l.pos = end + 1
		if doubled.Len() == 0 {
			return l.source[from:end], nil
		}
		doubled.WriteString(l.source[from:end])
		return doubled.String(), nil
	}
}

// number reads an integer, a hexadecimal integer, a decimal or a number with an exponent.
func (l *lexer) number() (token, *SyntaxError) {
	start, s := l.pos, l.source
	if len(s) > start+1 && s[start] == '0' && (s[start+1] == 'x' || s[start+1] == 'X') {
		l.pos += 2
		for l.pos < len(s) && hexDigit(s[l.pos]) {
			l.pos++
		}
		return l.integer(start, s[start+2:l.pos], 16)
	}
	l.digits()
	float := false
	if l.pos < len(s) && s[l.pos] == '.' {
		float = true
		l.pos++
		l.digits()
	}
	if l.pos < len(s) && (s[l.pos] == 'e' || s[l.pos] == 'E') {
		float = true
		l.pos++
		if l.pos < len(s) && (s[l.pos] == '+' || s[l.pos] == '-') {
			l.pos++
		}
		if before := l.pos; l.digits() == before {
			return token{}, l.errorAt(start, "a number lacks the digits of its exponent")
		}
	}
	if !float {
		return l.integer(start, s[start:l.pos], 10)
	}
	if err := l.endOfNumber(start); err != nil {
		return token{}, err
	}
	f, err := strconv.ParseFloat(s[start:l.pos], 64)
	if err != nil {
		return token{}, l.errorAt(start, "a number is out of range")
	}
	return token{kind: tokenFloat, float: f}, nil
}

// digits skips digits and returns where it stopped.
func (l *lexer) digits() int {
	for l.pos < len(l.source) && digit(l.source[l.pos]) {
		l.pos++
	}
	return l.pos
}

func (l *lexer) integer(start int, text string, base int) (token, *SyntaxError) {
	if err := l.endOfNumber(start); err != nil {
		return token{}, err
	}
	if text == "" {
		return token{}, l.errorAt(start, "a number lacks its digits")
	}
	n, err := strconv.ParseUint(text, base, 64)
	if err != nil {
		return token{}, l.errorAt(start, "an integer is out of range")
	}
	return token{kind: tokenInteger, integer: n}, nil
}

// endOfNumber refuses 12abc, which otherwise would be a number and a name.
func (l *lexer) endOfNumber(start int) *SyntaxError {
	r, _ := utf8.DecodeRuneInString(l.source[l.pos:])
	if l.pos < len(l.source) && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)) {
		return l.errorAt(start, "a number must not run into a name")
	}
	return nil
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
func hexDigit(c byte) bool {
	return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
