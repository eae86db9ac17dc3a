package fsm

import "fmt"

const (
	// maxRedriven bounds what one Redrive moves, and maxRedriveScan what it looks at.
	maxRedriven    = 1000
	maxRedriveScan = 4096
)

// redrive sends messages of a dead-letter queue to the main queue again. Each is a new message, as a
// copy sent by a client would be: number, times and count begin anew (S-178), what settlements set on
// it stays, why it died is forgotten. Message ids are not looked at: within the window every one of
// them would be a duplicate of itself.
func (s *State) redrive(sh *share, req *Request, c *Redrive, o *Outcome) {
	switch {
	case req.Sub == Main:
		o.refuse(InvalidOperation, "only a dead-letter queue is sent again")
		return
	case c.To != 0:
		o.refuse(InvalidOperation, "sending to another entity is not supported")
		return
	case c.Max == 0 || c.Max > maxRedriven:
		o.refuse(InvalidArgument, fmt.Sprintf("send 1 to %d messages again at once", maxRedriven))
		return
	}
	b := &sh.boxes[req.Sub]
	var chosen []uint64
	seen, last := 0, uint64(0)
	b.ready.Ascend(placeKey{arrival: after1(c.After)}, func(k placeKey) bool {
		if seen == maxRedriveScan || len(chosen) == int(c.Max) {
			o.Next = last
			return false
		}
		seen++
		last = k.arrival
		m, _ := b.messages.Get(k.arrival)
		if sh.redrivable(c, &m, b.extra(k.arrival, &m)) {
			chosen = append(chosen, k.arrival)
		}
		return true
	})
	for _, a := range chosen {
		m, _ := b.messages.Get(a)
		s.sendAgain(sh, req.Sub, a, &m)
	}
	o.Count = uint64(len(chosen))
	sh.touched = s.wall
}

func (sh *share) redrivable(c *Redrive, m *message, x *extra) bool {
	switch {
	case c.HasReason && x.reason != c.Reason,
		c.HasSession && (!x.inSession || x.session != c.Session),
		c.From != 0 && m.at < c.From,
		c.Until != 0 && m.at >= c.Until:
		return false
	}
	// An image of version 1 did not say in which session a message died.
	return x.inSession || !sh.d.RequiresSession
}

// sendAgain moves one message to the tail of the main queue.
func (s *State) sendAgain(sh *share, sub SubQueue, arrival uint64, old *message) {
	x := *sh.boxes[sub].extra(arrival, old)
	ttl := Millis(0)
	if old.expires != 0 {
		ttl = old.expires - old.at
	}
	s.remove(sh, sub, arrival, old)
	m := message{
		index: old.index, offset: old.offset, length: old.length,
		at: s.wall, expires: sh.endOfLife(s.wall, ttl),
	}
	if sh.d.RequiresSession {
		m.session = sh.intern(x.session)
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
