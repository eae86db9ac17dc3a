package rule

import "unicode/utf8"

// scanner finds a segment that has single characters (_) in it, in one pass over the text whatever the two look like.
// It follows all possible beginnings of the segment at once. Bit i of its state says that the last i+1 characters of
// the text are the first i+1 of the segment.
type scanner struct {
	ascii  [utf8.RuneSelf][]uint64 // by character, the places in the segment where it may stand; nil: as any
	others map[rune][]uint64
	any    []uint64 // places where every character may stand
	end    uint64   // the last place, in the last word
}

const wordBits = 64

// newScanner returns the scanner of a segment, nil for one that is a single text.
func newScanner(g segment) *scanner {
	if len(g) == 0 || len(g) == 1 && g[0].skip == 0 {
		return nil
	}
	places := 0
	for _, p := range g {
		places += p.skip + utf8.RuneCountInString(p.text)
	}
	words := (places + wordBits - 1) / wordBits
	s := &scanner{any: make([]uint64, words), others: map[rune][]uint64{}, end: 1 << ((places - 1) % wordBits)}
	at := 0
	for _, p := range g { // first where anything may stand, for it is part of what every character may
		for range p.skip {
			s.any[at/wordBits] |= 1 << (at % wordBits)
			at++
		}
		at += utf8.RuneCountInString(p.text)
	}
	at = 0
	for _, p := range g {
		at += p.skip
		for _, r := range p.text {
			m := s.mask(r)
			if m == nil {
				m = append([]uint64(nil), s.any...)
				if r < utf8.RuneSelf {
					s.ascii[r] = m
				} else {
					s.others[r] = m
				}
			}
			m[at/wordBits] |= 1 << (at % wordBits)
			at++
		}
	}
	return s
}

// mask returns the places where a character may stand, nil if it stands nowhere by itself.
func (s *scanner) mask(r rune) []uint64 {
	if r < utf8.RuneSelf {
		return s.ascii[r]
	}
	return s.others[r]
}

// maxScanWords is as many words as the longest expression's segment needs.
const maxScanWords = (MaxExpressionChars + wordBits - 1) / wordBits

// find returns the end of the leftmost place in text that the segment takes. A character costs a step for every four
// words of the state.
func (s *scanner) find(text string, fuel *int) (int, bool) {
	var room [maxScanWords]uint64
	state := room[:min(len(s.any), len(room))]
	if len(s.any) > len(room) { // the pattern is longer than an expression: it comes from a property
		state = make([]uint64, len(s.any))
	}
	cost := 1 + len(s.any)/4
	for i := 0; i < len(text); {
		if *fuel -= cost; *fuel < 0 {
			return 0, false
		}
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(text[i:])
		}
		i += n
		m := s.mask(r)
		if m == nil || r == utf8.RuneError && n == 1 { // a byte that is no character is none of the segment's
			m = s.any
		}
		carry := uint64(1) // the segment may begin at every character
		for w := range state {
			next := state[w] >> (wordBits - 1)
			state[w] = (state[w]<<1 | carry) & m[w]
			carry = next
		}
		if state[len(state)-1]&s.end != 0 {
			return i, true
		}
	}
	return 0, false
}
