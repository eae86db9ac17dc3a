package model

import (
	"slices"
	"sort"

	"github.com/busbar-mq/busbar/fsm"
)

func refused(r fsm.Refusal) fsm.Outcome { return fsm.Outcome{Refusal: r} }

// command does one command.
func (m *Model) command(r *fsm.Request, got *fsm.Outcome) fsm.Outcome {
	switch c := r.Command.(type) {
	case *fsm.Tick:
		m.tick(c.Listeners)
		return fsm.Outcome{}
	case *fsm.Barrier, *fsm.BecomeLeader:
		return fsm.Outcome{}
	case *fsm.DropPumps:
		for _, p := range c.Pumps {
			delete(m.pumps, pump{c.Node, p})
		}
		return fsm.Outcome{}
	case *fsm.NodeLost:
		m.nodeLost(c.Node)
		return fsm.Outcome{}
	case *fsm.PutEntity:
		return m.put(&c.Descriptor)
	case *fsm.DropEntity:
		m.drop(r.Entity)
		return fsm.Outcome{}
	case *fsm.Commit:
		return m.commit(r, c)
	case *fsm.HoldForwards:
		return m.holdForwards(c)
	case *fsm.Rehome:
		return m.rehome(r, c)
	}
	return m.ask(r, got)
}

// ask does a command that concerns one entity.
func (m *Model) ask(r *fsm.Request, got *fsm.Outcome) fsm.Outcome {
	q := m.queue(r.Entity)
	if q == nil || q.closed {
		return refused(fsm.Stale)
	}
	if _, forward := r.Command.(*fsm.Forward); r.Sub != fsm.Main && q.d.NoDeadLetter && !forward {
		return refused(fsm.EntityNotFound)
	}
	if q.restored && !mayRestore(r.Command) {
		return refused(fsm.Busy)
	}
	m.expire(q)
	if c, ok := r.Command.(*fsm.Restore); ok {
		return m.restore(q, c)
	}
	o := m.use(q, r, got)
	if o.Refusal == fsm.None && !silent(r.Command) {
		q.active = m.lease
	}
	return o
}

// use does what somebody asks of a queue.
func (m *Model) use(q *queue, r *fsm.Request, got *fsm.Outcome) fsm.Outcome {
	sends := q.d.Status == fsm.Active || q.d.Status == fsm.ReceiveDisabled
	receives := q.d.Status == fsm.Active || q.d.Status == fsm.SendDisabled
	if q.d.Kind == fsm.Topic {
		switch r.Command.(type) {
		case *fsm.Enqueue, *fsm.Cancel, *fsm.DropLocks, *fsm.Touch, *fsm.Transfer, *fsm.Forward, *fsm.BodyPart,
			*fsm.Reserve:
		default:
			return refused(fsm.InvalidOperation)
		}
	}
	switch c := r.Command.(type) {
	case *fsm.Enqueue:
		if !sends && c.Origin == nil { // what is moved here is judged message by message
			return refused(fsm.EntityDisabled)
		}
		if !q.decidedAll(c) && !m.claim(q, c.Messages) {
			return refused(fsm.UploadLost)
		}
		o := m.enqueue(q, r.Sub, c)
		q.refusedForQuota(c.Messages, o)
		return o
	case *fsm.Cancel, *fsm.Reserve:
		if !sends {
			return refused(fsm.EntityDisabled)
		}
		return m.byNumber(q, r.Sub, c)
	case *fsm.Transfer:
		if !sends {
			return refused(fsm.EntityDisabled)
		}
		if !m.claim(q, c.Messages) {
			return refused(fsm.UploadLost)
		}
		o := m.transfer(q, r.Sub, c)
		q.refusedForQuota(c.Messages, o)
		return o
	case *fsm.BodyPart:
		return m.part(q, r.Sub, c)
	case *fsm.Forward:
		return m.forward(q, r.Sub, c)
	case *fsm.DropLocks:
		m.dropLocks(q, c)
		return fsm.Outcome{}
	case *fsm.Redrive:
		if q.d.Status != fsm.Active && !(c.Discard && receives) {
			return refused(fsm.EntityDisabled)
		}
		return m.redrive(q, r.Sub, c)
	case *fsm.Revoke:
		return m.revoke(q, r.Sub, c)
	case *fsm.Touch:
		q.touched = m.wall
		return fsm.Outcome{}
	case *fsm.Change: // the catalog's
		return refused(fsm.InvalidOperation)
	}
	if !receives {
		return refused(fsm.EntityDisabled)
	}
	switch r.Command.(type) {
	case *fsm.Lock, *fsm.Receive, *fsm.AcceptSession:
		if q.forwards(r.Sub) {
			return refused(fsm.InvalidOperation)
		}
	}
	defer q.tidy()
	return m.consume(q, r, got)
}

