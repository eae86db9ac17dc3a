package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/go-amqp"
)

// The exit codes of every subcommand; 0 is success.
const (
	exitFailed       = 1 // at run time: unreachable, refused, timed out
	exitUsage        = 2 // the command line or the configuration is wrong
	exitNotFound     = 3
	exitConflict     = 4
	exitUnauthorised = 5
)

// Conditions of the service that the commands know.
const (
	condSessionHeld     amqp.ErrCond = "com.microsoft:session-cannot-be-locked"
	condMessageLockLost amqp.ErrCond = "com.microsoft:message-lock-lost"
	condSessionLockLost amqp.ErrCond = "com.microsoft:session-lock-lost"
)

// exitError is an error that knows its exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// statusError turns an HTTP answer that is no success into an error with its exit code.
func statusError(what string, status int, detail string) error {
	code := exitFailed
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		code = exitUnauthorised
	case http.StatusNotFound:
		code = exitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		code = exitConflict
	case http.StatusBadRequest:
		code = exitUsage
	}
	if detail == "" {
		detail = http.StatusText(status)
	}
	return &exitError{code, fmt.Errorf("%s: %d: %s", what, status, detail)}
}

// wireError finds the exit code of what an AMQP operation returned.
func wireError(what string, err error) error {
	if err == nil {
		return nil
	}
	var known *exitError
	if errors.As(err, &known) {
		return &exitError{known.code, fmt.Errorf("%s: %w", what, err)}
	}
	code := exitFailed
	switch condition(err) {
	case amqp.ErrCondUnauthorizedAccess:
		code = exitUnauthorised
	case amqp.ErrCondNotFound:
		code = exitNotFound
	case amqp.ErrCondResourceLocked, condSessionHeld, condMessageLockLost, condSessionLockLost:
		code = exitConflict
	case amqp.ErrCondNotAllowed, amqp.ErrCondInvalidField, amqp.ErrCondMessageSizeExceeded:
		code = exitUsage
	}
	if remote := remoteError(err); remote != nil && remote.Description != "" {
		told := fmt.Sprintf("%s: %s (%s)", what, remote.Description, remote.Condition)
		return &exitError{code, &toldError{told, err}}
	}
	return &exitError{code, fmt.Errorf("%s: %w", what, err)}
}

// toldError says what the broker said and keeps the error that it came in.
type toldError struct {
	text string
	err  error
}

func (e *toldError) Error() string { return e.text }
func (e *toldError) Unwrap() error { return e.err }

// condition returns the AMQP error condition behind an error, "" if there is none.
func condition(err error) amqp.ErrCond {
	if remote := remoteError(err); remote != nil {
		return remote.Condition
	}
	// The library reports a refused SASL exchange as text only.
	if err != nil && strings.Contains(err.Error(), "SASL") && strings.Contains(err.Error(), "auth") {
		return amqp.ErrCondUnauthorizedAccess
	}
	return ""
}

// remoteError digs what the broker said out of whatever layer reported it.
func remoteError(err error) *amqp.Error {
	var (
		plain *amqp.Error
		link  *amqp.LinkError
		sess  *amqp.SessionError
		conn  *amqp.ConnError
	)
	switch {
	case errors.As(err, &link) && link.RemoteErr != nil:
		return link.RemoteErr
	case errors.As(err, &sess) && sess.RemoteErr != nil:
		return sess.RemoteErr
	case errors.As(err, &conn) && conn.RemoteErr != nil:
		return conn.RemoteErr
	case errors.As(err, &plain):
		return plain
	}
	return nil
}

// nothingCame reports whether a wait ended without result, which is no failure.
func nothingCame(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || condition(err) == "com.microsoft:timeout"
}
