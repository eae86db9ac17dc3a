package exit

import (
	"errors"
	"fmt"
	"net/http"
)

// The exit codes of every subcommand; 0 is success.
const (
	Failed       = 1 // at run time: unreachable, refused, timed out
	Usage        = 2 // the command line or the configuration is wrong
	NotFound     = 3
	Conflict     = 4
	Unauthorised = 5
	Unhealthy    = 10 // of busbar cluster health and doctor: something is wrong with the cluster
	CutOff       = 6  // a node ended before its stop was over: at a second signal, or because the stop took too long
)

// Error is an error that knows its exit code.
type Error struct {
	Code int
	err  error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// With gives an error its exit code.
func With(code int, err error) error { return &Error{code, err} }

// Usagef is a mistake in the command line, with the text of fmt.Errorf.
func Usagef(format string, args ...any) error {
	return With(Usage, fmt.Errorf(format, args...))
}

// FromHTTP turns an HTTP answer that is no success into an error with its exit code.
func FromHTTP(what string, status int, detail string) error {
	code := Failed
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		code = Unauthorised
	case http.StatusNotFound:
		code = NotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusGone: // of AMQP: a lock that was lost
		code = Conflict
	case http.StatusBadRequest:
		code = Usage
	}
	if detail == "" {
		detail = http.StatusText(status)
	}
	return With(code, fmt.Errorf("%s: %d: %s", what, status, detail))
}

// Code is the code that a command ends with: 0 without an error, Failed for an error that has none.
func Code(err error) int {
	var known *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &known):
		return known.Code
	}
	return Failed
}
