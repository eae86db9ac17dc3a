package scenario

import (
	"time"

	goamqp "github.com/Azure/go-amqp"
)

// The verdicts over the link that delivered; each waits for the broker's answer.

func (g *got) complete() { g.rx.c.b.Helper(); g.rx.c.b.must("complete", g.tryComplete()) }
func (g *got) abandon()  { g.rx.c.b.Helper(); g.rx.c.b.must("abandon", g.tryAbandon(nil)) }
func (g *got) deferIt()  { g.rx.c.b.Helper(); g.rx.c.b.must("defer", g.tryDefer(nil)) }
func (g *got) release()  { g.rx.c.b.Helper(); g.rx.c.b.must("release", g.tryRelease()) }

func (g *got) deadLetter(reason, description string) {
	g.rx.c.b.Helper()
	g.rx.c.b.must("dead-letter", g.tryDeadLetter(reason, description, nil))
}

func (g *got) tryComplete() error {
	ctx, cancel := g.rx.c.b.soon()
	defer cancel()
	return g.rx.AcceptMessage(ctx, g.Message)
}

func (g *got) tryRelease() error {
	ctx, cancel := g.rx.c.b.soon()
	defer cancel()
	return g.rx.ReleaseMessage(ctx, g.Message)
}

func (g *got) tryAbandon(properties map[string]any) error {
	return g.modify(false, properties)
}

func (g *got) tryDefer(properties map[string]any) error {
	return g.modify(true, properties)
}

func (g *got) modify(elsewhere bool, properties map[string]any) error {
	ctx, cancel := g.rx.c.b.soon()
	defer cancel()
	annotations := goamqp.Annotations{}
	for k, v := range properties {
		annotations[k] = v
	}
	return g.rx.ModifyMessage(ctx, g.Message, &goamqp.ModifyMessageOptions{
		DeliveryFailed: false, UndeliverableHere: elsewhere, Annotations: annotations,
	})
}

func (g *got) tryDeadLetter(reason, description string, properties map[string]any) error {
	ctx, cancel := g.rx.c.b.soon()
	defer cancel()
	info := map[string]any{}
	for k, v := range properties {
		info[k] = v
	}
	if reason != "" {
		info["DeadLetterReason"] = reason
	}
	if description != "" {
		info["DeadLetterErrorDescription"] = description
	}
	return g.rx.RejectMessage(ctx, g.Message, &goamqp.Error{
		Condition: "com.microsoft:dead-letter", Info: info,
	})
}

// The requests to $management.

// settleByToken is update-disposition: completed, abandoned, defered or suspended.
func (c *client) settleByToken(entity, verdict string, tokens ...goamqp.UUID) error {
	_, err := c.tryAsk(entity, "update-disposition", map[string]any{
		"disposition-status": verdict, "lock-tokens": tokens,
	})
	return err
}

// renew renews locks, and returns until when they hold.
func (c *client) tryRenew(entity string, tokens ...goamqp.UUID) ([]time.Time, error) {
	a, err := c.tryAsk(entity, "renew-lock", map[string]any{"lock-tokens": tokens})
	if err != nil {
		return nil, err
	}
	until, _ := a["expirations"].([]time.Time)
	return until, nil
}

func (g *got) renew() time.Time {
	g.rx.c.b.Helper()
	until, err := g.rx.c.tryRenew(g.rx.Address(), g.token)
	g.rx.c.b.must("renew", err)
	want(g.rx.c.b, "renewed locks", len(until), 1)
	return until[0]
}

// peek shows up to n messages from a number on.
func (c *client) peek(entity string, from int64, n int) []*got {
	c.b.Helper()
	list, err := c.tryPeek(entity, map[string]any{
		"from-sequence-number": from, "message-count": int32(n),
	})
	c.b.must("peek", err)
	return list
}

// peekAll shows every message of an entity.
func (c *client) peekAll(entity string) []*got {
	c.b.Helper()
	return c.peekPages(entity, 200)
}

