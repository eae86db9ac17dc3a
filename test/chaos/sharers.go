package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/busbar-mq/busbar/test/check"
	"github.com/busbar-mq/busbar/transport/amqp"
)

// sharedQueue is the queue whose sessions are accepted without exclusion, by sharers alone.
const sharedQueue = "shared"

// sharedSessions is how many sessions the queue has: few, so that sharers meet in them.
const sharedSessions = 3

// sharedFilter and sharedCode name the filter of an accept without exclusion (S-326).
const (
	sharedFilter = "com.microsoft:non-exclusive-session-filter"
	sharedCode   = 0x000000137000000E
)

// acceptWait is how long a sharer waits for the next session.
const acceptWait = 2 * time.Second

// hold is a session that a sharer holds, or held.
type hold struct {
	id     string
	token  goamqp.UUID // the session token
	holder int
}

// handedDelivery is a message that was delivered in a session and is not known to be settled.
type handedDelivery struct {
	op   *check.Op
	lock goamqp.UUID
}

// board is where sharers tell each other their session tokens, and what they were delivered and have not settled.
// Another sharer takes the session over with that and settles it (S-327, S-332).
type board struct {
	mu    sync.Mutex
	holds []hold // the last one of each session
	open  map[goamqp.UUID][]handedDelivery
	own   map[int][]handedDelivery // of each holder: what it was delivered and has not settled itself
}

func (b *board) tell(h hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = append(slices.DeleteFunc(b.holds, func(x hold) bool { return x.id == h.id }), h)
}

func (b *board) some(pick func(int) int) (h hold, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.holds) == 0 {
		return h, false
	}
	return b.holds[pick(len(b.holds))], true
}

func (b *board) deliver(session goamqp.UUID, d handedDelivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open, b.own = map[goamqp.UUID][]handedDelivery{}, map[int][]handedDelivery{}
	}
	b.open[session] = append(b.open[session], d)
	b.own[d.op.Holder] = append(b.own[d.op.Holder], d)
}

// settled notes that a holder has settled a delivery. The holder that was delivered it learns nothing of that,
// unless it is the same.
func (b *board) settled(h hold, d handedDelivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	same := func(x handedDelivery) bool { return x.op == d.op }
	if list := b.open[h.token]; len(list) > 0 {
		b.open[h.token] = slices.DeleteFunc(list, same)
	}
	if list := b.own[h.holder]; len(list) > 0 {
		b.own[h.holder] = slices.DeleteFunc(list, same)
	}
}

// waits reports whether nobody has settled a delivery of a session.
func (b *board) waits(session goamqp.UUID, d handedDelivery) bool {
	return slices.ContainsFunc(b.handed(session), func(x handedDelivery) bool { return x.op == d.op })
}

// ownOf returns what a holder was delivered and has not settled itself.
func (b *board) ownOf(holder int) []handedDelivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.own[holder])
}

// forget removes what the board knows of a holder alone.
func (b *board) forget(holder int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.own, holder)
}

func (b *board) handed(session goamqp.UUID) []handedDelivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.open[session])
}

// sharedCounts are what the report tells of sharers. The field refused is counted when the history is judged.
type sharedCounts struct {
	takeOvers, settled, refused atomic.Int64
	// rivals are settlements of former holders that were refused, of deliveries that another one settled before.
	rivals atomic.Int64
}

// meetLimit is how long a run goes on at most until sharers have met.
const meetLimit = 2 * time.Minute

// await waits until the sharers have met often enough for every violation that a test plants. A slow machine
// gets more time.
func (s *sharedCounts) await(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, meetLimit)
	defer cancel()
	for min(s.takeOvers.Load(), s.settled.Load(), s.rivals.Load()) < 4 && limit.Err() == nil {
		wait(limit, 100*time.Millisecond)
	}
}

func (s *sharedCounts) String() string {
	return fmt.Sprintf("sessions taken over %d, deliveries settled after a take-over %d, operations of former holders refused %d",
		s.takeOvers.Load(), s.settled.Load(), s.refused.Load())
}

