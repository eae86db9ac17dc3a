package model

import (
	"fmt"
	"slices"
	"sort"

	"github.com/busbar-mq/busbar/fsm"
)

func exhausted(n uint32) string {
	return fmt.Sprintf("Message could not be consumed after %d delivery attempts.", n)
}

// reader finds the session that a receiver reads, nil without sessions.
func (q *queue) reader(sub fsm.SubQueue, p fsm.SessionProof) (*session, fsm.Refusal) {
	none := p.Token.IsZero() && p.ID == ""
	switch {
	case !q.sessionful(sub) && none:
		return nil, fsm.None
	case !q.sessionful(sub):
		return nil, fsm.SessionNotSupported
	case p.Token.IsZero():
		return nil, fsm.SessionRequired
	}
	if s := q.held(p); s != nil {
		return s, fsm.None
	}
	return nil, fsm.SessionLockLost
}

func (m *Model) lock(q *queue, r *fsm.Request, c *fsm.Lock, got *fsm.Outcome) fsm.Outcome {
	if c.Max == 0 {
		return refused(fsm.InvalidArgument)
	}
	s, no := q.reader(r.Sub, c.Session)
	if no != fsm.None {
		return refused(no)
	}
	m.serve(q)
	if s != nil && s.awaits() {
		return fsm.Outcome{}
	}
	var taken []*message
	bytes := uint32(0)
	for _, x := range q.messages {
		x.woke(m.lease, got)
		if x.sub != r.Sub || x.session != s || !x.here() {
			continue
		}
		bytes += x.size()
		if len(taken) == int(c.Max) || len(taken) > 0 && c.MaxBytes > 0 && bytes > c.MaxBytes {
			break
		}
		taken = append(taken, x)
	}
	if len(taken) == 0 {
		return fsm.Outcome{}
	}
	return m.take(q, r, taken, c.Delete, got)
}

func (m *Model) take(q *queue, r *fsm.Request, taken []*message, remove bool, got *fsm.Outcome) fsm.Outcome {
	q.touched = m.wall
	o := fsm.Outcome{Locked: []fsm.Delivery{}}
	for i, x := range taken {
		if remove {
			m.processed(q, x, false)
			q.delete(x)
		} else if i < len(got.Locked) {
			x.token = m.fresh(got.Locked[i].Token, q)
			x.deadline = m.lease.After(q.d.LockDuration)
			x.taken, x.by = m.wall, fsm.RequestID{Node: r.ID.Node, Pump: r.ID.Pump}
		}
		o.Locked = append(o.Locked, m.delivery(x))
	}
	return o
}

func (m *Model) receive(q *queue, r *fsm.Request, c *fsm.Receive, got *fsm.Outcome) fsm.Outcome {
	s, no := q.reader(r.Sub, c.Session)
	if no == fsm.SessionRequired {
		no = fsm.SessionLockLost
	}
	if no != fsm.None {
		return refused(no)
	}
	m.serve(q)
	var taken []*message
	for _, n := range c.Numbers {
		i := slices.IndexFunc(q.messages, func(x *message) bool {
			return x.number == n && x.sub == r.Sub && x.session == s && x.token.IsZero() &&
				x.state == fsm.StateDeferred && !slices.Contains(taken, x)
		})
		if i < 0 {
			return refused(fsm.MessageNotFound)
		}
		taken = append(taken, q.messages[i])
	}
	return m.take(q, r, taken, c.Delete, got)
}

func (m *Model) deleteMessages(q *queue, sub fsm.SubQueue, c *fsm.DeleteMessages) fsm.Outcome {
	if c.Max < 1 || c.Max > 4000 {
		return refused(fsm.InvalidArgument)
	}
	s, no := q.reader(sub, c.Session)
	if no == fsm.SessionRequired {
		no = fsm.SessionLockLost
	}
	if no != fsm.None {
		return refused(no)
	}
	var o fsm.Outcome
	for _, x := range slices.Clone(q.messages) {
		if x.sub == sub && x.session == s && x.token.IsZero() && x.state == fsm.StateActive && !x.moving &&
			(c.Before == 0 || x.enqueued < c.Before) && o.Count < uint64(c.Max) {
			q.drops[fsm.DropPurged]++
			m.left(q, x, fsm.Deleted)
			q.delete(x)
			o.Count++
		}
	}
	q.touched = m.wall
	return o
}

