package check

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/transport"
)

// Sin is a way to break a broker on purpose. A checker that does not catch its sin is worth nothing.
type Sin struct {
	Name      string
	Invariant string // of the checker that must catch it
	// Wrap returns a broker that behaves but for the sin.
	Wrap func(transport.Broker) transport.Broker
}

// Sins returns one sin per invariant at least.
func Sins() []Sin {
	sin := func(name, invariant string, make func() *liar) Sin {
		return Sin{name, invariant, func(b transport.Broker) transport.Broker {
			l := make()
			l.Broker = b
			return l
		}}
	}
	return []Sin{
		sin("acknowledges a message that it does not store", "I1", losesSend),
		sin("acknowledges a dead-lettering and completes", "I1", losesDead),
		sin("changes a byte of a body", "I2", corrupts),
		sin("swaps the numbers of two messages", "I3", swapsNumbers),
		sin("stores a message twice", "I4", storesTwice),
		sin("delivers a locked message to a second receiver", "I5", doublesDelivery),
		sin("accepts a settlement with a lost lock", "I6", acceptsOldLocks),
		sin("accepts a second settlement", "I7", acceptsTwice),
		sin("delivers a completed message again", "I8", resurrects),
		sin("forgets a lock before its time", "I9", forgetsLock),
		sin("forgets delivery counts", "I10", forgetsCounts),
		sin("gives a held session to a second receiver", "I11", sharesSession),
		sin("delivers a session out of order", "I12", reorders),
		sin("answers an old session state", "I13", staleState),
		sin("delivers scheduled messages at once", "I14", hurries),
		sin("forgets the time to live", "I15", keepsExpired),
		sin("stores half of a batch", "I20", halvesBatch),
		sin("leaves a message out of a peek", "I22", stalePeek),
	}
}

// every is how often a sin is committed: often enough for a short run, seldom enough that the rest of
// the run goes on.
const every = 7

// liar is a broker with a sin. Calls that the sin does not concern pass through.
type liar struct {
	transport.Broker
	propose func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (fsm.Outcome, error)
	query   func(l *liar, k fsm.Key, q fsm.Query, a fsm.Answer) fsm.Answer

	mu    sync.Mutex
	count int
	seen  map[string]fsm.Delivery
	given map[string]time.Time // when what was seen last was
	past  []fsm.Delivery
	state map[string][]byte
	pump  uint64
}

func newLiar() *liar {
	return &liar{seen: map[string]fsm.Delivery{}, given: map[string]time.Time{}, state: map[string][]byte{}}
}

// Propose implements transport.Broker.
func (l *liar) Propose(ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
	fsm.Outcome, error) {
	if l.propose == nil {
		return l.Broker.Propose(ctx, id, k, c)
	}
	return l.propose(l, ctx, id, k, c)
}

// Query implements transport.Broker.
func (l *liar) Query(ctx context.Context, k fsm.Key, q fsm.Query) (fsm.Answer, error) {
	a, err := l.Broker.Query(ctx, k, q)
	if l.query == nil || err != nil {
		return a, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.query(l, k, q, a), nil
}

// turn reports whether it is time for the sin.
func (l *liar) turn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	return l.count%every == 0
}

// onSend makes a liar that meddles with single messages on their way in.
func onSend(f func(l *liar, c *fsm.Enqueue) *fsm.Enqueue) func() *liar {
	return func() *liar {
		l := newLiar()
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			if e, ok := c.(*fsm.Enqueue); ok {
				if e = f(l, e); e == nil {
					return fsm.Outcome{Numbers: []fsm.SequenceNumber{1 << 40}}, nil
				}
				c = e
			}
			return l.Broker.Propose(ctx, id, k, c)
		}
		return l
	}
}

// onLock makes a liar that meddles with deliveries on their way out.
func onLock(f func(l *liar, k fsm.Key, c *fsm.Lock, o *fsm.Outcome)) func() *liar {
	return func() *liar {
		l := newLiar()
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			o, err := l.Broker.Propose(ctx, id, k, c)
			if lock, ok := c.(*fsm.Lock); ok && err == nil && len(o.Locked) > 0 {
				l.mu.Lock()
				defer l.mu.Unlock()
				f(l, k, lock, &o)
			}
			return o, err
		}
		return l
	}
}

// onSettle makes a liar that meddles with single settlements: before may change the command, after
// the outcome.
func onSettle(before func(*liar, *fsm.SettleItem), after func(*liar, fsm.SettleItem, *fsm.Refusal)) func() *liar {
	return func() *liar {
		l := newLiar()
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			s, ok := c.(*fsm.Settle)
			if !ok {
				return l.Broker.Propose(ctx, id, k, c)
			}
			changed := &fsm.Settle{Session: s.Session, Items: slices.Clone(s.Items)}
			for i := range changed.Items {
				if before != nil {
					before(l, &changed.Items[i])
				}
			}
			o, err := l.Broker.Propose(ctx, id, k, changed)
			o.Refusals = slices.Clone(o.Refusals)
			for i := range o.Refusals {
				if after != nil && err == nil {
					after(l, s.Items[i], &o.Refusals[i])
				}
			}
			return o, err
		}
		return l
	}
}

