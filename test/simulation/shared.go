package simulation

import (
	"sync"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/check"
)

// sharedFilter asks for a session without exclusion, or with a token takes it over (S-326, S-327).
const sharedFilter = "com.microsoft:non-exclusive-session-filter"

// sharedHold is a session that a client holds, or held, without exclusion.
type sharedHold struct {
	id     string
	token  goamqp.UUID
	holder int
}

// sharedHolds are the last holds of each queue: receivers tell each other their session tokens.
type sharedHolds struct {
	mu   sync.Mutex
	last map[string][]sharedHold
}

// keptHolds is how many session tokens of a queue are remembered; the older ones are of no use any more.
const keptHolds = 4

func (s *sharedHolds) add(queue string, h sharedHold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[string][]sharedHold{}
	}
	list := append(s.last[queue], h)
	s.last[queue] = list[max(0, len(list)-keptHolds):]
}

func (s *sharedHolds) some(queue string, pick func(int) int) (h sharedHold, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.last[queue]
	if len(list) == 0 {
		return h, false
	}
	return list[pick(len(list))], true
}

// wish chooses what an accept asks for, and notes it: the next session or a named one, exclusively or
// not, or one that another receiver holds without exclusion.
func (c *client) wish(q *check.Queue, o *check.Op) goamqp.LinkFilter {
	over, known := c.w.shared.some(q.Name, c.rng.IntN)
	switch n := c.rng.IntN(6); {
	case known && n < 2:
		c.w.rec.Set(o, func(o *check.Op) { o.Want, o.Shared, o.Over = over.id, true, over.holder })
		return goamqp.NewLinkFilter(sharedFilter, 0x000000137000000E, []any{over.id, over.token})
	case n < 4:
		id := any(nil)
		if c.rng.IntN(3) == 0 {
			id = c.w.sessionID(c.rng)
			c.w.rec.Set(o, func(o *check.Op) { o.Want = id.(string) })
		}
		c.w.rec.Set(o, func(o *check.Op) { o.Shared = true })
		return goamqp.NewLinkFilter(sharedFilter, 0x000000137000000E, []any{id, nil})
	}
	id := any(nil)
	if c.rng.IntN(3) == 0 {
		id = c.w.sessionID(c.rng)
		c.w.rec.Set(o, func(o *check.Op) { o.Want = id.(string) })
	}
	return goamqp.NewLinkFilter("com.microsoft:session-filter", 0x000000137000000C, id)
}

// granted reads which session the link of an accept got, and tells others its session token.
func (c *client) granted(rx *goamqp.Receiver, q *check.Queue, o *check.Op, holder int) (id string) {
	if !o.Shared {
		id, _ = rx.LinkSourceFilterValue("com.microsoft:session-filter").(string)
		return id
	}
	list, _ := rx.LinkSourceFilterValue(sharedFilter).([]any)
	if len(list) != 2 {
		return ""
	}
	id, _ = list[0].(string)
	token, _ := list[1].(goamqp.UUID)
	c.w.shared.add(q.Name, sharedHold{id: id, token: token, holder: holder})
	c.w.c.add("sessions accepted without exclusion", 1)
	if o.Over != 0 {
		c.w.c.add("sessions taken over", 1)
	}
	return id
}
