package fsm

import "fmt"

// A message that is scheduled in a transaction has its number before the commit, so that its sender can cancel it
// later (S-90, S-232). The state does not remember which numbers it reserved. A commit is believed if no message has
// the number; its request id keeps it from being applied twice.

// prepare does the commands that come before those that store something.
func (s *State) prepare(sh *share, req *Request, o *Outcome) {
	switch c := req.Command.(type) {
	case *BodyPart:
		s.stage(sh, req, c, o)
	case *Reserve:
		sh.reserve(req, c, o)
	default:
		o.refuse(InvalidOperation, fmt.Sprintf("%T is not a command of a data partition", c))
	}
}

// reserve issues numbers without messages.
func (sh *share) reserve(req *Request, c *Reserve, o *Outcome) {
	switch {
	case req.Sub != Main || sh.d.Kind == Subscription:
		o.refuse(InvalidOperation, "messages are scheduled in queues and topics only") // S-171
		return
	case c.Count == 0 || c.Count > maxTransactionMessages:
		o.refuse(InvalidArgument, "1 to 100 numbers can be reserved at once")
		return
	}
	o.Numbers = make([]SequenceNumber, c.Count)
	for i := range o.Numbers {
		o.Numbers[i] = sh.number(sh.nextArrival())
	}
}

// reservation returns the arrival index of a reserved number, and false if the share never issued the
// number or a message has it.
func (sh *share) reservation(n SequenceNumber) (arrival uint64, ok bool) {
	if arrival, ok = sh.from(n); !ok || arrival == 0 {
		return 0, false
	}
	for sub := range TransferQueue {
		if _, _, taken := sh.find(sub, n); taken {
			return 0, false
		}
	}
	return arrival, true
}

// reservations reports whether every number in a batch is reserved and the numbers ascend.
func (sh *share) reservations(messages []Message) bool {
	last := uint64(0)
	for i := range messages {
		n := messages[i].Reserved
		if n == 0 {
			continue
		}
		a, ok := sh.reservation(n)
		if !ok || a <= last {
			return false
		}
		last = a
	}
	return true
}

// arriveAs returns the arrival index of a new message: the reserved one, or the next.
func (sh *share) arriveAs(m *Message) uint64 {
	if m.Reserved != 0 {
		if a, ok := sh.reservation(m.Reserved); ok {
			return a
		}
	}
	return sh.nextArrival()
}

// waits reports whether a new message is stored as scheduled. A reserved number is older than its
// message, so the message waits for a Tick to get its place behind all others (S-111).
func (s *State) waits(m *Message) bool { return m.ScheduledAt > s.wall || m.Reserved != 0 }

// dueAt is when a message that waits is activated, by the wall clock.
func (s *State) dueAt(m *Message) Wall {
	if m.ScheduledAt <= 0 {
		return max(1, s.wall)
	}
	return m.ScheduledAt
}