func (m *Model) settle(q *queue, sub fsm.SubQueue, c *fsm.Settle) fsm.Outcome {
	o := fsm.Outcome{Refusals: make([]fsm.Refusal, len(c.Items))}
	var s *session
	if q.sessionful(sub) {
		if s = q.held(c.Session); s == nil {
			o.Refusal = fsm.SessionLockLost
			for i := range o.Refusals {
				o.Refusals[i] = fsm.SessionLockLost
			}
			return o
		}
	}
	for i := range c.Items {
		it := &c.Items[i]
		x := q.byToken(sub, it.Token)
		if x == nil || x.session != s || it.Seq != 0 && it.Seq != x.number {
			o.Refusals[i] = fsm.MessageLockLost
			continue
		}
		o.Refusals[i] = m.verdict(q, x, it)
	}
	return o
}

func (m *Model) verdict(q *queue, x *message, it *fsm.SettleItem) fsm.Refusal {
	if it.Delay != 0 && (it.Verdict != fsm.Abandon || it.Delay < 0 || it.Delay > 7*24*3600*1000) {
		return fsm.InvalidArgument
	}
	if it.Verdict == fsm.Kill && (x.sub != fsm.Main || q.d.NoDeadLetter) {
		return fsm.InvalidOperation
	}
	if it.Verdict != fsm.Complete && it.Verdict != fsm.Return {
		x.props = slices.Clone(x.props)
		for _, p := range it.Properties {
			i := slices.IndexFunc(x.props, func(o fsm.Property) bool { return o.Key == p.Key })
			if i < 0 {
				x.props = append(x.props, p)
			} else {
				x.props[i] = p
			}
		}
	}
	switch it.Verdict {
	case fsm.Complete:
		m.processed(q, x, true)
		q.delete(x)
	case fsm.Abandon:
		m.giveBack(q, x, true, it.Delay)
	case fsm.Return:
		m.giveBack(q, x, false, 0)
	case fsm.Defer:
		x.state = fsm.StateDeferred
		m.giveBack(q, x, true, 0)
	case fsm.Kill:
		m.left(q, x, fsm.DeadLettered)
		deadLetter(x, it.Reason, it.Description)
	}
	q.tidy()
	return fsm.None
}

func (m *Model) renew(q *queue, sub fsm.SubQueue, c *fsm.Renew) fsm.Outcome {
	if q.sessionful(sub) {
		return refused(fsm.InvalidOperation)
	}
	for _, t := range c.Tokens {
		if q.byToken(sub, t) == nil {
			return refused(fsm.MessageLockLost)
		}
	}
	for _, t := range c.Tokens {
		q.byToken(sub, t).deadline = m.lease.After(q.d.LockDuration)
	}
	return fsm.Outcome{LockedUntil: m.wall.After(q.d.LockDuration)}
}

func (m *Model) dropLocks(q *queue, c *fsm.DropLocks) {
	for _, t := range c.Tokens {
		for _, x := range q.messages {
			if !t.IsZero() && x.token == t && x.session == nil {
				x.deadline = min(x.deadline, m.lease.After(c.Grace))
			}
		}
	}
	m.expire(q)
}

func (m *Model) cancel(q *queue, sub fsm.SubQueue, c *fsm.Cancel) fsm.Outcome {
	if sub != fsm.Main {
		return refused(fsm.InvalidOperation)
	}
	var found []*message
	for _, n := range c.Numbers {
		i := slices.IndexFunc(q.messages, func(x *message) bool {
			return x.number == n && x.state == fsm.StateScheduled
		})
		if i < 0 {
			return refused(fsm.MessageNotFound)
		}
		found = append(found, q.messages[i])
	}
	for _, x := range found {
		if slices.Contains(q.messages, x) { // else it was named twice
			q.drops[fsm.DropCancelled]++
		}
		m.left(q, x, fsm.Cancelled)
		q.delete(x)
	}
	q.tidy()
	return fsm.Outcome{}
}

func (m *Model) accept(
	q *queue, r *fsm.Request, c *fsm.AcceptSession, got *fsm.Outcome,
) fsm.Outcome {
	if !q.sessionful(r.Sub) {
		return refused(fsm.SessionNotSupported)
	}
	if !c.Presented.IsZero() && (c.Next || !c.Shared) {
		return refused(fsm.InvalidArgument)
	}
	var s *session
	if c.Next {
		m.serve(q)
		if len(q.ready) == 0 {
			return refused(fsm.NoSession)
		}
		s = q.ready[0]
	} else {
		if s = q.session(c.ID); s != nil && s.held() && !s.shared.IsZero() && s.shared == c.Presented {
			return m.takeOver(q, r, s, got)
		}
		if s != nil && s.held() || !c.Presented.IsZero() {
			return refused(fsm.SessionCannotBeLocked)
		}
		m.serve(q)
		s = q.reach(c.ID)
	}
	if c.Shared {
		s.shared = m.fresh(got.Shared, q)
	}
	return m.hold(q, r, s, got)
}

