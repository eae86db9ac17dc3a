package fsm

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/busbar-mq/busbar/fsm/rule"
	"github.com/busbar-mq/busbar/fsm/stored"
)

const (
	// maxFanOut bounds messages times subscriptions of one send of several messages, so that applying
	// it takes a fraction of a second. One message alone is always taken.
	maxFanOut = 200_000
	// fanOutPerTick is how many subscriptions an activation may have for each unit of a Tick's work.
	fanOutPerTick = 16
	// maxReasonBytes bounds the text that tells why a copy died at birth.
	maxReasonBytes = 1024
)

// incoming is a message on its way to the subscriptions.
type incoming struct {
	ref         BodyRef
	ttl         Millis // asked, within the topic's default (S-199)
	scheduledAt Wall
	hasSession  bool
	sessionID   string
	messageID   string
	first       first
	carried     *Carried
	message     int // of the batch
}

// planned is a copy that is to be stored.
type planned struct {
	message int // of the batch
	sub     EntityID
	change  *change // nil if the copy is as the message
}

// change is how a copy differs from the message.
type change struct {
	extra
	ttl        Millis // as arriving.ttl
	hasSession bool
	sessionID  string
	dead       bool       // it goes to the DLQ at once
	why        DropReason // what it is counted as if there is none
}

// publish stores a batch sent to a topic, all or nothing. A message that is due gets its copies in the same entry
// (S-214). A message that is not due waits at the topic (S-121).
func (s *State) publish(sh *share, c *Enqueue, marks []bool, fresh int, o *Outcome) {
	s.run.subs = s.children(sh.d.ID, s.run.subs[:0])
	if len(c.Messages) > 1 && len(c.Messages)*len(s.run.subs) > maxFanOut {
		o.refuse(MessageSizeExceeded, fmt.Sprintf(
			"%d messages for %d subscriptions at once, maximum %d together", len(c.Messages),
			len(s.run.subs), maxFanOut))
		return
	}
	s.run.plans, s.run.unstored = s.run.plans[:0], s.run.unstored[:0]
	next, size := sh.arrival, uint64(0)
	for i := range c.Messages {
		m := &c.Messages[i]
		if marks != nil && marks[i] {
			continue
		}
		if m.Reserved == 0 {
			next++
		}
		if s.waits(m) {
			size += uint64(m.Size())
			continue
		}
		a := s.incoming(sh, m, sh.number(next))
		s.run.view.look(m.Body)
		s.run.view.facts.size = m.Size()
		if m.Carried != nil {
			due := allowance{left: dueSteps}
			size += s.plan(i, &a, &due)
			s.run.steps -= dueSteps - due.left
			continue
		}
		steps := allowance{left: s.run.steps, strict: true}
		first := steps.left == entrySteps
		size += s.plan(i, &a, &steps)
		s.run.steps = steps.left
		if steps.out {
			s.refuseCostly(i, first, o)
			s.published()
			return
		}
	}
	if !s.topicFits(sh, size, o) || !s.remembers(sh, marks, fresh, o) {
		s.published()
		return
	}
	s.storeAll(sh, c, marks, o)
}

// storeAll stores a batch whose copies are planned.
func (s *State) storeAll(sh *share, c *Enqueue, marks []bool, o *Outcome) {
	o.Numbers = make([]SequenceNumber, len(c.Messages))
	o.Duplicate, o.EnqueuedAt = marks, s.wall
	s.dropDuplicates(sh, marks)
	plans := s.run.plans
	for i := range c.Messages {
		m := &c.Messages[i]
		switch {
		case marks != nil && marks[i]:
			o.Numbers[i] = sh.living(m, s.wall)
			s.freeBody(m)
			continue
		case s.waits(m):
			arrival := s.store(sh, m)
			s.keepHead(sh, m, arrival)
			s.note(sh, m, arrival)
			o.Numbers[i] = sh.number(arrival)
			continue
		}
		arrival := sh.nextArrival()
		s.accepted(sh, uint64(m.Size()))
		s.note(sh, m, arrival)
		o.Numbers[i] = sh.number(arrival)
		n := 0
		for n < len(plans) && plans[n].message == i {
			n++
		}
		a := s.incoming(sh, m, o.Numbers[i])
		s.dropUnstored(sh, i, &a, n)
		s.distribute(&a, plans[:n])
		plans = plans[n:]
	}
	sh.touched = s.wall
	s.published()
}