var (
	losesSend = onSend(func(l *liar, c *fsm.Enqueue) *fsm.Enqueue {
		if len(c.Messages) == 1 && c.Messages[0].ScheduledAt == 0 && l.turn() {
			return nil
		}
		return c
	})
	losesDead = onSettle(func(_ *liar, it *fsm.SettleItem) {
		if it.Verdict == fsm.Kill {
			it.Verdict = fsm.Complete
		}
	}, nil)
	corrupts = onLock(func(l *liar, _ fsm.Key, _ *fsm.Lock, o *fsm.Outcome) {
		if l.count++; l.count%every == 0 {
			b := bytes.Clone(o.Locked[0].Body)
			b[len(b)-1]++
			o.Locked[0].Body = b
		}
	})
	storesTwice = func() *liar {
		l := newLiar()
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			o, err := l.Broker.Propose(ctx, id, k, c)
			if _, ok := c.(*fsm.Enqueue); ok && err == nil && o.Refusal == fsm.None && l.turn() {
				l.mu.Lock()
				l.pump++
				again := fsm.RequestID{Node: id.Node, Pump: 1<<62 + l.pump, Counter: 1}
				l.mu.Unlock()
				return l.Broker.Propose(ctx, again, k, c)
			}
			return o, err
		}
		return l
	}
	forgetsCounts = onLock(func(_ *liar, _ fsm.Key, _ *fsm.Lock, o *fsm.Outcome) {
		for i := range o.Locked {
			o.Locked[i].Attempts = 0
		}
	})
	// doublesDelivery gives what somebody was given lately, and has not settled, to the next who asks.
	doublesDelivery = func() *liar {
		l := onLock(func(l *liar, k fsm.Key, c *fsm.Lock, o *fsm.Outcome) {
			if c.Session != (fsm.SessionProof{}) || k.Sub != fsm.Main || len(o.Locked) != 1 {
				return
			}
			at := string(rune(k.Entity))
			d, held := l.seen[at]
			if held && d.Seq != o.Locked[0].Seq && time.Since(l.given[at]) < 3*time.Second {
				if l.count++; l.count%3 == 0 {
					d.Token[15]++
					o.Locked[0] = d
				}
				return
			}
			l.seen[at], l.given[at] = o.Locked[0], time.Now()
		})()
		locks := l.propose
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			if s, ok := c.(*fsm.Settle); ok {
				l.mu.Lock()
				at := string(rune(k.Entity))
				if slices.ContainsFunc(s.Items, func(it fsm.SettleItem) bool { return it.Seq == l.seen[at].Seq }) {
					delete(l.seen, at)
				}
				l.mu.Unlock()
			}
			return locks(l, ctx, id, k, c)
		}
		return l
	}
	acceptsOldLocks = onSettle(nil, func(_ *liar, _ fsm.SettleItem, r *fsm.Refusal) {
		if *r == fsm.MessageLockLost {
			*r = fsm.None
		}
	})
	acceptsTwice = onSettle(func(l *liar, it *fsm.SettleItem) {
		// Every terminal settlement leaves the message where it was, so it is settled again.
		if (it.Verdict == fsm.Complete || it.Verdict == fsm.Kill) && l.turn() {
			it.Verdict = fsm.Return
		}
	}, nil)
	// resurrects delivers, instead of what it should, something that was completed before.
	resurrects = func() *liar {
		l := newLiar()
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			o, err := l.Broker.Propose(ctx, id, k, c)
			l.mu.Lock()
			defer l.mu.Unlock()
			switch c := c.(type) {
			case *fsm.Settle:
				for i, it := range c.Items {
					d, ok := l.seen[it.Token.String()]
					if ok && it.Verdict == fsm.Complete && i < len(o.Refusals) && o.Refusals[i] == fsm.None {
						l.past = append(l.past, d)
					}
				}
			case *fsm.Lock:
				if c.Session != (fsm.SessionProof{}) || k.Sub != fsm.Main || len(o.Locked) == 0 {
					break
				}
				for _, d := range o.Locked {
					l.seen[d.Token.String()] = d
				}
				if l.count++; l.count%every == 0 && len(l.past) > 0 {
					d := l.past[0]
					l.past = l.past[1:]
					d.Token = o.Locked[0].Token
					o.Locked[0] = d
				}
			}
			return o, err
		}
		return l
	}
	forgetsLock = onSettle(func(l *liar, it *fsm.SettleItem) {
		if l.turn() {
			it.Token[15]++
		}
	}, nil)
	sharesSession = func() *liar {
		l := newLiar()
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			o, err := l.Broker.Propose(ctx, id, k, c)
			if a, ok := c.(*fsm.AcceptSession); ok && err == nil && o.Refusal == fsm.SessionCannotBeLocked {
				o = fsm.Outcome{LockedUntil: 1 << 40, Session: fsm.SessionProof{ID: a.ID, Token: fsm.LockToken{15: 1}}}
			}
			return o, err
		}
		return l
	}
	// reorders holds a session's message back and gives the next one first.
	reorders = func() *liar {
		l := newLiar()
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			lock, ok := c.(*fsm.Lock)
			if !ok || lock.Session == (fsm.SessionProof{}) {
				return l.Broker.Propose(ctx, id, k, c)
			}
			at := lock.Session.Token.String()
			l.mu.Lock()
			held, waits := l.seen[at]
			delete(l.seen, at)
			l.pump++
			again := fsm.RequestID{Node: id.Node, Pump: 1<<62 + l.pump, Counter: 1}
			l.mu.Unlock()
			if waits {
				return fsm.Outcome{Locked: []fsm.Delivery{held}}, nil
			}
			o, err := l.Broker.Propose(ctx, id, k, c)
			if err != nil || len(o.Locked) != 1 {
				return o, err
			}
			next := *lock
			next.Wait = 0
			second, err := l.Broker.Propose(ctx, again, k, &next)
			if err != nil || len(second.Locked) != 1 {
				return o, nil
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.seen[at] = o.Locked[0]
			return second, nil
		}
		return l
	}
	hurries = onSend(func(_ *liar, c *fsm.Enqueue) *fsm.Enqueue {
		out := &fsm.Enqueue{Messages: slices.Clone(c.Messages)}
		for i := range out.Messages {
			out.Messages[i].ScheduledAt = 0
		}
		return out
	})
	keepsExpired = onSend(func(_ *liar, c *fsm.Enqueue) *fsm.Enqueue {
		out := &fsm.Enqueue{Messages: slices.Clone(c.Messages)}
		for i := range out.Messages {
			out.Messages[i].TTL = 0
		}
		return out
	})
	// halvesBatch stores the first half of a batch and says that it does not know.
	halvesBatch = func() *liar {
		l := newLiar()
		l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
			fsm.Outcome, error) {
			e, ok := c.(*fsm.Enqueue)
			if !ok || len(e.Messages) < 2 {
				return l.Broker.Propose(ctx, id, k, c)
			}
			o, err := l.Broker.Propose(ctx, id, k, &fsm.Enqueue{Messages: e.Messages[:len(e.Messages)/2]})
			if err != nil || o.Refusal != fsm.None {
				return o, err
			}
			return fsm.Outcome{}, fsm.ErrUnknown
		}
		return l
	}
)

