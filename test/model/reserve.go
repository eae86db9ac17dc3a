package model

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
)

// byNumber does what concerns the numbers of scheduled messages.
func (m *Model) byNumber(q *queue, sub fsm.SubQueue, c fsm.Command) fsm.Outcome {
	if r, ok := c.(*fsm.Reserve); ok {
		return q.reserve(sub, r)
	}
	return m.cancel(q, sub, c.(*fsm.Cancel))
}

// reserve issues numbers without messages.
func (q *queue) reserve(sub fsm.SubQueue, c *fsm.Reserve) fsm.Outcome {
	switch {
	case sub != fsm.Main || q.d.Kind == fsm.Subscription:
		return refused(fsm.InvalidOperation)
	case c.Count < 1 || c.Count > 100:
		return refused(fsm.InvalidArgument)
	}
	var o fsm.Outcome
	for range c.Count {
		var x message
		q.give(&x)
		o.Numbers = append(o.Numbers, x.number)
	}
	return o
}

// reserved returns the arrival of a number that was issued and that no message has, 0 if there is none.
func (q *queue) reserved(n fsm.SequenceNumber) uint64 {
	if slices.ContainsFunc(q.messages, func(o *message) bool { return o.number == n }) {
		return 0
	}
	low := uint64(n) - uint64(q.prefix)<<48
	back := (q.arrivals - low) % q.span() // so many numbers ago
	if low >= q.span() || back >= q.arrivals {
		return 0
	}
	return q.arrivals - back
}

// believable reports whether all reserved numbers of a batch are free, in ascending order.
func (q *queue) believable(messages []fsm.Message) bool {
	last := uint64(0)
	for i := range messages {
		if n := messages[i].Reserved; n != 0 {
			a := q.reserved(n)
			if a <= last {
				return false
			}
			last = a
		}
	}
	return true
}

// waits reports whether a message is stored as scheduled, and until when.
func (m *Model) waits(in *fsm.Message) (until fsm.Wall, ok bool) {
	until = in.ScheduledAt
	if in.Reserved != 0 && until <= 0 {
		until = max(1, m.wall)
	}
	return until, in.Reserved != 0 || until > m.wall
}

// admit puts a new message where its number is, a reserved one or the next.
func (q *queue) admit(x *message, in *fsm.Message) {
	if in.Reserved == 0 {
		q.append(x)
		return
	}
	x.arrival, x.number = q.reserved(in.Reserved), in.Reserved
	i := slices.IndexFunc(q.messages, func(o *message) bool { return o.arrival > x.arrival })
	if i < 0 {
		i = len(q.messages)
	}
	q.messages = slices.Insert(q.messages, i, x)
}

func (q *queue) append(x *message) {
	q.give(x)
	q.messages = append(q.messages, x)
}

// give gives a message the next number.
func (q *queue) give(x *message) {
	for taken := true; taken; {
		q.arrivals++
		x.number = fsm.SequenceNumber(q.prefix)<<48 + fsm.SequenceNumber(q.arrivals%q.span())
		taken = slices.ContainsFunc(q.messages, func(o *message) bool { return o.number == x.number })
	}
	x.arrival = q.arrivals
}

// span is how many numbers there are.
func (q *queue) span() uint64 {
	if q.d.Partitioned {
		return 1 << 48
	}
	return 1 << 63
}
