package simulation

import (
	"slices"
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

// sharedHolds are the last holds of each queue, and what was delivered in each session. Receivers tell each other
// their session tokens there, and the lock tokens of the messages that they have not settled.
type sharedHolds struct {
	mu        sync.Mutex
	last      map[string][]sharedHold
	unsettled map[goamqp.UUID][]*check.Op // deliveries, by session token
}

// keptHolds is how many session tokens of a queue are remembered; the older ones are of no use any more.
const keptHolds = 4

// deliver remembers a delivery for whoever takes the session over with that session token.
func (s *sharedHolds) deliver(token goamqp.UUID, got *check.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsettled == nil {
		s.unsettled = map[goamqp.UUID][]*check.Op{}
	}
	s.unsettled[token] = append(s.unsettled[token], got)
}

// forget drops a delivery that was settled.
func (s *sharedHolds) forget(token goamqp.UUID, got *check.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list := s.unsettled[token]; len(list) > 0 {
		s.unsettled[token] = slices.DeleteFunc(list, func(o *check.Op) bool { return o == got })
	}
}

// handed returns the deliveries under a session token that are not known to be settled.
func (s *sharedHolds) handed(token goamqp.UUID) []*check.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unsettled[token])
}

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

// wish chooses what an accept asks for, and notes it. It asks for the next session or a named one, exclusively or
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
	c.token = goamqp.UUID{}
	if !o.Shared {
		id, _ = rx.LinkSourceFilterValue("com.microsoft:session-filter").(string)
		return id
	}
	list, _ := rx.LinkSourceFilterValue(sharedFilter).([]any)
	if len(list) != 2 {
		return ""
	}
	id, _ = list[0].(string)
	c.token, _ = list[1].(goamqp.UUID)
	c.w.shared.add(q.Name, sharedHold{id: id, token: c.token, holder: holder})
	c.w.c.add("sessions accepted without exclusion", 1)
	if o.Over != 0 {
		c.w.c.add(takeOvers, 1)
	}
	return id
}

// settleHanded decides about messages that other receivers of the session were delivered and have not
// settled. The former holder may try the same at the same time (S-330, S-332).
func (c *client) settleHanded(q *check.Queue, held *check.Op) error {
	for _, got := range c.w.shared.handed(c.token) {
		if got.Holder == held.Holder || c.rng.IntN(4) == 0 {
			continue
		}
		kind := []check.Kind{check.Complete, check.Complete, check.Abandon, check.Defer, check.Kill}[c.rng.IntN(5)]
		o, err := c.settleInSession(q, got, kind, held.Holder)
		if err != nil {
			return err
		}
		if o.Ok() {
			c.w.c.add(handedOver, 1)
		} else if o.Outcome == check.Failed {
			c.w.c.add("handed over and lost", 1)
		}
	}
	return nil
}

// settleLate has a receiver whose link was detached settle what it had not settled yet. The broker must refuse that
// if another receiver has taken the session over.
func (c *client) settleLate(q *check.Queue, held *check.Op) error {
	for _, got := range c.w.shared.handed(c.token) {
		if got.Holder != held.Holder {
			continue
		}
		o, err := c.settleInSession(q, got, check.Complete, held.Holder)
		if err != nil {
			return err
		}
		if o.Outcome == check.Failed {
			c.w.c.add(formersRefused, 1)
		}
	}
	return nil
}

// settleInSession decides by lock token as a holder of the session, with a request.
func (c *client) settleInSession(q *check.Queue, got *check.Op, kind check.Kind, holder int) (*check.Op, error) {
	o := c.begin(kind, q, check.InMain, got)
	c.w.rec.Set(o, func(o *check.Op) { o.Holder = holder })
	err := c.requestSettlement(q, check.InMain, o, map[string]any{"session-id": got.Session})
	if o.Maybe() || o.Condition == messageLockLost {
		c.w.shared.forget(c.token, got)
	}
	return o, err
}

// messageLockLost says that a lock token is of no use any more.
const messageLockLost = "com.microsoft:message-lock-lost"