// published lets go of what a publication looked at.
func (s *State) published() {
	const keep = 1 << 14 // plans, some hundred kilobytes
	clear(s.run.subs)
	clear(s.run.plans)
	if cap(s.run.plans) > keep {
		s.run.plans = nil
	}
}

// incoming describes a message of a batch that goes to the subscriptions at once.
func (s *State) incoming(sh *share, m *Message, number SequenceNumber) incoming {
	a := incoming{
		ref: s.bodyRef(m), ttl: capTTL(m.TTL, sh.d.DefaultTTL), scheduledAt: m.ScheduledAt,
		hasSession: m.HasSession, sessionID: m.SessionID, messageID: m.MessageID, carried: m.Carried,
		first: first{number: number},
	}
	if m.Carried != nil {
		a.first.since(first{number: m.Carried.EnqueuedSeq, hops: m.Carried.Hops})
	}
	s.run.view.facts.number = number
	return a
}

func capTTL(ttl, limit Millis) Millis {
	if limit > 0 && (ttl == 0 || limit < ttl) {
		return limit
	}
	return ttl
}

// topicFits checks the topic's quota: it counts what its subscriptions hold (S-225).
func (s *State) topicFits(sh *share, more uint64, o *Outcome) bool {
	size := sh.size
	for _, sub := range s.run.subs {
		size += sub.size
	}
	if sh.quota > 0 && size+more > sh.quota && more > 0 {
		o.refuse(QuotaExceeded, fmt.Sprintf("size %d bytes, maximum %d bytes", size, sh.quota))
		return false
	}
	return true
}

// allowance is how many steps rules may take (S-350). A strict budget is the sender's: when it is used up, the sender
// is refused. Otherwise a rule without steps left fails for its subscription alone.
type allowance struct {
	left   int
	strict bool
	out    bool // a strict one is used up
}

// failed notes why a rule failed.
func (a *allowance) failed(err error) { a.out = a.strict && rule.Exhausted(err) }

// plan asks the rules of all subscriptions in run.subs about the message that run.view looks at, and
// returns the bytes of the copies. It gives up when a strict allowance is used up.
func (s *State) plan(message int, a *incoming, steps *allowance) (size uint64) {
	a.message = message
	v := &s.run.view
	v.carried = a.carried
	if v.draw == nil {
		v.draw = s.draw
	}
	f := &v.facts
	f.first, f.enqueuedAt, f.scheduledAt = a.first.number, s.wall, a.scheduledAt
	f.size = int(a.ref.Length)
	f.expiresAt = 0
	if a.ttl != 0 && a.ttl < Unlimited {
		f.expiresAt = s.wall.After(a.ttl)
	}
	for _, sub := range s.run.subs {
		plain := false
		for i := range sub.rules {
			r := &sub.rules[i]
			if plain && (r.rule == nil || r.rule.Action == nil) {
				continue // these are one copy together (S-216)
			}
			c, selected := s.ask(sub, r, a, steps)
			if steps.out {
				return size
			}
			if !selected {
				continue
			}
			if c == nil {
				plain = true
				c = s.unchangedCopy(sub, a)
			}
			if c != nil && c.dead && sub.d.NoDeadLetter {
				s.run.unstored = append(s.run.unstored, unstored{message, sub.d.ID, c.why})
				continue
			}
			s.run.plans = append(s.run.plans, planned{message: message, sub: sub.d.ID, change: c})
			size += uint64(a.ref.Length)
			if c != nil {
				size += c.bytes()
			}
		}
	}
	return size
}

// unchangedCopy is the change of a copy that no action changes: nil, unless the message carries something or
// cannot live in the subscription.
func (s *State) unchangedCopy(sub *share, a *incoming) *change {
	lacksSession := sub.d.RequiresSession && !(a.hasSession && validSessionID(a.sessionID))
	if !lacksSession && a.carried == nil && a.scheduledAt == 0 {
		return nil
	}
	c := &change{ttl: a.ttl, hasSession: a.hasSession, sessionID: a.sessionID}
	c.extra = carriedExtra(a.carried, a.scheduledAt)
	c.settle(sub)
	return c
}

