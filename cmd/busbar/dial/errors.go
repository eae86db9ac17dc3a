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
		if cure := cureOf(err.Error()); cure != "" {
			return exit.With(known.Code, fmt.Errorf("%s: %w: %s", what, err, cure))
		}
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
		text, id := shortened(remote.Description)
		told := fmt.Sprintf("%s: %s (%s", what, withCure(text), remote.Condition)
		if id != "" {
			told += ", tracking id " + id
		}
		return exit.With(code, &toldError{told + ")", err})
	}
	if cure := cureOf(err.Error()); cure != "" {
		return exit.With(code, fmt.Errorf("%s: %w: %s", what, err, cure))
	}
	return exit.With(code, fmt.Errorf("%s: %w", what, err))
}

// cures are what a user does about a failure, by a part of its text.
var cures = []struct{ part, cure string }{
	{"could not be found", "busbar entities list shows what there is"},
	{"messages cannot be received from a topic", "receive from one of its subscriptions, TOPIC/Subscriptions/NAME; busbar subscription list TOPIC " +
		"shows them"},
	{"messages cannot be sent to a subscription", "send to its topic"},
	{"sessionful message receiver cannot be", "it has no sessions: leave --session and --next-session out"},
	{"requires sessions to create a non-sessionful", "it has sessions: name one by --session, or take --next-session"},
	{"cannot be locked", "another receiver holds it: busbar queue locks QUEUE shows who, and busbar queue sessions release QUEUE SESSION " +
		"takes it"},
	{"is currently disabled", "busbar queue update QUEUE --status Active, or busbar queue resume QUEUE for a suspension"},
	{"connection refused", "nobody listens there: is the broker running, and is that its port?"},
	{`unexpected protocol "HTTP"`, "that port speaks HTTP and no AMQP: is it the operations port? Clients take port 5672, or 5671 with TLS, " +
		"unless the broker was told otherwise"},
	{"no such host", "nobody knows that name: is the connection string right?"},
	{"first record does not look like a TLS handshake", "that port speaks no TLS: does UseDevelopmentEmulator=true lack, or is it the " +
		"wrong port?"},
	{"certificate signed by unknown authority", "give the authority of the broker by --ca-file"},
	{"Missing sequence numbers", "busbar queue peek QUEUE --state scheduled, or deferred, shows the numbers that there are"},
	{"invalid signature", "is the key in the connection string the one of that policy?"},
}

// cureOf is what to do about an error with that text, "" if nobody knows or the text says so already.
func cureOf(text string) string {
	for _, c := range cures {
		if strings.Contains(text, c.part) && !strings.Contains(text, c.cure) {
			return c.cure
		}
	}
	return ""
}

// withCure adds to a text what to do.
func withCure(text string) string {
	if cure := cureOf(text); cure != "" {
		return text + ": " + cure
	}
	return text
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
