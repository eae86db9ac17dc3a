package transport

import (
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/transport/amqp"
)

// An error is typed by how much of the conversation it ends: a connError the connection, a channelError the channel,
// a linkError the link. Everything else is an outcome of one delivery.

type connError struct {
	at    site
	cause *amqp.Error
}

func (e *connError) Error() string { return e.cause.Error() }

type channelError struct {
	at    site
	cause *amqp.Error
}

func (e *channelError) Error() string { return e.cause.Error() }

type linkError struct {
	at    site
	cause *amqp.Error
}

func (e *linkError) Error() string { return e.cause.Error() }

func amqpError(condition amqp.Symbol, format string, args ...any) *amqp.Error {
	return &amqp.Error{Condition: condition, Description: fmt.Sprintf(format, args...)}
}

func connFault(at site, condition amqp.Symbol, format string, args ...any) error {
	return &connError{at, amqpError(condition, format, args...)}
}

func channelFault(at site, condition amqp.Symbol, format string, args ...any) error {
	return &channelError{at, amqpError(condition, format, args...)}
}

func linkFault(at site, condition amqp.Symbol, format string, args ...any) error {
	return &linkError{at, amqpError(condition, format, args...)}
}

// wireFault turns an error of package amqp into the end of the connection.
func wireFault(err error) error {
	if errors.Is(err, amqp.ErrFraming) {
		return connFault(siteFraming, amqp.ConditionFramingError, "%v", err)
	}
	return connFault(siteDecode, amqp.ConditionDecodeError, "%v", err)
}
