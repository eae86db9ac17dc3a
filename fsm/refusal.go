package fsm

import "fmt"

// refusals are the names of the refusals, by the error codes of S-2 where there is one.
var refusals = [lastRefusal]string{
	None: "None", Stale: "Stale", NotLeader: "NotLeader", MessageLockLost: "MessageLockLost",
	SessionLockLost: "SessionLockLost", SessionCannotBeLocked: "SessionCannotBeLocked",
	NoSession: "ServiceTimeout", MessageNotFound: "MessageNotFound",
	EntityNotFound: "MessagingEntityNotFound", EntityExists: "MessagingEntityAlreadyExists",
	EntityDisabled: "MessagingEntityDisabled", MessageSizeExceeded: "MessageSizeExceeded",
	QuotaExceeded: "QuotaExceeded", SessionRequired: "SessionRequired",
	SessionNotSupported: "SessionNotSupported", InvalidOperation: "InvalidOperation",
	InvalidArgument: "InvalidArgument", Busy: "ServiceBusy", NodeExpired: "NodeExpired",
	TransactionAborted: "TransactionAborted", TransactionTooLarge: "TransactionSizeExceeded",
	Unauthorized: "Unauthorized", UploadLost: "UploadLost",
}

// String returns the name of r.
func (r Refusal) String() string {
	if r >= lastRefusal {
		return fmt.Sprintf("Refusal(%d)", uint8(r))
	}
	return refusals[r]
}
