package fsm

// Traits tell the rooms around the state machine what a command is, without a look at its type. Each command names its own
// below. A trait holds for the command as it is filled in: an Enqueue with an Origin is idempotent, another is not.
type Traits uint16

const (
	// Waits marks a command that may wait until there is something for it. It is a Waiter.
	Waits Traits = 1 << iota
	// Takes marks a command that hands messages or a session to its caller, who gives back what it no longer wants.
	// Where messages are forwarded it is refused (S-177, S-206).
	Takes
	// Reserved marks a command that may use the places of a full proposer that are kept for what frees them (A21).
	Reserved
	// Idempotent marks a command that changes nothing when it is done a second time.
	Idempotent
	// Stores marks a command that adds to what a partition keeps. It is the first to be refused when a disk fills.
	Stores
	// Frees marks a command that gives room back. It is never refused for want of room.
	Frees
	// Transacts marks a command that may be an operation of a transaction (S-231).
	Transacts
	// OnTopic marks a command that a topic takes (S-223).
	OnTopic
	// Sends marks a command that the status of the entity must allow to send (S-252, S-253).
	Sends
	// Receives marks a command that the status of the entity must allow to receive (S-252, S-253).
	Receives
	// Silent marks a command of a front end that is no activity of a client (S-260).
	Silent
)

const (
	requestBytes = 64 // what the fields of a request take beside the variable ones
	itemBytes    = 48 // a settle item, a token, a message without its texts
)

// weighMessages is the weight of a command that brings messages.
func weighMessages(messages []Message) int {
	n := requestBytes
	for i := range messages {
		m := &messages[i]
		n += itemBytes + len(m.SessionID) + len(m.MessageID) + len(m.Body)
	}
	return n
}

// Has reports whether all of the traits are among t.
func (t Traits) Has(all Traits) bool { return t&all == all }

// traitsOf returns the traits of a command, none for a request without one.
func traitsOf(c Command) Traits {
	if c == nil {
		return 0
	}
	return c.Traits()
}

// Waiter is a command that may wait.
type Waiter interface {
	Command
	// Waiting returns the kind of thing that the command waits for in an entity. It also returns how many one request
	// can use, and how long it waits, in milliseconds; 0 for a command that does not wait.
	Waiting(EntityID, SubQueue) (key WaitKey, most uint32, wait Millis)
	// Within returns a copy of the command that waits for another time.
	Within(wait Millis) Command
}

// WaitOf returns for how long a command waits, in milliseconds; 0 for one that does not.
func WaitOf(c Command) Millis {
	if c.Traits().Has(Waits) {
		_, _, wait := c.(Waiter).Waiting(0, Main)
		return wait
	}
	return 0
}

// WithWait returns a copy of a command that waits for another time; a command that never waits comes back as it is.
func WithWait(c Command, wait Millis) Command {
	if c.Traits().Has(Waits) {
		return c.(Waiter).Within(wait)
	}
	return c
}
