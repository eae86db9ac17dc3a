package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/auth"
)

// This file has the conditions and texts of refusals. Where clients or their tests look at the text it is the
// original's (RUL-13). The other parts of S-1 are added where the texts leave, see errors_tell.go.

// containerID names this node to its clients.
func (s *Server) containerID() string {
	return fmt.Sprintf("%s-%016x", s.cfg.Namespace, uint64(s.cfg.Incarnation))
}

// notFoundText is what JavaScript and Java look for to tell a missing entity from other things that
// are not found (Q18).
func notFoundText(s *Server, path string) string {
	return fmt.Sprintf("The messaging entity 'sb://%s/%s' could not be found. To know more visit "+
		"https://aka.ms/sbResourceMgrExceptions. ", s.cfg.Namespace, path)
}

func disabledText(path string) string {
	return fmt.Sprintf("Messaging entity '%s' is currently disabled.", path)
}

func unauthorizedText(path string, right auth.Right) string {
	return fmt.Sprintf("Unauthorized access. '%s' claim(s) are required to perform this operation. Resource: '%s'.",
		right, path)
}

// refusal turns a refusal of the state machine into what a client hears of it. The path is the
// entity's, detail the state machine's own words.
func (s *Server) refusal(why fsm.Refusal, detail, path string) *amqp.Error {
	condition, text := conditionOf(why)
	switch why {
	case fsm.EntityNotFound:
		text, detail = notFoundText(s, path), ""
	case fsm.EntityDisabled:
		text = disabledText(path)
	}
	if detail != "" {
		if text != "" {
			text += " "
		}
		text += detail
	}
	e := &amqp.Error{Condition: condition, Description: text}
	switch why {
	case fsm.TransactionAborted:
		return becauseOf(txnAborted, e)
	case fsm.TransactionTooLarge:
		return becauseOf(txnTooLarge, e)
	}
	return e
}

// conditionOf is the table of the error codes of S-2.
func conditionOf(why fsm.Refusal) (amqp.Symbol, string) {
	switch why {
	case fsm.MessageLockLost:
		return amqp.ConditionMessageLockLost, "The lock supplied is invalid. Either the lock expired, or the " +
			"message has already been removed from the queue, or was received by a different receiver instance."
	case fsm.SessionLockLost:
		return amqp.ConditionSessionLockLost, "The session lock has expired on the MessageSession. " +
			"Accept a new MessageSession."
	case fsm.SessionCannotBeLocked:
		return amqp.ConditionSessionCannotBeLocked, "The requested session cannot be accepted. It may be locked by " +
			"another receiver."
	case fsm.NoSession:
		return amqp.ConditionTimeout, "The operation did not complete within the allotted timeout."
	case fsm.MessageNotFound:
		return amqp.ConditionMessageNotFound, "Failed to lock one or more specified messages. The message does not exist."
	case fsm.EntityNotFound:
		return amqp.ConditionNotFound, ""
	case fsm.EntityExists:
		return amqp.ConditionEntityAlreadyExists, "The entity exists already."
	case fsm.EntityDisabled:
		return amqp.ConditionEntityDisabled, ""
	case fsm.MessageSizeExceeded:
		return amqp.ConditionMessageSizeExceeded, "The size exceeds the limit of the entity."
	case fsm.QuotaExceeded:
		return amqp.ConditionResourceLimitExceeded, "The maximum entity size has been reached or exceeded."
	case fsm.SessionRequired:
		return amqp.ConditionNotAllowed, "It is not possible for an entity that requires sessions to create a " +
			"non-sessionful message receiver."
	case fsm.SessionNotSupported:
		return amqp.ConditionNotAllowed, "The entity does not require sessions."
	case fsm.InvalidOperation:
		return amqp.ConditionNotAllowed, "The operation is not allowed."
	case fsm.InvalidArgument:
		return amqp.ConditionArgumentError, "The argument is not valid."
	case fsm.TransactionAborted:
		return amqp.ConditionTransactionRollback, "nothing of the transaction was done."
	case fsm.Unauthorized:
		return amqp.ConditionUnauthorizedAccess, "Unauthorized access."
	case fsm.TransactionTooLarge:
		return amqp.ConditionResourceLimitExceeded, "the transaction is too large."
	case fsm.Busy, fsm.Stale, fsm.NotLeader, fsm.NodeExpired:
		return amqp.ConditionServerBusy, "The request was terminated because the entity is being throttled. " +
			"Please wait 10 seconds and try again."
	}
	return amqp.ConditionInternalError, "The broker could not do this."
}

// errorOf turns a failed attempt into what a client hears of it. Details stay in the log.
func (s *Server) errorOf(err error, path string) *amqp.Error {
	switch {
	case errors.Is(err, fsm.ErrNoEntity):
		return s.refusal(fsm.EntityNotFound, "", path)
	case errors.Is(err, fsm.ErrBusy):
		return s.refusal(fsm.Busy, "", path)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, fsm.ErrUnavailable), errors.Is(err, fsm.ErrUnknown),
		errors.Is(err, fsm.ErrNotLeader):
		s.log.Debug("no answer in time", "entity", path, "error", err)
		return amqpError(amqp.ConditionTimeout, "The operation did not complete within the allotted timeout.")
	case errors.Is(err, context.Canceled), errors.Is(err, fsm.ErrClosed):
		return amqpError(amqp.ConditionOperationCancelled, "The broker is shutting down.")
	}
	s.log.Error("unexpected error of the broker", "entity", path, "error", err)
	return amqpError(amqp.ConditionInternalError, "The broker encountered an internal error.")
}