// settle sends a copy without session to the DLQ of a subscription with sessions (S-31).
func (c *change) settle(sub *share) {
	if sub.d.RequiresSession && !(c.hasSession && validSessionID(c.sessionID)) {
		c.dead, c.why = true, DropSession
		c.reason = "Session ID is null."
		c.description = "A subscription with sessions takes no message without a valid session id."
	}
}

// carriedExtra is what a moved message brings along.
func carriedExtra(c *Carried, scheduledAt Wall) extra {
	x := extra{scheduledAt: scheduledAt}
	if c != nil {
		x.reason, x.description = strings.Clone(c.Reason), strings.Clone(c.Description)
		x.source = strings.Clone(c.Source)
		x.properties = merge(nil, c.Properties)
		x.system = mergeSystem(nil, c.System)
	}
	return x
}

// ask asks one rule about the message. Selected without a change means the plain copy; a failure of
// the rule makes a copy in the DLQ if the subscription wants that (S-221).
func (s *State) ask(sub *share, r *compiled, a *incoming, steps *allowance) (c *change, selected bool) {
	steps.left -= ruleSteps
	if r.rule == nil {
		return s.failed(sub, a, rule.FilterException, r.err)
	}
	ok, err := r.rule.Filter.MatchWithin(&s.run.view, &steps.left)
	switch {
	case err != nil:
		steps.failed(err)
		return s.failed(sub, a, rule.FilterException, err.Error())
	case !ok || r.rule.Action == nil:
		return nil, ok
	}
	changes, err := r.rule.Action.ApplyWithin(&s.run.view, &steps.left)
	if err != nil {
		steps.failed(err)
		return s.failed(sub, a, rule.RuleActionException, err.Error())
	}
	c = &change{ttl: a.ttl, hasSession: a.hasSession, sessionID: a.sessionID}
	c.extra = carriedExtra(a.carried, a.scheduledAt)
	name := Property{Key: "RuleName", Value: stored.AppendString(nil, r.name)}
	c.properties = merge(c.properties, []Property{name})
	for i := range changes {
		c.take(&s.run.view, &changes[i])
	}
	if c.bytes() > maxExtraBytes {
		return s.failed(sub, a, rule.RuleActionException, "the changed properties are too large")
	}
	c.settle(sub)
	return c, true
}

func (s *State) failed(sub *share, a *incoming, reason, text string) (*change, bool) {
	if !sub.d.DeadLetterOnFilterError {
		s.run.unstored = append(s.run.unstored, unstored{a.message, sub.d.ID, DropFilter})
		return nil, false
	}
	c := &change{ttl: a.ttl, hasSession: a.hasSession, sessionID: a.sessionID, dead: true, why: DropFilter}
	c.extra = carriedExtra(a.carried, a.scheduledAt)
	if len(text) > maxReasonBytes {
		text = strings.ToValidUTF8(text[:maxReasonBytes], "")
	}
	c.reason, c.description = reason, text
	return c, true
}

// take notes one change of a property.
func (c *change) take(v *view, p *rule.Change) {
	if p.System == rule.NoProperty {
		set := Property{Key: strings.Clone(v.spelling(p.Name))}
		if !p.Remove {
			set.Value = stored.AppendValue(nil, p.Value)
		} else if _, has := v.User(p.Name); !has {
			return
		}
		c.properties = merge(c.properties, []Property{set})
		return
	}
	switch p.System {
	case rule.TimeToLive:
		c.ttl = 0
		if !p.Remove {
			c.ttl = max(1, Millis(p.Value.Millis()))
		}
		return
	case rule.SessionID:
		c.hasSession, c.sessionID = !p.Remove, strings.Clone(p.Value.Text())
	}
	set := SystemValue{Property: p.System}
	switch {
	case p.Remove:
	case p.System == rule.ContentType:
		set.Value = stored.AppendSymbol(nil, p.Value.Text())
	default:
		set.Value = stored.AppendValue(nil, p.Value)
	}
	c.system = mergeSystem(c.system, []SystemValue{set})
}