func (m *Model) hold(q *queue, r *fsm.Request, s *session, got *fsm.Outcome) fsm.Outcome {
	s.token = m.fresh(got.Session.Token, q)
	s.deadline = m.lease.After(q.d.LockDuration)
	s.node = r.ID.Node
	q.touched = m.wall
	return fsm.Outcome{
		Session:     fsm.SessionProof{ID: s.id, Token: s.token},
		LockedUntil: m.wall.After(q.d.LockDuration), Shared: s.shared,
	}
}

func (m *Model) withSession(
	q *queue, sub fsm.SubQueue, p fsm.SessionProof, do func(*session) fsm.Outcome,
) fsm.Outcome {
	if !q.sessionful(sub) {
		return refused(fsm.SessionNotSupported)
	}
	s := q.held(p)
	if s == nil {
		return refused(fsm.SessionLockLost)
	}
	return do(s)
}

func (m *Model) setState(q *queue, s *session, c *fsm.SetSessionState) fsm.Outcome {
	if c.Rest != (fsm.Upload{}) {
		return m.setParted(q, s, c)
	}
	if c.Clear {
		s.state, s.parts = nil, nil
		return fsm.Outcome{}
	}
	if len(c.State) > int(q.d.MaxMessageBytes) {
		return refused(fsm.MessageSizeExceeded)
	}
	before := 0
	if s.state != nil {
		before = len(s.state) + int(lengthOf(s.parts)) + len(s.id)
	}
	if more := len(c.State) + len(s.id) - before; more > 0 && q.full(uint64(more)) {
		return refused(fsm.QuotaExceeded)
	}
	s.state, s.parts = append([]byte{}, c.State...), nil // not nil
	s.stateAt = m.wall
	return fsm.Outcome{}
}

// Query answers as the state machine should.
func (m *Model) Query(r fsm.QueryRequest) fsm.Answer {
	q := m.queue(r.Entity)
	if q == nil || q.closed {
		return fsm.Answer{Refusal: fsm.Stale}
	}
	_, moving := r.Query.(*fsm.Moving)
	if moving && q.restored {
		return fsm.Answer{Refusal: fsm.Busy}
	}
	if r.Sub != fsm.Main && q.d.NoDeadLetter && !moving {
		return fsm.Answer{Refusal: fsm.EntityNotFound}
	}
	switch c := r.Query.(type) {
	case *fsm.Peek:
		return m.peek(q, r.Sub, c)
	case *fsm.GetSessionState:
		return m.getState(q, r.Sub, c)
	case *fsm.Counts:
		a := fsm.Answer{Counts: q.counts()}
		if q.d.Kind == fsm.Topic {
			a.Counts.SizeBytes = m.topicSize(q)
		}
		return a
	case *fsm.ListSessions:
		return q.list(c)
	case *fsm.Browse:
		return m.browse(q, r.Sub, c)
	case *fsm.ListLocks:
		return m.locks(q, r.Sub, c)
	case *fsm.Moving:
		return m.movingNow(q, r.Sub, c)
	case *fsm.Idle:
		return fsm.Answer{IdleFor: m.idle(q)}
	}
	return fsm.Answer{Refusal: fsm.InvalidOperation}
}

func (m *Model) peek(q *queue, sub fsm.SubQueue, c *fsm.Peek) fsm.Answer {
	if c.HasSession && !q.sessionful(sub) {
		return fsm.Answer{Refusal: fsm.SessionNotSupported}
	}
	var a fsm.Answer
	first, ok := q.firstFrom(c.From)
	bytes := uint32(0)
	for _, x := range q.messages {
		if x.sub != sub || !ok || x.arrival < first || len(a.Messages) == int(c.Max) ||
			c.HasSession && x.session.id != c.Session {
			continue
		}
		if bytes += x.size(); c.MaxBytes > 0 && len(a.Messages) > 0 && bytes > c.MaxBytes {
			break
		}
		d := m.delivery(x)
		d.Token, d.LockedUntil = fsm.LockToken{}, 0
		a.Messages = append(a.Messages, d)
	}
	return a
}