// consume does what a receiver asks.
func (m *Model) consume(q *queue, r *fsm.Request, got *fsm.Outcome) fsm.Outcome {
	switch c := r.Command.(type) {
	case *fsm.Lock:
		return m.lock(q, r, c, got)
	case *fsm.Receive:
		return m.receive(q, r, c, got)
	case *fsm.DeleteMessages:
		return m.deleteMessages(q, r.Sub, c)
	case *fsm.Settle:
		return m.settle(q, r.Sub, c)
	case *fsm.Renew:
		return m.renew(q, r.Sub, c)
	case *fsm.AcceptSession:
		return m.accept(q, r, c, got)
	case *fsm.RenewSession:
		return m.withSession(q, r.Sub, c.Session, func(s *session) fsm.Outcome {
			s.deadline = m.lease.After(q.d.LockDuration)
			return fsm.Outcome{LockedUntil: m.wall.After(q.d.LockDuration)}
		})
	case *fsm.WatchSession:
		return m.withSession(q, r.Sub, c.Session, func(*session) fsm.Outcome { return fsm.Outcome{} })
	case *fsm.ReleaseSession:
		if m.leaves(q, c) {
			return fsm.Outcome{}
		}
		return m.withSession(q, r.Sub, c.Session, func(s *session) fsm.Outcome {
			m.release(q, s, !c.Orderly)
			return fsm.Outcome{}
		})
	case *fsm.SetSessionState:
		return m.withSession(q, r.Sub, c.Session, func(s *session) fsm.Outcome {
			return m.setState(q, s, c)
		})
	}
	panic("unknown command")
}

func (m *Model) put(d *fsm.Descriptor) fsm.Outcome {
	if len(m.reclaimed[d.ID]) > 0 {
		return refused(fsm.EntityNotFound)
	}
	if d.Kind == fsm.Topic {
		again := *d
		again.ProcessedHistory, again.AcceptedHistory = false, false
		d = &again
	}
	q := m.queue(d.ID)
	if q == nil {
		q = &queue{active: m.lease, d: *d, prefix: d.Prefix(slices.Index(d.Partitions, m.id))}
		m.queues = append(m.queues, q)
		sort.Slice(m.queues, func(i, j int) bool { return m.queues[i].d.ID < m.queues[j].d.ID })
		return fsm.Outcome{}
	}
	if d.Version <= q.d.Version || q.closed {
		return fsm.Outcome{}
	}
	m.expire(q)
	q.known = slices.DeleteFunc(q.known, func(k identity) bool { return m.wall >= k.at.After(q.d.DuplicateWindow) })
	q.d = *d
	q.active = m.lease
	if d.Status == fsm.Disabled || d.Status == fsm.ReceiveDisabled {
		for _, s := range slices.Clone(q.sessions) {
			if !s.token.IsZero() {
				m.release(q, s, false)
			}
		}
		for _, x := range slices.Clone(q.messages) {
			if !x.token.IsZero() {
				m.giveBack(q, x, false, 0)
			}
		}
	}
	return fsm.Outcome{}
}

func (m *Model) drop(id fsm.EntityID) {
	q := m.queue(id)
	if q == nil {
		return
	}
	m.deleted += uint64(len(q.messages) + len(q.away))
	for _, x := range slices.Concat(q.messages, q.away) {
		m.reclaimed[id] = append(m.reclaimed[id], x.body)
	}
	for _, l := range q.history[fsm.Processed] {
		if l.Ref.Length > 0 && !l.freed {
			m.reclaimed[id] = append(m.reclaimed[id], l.body)
		}
	}
	m.queues = slices.DeleteFunc(m.queues, func(o *queue) bool { return o == q })
}

func (m *Model) nodeLost(node fsm.Incarnation) {
	if m.lost[node] {
		return
	}
	m.lost[node] = true
	// order-free: each pump is judged by itself.
	for p := range m.pumps {
		if p.node == node {
			delete(m.pumps, p)
		}
	}
	for _, q := range m.queues {
		if q.closed || !slices.ContainsFunc(q.sessions, func(s *session) bool { return !s.token.IsZero() }) {
			continue
		}
		m.expire(q)
		for _, s := range slices.Clone(q.sessions) {
			switch {
			case s.held() && s.node == node:
				m.release(q, s, false)
			case s.awaits() && s.left.node == node:
				m.gaveUp(q, s, false)
			}
		}
	}
}

