package dial

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// Conditions of the service that the commands know.
const (
	SessionHeld     amqp.ErrCond = "com.microsoft:session-cannot-be-locked"
	MessageLockLost amqp.ErrCond = "com.microsoft:message-lock-lost"
	SessionLockLost amqp.ErrCond = "com.microsoft:session-lock-lost"
)

// Failure finds the exit code of what an AMQP operation returned.
func Failure(what string, err error) error {
	if err == nil {
		return nil
	}
	var known *exit.Error
	if errors.As(err, &known) {
		return exit.With(known.Code, fmt.Errorf("%s: %w", what, err))
	}
	code := exit.Failed
	switch Condition(err) {
	case amqp.ErrCondUnauthorizedAccess:
		code = exit.Unauthorised
	case amqp.ErrCondNotFound:
		code = exit.NotFound
	case amqp.ErrCondResourceLocked, SessionHeld, MessageLockLost, SessionLockLost:
		code = exit.Conflict
	case amqp.ErrCondNotAllowed, amqp.ErrCondInvalidField, amqp.ErrCondMessageSizeExceeded:
		code = exit.Usage
	}
	if remote := remoteError(err); remote != nil && remote.Description != "" {
		told := fmt.Sprintf("%s: %s (%s)", what, remote.Description, remote.Condition)
		return exit.With(code, &toldError{told, err})
	}
	return exit.With(code, fmt.Errorf("%s: %w", what, err))
}

// toldError says what the broker said and keeps the error that it came in.
type toldError struct {
	text string
	err  error
}

func (e *toldError) Error() string { return e.text }
func (e *toldError) Unwrap() error { return e.err }

// Condition returns the AMQP error condition behind an error, "" if there is none.
func Condition(err error) amqp.ErrCond {
	if remote := remoteError(err); remote != nil {
		return remote.Condition
	}
	// by text: the library has no error for a refused SASL exchange.
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

// NothingCame reports whether a wait ended without result, which is no failure.
func NothingCame(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || Condition(err) == "com.microsoft:timeout"
}