func (m *Model) browse(q *queue, sub fsm.SubQueue, c *fsm.Browse) fsm.Answer {
	first, ok := q.firstFrom(c.From)
	if !ok {
		return fsm.Answer{}
	}
	if c.HasSession && sub == fsm.Main && !q.d.RequiresSession {
		return fsm.Answer{Refusal: fsm.SessionNotSupported}
	}
	var a fsm.Answer
	var last uint64
	var bytes uint32
	for _, x := range q.messages {
		where := x.diedIn
		if x.session != nil {
			where = &x.session.id
		}
		others := c.HasSession && (where == nil || *where != c.Session)
		if x.sub != sub || x.arrival < first || x.arrival <= c.After || others && sub == fsm.Main {
			continue
		}
		fits := c.MaxBytes == 0 || len(a.Messages) == 0 || bytes+x.size() <= c.MaxBytes
		if len(a.Messages) == int(c.Max) || !fits {
			a.Next = last
			break
		}
		last = x.arrival
		if !others && (c.States == 0 || c.States>>x.state&1 == 1) {
			bytes += x.size()
			d := m.delivery(x)
			d.Token, d.LockedUntil = fsm.LockToken{}, 0
			a.Messages = append(a.Messages, d)
		}
	}
	return a
}

func (m *Model) getState(q *queue, sub fsm.SubQueue, c *fsm.GetSessionState) fsm.Answer {
	if !q.sessionful(sub) {
		return fsm.Answer{Refusal: fsm.SessionNotSupported}
	}
	if q.d.Status == fsm.Disabled || q.d.Status == fsm.ReceiveDisabled {
		return fsm.Answer{Refusal: fsm.EntityDisabled}
	}
	s := q.held(c.Session)
	if s == nil || s.deadline <= m.lease {
		return fsm.Answer{Refusal: fsm.SessionLockLost}
	}
	return fsm.Answer{State: slices.Clone(s.state), Parts: s.parts, HasState: s.state != nil}
}

func (m *Model) idle(q *queue) fsm.Millis {
	if q.forwards(fsm.Main) || len(q.away) > 0 || q.hears || slices.ContainsFunc(q.sessions, (*session).held) ||
		slices.ContainsFunc(q.messages, func(x *message) bool { return x.state == fsm.StateScheduled }) {
		return 0
	}
	active := q.active
	if q.d.Kind == fsm.Topic {
		for _, sub := range m.subscriptions(q, false) {
			if m.idle(sub) == 0 && m.lease != sub.active {
				return 0 // somebody is there
			}
			active = max(active, sub.active)
		}
	}
	return m.lease.Since(active)
}

func (q *queue) counts() fsm.EntityCounts {
	c := fsm.EntityCounts{
		Sessions: uint64(len(q.sessions)), SizeBytes: q.size(), AccessedAt: q.touched,
		Transfer: uint64(len(q.away)), Dropped: q.drops,
	}
	for _, x := range q.messages {
		switch {
		case x.sub == fsm.DeadLetter:
			c.DeadLetter++
			continue
		case x.sub == fsm.TransferDeadLetter:
			c.TransferDeadLetter++
			continue
		case x.state == fsm.StateActive && x.token.IsZero() && q.forwards(fsm.Main):
			c.Transfer++ // on its way
			continue
		case x.state == fsm.StateScheduled:
			c.Scheduled++
			continue
		case x.state == fsm.StateDeferred:
			c.Deferred++
		}
		c.Active++
		if !x.token.IsZero() {
			c.Locked++
		}
	}
	return c
}

func (q *queue) list(c *fsm.ListSessions) fsm.Answer {
	if !q.d.RequiresSession {
		return fsm.Answer{Refusal: fsm.SessionNotSupported}
	}
	var a fsm.Answer
	for _, s := range q.sessions {
		found := s.state != nil
		if c.UpdatedAfter > 0 {
			found = found && s.stateAt > c.UpdatedAfter
		} else {
			found = found || slices.ContainsFunc(q.messages, func(x *message) bool {
				return x.session == s && (x.state == fsm.StateActive || !x.token.IsZero())
			})
		}
		if found && (!c.HasAfter || s.id > c.After) {
			a.Sessions = append(a.Sessions, s.id)
		}
	}
	sort.Strings(a.Sessions)
	if len(a.Sessions) > int(c.Max) {
		a.Sessions = a.Sessions[:c.Max]
	}
	return a
}
