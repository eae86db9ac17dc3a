package audit

import (
	"context"

	"github.com/busbar-mq/busbar/transport/auth"
)

// Entry is the event of a request that is under way. Handlers say of it what they know; all methods work on nil and note
// nothing then. The goroutine of the request alone uses it.
type Entry struct {
	event   Event
	ignored bool
}

type entryKey struct{}

type consoleKey struct{}

// Of returns the entry of a request by its context, nil if no log is kept.
func Of(ctx context.Context) *Entry {
	e, _ := ctx.Value(entryKey{}).(*Entry)
	return e
}

// ByConsole marks a request that the console makes for a page.
func ByConsole(ctx context.Context) context.Context {
	return context.WithValue(ctx, consoleKey{}, true)
}

// Do names what the request is about. The last name counts.
func (e *Entry) Do(action, entity string) {
	if e != nil {
		e.event.Action, e.event.Entity = action, entity
	}
}

// Ignore says that the request changes nothing and reads no message, whatever its method is. A refused token is noted all
// the same.
func (e *Entry) Ignore() {
	if e != nil {
		e.ignored = true
	}
}

// By notes whose token was accepted.
func (e *Entry) By(c auth.Claim) {
	if e != nil {
		e.event.Who = WhoOf(c)
	}
}

// ByDevelopment notes that the host of a development node needs no token.
func (e *Entry) ByDevelopment() {
	if e != nil {
		e.event.Who = Who{Kind: byDevelopment}
	}
}

// ByNobody notes why a token was not accepted, and the policy that it claims to be of.
func (e *Entry) ByNobody(claimed, reason string) {
	if e != nil {
		e.event.Who, e.event.Reason = Claimed(claimed), reason
	}
}

// Refused notes the code of a refusal and the id that the client is told.
func (e *Entry) Refused(code, tracking string) {
	if e != nil {
		e.event.Outcome, e.event.Tracking = code, tracking
	}
}

// Count notes a number, such as that of the messages that were purged.
func (e *Entry) Count(name string, n uint64) {
	if e == nil {
		return
	}
	if e.event.Counts == nil {
		e.event.Counts = map[string]uint64{}
	}
	e.event.Counts[name] += n
}

// Result notes what is true afterwards.
func (e *Entry) Result(name string, value any) {
	if e == nil {
		return
	}
	if e.event.After == nil {
		e.event.After = map[string]any{}
	}
	e.event.After[name] = value
}
