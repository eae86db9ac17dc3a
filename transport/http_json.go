package transport

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errBytes     = errors.New("it is no UTF-8")
	errNoUTF8    = errors.New("the JSON is no UTF-8")
	errSurrogate = errors.New("the JSON has an escape of half a character, \\ud800 to \\udfff, without its other half")
)

// exactText refuses JSON whose texts would not be stored as they were sent. The decoder puts U+FFFD in place of bytes
// that are no UTF-8, and of half a surrogate pair. Two session ids could become one. The decoder tells all other faults.
func exactText(text []byte) error {
	if !utf8.Valid(text) {
		return errNoUTF8
	}
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		r, ok := escaped(text[i:])
		if ok && utf16.IsSurrogate(r) {
			low, paired := escaped(text[i+6:])
			if !paired || utf16.DecodeRune(r, low) == utf8.RuneError {
				return errSurrogate
			}
			i += 6
		}
		i++ // what is escaped may be a backslash
	}
	return nil
}

// exactProperty refuses the value of a header that would not be stored as it was sent: a text in quotes is JSON.
func exactProperty(value string) error {
	switch {
	case !utf8.ValidString(value):
		return errBytes
	case strings.HasPrefix(value, `"`):
		return exactText([]byte(value))
	}
	return nil
}

// escaped reads an escape of four hexadecimal digits at the beginning of text.
func escaped(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
