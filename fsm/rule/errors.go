package rule

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Dead-letter reasons of a copy whose rule could not be evaluated (S-174, S-221).
const (
	FilterException     = "FilterException"
	RuleActionException = "RuleActionException"
)

// SyntaxError says why a text is no filter or action. The user who wrote it is told (HTTP 400).
type SyntaxError struct {
	At   int // character, counted from 1; 0 if the text as a whole is meant
	Text string
	long bool
}

// TooLong reports whether err says that the text of a filter or action is too long. The refusal is a quota, and no
// mistake in the text of the user (S-229).
func TooLong(err error) bool {
	var e *SyntaxError
	return errors.As(err, &e) && e.long
}

// Error returns the sentence with its position.
func (e *SyntaxError) Error() string {
	if e.At == 0 {
		return e.Text
	}
	return fmt.Sprintf("syntax error at character %d: %s", e.At, e.Text)
}

// EvaluationError says why a filter or action could not be evaluated for one message. Another
// evaluation of the same message fails alike.
type EvaluationError struct {
	At   int // character of the expression, counted from 1
	Text string

	exhausted bool
}

// Exhausted reports whether an evaluation failed because the budget that it was given did not last. Alone it might
// have succeeded.
func Exhausted(err error) bool {
	var e *EvaluationError
	return errors.As(err, &e) && e.exhausted
}

// Error returns the sentence with its position.
func (e *EvaluationError) Error() string {
	return fmt.Sprintf("evaluation error at character %d: %s", e.At, e.Text)
}

// SourceError says what is wrong with the parts of a rule that are not text.
type SourceError struct{ Text string }

// Error returns the sentence.
func (e *SourceError) Error() string { return e.Text }

func sourceErrorf(format string, args ...any) error {
	return &SourceError{Text: fmt.Sprintf(format, args...)}
}

// character turns a byte offset of text into a character counted from 1.
func character(text string, offset int) int {
	return utf8.RuneCountInString(text[:min(offset, len(text))]) + 1
}