// swapsNumbers tells two neighbours' numbers the wrong way round, whenever it tells them.
func swapsNumbers() *liar {
	other := func(n fsm.SequenceNumber) fsm.SequenceNumber {
		if n&31 < 2 && n > 31 {
			return n ^ 1
		}
		return n
	}
	l := newLiar()
	l.propose = func(l *liar, ctx context.Context, id fsm.RequestID, k fsm.Key, c fsm.Command) (
		fsm.Outcome, error) {
		if s, ok := c.(*fsm.Settle); ok {
			told := &fsm.Settle{Session: s.Session, Items: slices.Clone(s.Items)}
			for i := range told.Items {
				told.Items[i].Seq = other(told.Items[i].Seq)
			}
			c = told
		}
		o, err := l.Broker.Propose(ctx, id, k, c)
		o.Locked = slices.Clone(o.Locked)
		for i := range o.Locked {
			o.Locked[i].Seq = other(o.Locked[i].Seq)
		}
		return o, err
	}
	l.query = func(_ *liar, _ fsm.Key, _ fsm.Query, a fsm.Answer) fsm.Answer {
		for i := range a.Messages {
			a.Messages[i].Seq = other(a.Messages[i].Seq)
		}
		return a
	}
	return l
}

// staleState answers the state of a session as it was one change ago.
func staleState() *liar {
	l := newLiar()
	l.query = func(l *liar, _ fsm.Key, q fsm.Query, a fsm.Answer) fsm.Answer {
		g, ok := q.(*fsm.GetSessionState)
		if !ok || a.Refusal != fsm.None {
			return a
		}
		old, known := l.state[g.Session.ID]
		l.state[g.Session.ID] = bytes.Clone(a.State)
		if known && !bytes.Equal(old, a.State) {
			a.State, a.HasState = old, len(old) > 0
		}
		return a
	}
	return l
}

// stalePeek leaves the first message out.
func stalePeek() *liar {
	l := newLiar()
	l.query = func(_ *liar, _ fsm.Key, q fsm.Query, a fsm.Answer) fsm.Answer {
		if p, ok := q.(*fsm.Peek); ok && len(a.Messages) > 3 && p.From <= 1 {
			a.Messages = a.Messages[1:]
		}
		return a
	}
	return l
}