// mergeSystem returns a new list in which set replaces what was set before.
func mergeSystem(old, set []SystemValue) []SystemValue {
	if len(set) == 0 {
		return old
	}
	list := append(make([]SystemValue, 0, len(old)+len(set)), old...)
next:
	for _, v := range set {
		v.Value = bytes.Clone(v.Value)
		for i := range list {
			if list[i].Property == v.Property {
				list[i] = v
				continue next
			}
		}
		list = append(list, v)
	}
	return list
}

// distribute stores the planned copies of one message; they share its body.
func (s *State) distribute(a *incoming, plans []planned) {
	s.reuse(a.ref, len(plans))
	for i := range plans {
		s.storeCopy(s.write(plans[i].sub), a, plans[i].change)
	}
}

// storeCopy puts a copy at the tail of a subscription. Its time to live is that of the message within
// the topic's default and the subscription's (S-199).
func (s *State) storeCopy(sub *share, a *incoming, c *change) {
	m := message{
		index: a.ref.Index, offset: a.ref.Offset, length: a.ref.Length, at: s.wall,
		expires: sub.endOfLife(s.wall, a.ttl),
	}
	box, session := Main, a.sessionID
	if c != nil {
		m.expires, session = sub.endOfLife(s.wall, c.ttl), c.sessionID
		if c.dead {
			box = DeadLetter
		}
	}
	arrival := sub.nextArrival()
	if sub.d.RequiresSession && box == Main {
		m.session = s.intern(sub, session)
	}
	s.insert(sub, box, arrival, m)
	s.accepted(sub, uint64(m.length))
	if box == DeadLetter {
		s.died(sub, deathOf(c.why))
	}
	sub.firsts.Set(arrival, a.first)
	s.name(sub, &Message{MessageID: a.messageID}, arrival)
	if box == Main {
		s.enter(sub, arrival, &m)
	}
	if c != nil {
		s.setExtras(sub, box, arrival, c)
	}
	s.reschedule(sub)
}

// setExtras gives a copy what it has beside the message.
func (s *State) setExtras(sub *share, box SubQueue, arrival uint64, c *change) {
	x := c.extra
	if c.dead && c.hasSession && validSessionID(c.sessionID) {
		x.session, x.inSession = c.sessionID, sub.d.RequiresSession
	}
	if x.matters() {
		sub.setExtra(box, arrival, &x)
	}
}

func (s *State) keepHead(sh *share, m *Message, arrival uint64) {
	s.run.view.look(m.Body)
	sh.heads.Set(arrival, waiting{
		head: s.run.view.sent.Head, messageID: strings.Clone(m.MessageID),
		sessionID: strings.Clone(m.SessionID), hasSession: m.HasSession,
	})
}

// publishDue makes the copies of a scheduled message whose time has come, by the rules of now. The
// copies carry the number of the activation (S-121), unless the message was moved here.
func (s *State) publishDue(sh *share, arrival uint64, m *message) (work int) {
	s.tally(sh).Activated++
	s.run.subs = s.children(sh.d.ID, s.run.subs[:0])
	w, _ := sh.heads.Delete(arrival)
	x := *sh.boxes[Main].extra(arrival, m)
	origin, moved := sh.firsts.Get(arrival)
	next := sh.nextArrival()
	a := incoming{
		ref: m.ref(), ttl: capTTL(m.life(), sh.d.DefaultTTL), scheduledAt: m.at,
		hasSession: w.hasSession, sessionID: w.sessionID, messageID: w.messageID,
		first: first{number: sh.number(next)},
	}
	if moved {
		a.first.since(origin)
		a.carried = &Carried{Hops: origin.hops, Reason: x.reason, Description: x.description,
			Source: x.source, Properties: x.properties, System: x.system}
	}
	s.run.view.look([]byte(w.head))
	s.run.view.facts.number = sh.number(next)
	s.run.plans, s.run.unstored = s.run.plans[:0], s.run.unstored[:0]
	due := allowance{left: dueSteps}
	s.plan(0, &a, &due)
	s.dropUnstored(sh, 0, &a, len(s.run.plans))
	s.remove(sh, Main, arrival, m)
	s.distribute(&a, s.run.plans)
	work = max(len(s.run.subs)/fanOutPerTick, (dueSteps-due.left)/stepsPerWork)
	s.published()
	return work
}