// enough says what a run did not exercise: everything once a minute on average, and once at least.
func (s *sharedCounts) enough(took time.Duration) error {
	least := 1 + int64(took.Minutes())
	if min(s.takeOvers.Load(), s.settled.Load(), s.refused.Load()) < least {
		return fmt.Errorf("too few take-overs, want %d of each at least: %s", least, s)
	}
	return nil
}

// formers returns operations of holders whose session somebody else had taken over before, and that the broker
// refused.
func formers(h *check.History) (list []*check.Op) {
	held := map[int]*check.Op{}
	var overs []*check.Op
	for _, o := range h.Ops {
		if o.Kind == check.Accept && o.Ok() {
			held[o.Holder] = o
			if o.Over != 0 {
				overs = append(overs, o)
			}
		}
	}
	for _, o := range h.Ops {
		a := held[o.Holder]
		if a == nil || o.Entity != sharedQueue || o.Outcome != check.Failed || o.Condition != sessionLockLost {
			continue
		}
		if slices.ContainsFunc(overs, func(over *check.Op) bool {
			return over.Session == a.Session && over.Invoke > a.Return && over.Return < o.Invoke
		}) {
			list = append(list, o)
		}
	}
	return list
}

// share accepts sessions without exclusion, takes them over from other sharers and works on them.
func (c *client) share(q *check.Queue) {
	c.raw = true
	c.work(c.w.ctx, func(ctx context.Context) error {
		for range 5 + c.rng.IntN(20) {
			if ctx.Err() != nil {
				return nil
			}
			if err := c.shareOne(ctx, q); err != nil {
				return err
			}
		}
		if c.rng.IntN(3) == 0 && c.w.making.Err() == nil {
			return errGiveUp // a process that dies
		}
		return nil
	})
}

// wish chooses what an accept asks for, and notes it.
func (c *client) wish(o *check.Op) goamqp.LinkFilter {
	known, ok := c.w.board.some(c.rng.IntN)
	fields := []any{nil, nil}
	over := 0
	switch n := c.rng.IntN(8); {
	case ok && n < 5 && c.w.making.Err() == nil:
		fields[0], fields[1], over = known.id, known.token, known.holder
	case n == 5:
		fields[0] = fmt.Sprintf("session-%d", c.rng.IntN(sharedSessions))
	}
	c.w.rec.Set(o, func(o *check.Op) {
		o.Want, _ = fields[0].(string)
		o.Shared, o.Over = true, over
	})
	return goamqp.NewLinkFilter(sharedFilter, sharedCode, fields)
}

// shareOne accepts one session, works on it and lets go of it.
func (c *client) shareOne(ctx context.Context, q *check.Queue) error {
	o := c.w.rec.Begin(c.id, c.number, check.Accept, q.Name, check.InMain)
	filter := c.wish(o)
	limit, cancel := c.opContext()
	rx, err := c.bare.session.NewReceiver(limit, q.Name, &goamqp.ReceiverOptions{
		Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(), Filters: []goamqp.LinkFilter{filter},
		Properties: map[string]any{"com.microsoft:timeout": uint32(acceptWait.Milliseconds())},
	})
	cancel()
	if err != nil {
		if condition := refusedAs(err); condition == "" || c.sock.broken.Load() {
			return c.judgeBare(o, fmt.Errorf("accept: %v", err), nil) // of the attach nothing is known
		} else if condition != "com.microsoft:session-cannot-be-locked" {
			c.w.rec.End(o, check.Unknown, func(o *check.Op) { o.Error, o.Condition = err.Error(), condition })
			return nil
		}
		c.w.rec.End(o, check.Failed, func(o *check.Op) { o.Error, o.Condition = err.Error(), refusedAs(err) })
		c.pause(ctx, 50*time.Millisecond)
		return nil
	}
	list, _ := rx.LinkSourceFilterValue(sharedFilter).([]any)
	if len(list) != 2 {
		return fmt.Errorf("%w: the filter is answered with %v", errGiveUp, list)
	}
	h := hold{holder: c.w.rec.NewHolder()}
	h.id, _ = list[0].(string)
	h.token, _ = list[1].(goamqp.UUID)
	const ticksOfUnix = 621_355_968_000_000_000 // 1970 in .NET ticks of 100 ns
	ticks, _ := rx.Properties()["com.microsoft:locked-until-utc"].(int64)
	c.w.rec.End(o, check.OK, func(o *check.Op) {
		o.Session, o.Holder, o.Until = h.id, h.holder, (ticks-ticksOfUnix)/10_000
	})
	c.w.counts.sessions.Add(1)
	if o.Over != 0 {
		c.w.shared.takeOvers.Add(1)
	}
	c.w.board.tell(h)
	err = c.workShared(ctx, rx, q, o, h)
	if detachedFor(err) == sessionLockLost {
		err = c.insist(q, h)
	}
	c.w.board.forget(h.holder)
	return c.letGo(rx, q, h, err)
}

