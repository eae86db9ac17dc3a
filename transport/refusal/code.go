package refusal

import "time"

// Code is what kind of refusal it is: a row of the table of S-2.
type Code uint8

// The codes. The comments say when a client may try again.
const (
	MessageLockLost         Code = iota // never: receive again
	SessionLockLost                     // never: accept again
	SessionCannotBeLocked               // later, when the holder is gone
	MessageNotFound                     // never
	EntityNotFound                      // never
	EntityExists                        // never
	EntityDisabled                      // later, when somebody has enabled it
	MessageSizeExceeded                 // never
	QuotaExceeded                       // when there is room again
	ServiceBusy                         // after RetryAfter
	ServiceTimeout                      // at once; what was to be written may have been
	CommunicationProblem                // at once, over another connection
	InvalidOperation                    // never
	InvalidArgument                     // never
	Unauthorized                        // never
	TransactionAborted                  // never: begin another one
	TransactionInDoubt                  // never: ask for its outcome
	TransactionSizeExceeded             // never
	GeneralError                        // at once
	codes
)

var table = [codes]struct {
	name      string
	retriable bool
}{
	{"MessageLockLost", false},
	{"SessionLockLost", false},
	{"SessionCannotBeLocked", true},
	{"MessageNotFound", false},
	{"MessagingEntityNotFound", false},
	{"MessagingEntityAlreadyExists", false},
	{"MessagingEntityDisabled", true},
	{"MessageSizeExceeded", false},
	{"QuotaExceeded", true},
	{"ServiceBusy", true},
	{"ServiceTimeout", true},
	{"ServiceCommunicationProblem", true},
	{"InvalidOperation", false},
	{"InvalidArgument", false},
	{"Unauthorized", false},
	{"TransactionAborted", false},
	{"TransactionInDoubt", false},
	{"TransactionSizeExceeded", false},
	{"GeneralError", true},
}

// busyPause is what S-2 lets a client wait that was told of a busy broker.
const busyPause = 10 * time.Second

// String returns the code as S-2 writes it.
func (c Code) String() string { return table[c].name }

// Retriable reports whether the same request may succeed later.
func (c Code) Retriable() bool { return table[c].retriable }

// RetryAfter is how long a client should wait before it tries again, 0 if there is no saying.
func (c Code) RetryAfter() time.Duration {
	if c == ServiceBusy {
		return busyPause
	}
	return 0
}
