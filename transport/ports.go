package transport

import (
	"context"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport/waist"
)

// Broker is all that the front end needs of the cluster. Three verbs, no raft, no partition number.
// Errors wrap those of fsm/errors.go or the context's.
type Broker interface {
	// Propose makes one command durable on a majority and returns what it did. It retries by itself
	// what never entered the log or ended unknown, with the same id, until ctx ends.
	//
	// A Lock or AcceptSession with a Wait may be parked (A18). Cancelling ctx unparks it. If the command never
	// entered the log, Propose then returns the context's error. Otherwise it returns its Outcome with a nil error,
	// so the caller can give back what it no longer wants. One without a Wait and a session, to one share of several,
	// does not wait for a leader either: its caller asks the others (S-316).
	Propose(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (fsm.Outcome, error)
	// Await returns nil when the share that k names may have something to take, when its leader
	// changed, and after 30 s at the latest; it is a hint (A19). It waits for a message, or on the
	// main queue of a session entity for a session that accept-next could take.
	Await(ctx context.Context, k fsm.Key) error
	// Query reads the state as of now: linearizable, because it rides the log (A16).
	Query(ctx context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error)
}

// Beginner is what a [Broker] may implement to need no goroutine for a request that is under way.
type Beginner interface {
	// Begin is Propose, which does not wait. It is false if nothing was begun, and then Propose does it. Otherwise done is called once.
	// It is called under mutexes of the broker, so it must be short and call nothing of the broker. If it is given a rest, the
	// outcome and the error are not what Propose would return: the rest returns that. The rest may wait.
	//
	// The function that it returns is for a caller that is gone, and is called with the error of a context. It may be called at any time, and does not
	// wait. A request that is not in the log ends with that error, and one at a leader of this node before the function returns. Another
	// one ends with fsm.ErrUnknown, or with the outcome if it takes something.
	Begin(id fsm.RequestID, k fsm.Key, c fsm.Command, done func(fsm.Outcome, error, waist.Rest)) (waist.Cancel, bool)
}

// Catalog finds entities by name. Descriptors are shared and must not be changed.
type Catalog interface {
	// Entity returns the description of the queue, topic or subscription with that name, compared
	// case-insensitively; subscriptions are "topic/Subscriptions/name". The error wraps
	// fsm.ErrNoEntity if there is none as of now.
	Entity(ctx context.Context, name string) (*fsm.Descriptor, error)
}

// Changes is what a [Catalog] may implement to tell at once that entities have changed; without it the
// front end looks every Config.WatchInterval.
type Changes interface {
	// Changed returns the version of the catalog here, which grows with each change of an entity. The channel is
	// closed when it may have grown.
	Changed() (version uint64, changed <-chan struct{})
}

// Rules is what the rules of a subscription are changed through. A [Catalog] that implements it has
// subscriptions; with another one the operations on rules are not implemented. Errors are those of
// Catalog, or an [*fsm.RefusedError].
type Rules interface {
	// Get finds an entity as of now, not as this node last heard of it.
	Get(ctx context.Context, name string) (*fsm.Descriptor, error)
	// PutRule adds a rule to the subscription with that id, or replaces the one of that name.
	PutRule(ctx context.Context, id fsm.EntityID, r fsm.Rule, replace bool) (*fsm.Descriptor, error)
	// DropRule removes a rule.
	DropRule(ctx context.Context, id fsm.EntityID, name string) (*fsm.Descriptor, error)
}