func (m *Model) tick(listeners []fsm.EntityID) {
	for _, q := range m.queues {
		if q.closed {
			continue
		}
		if !slices.Contains(listeners, q.d.ID) && q.hears {
			q.active = m.lease
		}
		q.hears = slices.Contains(listeners, q.d.ID)
	}
	type moment struct {
		at fsm.Lease
		q  *queue
	}
	for { // the earliest deadline of all, and of those the one of the lowest entity
		var first *moment
		for _, q := range m.queues {
			if at, ok := q.nextEnd(); ok && at <= m.lease && (first == nil || at < first.at) {
				first = &moment{at, q}
			}
		}
		if first == nil {
			break
		}
		m.endOne(first.q)
	}
	for _, q := range m.queues {
		if q.closed {
			continue
		}
		m.activate(q)
		if q.hears || q.forwards(fsm.Main) || slices.ContainsFunc(q.sessions, (*session).held) {
			m.outlive(q)
		}
	}
	// order-free: each pump is judged by itself.
	for p, mem := range m.pumps {
		if mem.until <= m.lease {
			delete(m.pumps, p)
		}
	}
	clear(m.reclaimed)
}

func (m *Model) activate(q *queue) {
	for {
		var next *message
		for _, x := range q.messages {
			if x.state == fsm.StateScheduled && x.scheduled <= m.wall &&
				(next == nil || x.scheduled < next.scheduled) {
				next = x
			}
		}
		if next == nil {
			return
		}
		q.delete(next)
		next.state = fsm.StateActive
		q.active = m.lease
		m.stamp(q, next)
		q.append(next)
		if q.d.Kind == fsm.Topic {
			q.delete(next)
			m.publish(q, next)
			continue
		}
		for _, l := range q.history[fsm.Accepted] {
			if l.message == next {
				l.Number, l.EnqueuedAt = next.number, m.wall
			}
		}
		q.tidy()
	}
}

// stamp sets the times that begin with the enqueuing.
func (m *Model) stamp(q *queue, x *message) {
	x.enqueued = m.wall
	ttl := x.ttl
	if ttl == 0 || q.d.DefaultTTL < ttl {
		ttl = q.d.DefaultTTL
	}
	if ttl < fsm.Unlimited {
		x.expires = m.wall.After(ttl)
	}
}

// StartAfter does what the method of fsm.State does.
func (m *Model) StartAfter(id fsm.EntityID, last uint64) { m.queue(id).arrivals = last }

// firstFrom is the arrival to browse from for a number, and false if all messages are before it.
func (q *queue) firstFrom(n fsm.SequenceNumber) (uint64, bool) {
	if n == 0 {
		return 0, true
	}
	if q.d.Partitioned && n.Prefix() != q.prefix {
		return 0, n.Prefix() < q.prefix
	}
	if !q.d.Partitioned && uint64(n) >= q.span() {
		return 0, false
	}
	for _, x := range q.messages {
		if x.number == n {
			return x.arrival, true
		}
	}
	counter := uint64(n) % q.span()
	last := q.arrivals % q.span()
	back := (last + q.span() - counter) % q.span()
	if q.arrivals < q.span() { // numbers have not begun anew
		return counter, counter <= last
	}
	return q.arrivals - back, back <= (q.span()-1)/2
}

func (q *queue) delete(x *message) {
	q.messages = slices.DeleteFunc(q.messages, func(o *message) bool { return o == x })
}

// giveBack ends a lock without removal. With a message that has expired, its session's undelivered
// ones expire.
func (m *Model) giveBack(q *queue, x *message, counted bool, delay fsm.Millis) {
	if s := x.session; m.comeBack(q, x, counted, delay) && s != nil {
		m.perish(q, s)
	}
	q.tidy()
}

func (m *Model) comeBack(q *queue, x *message, counted bool, delay fsm.Millis) (expired bool) {
	x.token = fsm.LockToken{}
	if counted && x.sub == fsm.Main {
		x.finished++
		if x.finished >= q.d.MaxDelivery {
			if q.d.NoDeadLetter {
				q.drops[fsm.DropMaxDelivery]++
				m.left(q, x, fsm.Deleted)
				q.delete(x)
			} else {
				m.left(q, x, fsm.DeadLettered)
				deadLetter(x, "MaxDeliveryCountExceeded", exhausted(x.finished))
			}
			return false
		}
	}
	if m.over(x) {
		m.lapse(q, x)
		return true
	}
	least := delay
	if b := q.d.RetryBackoff; delay == 0 && counted && x.sub == fsm.Main && b.Min > 0 {
		delay = b.Min
		for n := uint32(1); n < x.finished; n++ {
			delay = min(b.Max, delay*fsm.Millis(b.Multiplier)/100)
		}
		least = delay - delay*fsm.Millis(b.Jitter)/100
	}
	switch {
	case delay == 0 || x.state != fsm.StateActive:
	case x.session != nil:
		x.session.rest = max(x.session.rest, m.lease.After(delay))
	default:
		x.rest, x.restMin = m.lease.After(delay), m.lease.After(least)
	}
	return false
}

func deadLetter(x *message, reason, text string) {
	if x.session != nil {
		x.diedIn = &x.session.id
	}
	x.rest = 0
	x.sub, x.session, x.state, x.token = fsm.DeadLetter, nil, fsm.StateActive, fsm.LockToken{}
	if reason != "" || text != "" {
		x.reason, x.text = reason, text
	}
}
