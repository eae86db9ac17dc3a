package amqp

import (
	"errors"
	"fmt"
)

// Every error of this package wraps one of these two. Neither may be retried: the peer sent bytes
// that are not AMQP, and the connection ends.
var (
	// ErrFraming is a frame or protocol header that is not well-formed or too large; the answer is
	// a close with ConditionFramingError.
	ErrFraming = errors.New("framing error")
	// ErrDecode is a value, performative or message that is not well-formed; the answer is a close
	// (or a rejection, for a message) with ConditionDecodeError.
	ErrDecode = errors.New("decode error")
)

// Error is AMQP 1.0 §2.8.14, why a connection, session, link or delivery ended. It is a Go error.
type Error struct {
	Condition   Symbol
	Description string // null on the wire reads as ""
	Info        Raw    // map
	Cause       Cause  // never on the wire; 0 in an error that was read
}

// Cause tells errors of the same condition apart. Its numbers belong to the program that makes the errors; 0 says that
// the condition is enough.
type Cause uint8

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Condition, e.Description) }

// Conditions of AMQP 1.0 §2.8.15 to §2.8.18 and §4.5.8.
const (
	ConditionInternalError         Symbol = "amqp:internal-error"
	ConditionNotFound              Symbol = "amqp:not-found"
	ConditionUnauthorizedAccess    Symbol = "amqp:unauthorized-access"
	ConditionDecodeError           Symbol = "amqp:decode-error"
	ConditionResourceLimitExceeded Symbol = "amqp:resource-limit-exceeded"
	ConditionNotAllowed            Symbol = "amqp:not-allowed"
	ConditionInvalidField          Symbol = "amqp:invalid-field"
	ConditionNotImplemented        Symbol = "amqp:not-implemented"
	ConditionResourceLocked        Symbol = "amqp:resource-locked"
	ConditionPreconditionFailed    Symbol = "amqp:precondition-failed"
	ConditionResourceDeleted       Symbol = "amqp:resource-deleted"
	ConditionIllegalState          Symbol = "amqp:illegal-state"
	ConditionFrameSizeTooSmall     Symbol = "amqp:frame-size-too-small"

	ConditionConnectionForced   Symbol = "amqp:connection:forced"
	ConditionFramingError       Symbol = "amqp:connection:framing-error"
	ConditionConnectionRedirect Symbol = "amqp:connection:redirect"

	ConditionWindowViolation  Symbol = "amqp:session:window-violation"
	ConditionErrantLink       Symbol = "amqp:session:errant-link"
	ConditionHandleInUse      Symbol = "amqp:session:handle-in-use"
	ConditionUnattachedHandle Symbol = "amqp:session:unattached-handle"

	ConditionDetachForced          Symbol = "amqp:link:detach-forced"
	ConditionTransferLimitExceeded Symbol = "amqp:link:transfer-limit-exceeded"
	ConditionMessageSizeExceeded   Symbol = "amqp:link:message-size-exceeded"
	ConditionLinkRedirect          Symbol = "amqp:link:redirect"
	ConditionStolen                Symbol = "amqp:link:stolen"

	ConditionTransactionUnknownID Symbol = "amqp:transaction:unknown-id"
	ConditionTransactionRollback  Symbol = "amqp:transaction:rollback"
	ConditionTransactionTimeout   Symbol = "amqp:transaction:timeout"
)

// Conditions that the clients know beyond AMQP's own.
const (
	ConditionTimeout                Symbol = "com.microsoft:timeout"
	ConditionServerBusy             Symbol = "com.microsoft:server-busy"
	ConditionOperationCancelled     Symbol = "com.microsoft:operation-cancelled"
	ConditionMessageLockLost        Symbol = "com.microsoft:message-lock-lost"
	ConditionSessionLockLost        Symbol = "com.microsoft:session-lock-lost"
	ConditionSessionCannotBeLocked  Symbol = "com.microsoft:session-cannot-be-locked"
	ConditionSessionNotFound        Symbol = "com.microsoft:session-not-found"
	ConditionMessageNotFound        Symbol = "com.microsoft:message-not-found"
	ConditionEntityDisabled         Symbol = "com.microsoft:entity-disabled"
	ConditionEntityAlreadyExists    Symbol = "com.microsoft:entity-already-exists"
	ConditionEntityNotFound         Symbol = "com.microsoft:entity-not-found"
	ConditionRulesNotFound          Symbol = "com.microsoft:rules-not-found"
	ConditionNoMatchingSubscription Symbol = "com.microsoft:no-matching-subscription"
	ConditionArgumentError          Symbol = "com.microsoft:argument-error"
	ConditionArgumentOutOfRange     Symbol = "com.microsoft:argument-out-of-range"
	ConditionAuthFailed             Symbol = "com.microsoft:auth-failed"
	ConditionContainerClose         Symbol = "com.microsoft:container-close"
	ConditionStoreLockLost          Symbol = "com.microsoft:store-lock-lost"
	ConditionPublisherRevoked       Symbol = "com.microsoft:publisher-revoked"
	ConditionPartitionNotOwned      Symbol = "com.microsoft:partition-not-owned"
	ConditionAddressAlreadyInUse    Symbol = "com.microsoft:address-already-in-use"
	ConditionRelayNotFound          Symbol = "com.microsoft:relay-not-found"
	// ConditionDeadLetter goes from client to server only, in the error of a Rejected.
	ConditionDeadLetter Symbol = "com.microsoft:dead-letter"
)

// error reads an error field, nil if it is null.
func (f *fields) error() *Error {
	if _, ok := f.next(); !ok {
		return nil
	}
	g, size, err := openFields(f.b, CodeError, f.depth, f.bud)
	if err != nil {
		f.err = err
		return nil
	}
	e := &Error{
		Condition:   must(&g, g.symbol()),
		Description: g.string().Value,
		Info:        g.rawMap(),
	}
	f.b, f.bud, f.err = f.b[size:], g.bud, g.end()
	return e
}

// appendTo writes the error with its three fields (G1), null for nil. The description is never
// null, because a client dereferences it.
func (e *Error) appendTo(dst []byte) []byte {
	if e == nil {
		return AppendNull(dst)
	}
	dst, start := beginCompound(appendDescriptor(dst, CodeError))
	dst = AppendSymbol(dst, e.Condition)
	dst = AppendString(dst, e.Description)
	dst = appendRaw(dst, e.Info)
	return endCompound(dst, start, tList8, 3)
}