// refusedAs returns the condition with which the broker refused an attach.
func refusedAs(err error) string {
	var refused *goamqp.Error
	if errors.As(err, &refused) {
		return string(refused.Condition)
	}
	return detachedFor(err)
}

// letGo closes the link of a session, unless it is gone.
func (c *client) letGo(rx *goamqp.Receiver, q *check.Queue, h hold, err error) error {
	closing := c.w.rec.Begin(c.id, c.number, check.CloseSession, q.Name, check.InMain)
	c.w.rec.Set(closing, func(o *check.Op) { o.Session, o.Holder = h.id, h.holder })
	if err == nil {
		limit, cancel := c.opContext()
		err = rx.Close(limit)
		cancel()
	}
	c.w.rec.End(closing, check.OK, nil)
	if detachedFor(err) != "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errGiveUp, err)
	}
	return nil
}

// workShared settles what was handed over, then receives and settles.
func (c *client) workShared(ctx context.Context, rx *goamqp.Receiver, q *check.Queue, held *check.Op, h hold) error {
	if err := c.settleHanded(q, held, h); err != nil {
		return err
	}
	if err := c.sharedOp(check.GetState, q, h); err != nil {
		return err
	}
	since := time.Now().UnixNano()
	for range 2 + c.rng.IntN(20) {
		if ctx.Err() != nil {
			return nil
		}
		if n := c.rng.IntN(12); n < 3 {
			kind := []check.Kind{check.SetState, check.GetState, check.RenewSession}[n]
			if err := c.sharedOp(kind, q, h); err != nil {
				return err
			}
		}
		if err := rx.IssueCredit(1); err != nil {
			return err
		}
		limit, cancel := context.WithTimeout(ctx, idleReceive)
		m, err := rx.Receive(limit, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return nil // the link closes, and with it ends the session
		}
		if err != nil {
			return err
		}
		tag, _ := amqp.TokenFromTag(m.DeliveryTag)
		d := handedDelivery{lock: goamqp.UUID(tag)}
		d.op = c.w.rec.Begin(c.id, c.number, check.Receive, q.Name, check.InMain)
		c.w.rec.End(d.op, check.OK, func(o *check.Op) {
			o.Invoke, o.Message, o.Session, o.Holder = since, delivered(m, tag.String()), h.id, h.holder
		})
		c.w.counts.deliveries.Add(1)
		c.w.board.deliver(h.token, d)
		if err := c.decideShared(ctx, rx, q, m, d, h); err != nil {
			return err
		}
		since = time.Now().UnixNano()
	}
	return nil
}

// decideShared settles a delivery over the link or by its lock token, or leaves it to whoever takes the session
// over.
func (c *client) decideShared(ctx context.Context, rx *goamqp.Receiver, q *check.Queue, m *goamqp.Message,
	d handedDelivery, h hold) error {
	roll := c.rng.IntN(100)
	if c.w.making.Err() != nil {
		roll = 99 // what is left is drained
	}
	kind := check.Complete
	switch {
	case roll < 30: // a slow application, which another one may take the session from meanwhile
		c.pause(ctx, 200*time.Millisecond)
		return nil
	case roll < 40:
		kind = check.Abandon
	case roll < 42:
		kind = check.Kill
	case roll < 55:
		c.pause(ctx, 50*time.Millisecond)
	}
	if roll%2 == 0 {
		_, err := c.settleByToken(q, d, kind, h)
		return err
	}
	limit, cancel := c.opContext()
	defer cancel()
	o := c.begin(kind, q, check.InMain, d.op)
	var err error
	switch kind {
	case check.Complete:
		err = rx.AcceptMessage(limit, m)
	case check.Abandon:
		err = rx.ModifyMessage(limit, m, &goamqp.ModifyMessageOptions{})
	case check.Kill:
		err = rx.RejectMessage(limit, m, &goamqp.Error{Condition: "com.microsoft:dead-letter",
			Info: map[string]any{"DeadLetterReason": "asked"}})
	}
	if err = c.judgeBare(o, err, nil); o.Ok() {
		c.w.board.settled(h, d)
	}
	return err
}

