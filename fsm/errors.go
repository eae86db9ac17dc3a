package fsm

import (
	"errors"
	"fmt"
)

// A proposal has three endings. Applied: an Outcome, maybe with a Refusal. Never entered the log:
// ErrNotLeader or ErrBusy, try again. Unknown: ErrUnknown, the command may or may not have been
// applied; asking again with the same RequestID gives the true outcome (A6, S-298).
//
// Every error of the waist wraps one of these or the context's error.
var (
	// ErrNotLeader: the replica asked does not lead its partition; nothing happened.
	ErrNotLeader = errors.New("not the leader of the partition")
	// ErrBusy: a bound in front of the log is full; nothing happened. Retry after a pause (S-230).
	ErrBusy = errors.New("partition is busy")
	// ErrCrowded: as many receives of the entity wait as may (S-229); nothing happened. It is ErrBusy,
	// but the caller is told at once.
	ErrCrowded = fmt.Errorf("the entity has too many receives: %w", ErrBusy)
	// ErrUnknown: leadership or the connection to the leader was lost while committing.
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable: no leader was found in time, nothing happened (S-300).
	ErrUnavailable = errors.New("partition has no leader")
	// ErrNoEntity: the catalog, asked linearizably, has no entity of that name or id.
	ErrNoEntity = errors.New("no such entity")
	// ErrClosed: this node is stopping.
	ErrClosed = errors.New("node is closing")
)

// RefusedError carries the refusal of an Outcome or Answer through an error, where a caller asked for
// a thing and not for an Outcome. A refusal is final: asking again gives the same answer.
type RefusedError struct {
	Refusal Refusal
	Detail  string // as in Outcome: readable, no secrets
}

// Error returns the refusal's number and its detail.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused (%d): %s", e.Refusal, e.Detail) }