// peekPages shows every message of an entity, in pages of n.
func (c *client) peekPages(entity string, n int) (all []*got) {
	c.b.Helper()
	for from := int64(0); ; from = all[len(all)-1].seq() + 1 {
		page := c.peek(entity, from, n)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

func (c *client) tryPeek(entity string, body map[string]any) ([]*got, error) {
	a, err := c.tryAsk(entity, "peek-message", body)
	if err != nil {
		return nil, err
	}
	return unpack(a)
}

func unpack(a map[string]any) ([]*got, error) {
	list, _ := a["messages"].([]any)
	var out []*got
	for _, item := range list {
		fields, _ := item.(map[string]any)
		encoded, _ := fields["message"].([]byte)
		g := &got{Message: &goamqp.Message{}}
		if err := g.UnmarshalBinary(encoded); err != nil {
			return nil, err
		}
		g.token, _ = fields["lock-token"].(goamqp.UUID)
		out = append(out, g)
	}
	return out, nil
}

// schedule schedules messages in one request and returns their numbers.
func (c *client) schedule(entity string, at time.Time, messages ...*goamqp.Message) []int64 {
	c.b.Helper()
	numbers, err := c.trySchedule(entity, at, messages...)
	c.b.must("schedule", err)
	return numbers
}

func (c *client) trySchedule(entity string, at time.Time, messages ...*goamqp.Message) ([]int64, error) {
	var list []any
	for _, m := range messages {
		dueAt(at)(m)
		item, err := scheduleItem(m)
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	a, err := c.tryAsk(entity, "schedule-message", map[string]any{"messages": list})
	if err != nil {
		return nil, err
	}
	numbers, _ := a["sequence-numbers"].([]int64)
	return numbers, nil
}

// scheduleItem is a message as schedule-message takes it.
func scheduleItem(m *goamqp.Message) (map[string]any, error) {
	encoded, err := m.MarshalBinary()
	item := map[string]any{"message": encoded}
	if id, ok := m.Properties.MessageID.(string); ok {
		item["message-id"] = id
	}
	if m.Properties.GroupID != nil {
		item["session-id"] = *m.Properties.GroupID
	}
	if key, ok := m.Annotations["x-opt-partition-key"].(string); ok {
		item["partition-key"] = key
	}
	return item, err
}

func (c *client) cancel(entity string, numbers ...int64) error {
	_, err := c.tryAsk(entity, "cancel-scheduled-message", map[string]any{"sequence-numbers": numbers})
	return err
}

// fetch takes deferred messages by number, locking them.
func (c *client) fetch(entity string, numbers ...int64) []*got {
	c.b.Helper()
	list, err := c.tryFetch(entity, nil, numbers...)
	c.b.must("receive by sequence number", err)
	return list
}

func (c *client) tryFetch(entity string, more map[string]any, numbers ...int64) ([]*got, error) {
	body := map[string]any{"sequence-numbers": numbers, "receiver-settle-mode": uint32(1)}
	for k, v := range more {
		body[k] = v
	}
	a, err := c.tryAsk(entity, "receive-by-sequence-number", body)
	if err != nil {
		return nil, err
	}
	return unpack(a)
}

// The state of a session; nil stands for none.

func (r *receiver) tryState() ([]byte, error) {
	a, err := r.c.tryAsk(r.Address(), "get-session-state", map[string]any{"session-id": r.held()})
	if err != nil {
		return nil, err
	}
	state, _ := a["session-state"].([]byte)
	return state, nil
}

func (r *receiver) trySetState(state []byte) error {
	var value any
	if state != nil {
		value = state
	}
	_, err := r.c.tryAsk(r.Address(), "set-session-state", map[string]any{
		"session-id": r.held(), "session-state": value,
	})
	return err
}

func (r *receiver) tryRenewSession() (time.Time, error) {
	a, err := r.c.tryAsk(r.Address(), "renew-session-lock", map[string]any{"session-id": r.held()})
	if err != nil {
		return time.Time{}, err
	}
	until, _ := a["expiration"].(time.Time)
	return until, nil
}
