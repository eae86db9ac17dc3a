package fsm

// maxBrowseScan bounds how many messages one Browse looks at.
const maxBrowseScan = 10_000

// browse lists messages by state and session, for operators (S-5, S-6, S-246).
func (s *State) browse(sh *share, sub SubQueue, c *Browse) Answer {
	start, ok := sh.browseFrom(sub, c.From)
	if !ok {
		return Answer{}
	}
	start = max(start, after1(c.After))
	b := &sh.boxes[sub]
	var a Answer
	room, scanned, last := uint64(c.MaxBytes), 0, uint64(0)
	look := func(arrival uint64, m *message) bool {
		full := c.MaxBytes > 0 && len(a.Messages) > 0 && uint64(m.length) > room
		if scanned == maxBrowseScan || len(a.Messages) == int(min(max(c.Max, 1), maxPeek)) || full {
			a.Next = last
			return false
		}
		scanned++
		last = arrival
		x := b.extra(arrival, m)
		inSession := m.session != 0 || x.inSession && x.session == c.Session
		if c.States != 0 && c.States&(1<<m.state()) == 0 || c.HasSession && !inSession {
			return true
		}
		room -= min(room, uint64(m.length))
		a.Messages = append(a.Messages, s.delivery(sh, sub, arrival, m))
		return true
	}
	switch {
	case !c.HasSession || sub != Main:
		b.messages.Ascend(start, func(arrival uint64, m message) bool { return look(arrival, &m) })
	case !sh.d.RequiresSession:
		return Answer{Refusal: SessionNotSupported, Detail: "the entity has no sessions"}
	default:
		se := sh.lookup(c.Session)
		if se == nil {
			break
		}
		for _, arrival := range sh.inSession(se.no, start, maxBrowseScan+1) {
			m, _ := b.messages.Get(arrival)
			if !look(arrival, &m) {
				break
			}
		}
	}
	return a
}
