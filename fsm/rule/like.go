package rule

import (
	"strings"
	"unicode/utf8"
)

// noEscape is no character of any pattern: checkSource and escapeOf admit only valid ones.
const noEscape rune = -1

// pattern is a compiled LIKE pattern: segments with any run of characters (%) between them. The
// first segment is anchored at the beginning, the last at the end; those between are searched from
// left to right, and the leftmost place is always the right one, so nothing is ever tried twice.
type pattern struct {
	segments []segment
	scanners []*scanner // of the segments, nil for those that are one text
}

// segment is a run of pieces that must follow each other.
type segment []piece

// piece is so many single characters (_) and then a text.
type piece struct {
	skip int
	text string
}

// escapeOf returns the character of an ESCAPE operand.
func escapeOf(v Value) (rune, bool) {
	r, n := utf8.DecodeRuneInString(v.text)
	if v.kind != String || n == 0 || n != len(v.text) || r == utf8.RuneError && n == 1 {
		return noEscape, false
	}
	return r, true
}

// compilePattern returns a failure if the text ends with its escape character.
func compilePattern(text string, escape rune) (like *pattern, failure string) {
	like = &pattern{}
	var seg segment
	var run strings.Builder
	skip, literal := 0, false
	flush := func() {
		if skip > 0 || run.Len() > 0 {
			seg = append(seg, piece{skip, run.String()})
			skip = 0
			run.Reset()
		}
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case literal:
			run.WriteString(text[i : i+n])
			literal = false
		case r == escape:
			literal = true
		case r == '%':
			flush()
			like.segments = append(like.segments, seg)
			seg = nil
		case r == '_':
			if run.Len() > 0 {
				flush()
			}
			skip++
		default:
			run.WriteString(text[i : i+n])
		}
		i += n
	}
	if literal {
		return nil, "the pattern ends with its escape character"
	}
	flush()
	like.segments = append(like.segments, seg)
	like.scanners = make([]*scanner, len(like.segments))
	for i := 1; i < len(like.segments)-1; i++ {
		like.scanners[i] = newScanner(like.segments[i])
	}
	return like, ""
}

// matches reports whether s is like the pattern. Each step takes one from fuel. When fuel is used up, matches returns
// false and leaves fuel negative.
func (l *pattern) matches(s string, fuel *int) bool {
	first, last := l.segments[0], l.segments[len(l.segments)-1]
	n, ok := first.prefix(s, fuel)
	if len(l.segments) == 1 || !ok {
		return ok && n == len(s)
	}
	s = s[n:]
	for i, seg := range l.segments[1 : len(l.segments)-1] {
		if n, ok = seg.find(s, l.scanners[i+1], fuel); !ok {
			return false
		}
		s = s[n:]
	}
	return last.suffix(s, fuel)
}

// prefix returns how many bytes of s the segment takes from its beginning.
func (g segment) prefix(s string, fuel *int) (int, bool) {
	n := 0
	for _, p := range g {
		*fuel -= 1 + p.skip + len(p.text)/stepBytes
		for range p.skip {
			if n == len(s) {
				return 0, false
			}
			_, size := utf8.DecodeRuneInString(s[n:])
			n += size
		}
		if *fuel < 0 || !strings.HasPrefix(s[n:], p.text) {
			return 0, false
		}
		n += len(p.text)
	}
	return n, true
}

// suffix reports whether s ends with the segment.
func (g segment) suffix(s string, fuel *int) bool {
	for i := len(g) - 1; i >= 0; i-- {
		p := g[i]
		*fuel -= 1 + p.skip + len(p.text)/stepBytes
		if *fuel < 0 || !strings.HasSuffix(s, p.text) {
			return false
		}
		s = s[:len(s)-len(p.text)]
		for range p.skip {
			if s == "" {
				return false
			}
			_, size := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-size]
		}
	}
	return true
}

// find returns the end of the leftmost place in s that the segment takes.
func (g segment) find(s string, scan *scanner, fuel *int) (int, bool) {
	if len(g) == 0 {
		return 0, true
	}
	if scan != nil {
		return scan.find(s, fuel)
	}
	i := strings.Index(s, g[0].text)
	if i < 0 {
		*fuel -= 1 + len(s)/stepBytes
		return 0, false
	}
	end := i + len(g[0].text)
	*fuel -= 1 + end/stepBytes
	return end, true
}
