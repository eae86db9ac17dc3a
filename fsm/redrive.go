package fsm

import "fmt"

const (
	// maxRedriven bounds what one Redrive moves, and maxRedriveScan what it looks at.
	maxRedriven    = 1000
	maxRedriveScan = 4096
)

// redrive sends messages of a dead-letter queue to the main queue again. Each is a new message, as a copy sent by a
// client would be: number, times and count begin anew (S-178). Changes by settlements stay, and the reason of its
// death is forgotten. Message ids are not looked at: within the window every one of them would be a duplicate of
// itself.
func (s *State) redrive(sh *share, req *Request, c *Redrive, o *Outcome) {
	switch {
	case len(c.Numbers) > 0:
		s.redriveNumbers(sh, req, c, o)
		return
	case req.Sub == Main && c.To == 0:
		o.refuse(InvalidOperation, "only a dead-letter queue is sent again or chosen from")
		return
	case c.Max == 0 || c.Max > maxRedriven:
		o.refuse(InvalidArgument, fmt.Sprintf("send 1 to %d messages again at once", maxRedriven))
		return
	}
	b := &sh.boxes[req.Sub]
	var chosen []uint64
	seen, last, waiting := 0, uint64(0), uint64(0)
	b.messages.Ascend(after1(c.After), func(arrival uint64, m message) bool {
		waits := sh.waits(req.Sub, arrival, &m)
		if waits && len(chosen) == int(c.Max) {
			o.Next = waiting
			return false
		}
		if seen == maxRedriveScan {
			o.Next = last
			return false
		}
		seen++
		last = arrival
		if waits {
			waiting = arrival
		}
		if waits && sh.redrivable(c, req.Sub, &m, b.extra(arrival, &m)) {
			chosen = append(chosen, arrival)
		}
		return true
	})
	for _, a := range chosen {
		m, _ := b.messages.Get(a)
		s.sendOn(sh, req.Sub, c, a, &m)
	}
	o.Count = uint64(len(chosen))
	sh.touched = s.wall
}

// redriveNumbers does the same to the messages with the given numbers, in their order there.
func (s *State) redriveNumbers(sh *share, req *Request, c *Redrive, o *Outcome) {
	switch {
	case req.Sub == Main && c.To == 0 && !c.Discard:
		o.refuse(InvalidOperation, "only a dead-letter queue is sent again")
		return
	case len(c.Numbers) > maxNumbers:
		o.refuse(InvalidArgument, "more than 1000 numbers")
		return
	}
	b := &sh.boxes[req.Sub]
	for _, n := range c.Numbers {
		a, m, ok := sh.find(req.Sub, n)
		if !ok || !sh.waits(req.Sub, a, &m) || !sh.redrivable(c, req.Sub, &m, b.extra(a, &m)) {
			continue
		}
		s.sendOn(sh, req.Sub, c, a, &m)
		o.Count++
	}
	sh.touched = s.wall
}

// waits reports whether a message waits for a receiver. The holder of a session has its messages (S-264).
func (sh *share) waits(sub SubQueue, arrival uint64, m *message) bool {
	if _, held := sh.holders.Get(m.session); held && sub == Main {
		return false
	}
	_, waits := sh.boxes[sub].ready.Get(placeKey{session: m.session, arrival: arrival})
	return waits
}

// sendOn does to one message what the command says.
func (s *State) sendOn(sh *share, sub SubQueue, c *Redrive, arrival uint64, m *message) {
	switch {
	case c.To != 0:
		s.redirect(sh, sub, arrival, m, c.To)
	case c.Discard:
		s.discard(sh, sub, arrival, m)
	default:
		s.sendAgain(sh, sub, arrival, m)
	}
}

func (sh *share) redrivable(c *Redrive, sub SubQueue, m *message, x *extra) bool {
	session, inSession := x.session, x.inSession
	if se := sh.session(m.session); se != nil {
		session, inSession = se.id, true
	}
	switch {
	case c.HasReason && x.reason != c.Reason,
		c.HasSession && (!inSession || session != c.Session),
		c.From != 0 && m.at < c.From,
		c.Until != 0 && m.at >= c.Until:
		return false
	}
	// An image of version 1 did not say in which session a message died.
	return c.To != 0 || c.Discard || inSession || !sh.d.RequiresSession
}

// redirect moves one message to the transfer queue. From there it goes to another entity as a new message, with the
// changes by settlements and rules.
func (s *State) redirect(sh *share, sub SubQueue, arrival uint64, old *message, to EntityID) {
	x := *sh.boxes[sub].extra(arrival, old)
	m := message{index: old.index, offset: old.offset, length: old.length, at: s.wall}
	if old.expires != 0 {
		m.expires = Wall(old.expires.Since(old.at))
	}
	s.leave(sh, sub, arrival, old)
	s.sendAway(sh, m, &extra{to: to, properties: x.properties, system: x.system})
}

// sendAgain moves one message to the tail of the main queue.
func (s *State) sendAgain(sh *share, sub SubQueue, arrival uint64, old *message) {
	x := *sh.boxes[sub].extra(arrival, old)
	ttl := Millis(0)
	if old.expires != 0 {
		ttl = old.expires.Since(old.at)
	}
	s.remove(sh, sub, arrival, old)
	m := message{
		index: old.index, offset: old.offset, length: old.length,
		at: s.wall, expires: sh.endOfLife(s.wall, ttl),
	}
	if sh.d.RequiresSession {
		m.session = s.intern(sh, x.session)
	}
	next := sh.nextArrival()
	s.insert(sh, Main, next, m)
	if fresh := (extra{properties: x.properties, system: x.system}); fresh.matters() {
		sh.setExtra(Main, next, &fresh)
	}
	if id, ok := sh.names.Delete(arrival); ok {
		sh.names.Set(next, id)
	}
	s.enter(sh, next, &m)
}