// settleHanded decides about what other holders of the session were delivered and have not settled. They may try
// the same at the same time.
func (c *client) settleHanded(q *check.Queue, held *check.Op, h hold) error {
	if held.Over == 0 {
		return nil
	}
	for _, d := range c.w.board.handed(h.token) {
		if d.op.Holder == h.holder || c.rng.IntN(8) == 0 {
			continue
		}
		kind := check.Complete
		if c.rng.IntN(4) == 0 {
			kind = check.Abandon
		}
		o, err := c.settleByToken(q, d, kind, h)
		if err != nil {
			return err
		}
		if o.Ok() {
			c.w.shared.settled.Add(1)
		}
	}
	return nil
}

// insist has a receiver that has lost its session settle what it holds, renew the lock and set the state. If
// another one took the session over, each must be refused with session-lock-lost (S-330), also where that other
// one has settled the delivery meanwhile.
func (c *client) insist(q *check.Queue, h hold) error {
	for _, d := range c.w.board.ownOf(h.holder) {
		o, err := c.settleByToken(q, d, check.Complete, h)
		if err != nil {
			return err
		}
		if o.Condition == sessionLockLost && !c.w.board.waits(h.token, d) {
			c.w.shared.rivals.Add(1)
		}
	}
	if err := c.sharedOp(check.RenewSession, q, h); err != nil {
		return err
	}
	return c.sharedOp(check.SetState, q, h)
}

// settleByToken decides with a request, as a holder of the session.
func (c *client) settleByToken(q *check.Queue, d handedDelivery, kind check.Kind, h hold) (*check.Op, error) {
	limit, cancel := c.opContext()
	defer cancel()
	o := c.begin(kind, q, check.InMain, d.op)
	c.w.rec.Set(o, func(o *check.Op) { o.Holder = h.holder })
	body := map[string]any{"lock-tokens": []goamqp.UUID{d.lock}, "session-id": h.id,
		"disposition-status": map[check.Kind]string{check.Complete: "completed", check.Abandon: "abandoned",
			check.Kill: "suspended"}[kind]}
	if kind == check.Kill {
		body["deadletter-reason"] = "asked"
	}
	_, err := c.bare.ask(limit, q.Name, "update-disposition", body)
	err = c.judgeBare(o, err, nil)
	if o.Ok() || o.Condition == "com.microsoft:message-lock-lost" {
		c.w.board.settled(h, d)
	}
	return o, err
}

// sharedOp reads or sets the state of a session, or renews its lock.
func (c *client) sharedOp(kind check.Kind, q *check.Queue, h hold) error {
	limit, cancel := c.opContext()
	defer cancel()
	o := c.w.rec.Begin(c.id, c.number, kind, q.Name, check.InMain)
	body := map[string]any{"session-id": h.id}
	c.w.rec.Set(o, func(o *check.Op) {
		o.Session, o.Holder = h.id, h.holder
		if kind == check.SetState {
			c.serial++
			o.State = fmt.Sprintf("v%d-%d", c.id, c.serial)
			body["session-state"] = []byte(o.State)
		}
	})
	operation := map[check.Kind]string{check.SetState: "set-session-state", check.GetState: "get-session-state",
		check.RenewSession: "renew-session-lock"}[kind]
	a, err := c.bare.ask(limit, q.Name, operation, body)
	return c.judgeBare(o, err, func(o *check.Op) {
		switch kind {
		case check.GetState:
			o.State = "-"
			if s, _ := a["session-state"].([]byte); len(s) > 0 {
				o.State = string(s)
			}
		case check.RenewSession:
			if t, ok := a["expiration"].(time.Time); ok {
				o.Until = t.UnixMilli()
			}
		}
	})
}
