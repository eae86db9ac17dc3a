package transport

import (
	"strings"

	"github.com/busbar-mq/busbar/transport/amqp"
	"github.com/busbar-mq/busbar/transport/refusal"
	"github.com/busbar-mq/busbar/transport/waist"
)

// Every error that leaves for a client passes this file, where it gets what S-1 asks for. It gets a code, an id that
// the log has, whether and when to try again, the entity and the time. Clients of the original read the condition and
// the text; the rest is in the error's info map, or in the application properties of a reply, under the names of S-1.

// The causes of errors of transactions. Other failures have the same conditions.
const (
	txnAborted amqp.Cause = 1 + iota
	txnInDoubt
	txnTooLarge
)

// causeCodes are the rows of S-2 of the causes.
var causeCodes = [...]refusal.Code{
	txnAborted:  refusal.TransactionAborted,
	txnInDoubt:  refusal.TransactionInDoubt,
	txnTooLarge: refusal.TransactionSizeExceeded,
}

// becauseOf gives an error its cause. Its text then begins with the code, for people.
func becauseOf(cause amqp.Cause, e *amqp.Error) *amqp.Error {
	e.Cause = cause
	e.Description = causeCodes[cause].String() + ": " + e.Description
	return e
}

// infoFrameBytes is the frame from which an error has an info map; a client with smaller ones (512 is
// the least, AMQP 1.0 §2.4.1) could not read both the map and the text.
const infoFrameBytes = 1 << 10

// note gives a refusal its id, writes it to the log, and completes its text. path is the entity's, ""
// if it is about none.
func (c *conn) note(e *amqp.Error, path string) (*amqp.Error, *refusal.Mark) {
	with, mark := c.mark(e, path)
	c.refuses(e, path, mark)
	return with, mark
}

// mark is note for a refusal that the audit log has already, or is to have with more than that.
func (c *conn) mark(e *amqp.Error, path string) (*amqp.Error, *refusal.Mark) {
	mark := c.s.refusals.Note(codeOfError(e), path, e.Description, "condition", e.Condition,
		"remote", c.socket.RemoteAddr(), "container", refusal.Clip(c.container))
	with := *e
	if e.Condition == amqp.ConditionNotFound {
		with.Description = c.named(e.Description)
	}
	with.Description += mark.Tail(c.cfg.Namespace)
	return &with, &mark
}

// named gives the namespace in the text of an entity that is not there the name that the client calls it by.
func (c *conn) named(text string) string {
	host := bareHost(c.hostname)
	if host == "" {
		return text
	}
	return strings.Replace(text, "'sb://"+c.cfg.Namespace+"/", "'sb://"+refusal.Clip(host)+"/", 1)
}

// tell returns e as the client hears it; one that was told already, and nil, stay as they are.
func (c *conn) tell(e *amqp.Error, path string) *amqp.Error {
	if e == nil || e.Info != nil {
		return e
	}
	told, mark := c.note(e, path)
	w := amqp.BeginSymbolMap(nil)
	if c.peerFrame >= infoFrameBytes {
		w.String("code", mark.Code.String())
		w.String("trackingId", mark.ID)
		appendMark(&w, mark)
	}
	told.Info = w.End()
	c.fit(told)
	return told
}

// errorOverhead is more than what stands around the condition, the text and the info of an error takes in a frame. It
// covers the header, the performative or outcome, and the sizes of all of them.
const errorOverhead = 160

// fit keeps an error within a frame that the peer takes (AMQP 1.0 §2.7.1): the map goes first, then the end
// of the text.
func (c *conn) fit(e *amqp.Error) {
	room := int(max(c.peerFrame, minFrameBytes)) - errorOverhead - len(e.Condition)
	if len(e.Description)+len(e.Info) > room {
		w := amqp.BeginSymbolMap(nil)
		e.Info = w.End()
		room -= len(e.Info)
	}
	if len(e.Description) > room {
		e.Description = strings.ToValidUTF8(e.Description[:max(room-3, 0)], "") + "..."
	}
}

// reject is the outcome of a delivery, or the answer to a settlement, that was refused.
func (c *conn) reject(e *amqp.Error, path string) amqp.Rejected {
	return amqp.Rejected{Error: c.tell(e, path)}
}

// path is the entity that a delivery is of, "" for a reply of a request node.
func (d *sentDelivery) path() string {
	if d.owner == nil {
		return ""
	}
	return d.owner.l.addr.path()
}

// appendMark writes what a program wants to know of a refusal.
func appendMark(w *amqp.MapWriter, m *refusal.Mark) {
	w.Bool("retriable", m.Code.Retriable())
	if after := m.Code.RetryAfter(); after > 0 {
		w.Uint("retryAfter", uint32(after.Milliseconds()))
	}
	if m.Entity != "" {
		w.String("entityPath", m.Entity)
	}
	w.Timestamp("timestamp", amqp.Timestamp(m.At.UnixMilli()))
}

// codeOfError finds the row of S-2 for an error: by its cause, or by its condition if it has no cause.
func codeOfError(e *amqp.Error) refusal.Code {
	if e.Cause != 0 {
		return causeCodes[e.Cause]
	}
	switch e.Condition {
	case amqp.ConditionMessageLockLost:
		return refusal.MessageLockLost
	case amqp.ConditionSessionLockLost:
		return refusal.SessionLockLost
	case amqp.ConditionSessionCannotBeLocked:
		return refusal.SessionCannotBeLocked
	case amqp.ConditionMessageNotFound:
		return refusal.MessageNotFound
	case amqp.ConditionNotFound:
		return refusal.EntityNotFound
	case amqp.ConditionEntityAlreadyExists:
		return refusal.EntityExists
	case amqp.ConditionEntityDisabled:
		return refusal.EntityDisabled
	case amqp.ConditionMessageSizeExceeded:
		return refusal.MessageSizeExceeded
	case amqp.ConditionResourceLimitExceeded:
		return refusal.QuotaExceeded
	case amqp.ConditionServerBusy:
		return refusal.ServiceBusy
	case amqp.ConditionTimeout:
		return refusal.ServiceTimeout
	case amqp.ConditionOperationCancelled, amqp.ConditionConnectionForced:
		return refusal.CommunicationProblem
	case amqp.ConditionUnauthorizedAccess:
		return refusal.Unauthorized
	case amqp.ConditionTransactionRollback, amqp.ConditionTransactionTimeout, amqp.ConditionTransactionUnknownID:
		return refusal.TransactionAborted
	case amqp.ConditionInternalError:
		return refusal.GeneralError
	case amqp.ConditionArgumentError, amqp.ConditionArgumentOutOfRange, amqp.ConditionDecodeError,
		amqp.ConditionFramingError, amqp.ConditionInvalidField:
		return refusal.InvalidArgument
	}
	return refusal.InvalidOperation // AMQP's own conditions for what a peer must not do
}

// commitError is errorOf for a commit. If nobody can tell whether it was done, the client is not to do it again but
// to ask (S-243).
func (s *Server) commitError(err error, path string) *amqp.Error {
	e := s.errorOf(err, path)
	if waist.InDoubt(err) {
		return becauseOf(txnInDoubt, e)
	}
	return e
}
